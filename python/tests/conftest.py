"""Servers and clients for the tests, each on a loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

import towline

try:
    import uvloop
except ImportError:
    uvloop = None

if uvloop is not None:
    # libuv keeps two descriptors for the process from its first loop on.
    uvloop.new_event_loop().close()

T = TypeVar("T")
Handler = Callable[[towline.Session], Awaitable[object]]

# A test that hangs fails, and says where.
LIMIT = 30.0

CERTIFICATE = towline.generate_certificate("localhost", "127.0.0.1")


async def echo(session: towline.Session) -> None:
    """Sends back what comes on bidirectional streams."""
    async with asyncio.TaskGroup() as tasks:
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(echo_stream(stream))


async def echo_stream(stream: towline.BidirectionalStream) -> None:
    async with stream:
        async for chunk in stream.chunks():
            await stream.write(chunk)


async def idle(session: towline.Session) -> None:
    """Does nothing until its session ends."""
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def connected(
    handler: Handler, **options: Any
) -> AsyncIterator[towline.Session]:
    """A session with a server that has this handler."""
    async with towline.serve(handler, "127.0.0.1", certificate=CERTIFICATE) as server:
        connecting = towline.connect(server.url + "/test?x=1", pins=[CERTIFICATE], **options)
        async with connecting as session:
            yield session


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine, on both kinds of loop."""
    factory = None
    if request.param == "uvloop":
        if uvloop is None:
            pytest.skip("uvloop is not installed")
        factory = uvloop.new_event_loop

    def run_on_loop(main: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(LIMIT):
                return await main

        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(bounded())

    return run_on_loop


async def everything(session: towline.Session) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(echo(session))
        async with await session.create_unidirectional_stream() as stream:
            await stream.write(b"hello\nand good bye")
        async for datagram in session.datagrams:
            session.datagrams.send(datagram)


@pytest.fixture
def url() -> Iterator[str]:
    """A server in a thread of its own."""
    started: list[str] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        nonlocal stop
        stop = asyncio.Event()
        async with towline.serve(everything, "127.0.0.1", certificate=CERTIFICATE) as server:
            started.append(server.url)
            ready.set()
            await stop.wait()

    stop: asyncio.Event
    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    assert ready.wait(10)
    yield started[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def nothing_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every descriptor is given back, but those of the thread of `towline.sync`."""
    before = descriptors()
    yield
    if "keeps_thread" not in request.keywords:
        assert descriptors() <= before, "a descriptor was left open"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "keeps_thread: uses towline.sync, whose thread stays")


def complaints(stderr: str) -> list[str]:
    """What a program in development mode wrote, but for asyncio's notes that a busy machine is slow."""
    lines = stderr.splitlines()
    return [line for line in lines if not (line.startswith("Executing <") and " took " in line)]


def resident_kilobytes() -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    sys.exit("no VmRSS in /proc/self/status")

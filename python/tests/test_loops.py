"""Loops, threads, processes: what is done where it cannot work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import traceback

import pytest

import towline
from conftest import CERTIFICATE, complaints, connected, echo, idle
from towline._driver import Driver


def test_two_loops_in_two_threads():
    async def main() -> None:
        async with connected(echo) as session:
            for number in range(200):
                async with await session.create_bidirectional_stream() as stream:
                    await stream.write(b"%d" % number)
                    stream.finish()
                    assert await stream.read() == b"%d" % number

    failures = []

    def thread() -> None:
        try:
            asyncio.run(main())
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=thread) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures, failures[0]


def test_one_client_endpoint_for_a_loop(run):
    async def main() -> None:
        async with towline.serve(idle, "127.0.0.1", certificate=CERTIFICATE) as server:
            one, two = [
                await towline.connect(server.url, pins=[CERTIFICATE]) for _ in range(2)
            ]
            assert one._core.driver is two._core.driver
            await one.aclose()
            await two.aclose()

    run(main())


def test_a_session_outlives_its_loop_and_says_so(url):
    async def main() -> tuple[towline.Session, towline.BidirectionalStream]:
        session = await towline.connect(url, pins=[CERTIFICATE])
        stream = await session.create_bidirectional_stream()
        await stream.write(b"x")
        return session, stream

    session, stream = asyncio.run(main())

    async def later() -> None:
        with pytest.raises(towline.UsageError, match="another event loop"):
            while True:
                await stream.read(1)
        with pytest.raises(RuntimeError, match="loop of this session is closed"):
            session.close()

    asyncio.run(later())
    del session, stream


def test_an_open_session_does_not_hold_the_end_of_a_loop(run):
    async def main() -> None:
        server = await towline.serve(echo, "127.0.0.1", certificate=CERTIFICATE)
        session = await towline.connect(server.url, pins=[CERTIFICATE])
        stream = await session.create_bidirectional_stream()
        tasks = [
            asyncio.create_task(stream.read(1)),
            asyncio.create_task(session.datagrams.receive()),
            asyncio.create_task(anext(session.incoming_bidirectional_streams)),
        ]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in tasks)

    run(main())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_is_told_in_words(run):
    async def main() -> None:
        async with connected(echo) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"x")
            assert await stream.read(1) == b"x"
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                words = b"nothing was raised"
                try:
                    stream.reset()
                except towline.UsageError as error:
                    words = str(error).encode()
                except BaseException as error:
                    words = repr(error).encode()
                del stream
                os.write(writing, words)
                os._exit(0)
            os.close(writing)
            with open(reading, "rb") as pipe:
                words = pipe.read()
            os.waitpid(child, 0)
            assert b"fork" in words, words
            # The parent goes on.
            await stream.write(b"y")
            assert await stream.read(1) == b"y"
            stream.finish()

    run(main())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_has_sessions_of_its_own(run):
    async def main() -> None:
        async with connected(echo):
            pass

    run(main())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(main())
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


SHUTDOWN = """
import asyncio, logging, towline
# In development mode a loop also logs what took long, as everything does on a busy machine.
logging.getLogger("asyncio").setLevel(logging.ERROR)
kept = []
async def idle(session):
    kept.append(session)
    await asyncio.Event().wait()
async def main():
    certificate = towline.generate_certificate("localhost")
    server = await towline.serve(idle, "127.0.0.1", certificate=certificate)
    session = await towline.connect(server.url, pins=[certificate])
    stream = await session.create_bidirectional_stream()
    await stream.write(b"x")
    kept.extend([server, session, stream])
asyncio.run(main())
"""


def test_the_interpreter_ends_with_open_sessions():
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", SHUTDOWN],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, complaints(done.stderr)) == (0, "", [])


def test_a_port_that_is_taken_is_an_error_of_the_system(run):
    async def main() -> None:
        async with towline.serve(idle, "127.0.0.1", certificate=CERTIFICATE) as server:
            with pytest.raises(OSError) as caught:
                await towline.serve(
                    idle, "127.0.0.1", server.port, certificate=CERTIFICATE
                )
            assert caught.value.errno is not None

    run(main())


def test_localhost_is_both_addresses_of_this_machine(run):
    async def main() -> None:
        async with towline.serve(idle, "localhost", certificate=CERTIFICATE) as server:
            found = {driver.engine.local_address for driver in server._drivers}
            expected = {("127.0.0.1", server.port)}
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as other:
                with contextlib.suppress(OSError):
                    other.bind(("::1", 0))
                    expected.add(("::1", server.port))
            assert found == expected

    run(main())


def test_a_cancelled_wait_of_any_kind_leaves_nothing(run):
    async def main() -> None:
        async with connected(idle) as session:
            waiting = session._core.driver._waiting
            full = bytes(64 << 20)
            stream = await session.create_bidirectional_stream()
            while session.datagrams.send(bytes(1000)):
                pass

            async def closed() -> None:
                await session.closed

            async def draining() -> None:
                await session.draining

            async def streams() -> None:
                while True:
                    kept.append(await session.create_bidirectional_stream())

            kept: list[towline.BidirectionalStream] = []
            before = len(waiting)
            tasks = [
                asyncio.create_task(wait)
                for wait in (
                    closed(),
                    draining(),
                    streams(),
                    stream.read(1),
                    stream.write(full),
                    session.datagrams.receive(),
                    anext(session.incoming_bidirectional_streams),
                    anext(session.incoming_unidirectional_streams),
                )
            ]
            await asyncio.sleep(0.2)
            assert not any(task.done() for task in tasks)
            assert len(waiting) == before + len(tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            assert len(waiting) == before
            stream.reset()

    run(main())


def test_an_idle_session_costs_no_turns(run, monkeypatch):
    turns = 0
    turn = Driver._turn

    def counted(driver: Driver, readable: bool) -> None:
        nonlocal turns
        turns += 1
        turn(driver, readable)

    monkeypatch.setattr(Driver, "_turn", counted)

    async def main() -> None:
        nonlocal turns
        async with connected(idle) as session:
            receiving = asyncio.create_task(session.datagrams.receive())
            # The search for the path's MTU comes to its end.
            await asyncio.sleep(1)
            turns = 0
            await asyncio.sleep(1)
            assert turns < 20
            receiving.cancel()

    run(main())


def test_a_handler_that_never_reads_does_not_hold_the_others(run):
    async def handler(session: towline.Session) -> None:
        if session.path.startswith("/echo"):
            await echo(session)
        await idle(session)

    async def main() -> None:
        async with towline.serve(handler, "127.0.0.1", certificate=CERTIFICATE) as server:
            async with (
                towline.connect(server.url + "/deaf", pins=[CERTIFICATE]) as deaf,
                towline.connect(server.url + "/echo", pins=[CERTIFICATE]) as session,
            ):
                stuck = await deaf.create_unidirectional_stream()
                writing = asyncio.create_task(stuck.write(bytes(16 << 20)))
                async with await session.create_bidirectional_stream() as stream:
                    for _ in range(100):
                        await stream.write(b"x" * 1000)
                        assert await stream.readexactly(1000) == b"x" * 1000
                assert not writing.done()
                writing.cancel()
                await asyncio.wait([writing])
                stuck.reset()

    run(main())

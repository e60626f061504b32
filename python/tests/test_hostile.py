"""What nobody should do: everything is cancelled, dropped or called where it cannot work."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

import towline
import towline.sync
from conftest import CERTIFICATE, connected, echo, idle


async def cancelled_at(step: int, call: Callable[[], Awaitable[object]]) -> bool:
    """Cancels a call after so many rounds of the loop; whether it was still under way."""

    async def called() -> None:
        await call()

    task = asyncio.create_task(called())
    for _ in range(step):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return task.cancelled()


def test_closing_may_be_cancelled_at_every_step(run):
    async def main() -> None:
        async with towline.serve(echo, "127.0.0.1", certificate=CERTIFICATE) as server:
            step, cancelled = 0, True
            while cancelled and step < 200:
                session = await towline.connect(server.url, pins=[CERTIFICATE])
                stream = await session.create_bidirectional_stream()
                await stream.write(b"x")
                cancelled = await cancelled_at(step, lambda: session.aclose(5))  # noqa: B023
                assert session.closed or step == 0
                session.close()
                step += 1
            # It came to its end in the last round, and was cancelled before.
            assert 1 < step < 200
            async with asyncio.timeout(10):
                while server.sessions:
                    await asyncio.sleep(0.01)

    run(main())


def test_a_server_may_be_cancelled_at_every_step(run):
    async def main() -> None:
        step, cancelled = 0, True
        while cancelled and step < 200:
            server = await towline.serve(idle, "127.0.0.1", certificate=CERTIFICATE)
            session = await towline.connect(server.url, pins=[CERTIFICATE])
            await cancelled_at(step, lambda: server.drain(0.05))  # noqa: B023
            cancelled = await cancelled_at(step, server.close)
            session.close()
            step += 1
        assert 1 < step < 200

    run(main())


def test_serve_forever_that_is_cancelled_leaves_the_server_running(run):
    async def main() -> None:
        async with towline.serve(echo, "127.0.0.1", certificate=CERTIFICATE) as server:
            assert await cancelled_at(3, server.serve_forever)
            async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
                async with await session.create_bidirectional_stream() as stream:
                    await stream.write(b"on it goes")
                    stream.finish()
                    assert await stream.read() == b"on it goes"

    run(main())


def test_a_block_that_is_cancelled_ends_its_session(run):
    ended: asyncio.Queue[towline.CloseInfo] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        ended.put_nowait(await session.closed)

    async def main() -> None:
        async with towline.serve(handler, "127.0.0.1", certificate=CERTIFICATE) as server:
            entered = asyncio.Event()

            async def block() -> None:
                async with towline.connect(server.url, pins=[CERTIFICATE]):
                    entered.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(block())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(10):
                assert (await ended.get()).by_peer

    run(main())


def test_a_timeout_and_a_task_group_end_what_waits(run):
    async def main() -> None:
        async with connected(idle) as session:
            stream = await session.create_bidirectional_stream()
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.05):
                    await stream.read(1)
            # It is the program's own, and not the peer's silence.
            assert not isinstance(caught.value, towline.TowlineError)

            async def fail() -> None:
                await asyncio.sleep(0.05)
                raise KeyError("of the program")

            with pytest.raises(ExceptionGroup) as group:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(stream.read(1))
                    tasks.create_task(session.datagrams.receive())
                    tasks.create_task(fail())
            assert [type(error) for error in group.value.exceptions] == [KeyError]
            stream.reset()

    run(main())


def test_a_loop_that_is_closed_with_everything_open():
    async def main() -> tuple[object, ...]:
        server = await towline.serve(echo, "127.0.0.1", certificate=CERTIFICATE)
        session = await towline.connect(server.url, pins=[CERTIFICATE])
        stream = await session.create_bidirectional_stream()
        await stream.write(b"x")
        return server, session, stream, session.incoming_bidirectional_streams

    loop = asyncio.new_event_loop()
    kept = loop.run_until_complete(main())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    _, session, stream, _ = kept
    assert isinstance(session, towline.Session)
    assert isinstance(stream, towline.BidirectionalStream)
    # The handler ended with the loop, and its session with it, or the loop was first.
    with pytest.raises((towline.UsageError, towline.SessionClosed), match="closed"):
        stream.finish()
    assert "Session" in repr(session)
    del kept, session, stream
    gc.collect()


def test_calls_from_another_loop_and_another_thread_are_told(run):
    async def main() -> None:
        async with connected(echo) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"x")

            async def elsewhere() -> None:
                # What is done at once may be done; whoever has to wait cannot.
                for call in (
                    lambda: stream.write(b"y"),
                    session.create_bidirectional_stream,
                ):
                    with contextlib.suppress(towline.UsageError):
                        await call()
                for wait in (
                    lambda: anext(session.incoming_unidirectional_streams),
                    session.datagrams.receive,
                    lambda: stream.write(bytes(64 << 20)),
                ):
                    with pytest.raises(towline.UsageError, match="another event loop"):
                        await wait()

            await asyncio.to_thread(asyncio.run, elsewhere())
            stream.reset()

    run(main())


def test_an_idle_loop_in_debug_mode_tells_of_a_thread_without_one():
    async def main() -> None:
        asyncio.get_running_loop().set_debug(True)
        async with connected(idle) as session:
            await asyncio.sleep(0.1)

            def elsewhere() -> None:
                for _ in range(10_000):
                    session.datagrams.send(b"x")

            with pytest.raises(towline.UsageError, match="another thread"):
                await asyncio.to_thread(elsewhere)

    asyncio.run(main())


def test_what_is_dropped_in_another_thread_ends(run):
    ended = []

    async def handler(session: towline.Session) -> None:
        ended.append(await session.closed)

    async def main() -> None:
        async with towline.serve(handler, "127.0.0.1", certificate=CERTIFICATE) as server:
            kept = [await towline.connect(server.url, pins=[CERTIFICATE])]
            kept.append(await kept[0].create_bidirectional_stream())
            await asyncio.to_thread(kept.clear)
            async with asyncio.timeout(10):
                while not ended:
                    await asyncio.sleep(0.01)

    run(main())


def test_a_handler_that_ends_the_program_ends_it():
    async def handler(session: towline.Session) -> None:
        raise SystemExit(5)

    async def main() -> None:
        async with connected(handler) as session:
            await session.closed

    with pytest.raises(SystemExit) as ended:
        asyncio.run(main())
    assert ended.value.code == 5


def test_a_handler_that_swallows_its_end_goes_on_alone(run):
    went_on = asyncio.Event()

    async def handler(session: towline.Session) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        with pytest.raises(towline.SessionClosed):
            await session.create_bidirectional_stream()
        went_on.set()

    async def main() -> None:
        async with connected(handler) as session:
            await session.aclose()
            await asyncio.wait_for(went_on.wait(), 10)

    run(main())


# In development mode a loop also logs what took long, as everything does on a busy machine.
QUIET = """
import logging
logging.getLogger("asyncio").setLevel(logging.ERROR)
"""

THREAD = """
import asyncio, threading, towline
certificate = towline.generate_certificate("localhost")
ready = threading.Event()
async def idle(session):
    await asyncio.Event().wait()
async def main():
    async with towline.serve(idle, "127.0.0.1", certificate=certificate) as server:
        async with towline.connect(server.url, pins=[certificate]) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"x")
            ready.set()
            await asyncio.Event().wait()
threading.Thread(target=asyncio.run, args=[main()], daemon=True).start()
assert ready.wait(20)
"""

EXIT = """
import asyncio, sys, towline
async def leave(session):
    sys.exit(3)
async def main():
    certificate = towline.generate_certificate("localhost")
    server = await towline.serve(leave, "127.0.0.1", certificate=certificate)
    session = await towline.connect(server.url, pins=[certificate])
    await asyncio.Event().wait()
asyncio.run(main())
"""

SYNC = """
import atexit, towline
from towline.sync import connect
certificate = towline.generate_certificate("localhost")
def late():
    try:
        connect("https://127.0.0.1:9/", pins=[certificate], timeout=1)
    except (towline.UsageError, TimeoutError, ConnectionError) as error:
        print(type(error).__name__)
# Called after the thread in the background has ended.
atexit.register(late)
try:
    connect("https://127.0.0.1:9/", pins=[certificate], timeout=0.05)
except TimeoutError:
    print("nobody answered")
"""


@pytest.mark.parametrize(
    "script, code, said",
    [(THREAD, 0, ""), (EXIT, 3, ""), (SYNC, 0, "nobody answered\nUsageError\n")],
    ids=["a loop in a daemon thread", "a handler that exits", "sync in an exit handler"],
)
@pytest.mark.parametrize("mode", [[], ["-X", "dev"]], ids=["plain", "dev"])
def test_the_interpreter_ends_in_the_middle(script, code, said, mode):
    done = subprocess.run(
        [sys.executable, *mode, "-W", "error", "-c", QUIET + script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")


@pytest.mark.keeps_thread
def test_a_sync_call_that_is_interrupted_is_cancelled(url):
    with towline.sync.connect(url, pins=[CERTIFICATE]) as session:
        with session.create_bidirectional_stream() as stream:
            main = threading.main_thread().ident
            timer = threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT])
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                stream.read()
            timer.join()
            stream.write(b"on it goes")
            stream.finish()
            assert stream.read(timeout=10) == b"on it goes"

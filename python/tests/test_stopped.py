"""`stopped`: whoever has nothing to write still learns that the peer wants no more."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import towline
from conftest import connected, idle


async def stops(session: towline.Session) -> None:
    """Stops each stream with the code that is its first byte."""
    async for stream in session.incoming_bidirectional_streams:
        stream.stop((await stream.readexactly(1))[0])


async def reads(session: towline.Session) -> None:
    async for stream in session.incoming_bidirectional_streams:
        with contextlib.suppress(towline.StreamReset):
            await stream.read()


async def closes(session: towline.Session) -> None:
    stream = await anext(session.incoming_bidirectional_streams)
    await stream.readexactly(1)
    session.close(9, "enough")


def test_a_stop_is_heard_while_nothing_is_written(run):
    async def main() -> None:
        async with connected(stops) as session:
            stream = await session.create_bidirectional_stream()
            assert not stream.stopped
            waiting = [asyncio.ensure_future(stream.stopped) for _ in range(2)]
            await asyncio.sleep(0)
            await stream.write(b"\x07")
            assert await asyncio.gather(*waiting) == [7, 7]
            assert stream.stopped
            assert await stream.stopped == 7
            with pytest.raises(towline.StreamStopped):
                await stream.write(b"more")
            assert await stream.stopped == 7

    run(main())


def test_a_stream_that_was_read_to_its_end_is_not_stopped(run):
    async def main() -> None:
        async with connected(reads) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"all of it")
            stream.finish()
            assert await stream.stopped is None
            assert not stream.stopped

    run(main())


def test_a_stream_that_this_end_reset_is_not_stopped(run):
    async def main() -> None:
        async with connected(reads) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"a part")
            waiting = asyncio.ensure_future(stream.stopped)
            await asyncio.sleep(0)
            stream.reset(3)
            assert await waiting is None
            assert not stream.stopped

    run(main())


def test_the_end_of_the_session_is_raised(run):
    async def main() -> None:
        async with connected(closes) as session:
            stream = await session.create_bidirectional_stream()
            waiting = asyncio.ensure_future(stream.stopped)
            await stream.write(b"x")
            with pytest.raises(towline.SessionClosed) as raised:
                await waiting
            assert (raised.value.code, raised.value.reason) == (9, "enough")
            with pytest.raises(towline.SessionClosed):
                await stream.stopped

    run(main())


def test_a_wait_that_was_given_up_can_be_taken_up_again(run):
    async def main() -> None:
        async with connected(stops) as session:
            stream = await session.create_bidirectional_stream()
            for _ in range(100):
                waiting = asyncio.ensure_future(stream.stopped)
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await stream.write(b"\x08")
            assert await stream.stopped == 8

    run(main())


def test_a_stream_that_was_left_says_so(run):
    async def main() -> None:
        async with connected(reads) as session:
            async with await session.create_bidirectional_stream() as stream:
                await stream.write(b"x")
                waiting = asyncio.ensure_future(stream.stopped)
                await asyncio.sleep(0)
            with pytest.raises(towline.StreamFinished):
                await waiting
            with pytest.raises(towline.StreamFinished):
                await stream.stopped

    run(main())


async def _leaves(stream: towline.BidirectionalStream) -> None:
    async with stream:
        pass


ENDS = {
    "stop": lambda stream: stream.stop(3),
    "reset": lambda stream: stream.reset(3),
    "finish": lambda stream: stream.finish(),
    "leave": _leaves,
}


@pytest.mark.parametrize(
    "waits, end",
    [
        ("read", "stop"),
        ("read", "leave"),
        ("write", "reset"),
        ("write", "finish"),
        ("write", "leave"),
    ],
)
def test_who_waits_hears_that_another_task_ended_the_stream(run, waits, end):
    async def main() -> None:
        async with connected(idle) as session:
            stream = await session.create_bidirectional_stream()
            if waits == "read":
                waiting = asyncio.ensure_future(stream.read())
            else:
                waiting = asyncio.ensure_future(stream.write(bytes(64 << 20)))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            ended = ENDS[end](stream)
            if ended is not None:
                await ended
            with pytest.raises(towline.StreamFinished):
                await asyncio.wait_for(waiting, 10)

    run(main())

"""What is left after each error: the rows of docs/python/errors.md."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import towline
from conftest import CERTIFICATE, connected, echo, idle

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python" / "errors.md"
Raises = Callable[[], Awaitable[object]]


async def goes_on(session: towline.Session) -> None:
    """The session still has streams and datagrams."""
    async with await session.create_bidirectional_stream() as stream:
        await stream.write(b"goes on")
        stream.finish()
        assert await stream.read() == b"goes on"
    session.datagrams.send(b"goes on")
    assert not session.closed


async def again(kind: type[Exception], *calls: Raises) -> None:
    """Each call raises it, and once more when it is called once more."""
    for call in calls:
        for _ in range(2):
            with pytest.raises(kind):
                await call()


async def picky(session: towline.Session) -> None:
    """Echoes, but on streams whose first byte is a command."""

    async def answer(stream: towline.BidirectionalStream) -> None:
        async with stream:
            first = await stream.readexactly(1)
            if first == b"r":
                stream.reset(5)
                assert await stream.read() == b"still read"
                return
            if first == b"s":
                stream.stop(6)
                await stream.write(b"still written")
                return
            await stream.write(first)
            async for chunk in stream.chunks():
                await stream.write(chunk)

    async with asyncio.TaskGroup() as tasks:
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(answer(stream))


def test_after_a_reset_and_after_a_stop_the_other_half_goes_on(run):
    async def main() -> None:
        async with connected(picky) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"r")
            await again(towline.StreamReset, lambda: stream.read(1), stream.read)
            await stream.write(b"still read")
            stream.finish()

            stream = await session.create_bidirectional_stream()
            await stream.write(b"s")
            with pytest.raises(towline.StreamStopped) as stopped:
                while True:
                    await stream.write(b"x")
                    await asyncio.sleep(0)
            assert stopped.value.code == 6
            await again(towline.StreamStopped, lambda: stream.write(b"x"))
            assert await stream.read() == b"still written"
            await goes_on(session)

    run(main())


def test_after_this_end_ended_a_half_the_other_goes_on(run):
    async def main() -> None:
        async with connected(echo) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"abc")
            stream.finish()
            await again(towline.StreamFinished, lambda: stream.write(b"x"))
            assert await stream.read() == b"abc"
            other = await session.create_bidirectional_stream()
            other.stop()
            await again(towline.StreamFinished, lambda: other.read(1))
            await other.write(b"into the void")
            other.reset()
            await goes_on(session)

    run(main())


def test_after_an_early_end_and_a_limit_nothing_else_is_lost(run):
    async def main() -> None:
        async with connected(echo) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"x" * 10)
            await again(towline.LimitExceeded, lambda: stream.readuntil(limit=5))
            assert await stream.read(4) == b"x" * 4
            stream.finish()
            with pytest.raises(towline.IncompleteRead) as early:
                await stream.readexactly(100)
            assert (early.value.partial, early.value.expected) == (b"x" * 6, 100)
            assert stream.at_eof() and await stream.read() == b""
            with pytest.raises(towline.DatagramTooLarge) as large:
                session.datagrams.send(bytes(70_000))
            assert session.datagrams.send(bytes(large.value.limit))
            await goes_on(session)

    run(main())


def test_after_a_cancelled_call_it_can_be_made_again(run):
    async def main() -> None:
        async with connected(echo) as session:
            stream = await session.create_bidirectional_stream()
            for call in (lambda: stream.read(1), lambda: stream.readuntil()):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(call(), 0.01)
            await stream.write(b"abc\n")
            assert await stream.readuntil() == b"abc\n"
            stream.finish()
            await goes_on(session)

    run(main())


def test_what_arrived_before_the_end_can_be_read_and_then_each_call_raises_it(run):
    async def last_words(session: towline.Session) -> None:
        stream = await anext(session.incoming_bidirectional_streams)
        await stream.write(await stream.readexactly(3))
        session.datagrams.send(b"datagram")
        await anext(session.incoming_unidirectional_streams)
        session.close(9, "that was all")

    async def main() -> None:
        async with connected(last_words) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"abc")
            assert await stream.read(1) == b"a"
            assert await session.datagrams.receive() == b"datagram"
            async with await session.create_unidirectional_stream() as end:
                await end.write(b"end")
            assert (await session.closed).code == 9
            rest = b""
            with pytest.raises(towline.SessionClosed) as over:
                while True:
                    rest += await stream.read(1)
            assert rest in (b"bc", b"")
            assert (over.value.code, over.value.reason) == (9, "that was all")

            async def send() -> object:
                return session.datagrams.send(b"x")

            await again(
                towline.SessionClosed,
                lambda: stream.read(1),
                lambda: stream.write(b"x"),
                session.create_bidirectional_stream,
                session.create_unidirectional_stream,
                session.datagrams.receive,
                send,
            )
            # Closing once more is no error.
            session.close(1, "late")
            await session.aclose()
            assert (await session.closed).code == 9

    run(main())


def test_after_a_connect_that_failed_the_next_one_is_made(run):
    async def main() -> None:
        async with towline.serve(
            echo, "127.0.0.1", certificate=CERTIFICATE, origins=["https://app.example"]
        ) as server:
            with pytest.raises(towline.HandshakeRefused) as refused:
                await towline.connect(server.url, pins=["0" * 64])
            assert refused.value.status is None
            other = {"origin": "https://other.example"}
            with pytest.raises(towline.HandshakeRefused) as refused:
                await towline.connect(server.url, pins=[CERTIFICATE], headers=other)
            assert refused.value.status == 403
            async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
                await goes_on(session)

    run(main())


def test_the_drawing_is_the_hierarchy():
    drawn = re.search(r"```\n(TowlineError.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert drawn is not None
    parents = ["TowlineError"]
    found = {"TowlineError"}
    for line in drawn[1].splitlines()[1:]:
        depth = (re.search(r"\w", line).start()) // 4
        name, *words = line[depth * 4 :].split()
        kind = getattr(towline, name)
        assert issubclass(kind, getattr(towline, parents[depth - 1])), name
        builtin = __builtins__.get(words[0])
        if isinstance(builtin, type):
            assert issubclass(kind, builtin), name
        parents[depth:] = [name]
        found.add(name)
    module = towline._errors
    assert found == set(module.__all__)
    assert drawn[1].splitlines()[1].split()[1] in (module.__doc__ or "")


def test_the_table_names_every_error():
    table = PAGE.read_text("utf-8").partition("## What is left after each")[2]
    for name in towline._errors.__all__:
        if name not in ("TowlineError", "StreamError"):
            assert f"`{name}`" in table, name


def test_an_idle_session_that_is_left_alone_says_why():
    async def main() -> None:
        async with connected(idle) as session:
            # The peer's endpoint is gone without a word, as when its machine is.
            for driver in list(towline._driver._drivers):
                if driver is not session._core.driver:
                    driver.close()
            error = towline.IdleTimeout("connection lost")
            assert isinstance(error, TimeoutError) and isinstance(error, ConnectionError)
            assert (error.code, error.reason) == (0, "")
            session.close()

    asyncio.run(main())

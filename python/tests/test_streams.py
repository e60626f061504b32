"""Streams: what is written comes, in order, with its end; limits, back-pressure and codes."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

import towline
from conftest import connected, echo, idle


def test_bytes_come_back(run):
    async def main() -> None:
        async with connected(echo) as session:
            async with await session.create_bidirectional_stream() as stream:
                for data in (b"bytes", bytearray(b"bytearray"), memoryview(b"memoryview")):
                    await stream.write(data)
                stream.finish()
                assert await stream.read() == b"bytesbytearraymemoryview"
                assert await stream.read(10) == b""
                assert await stream.read() == b""
                assert stream.at_eof()

    run(main())


def test_megabytes_come_back_under_back_pressure(run):
    data = random.Random(1).randbytes(8 << 20)

    async def main() -> None:
        async with connected(echo) as session:
            async with await session.create_bidirectional_stream() as stream:

                async def send() -> None:
                    await stream.write(data)
                    stream.finish()

                sending = asyncio.create_task(send())
                back = hashlib.sha256()
                async for chunk in stream.chunks():
                    back.update(chunk)
                await sending
                assert back.digest() == hashlib.sha256(data).digest()

    run(main())


def test_a_write_waits_for_a_reader_and_only_then(run):
    arrived: asyncio.Queue[towline.BidirectionalStream] = asyncio.Queue()

    async def keep(session: towline.Session) -> None:
        async for stream in session.incoming_bidirectional_streams:
            arrived.put_nowait(stream)

    async def main() -> None:
        async with connected(keep) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"small")
            there = await arrived.get()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await stream.write(bytes(32 << 20))
            # Whoever reads lets it go on.
            total = 0
            writing = asyncio.create_task(stream.write(b"x" * 100_000))
            while not writing.done():
                total += len(await there.read(1 << 20))
            await writing
            assert total > 0

    run(main())


def test_streams_of_the_server_and_unidirectional_ones(run):
    async def handler(session: towline.Session) -> None:
        async with await session.create_unidirectional_stream() as stream:
            await stream.write(b"from the server")
        async with await session.create_bidirectional_stream() as both:
            await both.write(b"question\n")
            assert await both.readuntil() == b"answer\n"
        received = await anext(session.incoming_unidirectional_streams)
        async with received, await session.create_unidirectional_stream() as stream:
            await stream.write(await received.read())
        await session.closed

    async def main() -> None:
        async with connected(handler) as session:
            first = await anext(session.incoming_unidirectional_streams)
            assert await first.read() == b"from the server"
            async with await anext(session.incoming_bidirectional_streams) as both:
                assert await both.readuntil() == b"question\n"
                await both.write(b"answer\n")
            async with await session.create_unidirectional_stream() as stream:
                await stream.write(b"there and back")
            back = await anext(session.incoming_unidirectional_streams)
            assert await back.read() == b"there and back"

    run(main())


def test_reads_of_every_kind(run):
    async def main() -> None:
        async with connected(echo) as session:
            async with await session.create_bidirectional_stream() as stream:
                await stream.write(b"0123456789one\r\ntwo\r\nthree\nfour")
                stream.finish()
                assert await stream.readexactly(0) == b""
                assert await stream.readexactly(4) == b"0123"
                assert await stream.read(0) == b""
                buffer = bytearray(6)
                filled = 0
                while filled < 6:
                    filled += await stream.readinto(memoryview(buffer)[filled:])
                assert buffer == b"456789"
                assert await stream.readuntil(b"\r\n") == b"one\r\n"
                assert await stream.readuntil(b"wo\r") == b"two\r"
                lines = [line async for line in stream.lines()]
                assert lines == [b"\n", b"three\n", b"four"]
                assert await stream.readinto(buffer) == 0

    run(main())


def test_an_early_end_gives_what_came(run):
    async def main() -> None:
        async with connected(echo) as session:
            for read in (lambda s: s.readexactly(10), lambda s: s.readuntil(b"!")):
                async with await session.create_bidirectional_stream() as stream:
                    await stream.write(b"seven b")
                    stream.finish()
                    with pytest.raises(EOFError) as caught:
                        await read(stream)
                    assert isinstance(caught.value, towline.IncompleteRead)
                    assert caught.value.partial == b"seven b"

    run(main())


def test_a_line_beyond_the_limit_waits_for_read(run):
    async def main() -> None:
        async with connected(echo) as session:
            async with await session.create_bidirectional_stream() as stream:
                await stream.write(b"x" * 100 + b"\n")
                stream.finish()
                with pytest.raises(towline.LimitExceeded) as caught:
                    await stream.readuntil(limit=50)
                assert caught.value.limit == 50
                with pytest.raises(ValueError):
                    async for _ in stream.lines(limit=20):
                        pass
                assert await stream.read() == b"x" * 100 + b"\n"

    run(main())


def test_codes_of_resets_and_stops_arrive(run):
    outcomes: asyncio.Queue[object] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        stream = await anext(session.incoming_bidirectional_streams)
        await stream.readexactly(1)
        try:
            await stream.read()
        except towline.StreamReset as error:
            outcomes.put_nowait(error)
        try:
            while True:
                await stream.write(bytes(1000))
                await asyncio.sleep(0)
        except towline.StreamStopped as error:
            outcomes.put_nowait(error)
        await session.closed

    async def main() -> None:
        async with connected(handler) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"x")
            await asyncio.sleep(0.1)
            stream.reset(0xFFFFFFFF)
            stream.stop(7)
            reset, stopped = await outcomes.get(), await outcomes.get()
            assert isinstance(reset, ConnectionResetError) and reset.code == 0xFFFFFFFF
            assert isinstance(stopped, BrokenPipeError) and stopped.code == 7
            with pytest.raises(towline.StreamFinished):
                await stream.write(b"more")
            with pytest.raises(towline.StreamFinished):
                await stream.read(1)
            with pytest.raises(ValueError):
                stream.finish()

    run(main())


def test_an_exception_in_the_block_resets_the_stream(run):
    outcomes: asyncio.Queue[BaseException] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        async for stream in session.incoming_unidirectional_streams:
            try:
                await stream.read()
            except towline.StreamReset as error:
                outcomes.put_nowait(error)

    async def main() -> None:
        async with connected(handler) as session:
            with pytest.raises(KeyError):
                async with await session.create_unidirectional_stream() as stream:
                    await stream.write(b"half a message")
                    # So that there is a stream whose reset can be told.
                    await asyncio.sleep(0.1)
                    raise KeyError("of the program")
            assert (await outcomes.get()).code == 0

    run(main())


def test_a_cancelled_read_takes_nothing(run):
    async def main() -> None:
        async with connected(echo) as session:
            async with await session.create_bidirectional_stream() as stream:
                for read in (
                    lambda: stream.read(10),
                    lambda: stream.read(),
                    lambda: stream.readexactly(6),
                    lambda: stream.readuntil(b"\n"),
                    lambda: stream.readinto(bytearray(6)),
                    lambda: anext(stream.lines()),
                ):
                    task = asyncio.create_task(read())
                    await asyncio.sleep(0)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                # Half of it is taken, and kept.
                await stream.write(b"abc")
                task = asyncio.create_task(stream.readuntil(b"\n"))
                await asyncio.sleep(0.1)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await stream.write(b"def\n")
                assert await stream.readuntil(b"\n") == b"abcdef\n"

    run(main())


def test_100_000_cancelled_reads_leave_nothing(run):
    async def main() -> None:
        async with connected(idle) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"x")
            waiting = session._core.driver._waiting
            before = len(waiting)
            for _ in range(1000):
                tasks = [asyncio.create_task(stream.read(1)) for _ in range(100)]
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            assert len(waiting) == before
            stream.reset()

    run(main())


def test_arguments_of_the_wrong_kind_are_named(run):
    async def main() -> None:
        async with connected(echo) as session:
            stream = await session.create_bidirectional_stream()
            for argument, call in {
                "data": lambda: stream.write("text"),
                "n": lambda: stream.read("ten"),
                "buffer": lambda: stream.readinto(b"read only"),
                "separator": lambda: stream.readuntil("\n"),
                "limit": lambda: stream.readuntil(b"\n", "many"),
            }.items():
                with pytest.raises(TypeError, match=f"'{argument}'"):
                    await call()
            with pytest.raises(TypeError, match="'code'"):
                stream.reset("zero")
            with pytest.raises(TypeError, match="'reason'"):
                session.close(0, b"bytes")
            with pytest.raises(TypeError, match="'data'"):
                session.datagrams.send("text")
            with pytest.raises(ValueError, match="'code'"):
                stream.stop(2**32)
            with pytest.raises(ValueError, match="'n'"):
                await stream.readexactly(-1)
            with pytest.raises(ValueError, match="'separator'"):
                await stream.readuntil(b"")
            with pytest.raises(BufferError, match="'data'"):
                await stream.write(memoryview(b"abcdef")[::2])
            stream.reset()

    run(main())


def test_a_last_line_may_have_just_the_limit(run):
    async def main() -> None:
        async with connected(echo) as session:
            for text, lines in ((b"abcd", [b"abcd"]), (b"ab\ncd\nabcd", [b"ab\n", b"cd\n", b"abcd"])):
                stream = await session.create_bidirectional_stream()
                await stream.write(text)
                stream.finish()
                assert [line async for line in stream.lines(limit=4)] == lines
            stream = await session.create_bidirectional_stream()
            await stream.write(b"abcde")
            with pytest.raises(towline.LimitExceeded):
                await anext(stream.lines(limit=4))

    run(main())


def test_a_separator_is_found_however_it_is_cut(run):
    async def main() -> None:
        async with connected(echo) as session:
            stream = await session.create_bidirectional_stream()
            for letter in b"aa-a--b-=c":
                await stream.write(bytes([letter]))
                await asyncio.sleep(0.001)
            assert await stream.readuntil(b"--b-") == b"aa-a--b-"
            await stream.write(b"d=")
            assert await stream.readuntil(b"d=") == b"=cd="

    run(main())

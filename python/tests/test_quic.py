"""QUIC for protocols of one's own: streams, datagrams, codes, and how connections end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import towline
from conftest import CERTIFICATE
from towline import quic

Handler = Callable[[quic.Connection], Awaitable[object]]


async def echo(connection: quic.Connection) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for stream in connection.incoming_bidirectional_streams:
            tasks.create_task(echo_stream(stream))


async def echo_stream(stream: towline.BidirectionalStream) -> None:
    async with stream:
        async for chunk in stream.chunks():
            await stream.write(chunk)


async def idle(connection: quic.Connection) -> None:
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def connected(
    handler: Handler, alpn: list[str | bytes] | None = None, **options: Any
) -> AsyncIterator[quic.Connection]:
    serving = quic.serve(handler, "127.0.0.1", certificate=CERTIFICATE, alpn=["one", "two"])
    async with serving as server:
        connecting = quic.connect(
            "127.0.0.1", server.port, alpn=alpn or ["two", "three"], pins=[CERTIFICATE], **options
        )
        async with connecting as connection:
            yield connection


def test_streams_of_both_kinds_and_both_ends(run):
    async def handler(connection: quic.Connection) -> None:
        async for receiving in connection.incoming_unidirectional_streams:
            async with await connection.create_unidirectional_stream() as answer:
                await answer.write((await receiving.read()).upper())

    async def main() -> None:
        async with connected(handler) as connection:
            assert connection.alpn == "two"
            assert "two 127.0.0.1" in repr(connection)
            async with await connection.create_unidirectional_stream() as stream:
                await stream.write(b"ahoy")
            answer = await anext(connection.incoming_unidirectional_streams)
            assert await answer.read() == b"AHOY"
        async with connected(echo) as connection:
            async with await connection.create_bidirectional_stream(send_order=3) as stream:
                await stream.write(b"a line\nand more")
                assert await stream.readuntil() == b"a line\n"
                stream.finish()
                assert await stream.readexactly(8) == b"and more"
            stats = await connection.get_stats()
            assert stats.bytes_sent > 0
            assert not isinstance(stats, towline.SessionStats)

    run(main())


def test_a_server_returns_and_what_it_wrote_arrives(run):
    async def handler(connection: quic.Connection) -> None:
        async with await connection.create_unidirectional_stream() as stream:
            await stream.write(b"x" * 300_000)

    async def main() -> None:
        async with connected(handler) as connection:
            stream = await anext(connection.incoming_unidirectional_streams)
            assert len(await stream.read()) == 300_000
            end = await connection.closed
            assert (end.code, end.by_peer) == (0, True)

    run(main())


def test_codes_have_62_bits(run):
    most = 2**62 - 1
    closed: list[towline.CloseInfo] = []

    async def handler(connection: quic.Connection) -> None:
        stream = await anext(connection.incoming_bidirectional_streams)
        await stream.readuntil()
        stream.reset(most)
        stream.stop(2**33)
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(await connection.closed)

    async def main() -> None:
        async with connected(handler) as connection:
            stream = await connection.create_bidirectional_stream()
            await stream.write(b"\n")
            with pytest.raises(towline.StreamReset) as reset:
                await stream.read()
            assert reset.value.code == most
            with pytest.raises(towline.StreamStopped) as stopped:
                while True:
                    await stream.write(b"more")
                    await asyncio.sleep(0)
            assert stopped.value.code == 2**33
            with pytest.raises(ValueError, match="argument 'code': 0 to 4611686018427387903"):
                stream.reset(2**62)
            with pytest.raises(ValueError, match="at most 512 bytes"):
                connection.close(0, "x" * 513)
            await connection.aclose(2**40, "enough")
            end = await connection.closed
            assert (end.code, end.reason, end.by_peer) == (2**40, "enough", False)
            with pytest.raises(towline.SessionClosed) as over:
                await connection.create_bidirectional_stream()
            assert over.value.code == 2**40
            while not closed:
                await asyncio.sleep(0.01)
            assert (closed[0].code, closed[0].reason, closed[0].by_peer) == (2**40, "enough", True)

    run(main())


def test_datagrams(run):
    async def handler(connection: quic.Connection) -> None:
        async for datagram in connection.datagrams:
            await connection.datagrams.send_wait(datagram.upper())

    async def main() -> None:
        async with connected(handler) as connection:
            assert connection.datagrams.max_size > 1000
            assert connection.datagrams.send(b"position", max_age=5.0)
            assert await connection.datagrams.receive() == b"POSITION"
            with pytest.raises(towline.DatagramTooLarge):
                connection.datagrams.send(bytes(70_000))

    run(main())


def test_who_refuses_says_why(run):
    async def main() -> None:
        async with quic.serve(idle, "127.0.0.1", certificate=CERTIFICATE, alpn=["one"]) as server:
            other = towline.generate_certificate("localhost")
            with pytest.raises(towline.HandshakeRefused, match="pin"):
                await quic.connect("127.0.0.1", server.port, alpn=["one"], pins=[other])
            with pytest.raises(towline.HandshakeRefused, match="(?i)protocol"):
                await quic.connect("127.0.0.1", server.port, alpn=["else"], pins=[CERTIFICATE])
            with pytest.raises(towline.HandshakeRefused):
                await towline.connect(f"https://127.0.0.1:{server.port}/", pins=[CERTIFICATE])

    run(main())


def test_a_server_may_speak_http_3_by_itself(run):
    first: asyncio.Queue[bytes] = asyncio.Queue()

    async def handler(connection: quic.Connection) -> None:
        stream = await anext(connection.incoming_unidirectional_streams)
        first.put_nowait(await stream.readexactly(1))
        connection.close(0x0100, "enough")

    async def main() -> None:
        async with quic.serve(handler, "127.0.0.1", certificate=CERTIFICATE, alpn=["h3"]) as server:
            with pytest.raises(towline.SessionClosed):
                await towline.http.get(f"https://127.0.0.1:{server.port}/", pins=[CERTIFICATE])
            assert len(await first.get()) == 1
            await towline.http.aclose()

    run(main())


def test_a_failing_handler_closes_with_the_code_of_failures(run, caplog):
    async def handler(connection: quic.Connection) -> None:
        raise ValueError("a mistake")

    async def main() -> None:
        async with connected(handler) as connection:
            end = await connection.closed
            assert (end.code, end.reason) == (towline.FAILED, "the handler failed")
        assert "a mistake" in caplog.text

    run(main())


def test_a_client_that_raises_closes_with_the_code_of_failures(run):
    ends: asyncio.Queue[towline.CloseInfo] = asyncio.Queue()

    async def handler(connection: quic.Connection) -> None:
        stream = await connection.create_unidirectional_stream()
        await stream.write(b"here I am")
        try:
            await asyncio.Event().wait()
        finally:
            ends.put_nowait(await connection.closed)

    async def main() -> None:
        serving = quic.serve(handler, "127.0.0.1", certificate=CERTIFICATE, alpn=["one"])
        async with serving as server:
            with pytest.raises(KeyError):
                connecting = quic.connect(
                    "127.0.0.1", server.port, alpn=["one"], pins=[CERTIFICATE]
                )
                async with connecting as connection:
                    await anext(connection.incoming_unidirectional_streams)
                    raise KeyError("mine")
            end = await ends.get()
            assert (end.code, end.by_peer) == (towline.FAILED, True)

    run(main())


def test_a_server_that_closes_tells_its_clients(run):
    async def main() -> None:
        serving = quic.serve(idle, "127.0.0.1", certificate=CERTIFICATE, alpn=["one"])
        async with serving as server:
            connection = await quic.connect(
                "127.0.0.1", server.port, alpn=["one"], pins=[CERTIFICATE]
            )
            await asyncio.sleep(0)
        end = await connection.closed
        assert (end.code, end.by_peer) == (0, True)
        await connection.aclose()

    run(main())


def test_keying_material_is_the_same_at_both_ends(run):
    there: list[bytes] = []

    async def handler(connection: quic.Connection) -> None:
        there.append(connection.export_keying_material("EXPORTER-mine", b"context", 48))
        there.append(connection.export_keying_material("EXPORTER-mine", b"another"))
        await asyncio.Event().wait()

    async def main() -> None:
        async with connected(handler) as connection:
            mine = connection.export_keying_material("EXPORTER-mine", b"context", 48)
            while len(there) < 2:
                await asyncio.sleep(0.01)
            assert mine == there[0] and len(mine) == 48
            assert len(there[1]) == 32 and there[1] != mine[:32]
            for length in (0, -1, 1 << 20):
                with pytest.raises(ValueError, match="argument 'length'"):
                    connection.export_keying_material("EXPORTER-mine", b"", length)
        with pytest.raises(towline.SessionClosed):
            connection.export_keying_material("EXPORTER-mine")

    run(main())


def test_finished_waits_for_the_peers_transport(run):
    async def main() -> None:
        async with connected(idle) as connection:
            stream = await connection.create_bidirectional_stream()
            await stream.write(b"x" * 100_000)
            await stream.finished()
            await stream.finished()
            assert (await connection.get_stats()).connection["bytes_in_flight"] is not None
            stopped = await connection.create_unidirectional_stream()
            stopped.reset()
            with pytest.raises(towline.StreamFinished):
                await stopped.finished()
            # The peer's window is full, and so it takes long.
            slow = await connection.create_unidirectional_stream()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await slow.write(bytes(32 << 20))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await slow.finished()
            closing = asyncio.create_task(slow.finished())
            await asyncio.sleep(0)
            connection.close(7)
            with pytest.raises(towline.SessionClosed) as over:
                await closing
            assert over.value.code == 7

    run(main())


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"alpn": "one"}, TypeError, "argument 'alpn': a list"),
        ({"alpn": [1]}, TypeError, "argument 'alpn': each"),
        ({"alpn": []}, ValueError, "at least one protocol"),
        ({"alpn": [""]}, ValueError, "1 to 255 bytes"),
        ({"alpn": ["h3"]}, ValueError, "towline.http"),
        ({"host": 1, "alpn": ["one"]}, TypeError, "argument 'host'"),
        ({"port": "1", "alpn": ["one"]}, TypeError, "argument 'port'"),
        ({"port": 70_000, "alpn": ["one"]}, ValueError, "argument 'port'"),
        ({"pins": "ab", "alpn": ["one"]}, TypeError, "argument 'pins'"),
        ({"config": {}, "alpn": ["one"]}, TypeError, "argument 'config'"),
    ],
)
def test_wrong_arguments_are_named(arguments, kind, words):
    with pytest.raises(kind, match=words):
        quic.connect(**{"host": "localhost", "port": 1, **arguments})


def test_a_wrong_handler_or_certificate_is_named():
    with pytest.raises(TypeError, match="argument 'handler'"):
        quic.serve(None, certificate=CERTIFICATE, alpn=["one"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="argument 'certificate'"):
        quic.serve(idle, certificate=None, alpn=["one"])  # type: ignore[arg-type]

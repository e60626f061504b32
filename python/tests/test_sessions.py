"""Sessions: how they end, at either end, and what everybody learns of it."""

from __future__ import annotations

import asyncio
import logging

import pytest

import towline
from conftest import CERTIFICATE, connected, echo, idle


def test_the_client_closes_with_code_and_reason(run):
    ended: asyncio.Queue[towline.CloseInfo] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.put_nowait(await session.closed)

    async def main() -> None:
        async with connected(handler) as session:
            assert not session.closed
            await session.aclose(7, "that is all")
            assert session.closed
            assert await session.closed == (7, "that is all", False)
            assert await ended.get() == (7, "that is all", True)
            with pytest.raises(towline.SessionClosed) as caught:
                await session.create_bidirectional_stream()
            assert caught.value.code == 7 and not caught.value.by_peer

    run(main())


def test_the_server_closes_with_code_and_reason(run):
    async def handler(session: towline.Session) -> None:
        stream = await anext(session.incoming_bidirectional_streams)
        await stream.read(1)
        session.close(2**32 - 1, "grüße")

    async def main() -> None:
        async with connected(handler) as session:
            stream = await session.create_bidirectional_stream()
            await stream.write(b"x")
            waits = [
                asyncio.create_task(stream.read(1)),
                asyncio.create_task(session.datagrams.receive()),
                asyncio.create_task(anext(aiter(session.datagrams), None)),
                asyncio.create_task(anext(session.incoming_unidirectional_streams, None)),
            ]
            info = await session.closed
            assert info == (2**32 - 1, "grüße", True)
            results = await asyncio.gather(*waits, return_exceptions=True)
            for error in results[:2]:
                assert isinstance(error, ConnectionError)
                assert isinstance(error, towline.SessionClosed)
                assert (error.code, error.reason, error.by_peer) == info
            assert results[2:] == [None, None]
            with pytest.raises(towline.SessionClosed):
                await stream.write(b"more")
            session.close(1, "too late")
            assert await session.closed == info

    run(main())


def test_what_was_written_arrives_before_the_end(run):
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        stream = await anext(session.incoming_unidirectional_streams)
        arrived.put_nowait(await stream.read())

    async def main() -> None:
        async with connected(handler) as session:
            async with await session.create_unidirectional_stream() as stream:
                await stream.write(bytes(100_000))
        assert len(await arrived.get()) == 100_000

    run(main())


def test_a_handler_is_cancelled_when_its_session_ends(run):
    outcomes: asyncio.Queue[str] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.sleep(1000))
        except asyncio.CancelledError:
            outcomes.put_nowait("cancelled")
            raise

    async def main() -> None:
        async with connected(handler) as session:
            await asyncio.sleep(0.05)
            session.close()
            assert await outcomes.get() == "cancelled"

    run(main())


def test_a_handler_that_raises_closes_its_session_and_is_logged(run, caplog):
    async def handler(session: towline.Session) -> None:
        raise KeyError("of the handler")

    async def main() -> None:
        async with connected(handler) as session:
            info = await session.closed
            assert (info.code, info.reason) == (towline.FAILED, "the handler failed")

    with caplog.at_level(logging.ERROR, "towline"):
        run(main())
    assert [record.name for record in caplog.records] == ["towline"]
    assert "of the handler" in caplog.text


def test_an_exception_in_the_block_closes_the_session_with_a_code(run):
    ended: asyncio.Queue[towline.CloseInfo] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        ended.put_nowait(await session.closed)

    async def main() -> None:
        async with towline.serve(handler, "127.0.0.1", certificate=CERTIFICATE) as server:
            with pytest.raises(KeyError):
                async with towline.connect(server.url, pins=[CERTIFICATE]):
                    raise KeyError("of the program")
            assert (await ended.get()).code == towline.FAILED

    run(main())


def test_a_server_that_closes_ends_its_sessions(run):
    async def main() -> None:
        server = await towline.serve(idle, "127.0.0.1", certificate=CERTIFICATE)
        async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
            await server.close()
            info = await session.closed
            assert info == (0, "the server goes away", True)
        assert not server.sessions

    run(main())


def test_a_server_that_drains_asks_its_clients_and_waits(run):
    async def main() -> None:
        server = await towline.serve(echo, "127.0.0.1", certificate=CERTIFICATE)
        async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
            assert not session.draining
            draining = asyncio.create_task(server.drain(20))
            await session.draining
            assert session.draining
            with pytest.raises(towline.ConnectFailed):
                await towline.connect(server.url, pins=[CERTIFICATE])
            async with await session.create_bidirectional_stream() as stream:
                await stream.write(b"the last words")
                stream.finish()
                assert await stream.read() == b"the last words"
            assert not draining.done()
        await draining
        await server.close()

    run(main())


def test_a_cancelled_connect_is_given_up(run):
    async def main() -> None:
        async with towline.serve(idle, "127.0.0.1", certificate=CERTIFICATE) as server:
            for rounds in range(20):
                task = asyncio.create_task(
                    asyncio.wait_for(towline.connect(server.url, pins=[CERTIFICATE]), 30)
                )
                for _ in range(rounds):
                    await asyncio.sleep(0)
                task.cancel()
                (outcome,) = await asyncio.gather(task, return_exceptions=True)
                if isinstance(outcome, towline.Session):
                    await outcome.aclose()
            async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
                assert not session.closed

    run(main())


def test_nobody_answers(run):
    async def main() -> None:
        # Reserved for documentation: nobody is there.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await towline.connect("https://127.0.0.1:9/", pins=["0" * 64])

    run(main())


def test_addresses_that_make_no_sense(run):
    for url in ("http://localhost/", "localhost:4433", "https://"):
        with pytest.raises(ValueError, match="'url'"):
            towline.connect(url)
    with pytest.raises(TypeError, match="'url'"):
        towline.connect(4433)
    with pytest.raises(TypeError, match="'pins'"):
        towline.connect("https://localhost/", pins="00" * 32)
    with pytest.raises(ValueError, match="'pins'"):
        towline.connect("https://localhost/", pins=["too short"])
    with pytest.raises(TypeError, match="'certificate'"):
        towline.serve(idle, certificate="PEM")
    with pytest.raises(TypeError, match="'handler'"):
        towline.serve(None, certificate=CERTIFICATE)

    async def main() -> None:
        with pytest.raises(towline.ConnectFailed, match="was not found"):
            await towline.connect("https://no-such-host.invalid/", pins=["0" * 64])

    run(main())


def test_what_a_handler_knows_of_its_client(run):
    seen: asyncio.Queue[towline.Session] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        seen.put_nowait(session)
        await session.closed

    async def main() -> None:
        async with connected(handler, headers={"x-name": "value"}):
            session = await seen.get()
            assert session.path == "/test?x=1"
            assert session.authority.startswith("127.0.0.1:")
            assert session.origin is None
            assert ("x-name", "value") in session.headers
            assert session.remote_address[0] == "127.0.0.1"

    run(main())


def test_statistics_count(run):
    async def main() -> None:
        async with connected(echo) as session:
            async with await session.create_bidirectional_stream() as stream:
                await stream.write(b"x")
                await stream.read(1)
            stats = await session.get_stats()
            assert stats.streams_opened == 1
            assert stats.packets_sent > 0 and stats.bytes_received > 0
            assert stats.min_rtt is not None and 0 < stats.min_rtt <= 5
            assert stats.connection["mtu"] >= 1200

    run(main())


def test_a_certificate_is_kept_in_files(run, tmp_path):
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text(CERTIFICATE.certificate_pem)
    key.write_text(CERTIFICATE.private_key_pem)
    again = towline.Certificate.load(chain, key)
    assert again.sha256 == CERTIFICATE.sha256
    assert again.not_after == CERTIFICATE.not_after
    with pytest.raises(ValueError, match="'chain'"):
        towline.Certificate.from_pem(b"no PEM", b"no PEM")

    async def main() -> None:
        async with towline.serve(idle, "127.0.0.1", certificate=again) as server:
            for pin in (again.sha256, bytes.fromhex(again.sha256), f"sha256/{again.sha256}"):
                async with towline.connect(server.url, pins=[pin]):
                    pass
            # A root of one's own, and the name that the certificate has.
            roots = again.certificate_pem.encode()
            async with towline.connect(server.url, roots=roots):
                pass

    run(main())


def test_1_000_sessions_leave_nothing(run):
    from conftest import resident_kilobytes

    async def main() -> None:
        async with towline.serve(echo, "127.0.0.1", certificate=CERTIFICATE) as server:

            async def one() -> None:
                async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
                    async with await session.create_bidirectional_stream() as stream:
                        await stream.write(b"x")
                        stream.finish()
                        assert await stream.read() == b"x"

            for _ in range(50):
                await asyncio.gather(*(one() for _ in range(10)))
            before = resident_kilobytes()
            for _ in range(50):
                await asyncio.gather(*(one() for _ in range(10)))
            growth = resident_kilobytes() / before
            assert growth < 1.05, f"memory grew by {growth - 1:.1%}"
            for driver in server._drivers:
                assert len(driver._waiting) <= 1

    run(main())


def test_a_handler_may_close_the_server(run):
    closed = asyncio.Event()

    async def handler(session: towline.Session) -> None:
        try:
            await server.close()
        finally:
            # Its own session ends with the others, and so it is cancelled.
            closed.set()

    server: towline.Server

    async def main() -> None:
        nonlocal server
        server = await towline.serve(handler, "127.0.0.1", certificate=CERTIFICATE)
        async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
            assert (await session.closed).reason == "the server goes away"
            await closed.wait()

    run(main())


def test_a_dropped_stream_and_a_dropped_session_are_told_to_the_peer(run):
    outcomes: asyncio.Queue[object] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        stream = await anext(session.incoming_unidirectional_streams)
        try:
            await stream.read()
        except towline.StreamReset as error:
            outcomes.put_nowait(error.code)
        outcomes.put_nowait(await session.closed)

    async def main() -> None:
        async with towline.serve(handler, "127.0.0.1", certificate=CERTIFICATE) as server:
            session = await towline.connect(server.url, pins=[CERTIFICATE])
            stream = await session.create_unidirectional_stream()
            await stream.write(b"x")
            await asyncio.sleep(0.1)
            del stream
            assert await outcomes.get() == 0
            del session
            assert (await outcomes.get()).by_peer

    run(main())

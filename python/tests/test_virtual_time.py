"""What takes time: idle timeouts, slow links, losses, and what is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

import towline
from conftest import echo, idle
from towline import testing


def run(main, handler=echo, **options):
    """What `main` makes of a session with a server that has this handler."""

    async def served() -> object:
        async with towline.serve(handler, "server", 443, certificate=world.certificate) as server:
            async with towline.connect(server.url, pins=[world.certificate]) as session:
                return await main(session, world)

    with testing.simulation(**options) as world:
        return world.run(served())


def test_an_idle_session_ends_at_both_ends():
    ends: list[BaseException] = []

    async def handler(session: towline.Session) -> None:
        try:
            await session.datagrams.receive()
        except towline.IdleTimeout as error:
            ends.append(error)
            raise

    async def main(session: towline.Session, world: testing.World) -> None:
        began = world.time
        stream = await session.create_bidirectional_stream()
        for wait in (session.closed, stream.read(1), session.datagrams.receive()):
            with pytest.raises(towline.IdleTimeout) as caught:
                await wait
            assert isinstance(caught.value, TimeoutError)
        # Each end makes sure for a while that the other is there.
        assert 30 <= world.time - began < 90
        with pytest.raises(towline.IdleTimeout):
            await session.create_bidirectional_stream()
        with pytest.raises(towline.IdleTimeout):
            session.datagrams.send(b"late")
        await asyncio.sleep(60)

    run(main, handler, link=testing.Link(delay=0.05))
    assert len(ends) == 1


def test_a_server_that_nobody_hears_is_a_connect_timeout():
    async def main() -> None:
        pins = [world.certificate]
        async with towline.serve(echo, "server", 443, certificate=world.certificate) as server:
            with world.path().outage():
                with pytest.raises(towline.ConnectTimeout):
                    await towline.connect(server.url, pins=pins)
                given_up = world.time
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(2):
                        await towline.connect(server.url, pins=pins)
                assert world.time == pytest.approx(given_up + 2, abs=1e-6)
            async with towline.connect(server.url, pins=pins):
                pass

    with testing.simulation() as world:
        world.run(main())
        assert world.time > 5


def test_writes_wait_for_a_slow_link():
    total = 4_000_000

    async def handler(session: towline.Session) -> None:
        async for stream in session.incoming_unidirectional_streams:
            async with stream:
                assert len(await stream.read()) == total
        await session.closed

    async def main(session: towline.Session, world: testing.World) -> float:
        began = world.time
        written = 0
        async with await session.create_unidirectional_stream() as stream:
            for _ in range(total // 50_000):
                await stream.write(bytes(50_000))
                written += 50_000
                # What the link has carried, and one buffer: never what the program has.
                carried = (world.time - began) * 1_000_000 / 8
                assert written < carried + 2_500_000
        await session.aclose()
        return world.time - began

    seconds = run(main, handler, link=testing.Link(delay=0.1, rate=1_000_000))
    assert seconds > total * 8 / 1_000_000 * 0.6


def test_a_reader_that_is_slow_holds_the_writer():
    async def handler(session: towline.Session) -> None:
        async for stream in session.incoming_unidirectional_streams:
            async with stream:
                while await stream.read(10_000):
                    # 100 kB a second.
                    await asyncio.sleep(0.1)
        await session.closed

    async def main(session: towline.Session, world: testing.World) -> float:
        began = world.time
        stream = await session.create_unidirectional_stream()
        await stream.write(bytes(12_000_000))
        return world.time - began

    # All but the buffers of both ends had to be read before.
    assert run(main, handler, link=testing.Link("lan")) > 30


def test_cancelled_reads_under_loss_lose_nothing():
    data = random.Random(1).randbytes(200_000)

    async def main(session: towline.Session, world: testing.World) -> int:
        cancelled = 0
        async with await session.create_bidirectional_stream() as stream:

            async def send() -> None:
                for at in range(0, len(data), 5000):
                    await stream.write(data[at : at + 5000])
                    await asyncio.sleep(0.05)
                stream.finish()

            sending = asyncio.create_task(send())
            back = bytearray()
            while True:
                try:
                    async with asyncio.timeout(world.random.uniform(0.001, 0.1)):
                        chunk = await stream.read(3000)
                except TimeoutError:
                    cancelled += 1
                    continue
                if not chunk:
                    break
                back += chunk
            await sending
            assert bytes(back) == data
        return cancelled

    link = testing.Link(delay=0.05, jitter=0.02, loss=0.05, reorder=0.05)
    assert run(main, seed=11, link=link) > 20


def test_cancelled_exact_reads_leave_all_to_the_next():
    async def main(session: towline.Session, world: testing.World) -> None:
        async with await session.create_bidirectional_stream() as stream:
            for part in range(10):
                await stream.write(b"%d" % part)
                for read in (stream.readexactly(11), stream.readuntil(b"\n"), stream.read()):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(read, 0.3)
            await stream.write(b"\n")
            assert await stream.readuntil(b"\n") == b"0123456789\n"

    run(main, seed=3, link=testing.Link(delay=0.02, loss=0.1))


def test_old_datagrams_are_not_sent():
    got: list[bytes] = []

    async def handler(session: towline.Session) -> None:
        async for datagram in session.datagrams:
            got.append(datagram)

    async def main(session: towline.Session, world: testing.World) -> tuple[int, int]:
        # Far more than the link carries in that time.
        sent = sum(session.datagrams.send(bytes(1000), max_age=0.5) for _ in range(100))
        await asyncio.sleep(10)
        session.datagrams.send(b"fresh", max_age=0.5)
        await asyncio.sleep(1)
        return sent, (await session.get_stats()).datagrams_expired

    sent, expired = run(main, handler, link=testing.Link(delay=0.1, rate=200_000))
    assert sent > 20
    assert got.pop() == b"fresh"
    assert expired > 0 and len(got) + expired == sent


def test_thousands_of_sessions_one_after_the_other():
    async def main() -> None:
        async with towline.serve(echo, "server", 443, certificate=world.certificate) as server:
            for _ in range(100):
                async with towline.connect(server.url, pins=[world.certificate]) as session:
                    async with await session.create_bidirectional_stream() as stream:
                        await stream.write(b"x")
                        assert await stream.read(1) == b"x"
                await asyncio.sleep(20)
            assert not server.sessions

    with testing.simulation(link=testing.Link("satellite")) as world:
        world.run(main())
        assert world.time > 2000


def test_a_server_drains_within_its_grace():
    drained: list[float] = []

    async def main() -> None:
        server = towline.serve(idle, "server", certificate=world.certificate, grace=30)
        async with server:
            polite = await towline.connect(server.url, pins=[world.certificate])
            rude = await towline.connect(server.url, pins=[world.certificate])

            async def leave() -> None:
                await polite.draining
                await asyncio.sleep(5)
                await polite.aclose()
                drained.append(world.time)

            leaving = asyncio.create_task(leave())
            began = world.time
            await server.drain()
            assert world.time - began == pytest.approx(30, abs=1)
            await leaving
            assert 5 < drained[0] - began < 7
        assert (await rude.closed).by_peer

    with testing.simulation(link=testing.Link(delay=0.05, loss=0.02)) as world:
        world.run(main())


def test_a_handler_that_fails_far_away_is_told_in_words(caplog):
    async def handler(session: towline.Session) -> None:
        await asyncio.sleep(3)
        raise ValueError("far away")

    async def main(session: towline.Session, world: testing.World) -> None:
        info = await session.closed
        assert (info.code, info.reason) == (towline.FAILED, "the handler failed")
        assert world.time > 3.3

    with caplog.at_level(logging.CRITICAL, logger="towline"):
        run(main, handler, link=testing.Link("satellite"))


def test_a_client_that_leaves_waits_for_a_slow_path_as_long_as_it_makes_progress():
    size = 1_000_000
    got: list[int] = []

    async def handler(session: towline.Session) -> None:
        async for stream in session.incoming_unidirectional_streams:
            got.append(len(await stream.read()))

    async def main(session: towline.Session, world: testing.World) -> None:
        async with await session.create_unidirectional_stream() as stream:
            await stream.write(bytes(size))

    run(main, handler, seed=5, link=testing.Link(delay=0.1, rate=500_000))
    assert got == [size]

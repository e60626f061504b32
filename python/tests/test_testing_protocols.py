"""Raw QUIC, requests and transport settings in virtual time, over simulated links."""

from __future__ import annotations

import asyncio

import pytest

import towline
from conftest import echo, idle
from towline import http, quic, testing

LOSSY = testing.Link(delay=0.15, rate=10_000_000, loss=0.02)


def test_a_protocol_of_ones_own_crosses_a_lossy_link():
    async def handler(connection) -> None:
        async for stream in connection.incoming_bidirectional_streams:
            async with stream:
                await stream.write(await stream.read())

    async def main() -> None:
        certificate = world.certificate
        async with (
            quic.serve(handler, "server", 99, certificate=certificate, alpn=["own"]),
            quic.connect("server", 99, alpn=["own"], pins=[certificate]) as connection,
            await connection.create_bidirectional_stream() as stream,
        ):
            await stream.write(bytes(100_000))
            stream.finish()
            assert await stream.read() == bytes(100_000)

    def trace() -> list[testing.Sent]:
        nonlocal world
        with testing.simulation(seed=3, link=LOSSY, trace=True) as world:
            world.run(main())
            assert world.path().stats.lost > 0
            return world.trace()

    world: testing.World
    assert trace() == trace()


def test_requests_are_answered_at_simulated_hosts():
    async def answer(request) -> None:
        await asyncio.sleep(5)
        await request.respond(200, request.path.encode())

    async def main() -> None:
        certificate = world.certificate
        async with towline.serve(echo, "server", 443, certificate=certificate, http=answer):
            response = await http.get("https://server/far", pins=[certificate])
            assert await response.read() == b"/far"
            await http.aclose()

    with testing.simulation(seed=3, link=LOSSY) as world:
        world.run(main())
        assert world.time > 5.6


def test_an_hour_of_silence_is_outlived_by_keep_alive_alone():
    async def main(keep_alive: float | None) -> None:
        config = towline.TransportConfig(keep_alive=keep_alive)
        pins = [world.certificate]
        async with towline.serve(idle, "server", 443, certificate=world.certificate):
            async with towline.connect("https://server/", pins=pins, config=config) as session:
                await asyncio.sleep(3600)
                assert not session.closed

    with testing.simulation(seed=3, link=LOSSY) as world:
        world.run(main(10))
    with testing.simulation(seed=3, link=LOSSY) as world:
        with pytest.raises(AssertionError):
            world.run(main(None))


def test_a_server_that_drains_delivers_what_its_handlers_answered():
    size = 400_000

    async def answer(request: http.Request) -> None:
        await request.respond(200, bytes(size))
        answered.set()

    async def main() -> None:
        server = towline.serve(idle, "server", 443, certificate=world.certificate, http=answer)
        async with server:
            getting = asyncio.ensure_future(fetch(server.url))
            await answered.wait()
            await server.drain()
            await server.close()
            assert len(await getting) == size
        await http.aclose()

    async def fetch(url: str) -> bytes:
        async with http.get(url, pins=[world.certificate]) as response:
            return await response.read()

    answered = asyncio.Event()
    with testing.simulation(seed=3, link=testing.Link(delay=0.05, rate=1_000_000)) as world:
        world.run(main())

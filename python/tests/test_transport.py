"""Transport settings, send groups and keying material of sessions."""

from __future__ import annotations

import asyncio

import pytest

import towline
from conftest import CERTIFICATE, connected, echo, idle
from towline import TransportConfig


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"idle_timeout": "1"}, TypeError, "argument 'idle_timeout': float"),
        ({"idle_timeout": -1.0}, ValueError, "argument 'idle_timeout'"),
        ({"idle_timeout": float("nan")}, ValueError, "argument 'idle_timeout'"),
        ({"idle_timeout": 1e300}, ValueError, "argument 'idle_timeout'"),
        ({"keep_alive": True}, TypeError, "argument 'keep_alive'"),
        ({"congestion": "fast"}, ValueError, "argument 'congestion'.*newreno, cubic, bbr"),
        ({"congestion": None}, TypeError, "argument 'congestion'"),
        ({"rate_limit": 0}, ValueError, "argument 'rate_limit'"),
        ({"initial_mtu": 500}, ValueError, "argument 'initial_mtu': 500 bytes.*1200 bytes to"),
        ({"initial_mtu": 70_000}, ValueError, "argument 'initial_mtu'"),
        ({"initial_mtu": 1400, "max_mtu": 1300}, ValueError, "argument 'max_mtu'"),
        ({"initial_rtt": 60.0}, ValueError, "argument 'initial_rtt'"),
        ({"packets_per_ack": 0}, ValueError, "argument 'packets_per_ack'"),
        ({"stream_send_buffer": 0}, ValueError, "argument 'stream_send_buffer'"),
        ({"receive_window": 2**63}, ValueError, "argument 'receive_window'"),
        ({"ecn": 1}, TypeError, "argument 'ecn': bool"),
        ({"max_bidirectional_streams": 1.5}, TypeError, "argument 'max_bidirectional_streams'"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings, kind, words):
    with pytest.raises(kind, match=words):
        TransportConfig(**settings)


def test_settings_are_compared_by_value_and_do_not_change():
    one = TransportConfig(idle_timeout=5, keep_alive=1)
    assert one == TransportConfig(idle_timeout=5, keep_alive=1)
    assert hash(one) == hash(TransportConfig(idle_timeout=5, keep_alive=1))
    with pytest.raises(AttributeError):
        one.idle_timeout = 1  # type: ignore[misc]


def test_wrong_configs_are_named():
    with pytest.raises(TypeError, match="argument 'config'"):
        towline.connect("https://localhost/", config=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="argument 'config'"):
        towline.serve(idle, certificate=CERTIFICATE, config=5)  # type: ignore[arg-type]


def test_http_3_needs_streams_of_its_own():
    config = TransportConfig(max_unidirectional_streams=2)
    with pytest.raises(ValueError, match="argument 'config': HTTP/3 needs"):
        towline.connect("https://localhost/", config=config)
    with pytest.raises(ValueError, match="argument 'config': HTTP/3 needs"):
        towline.serve(idle, certificate=CERTIFICATE, config=config)


def test_an_idle_session_is_over(run):
    async def main() -> None:
        async with towline.serve(idle, "127.0.0.1", certificate=CERTIFICATE) as server:
            config = TransportConfig(idle_timeout=0.3)
            session = await towline.connect(server.url, pins=[CERTIFICATE], config=config)
            with pytest.raises(towline.IdleTimeout):
                await session.closed
            await session.aclose()

    run(main())


def test_a_connection_that_is_kept_alive_asks_for_signs_of_life(run):
    config = TransportConfig(keep_alive=0.05)

    async def sent(session: towline.Session) -> int:
        return (await session.get_stats()).packets_sent

    async def main() -> None:
        async with connected(idle, config=config) as session:
            before = await sent(session)
            while await sent(session) < before + 10:
                await asyncio.sleep(0.05)

    run(main())


@pytest.mark.parametrize("congestion", ["newreno", "bbr", "ledbat++", "fixed:50mbit"])
def test_every_controller_carries_data(run, congestion):
    config = TransportConfig(congestion=congestion, mtu_search=False, initial_mtu=1400)

    async def main() -> None:
        async with connected(echo, config=config) as session:
            async with await session.create_bidirectional_stream() as stream:
                await stream.write(b"x" * 200_000)
                stream.finish()
                assert len(await stream.read()) == 200_000
            assert (await session.get_stats()).connection["mtu"] == 1400

    run(main())


def test_a_servers_limits_of_streams_hold(run):
    config = TransportConfig(max_bidirectional_streams=3)

    async def main() -> None:
        serving = towline.serve(idle, "127.0.0.1", certificate=CERTIFICATE, config=config)
        async with serving as server:
            async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
                opened = []
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        while len(opened) < 10:
                            opened.append(await session.create_bidirectional_stream())
                # The request of the session is one of them.
                assert len(opened) == 2
                session.close()

    run(main())


@pytest.mark.parametrize("apart", [True, False])
def test_groups_share_alike_whatever_the_orders_in_them(run, apart):
    size = 300_000
    shares: asyncio.Queue[dict[bytes, int]] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        read: dict[bytes, int] = {}

        async def count(stream: towline.ReceiveStream) -> None:
            name = await stream.readexactly(1)
            async for chunk in stream.chunks(1000):
                read[name] = read.get(name, 0) + len(chunk)
            shares.put_nowait(dict(read))

        async with asyncio.TaskGroup() as tasks:
            async for stream in session.incoming_unidirectional_streams:
                tasks.create_task(count(stream))

    async def main() -> None:
        async with connected(handler) as session:
            one = session.create_send_group()
            two = session.create_send_group() if apart else one
            low = await session.create_unidirectional_stream(send_order=-5, send_group=one)
            high = await session.create_unidirectional_stream(send_order=5, send_group=two)
            for stream, name in ((low, b"l"), (high, b"h")):
                await stream.write(name + bytes(size))
                stream.finish()
            first = await shares.get()
            other = min(first.get(b"l", 0), first.get(b"h", 0))
            assert other > size / 2 if apart else other < size / 10, first

    run(main())


def test_a_group_belongs_to_its_session(run):
    async def main() -> None:
        async with connected(idle) as session, connected(idle) as another:
            group = session.create_send_group()
            stream = await session.create_unidirectional_stream()
            stream.set_send_group(group)
            stream.set_send_group(None)
            assert session.datagrams.send(b"in a group", send_group=group)
            with pytest.raises(towline.UsageError, match="another session"):
                await another.create_bidirectional_stream(send_group=group)
            with pytest.raises(towline.UsageError, match="another session"):
                another.datagrams.send(b"x", send_group=group)

    run(main())


def test_keying_material_belongs_to_the_session(run):
    there: asyncio.Queue[bytes] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        there.put_nowait(session.export_keying_material("mine", b"context"))
        await asyncio.Event().wait()

    async def main() -> None:
        async with connected(handler) as session:
            mine = session.export_keying_material(b"mine", b"context")
            assert mine == await there.get()
            assert mine != session.export_keying_material("mine")
            with pytest.raises(ValueError, match="255 bytes"):
                session.export_keying_material("x" * 256)

    run(main())


def test_finished_of_a_stream_of_a_session(run):
    async def main() -> None:
        async with connected(echo) as session:
            async with await session.create_bidirectional_stream() as stream:
                await stream.write(b"all of it")
                await stream.finished()
                assert await stream.read() == b"all of it"
            with pytest.raises(towline.StreamFinished):
                await stream.finished()

    run(main())

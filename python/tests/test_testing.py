"""Programs over simulated links: what arrives, what is lost, and that a seed repeats it."""

from __future__ import annotations

import asyncio
import hashlib
import time

import pytest

import towline
from conftest import echo, resident_kilobytes
from towline import testing

LOSSY = testing.Link(delay=0.15, rate=10_000_000, loss=0.02)


async def served(world: testing.World, main, handler=echo):
    """What `main` makes of a session with a server that has this handler."""
    async with towline.serve(handler, "server", 443, certificate=world.certificate) as server:
        async with towline.connect(server.url, pins=[world.certificate]) as session:
            return await main(session)


async def round_trip(session: towline.Session, data: bytes) -> bytes:
    async with await session.create_bidirectional_stream() as stream:

        async def send() -> None:
            await stream.write(data)
            stream.finish()

        sending = asyncio.create_task(send())
        back = await stream.read()
        await sending
        return back


def test_data_cross_a_lossy_link():
    data = bytes(range(256)) * 4096

    async def main(session: towline.Session) -> bytes:
        return await round_trip(session, data)

    with testing.simulation(seed=7, link=LOSSY) as world:
        assert world.run(served(world, main)) == data
        # A megabyte each way at 10 Mbit/s, and at least two round trips.
        assert 0.84 + 0.6 < world.time < 60
        stats = world.path().stats
        assert stats.lost > 0
        assert stats.dropped >= stats.lost
        # But for what is still on its way.
        assert 0 <= stats.datagrams_sent - stats.datagrams_delivered - stats.dropped < 20
        assert stats.bytes_delivered > 2 * len(data)
        assert world.path().forward.stats.lost + world.path().backward.stats.lost == stats.lost


def events(seed: int, program: bool = True) -> tuple[str, int]:
    """A hash of all that a program saw and sent, with the times, and how much was lost."""
    seen = hashlib.sha256()

    async def main(session: towline.Session) -> None:
        loop = asyncio.get_running_loop()

        def note(*what: object) -> None:
            seen.update(repr((loop.time(), *what)).encode())

        async def one(number: int) -> None:
            async with await session.create_bidirectional_stream() as stream:
                async with asyncio.TaskGroup() as both:
                    both.create_task(write(stream, number))
                    async for chunk in stream.chunks():
                        note(number, chunk)

        async def write(stream: towline.BidirectionalStream, number: int) -> None:
            for part in range(20):
                await stream.write(b"%d" % number * 3000)
                note("written", number, part)
            stream.finish()

        async def datagrams() -> None:
            for number in range(200):
                session.datagrams.send(b"%d" % number)
                await asyncio.sleep(0.013)

        async with asyncio.TaskGroup() as tasks:
            for number in range(5):
                tasks.create_task(one(number))
            tasks.create_task(datagrams())
        note(sorted((await session.get_stats()).connection.items()))

    link = testing.Link(
        delay=0.05, jitter=0.01, rate=4e6, loss=0.03, duplicate=0.01, reorder=0.02, corrupt=0.01
    )
    with testing.simulation(seed=seed, link=link, trace=True) as world:
        world.run(served(world, main))
        for sent in world.trace():
            seen.update(repr(sent).encode())
        assert len(world.trace()) > 500
        return seen.hexdigest(), world.path().stats.dropped


def test_the_same_seed_gives_the_same_trace():
    first = events(5)
    assert events(5) == first
    assert events(6)[0] != first[0]


def test_an_hour_of_silence_with_signs_of_life():
    heard = 0

    async def handler(session: towline.Session) -> None:
        nonlocal heard
        async for _ in session.datagrams:
            heard += 1

    async def main(session: towline.Session) -> None:
        async with asyncio.timeout(3600 + 1):
            for _ in range(180):
                session.datagrams.send(b"here")
                await asyncio.sleep(20)
        assert not session.closed

    began = time.monotonic()
    link = testing.Link(delay=0.3, loss=0.02)
    with testing.simulation(seed=1, link=link) as world:
        world.run(served(world, main, handler))
        assert world.time > 3600
    assert 160 < heard < 180
    assert time.monotonic() - began < 10


def test_an_outage_is_outlived():
    async def main(session: towline.Session) -> None:
        loop = asyncio.get_running_loop()
        path = world.path()
        stream = await session.create_bidirectional_stream()
        await stream.write(b"before")
        assert await stream.readexactly(6) == b"before"
        with path.outage():
            began = loop.time()
            await stream.write(b"during")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(8):
                    await stream.readexactly(6)
            assert loop.time() - began == pytest.approx(8, abs=1e-6)
        assert await stream.readexactly(6) == b"during"
        assert loop.time() - began < 20
        assert path.stats.dropped_in_outage > 0
        await stream.write(b"after")
        assert await stream.readexactly(5) == b"after"
        stream.finish()

    with testing.simulation(seed=3, link=LOSSY) as world:
        world.run(served(world, main))


def test_an_outage_of_one_direction_ends_sessions_at_both_ends():
    over: list[BaseException] = []

    async def handler(session: towline.Session) -> None:
        try:
            await session.closed
        except towline.ConnectionLost as error:
            over.append(error)

    async def main() -> None:
        async with towline.serve(handler, "server", certificate=world.certificate) as server:
            session = await towline.connect(server.url, pins=[world.certificate])
            stream = await session.create_unidirectional_stream()
            with world.path().forward.outage():
                await stream.write(b"lost")
                with pytest.raises(towline.IdleTimeout):
                    await session.closed
            with pytest.raises(towline.IdleTimeout):
                await stream.write(b"more")
            await asyncio.sleep(60)

    with testing.simulation(seed=3, link=LOSSY) as world:
        world.run(main())
        assert 30 < world.time < 200
    assert [type(error) for error in over] == [towline.IdleTimeout]


def test_a_handler_that_waits_for_ever_is_told():
    async def handler(session: towline.Session) -> None:
        await asyncio.Event().wait()

    async def main(session: towline.Session) -> None:
        async def sign_of_life() -> None:
            while True:
                session.datagrams.send(b"")
                await asyncio.sleep(10)

        living = asyncio.create_task(sign_of_life())
        async with await session.create_bidirectional_stream() as stream:
            await stream.write(b"a question")
            await stream.read(1)
        living.cancel()

    with testing.simulation(seed=2, link=testing.Link("lte")) as world:
        with pytest.raises(testing.TimeLimit) as caught:
            world.run(served(world, main, handler), limit=600)
    words = str(caught.value)
    assert "handler: await asyncio.Event().wait()" in words
    assert "await stream.read(1)" in words


def test_two_ends_that_wait_for_each_other_are_told_within_a_limit():
    async def handler(session: towline.Session) -> None:
        async for stream in session.incoming_bidirectional_streams:
            async with stream:
                await stream.readexactly(100)

    async def main(session: towline.Session) -> None:
        async with await session.create_bidirectional_stream() as stream:
            await stream.write(b"too little")
            await stream.readuntil(b"answer")

    with testing.simulation() as world:
        with pytest.raises(testing.TimeLimit) as caught:
            world.run(served(world, main, handler), limit=20)
    words = str(caught.value)
    assert "await stream.readexactly(100)" in words
    assert 'await stream.readuntil(b"answer")' in words


def test_hosts_and_links_of_their_own():
    async def handler(session: towline.Session) -> None:
        async with await session.create_unidirectional_stream() as stream:
            await stream.write(session.remote_address[0].encode())
        await session.closed

    async def ask(server: towline.Server) -> tuple[bytes, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with towline.connect(server.url, pins=[world.certificate]) as session:
            stream = await anext(session.incoming_unidirectional_streams)
            return await stream.read(), loop.time() - began

    async def main() -> None:
        assert world.here.name == "shore"
        async with towline.serve(handler, None, certificate=world.certificate) as nobody:
            assert nobody.port != 0
        server = towline.serve(handler, "shore", 4433, certificate=world.certificate)
        async with server, asyncio.TaskGroup() as tasks:
            with world.at("near"):
                near = tasks.create_task(ask(server))
            with world.at("far"):
                assert world.here.name == "far"
                far = tasks.create_task(ask(server))
            assert world.here.name == "shore"
        assert near.result()[0] == world.hosts["near"].address.encode()
        assert far.result()[0] == world.hosts["far"].address.encode()
        assert near.result()[1] < 0.1 < 1.0 < far.result()[1]
        # They are not joined with each other.
        with pytest.raises(towline.ConnectTimeout):
            with world.at("near"):
                await towline.connect("https://far/", pins=[world.certificate])
        assert world.stats.without_a_link > 0

    with testing.simulation(hosts=["shore", "near", "far"], link=None) as world:
        world.join("shore", "near", testing.Link(delay=0.01))
        world.join("far", "shore", testing.Link(delay=0.3))
        world.run(main())
        assert world.path("shore", "far") is world.path("far", "shore")
        assert len(world.paths) == 2


def test_a_host_reaches_itself():
    async def main() -> None:
        async with towline.serve(echo, "client", certificate=world.certificate) as server:
            async with towline.connect(server.url, pins=[world.certificate]) as session:
                assert await round_trip(session, b"here") == b"here"

    with testing.simulation(link=testing.Link(loss=1.0)) as world:
        world.run(main())


def test_a_nat_that_is_rebooted_loses_no_session():
    async def main(session: towline.Session) -> None:
        for _ in range(5):
            assert await round_trip(session, bytes(10_000)) == bytes(10_000)
            world.hosts["client"].rebind()
        assert await round_trip(session, b"still here") == b"still here"

    with testing.simulation(seed=4, link=LOSSY) as world:
        world.run(served(world, main))


def test_a_nat_that_forgets_keeps_out_what_is_not_asked_for():
    async def handler(session: towline.Session) -> None:
        await asyncio.sleep(25)
        async with await session.create_unidirectional_stream() as stream:
            await stream.write(b"unasked")
        await session.closed

    async def main(session: towline.Session) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        asking = asyncio.get_running_loop().call_later(40, session.datagrams.send, b"anything new?")
        stream = await anext(session.incoming_unidirectional_streams)
        assert await stream.read() == b"unasked"
        asking.cancel()
        return loop.time() - began

    def waited(nat: testing.Nat | None) -> tuple[float, int]:
        with testing.simulation(seed=4, link=testing.Link(delay=0.05)) as world:
            world.hosts["client"].set_nat(nat)
            return world.run(served(world, main, handler)), world.stats.kept_out_by_nats

    assert waited(None)[0] < 26
    seconds, kept_out = waited(testing.Nat(idle=5))
    assert seconds > 28 and kept_out > 0


def test_links_change_in_mid_run():
    async def main(session: towline.Session) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        times = []
        for rate in (1_000_000, 8_000_000):
            world.path().change(rate=rate)
            began = loop.time()
            assert len(await round_trip(session, bytes(500_000))) == 500_000
            times.append(loop.time() - began)
        assert world.path().forward.link == testing.Link(delay=0.05, rate=8_000_000)
        world.path().backward.change(testing.Link("lan"))
        assert world.path().forward.link.delay == 0.05
        return times[0], times[1]

    with testing.simulation(link=testing.Link(delay=0.05)) as world:
        slow, fast = world.run(served(world, main))
    assert slow > 4 and slow > 3 * fast


def test_a_slow_link_loses_what_is_too_much_for_its_queue():
    async def main(session: towline.Session) -> None:
        assert len(await round_trip(session, bytes(1_000_000))) == 1_000_000

    link = testing.Link(delay=0.1, rate=2_000_000, queue=16_000, drop=(3, 4))
    with testing.simulation(link=link) as world:
        world.run(served(world, main))
        stats = world.path().stats
        assert stats.dropped_in_queue > 0
        assert stats.lost == 4
        assert 0 < stats.queue_peak_bytes <= 16_000


def test_addresses_are_those_of_hosts():
    async def main() -> None:
        pins = [world.certificate]
        with pytest.raises(towline.ConnectFailed, match="no host of this name .*client, server"):
            await towline.connect("https://localhost/", pins=pins)
        serve = towline.serve(echo, "localhost", certificate=world.certificate)
        with pytest.raises(OSError, match="localhost was not found|no simulated host"):
            await serve
        with pytest.raises(OSError, match="no simulated host .*server 10.0.0.2"):
            await towline.serve(echo, "127.0.0.1", certificate=world.certificate)
        async with towline.serve(echo, "10.0.0.2", 443, certificate=world.certificate):
            with pytest.raises(OSError, match="port 443 of 10.0.0.2 is taken") as caught:
                await towline.serve(echo, "server", 443, certificate=world.certificate)
            assert caught.value.errno is not None
            async with towline.connect("https://10.0.0.2/", pins=pins) as session:
                assert session.remote_address == ("10.0.0.2", 443)
        async with towline.serve(echo, "server", 443, certificate=world.certificate):
            pass
        with pytest.raises(towline.ConnectTimeout):
            await towline.connect("https://server:444/", pins=pins)

    with testing.simulation() as world:
        world.run(main())


def test_a_program_that_fails_tells_its_seed():
    async def main(session: towline.Session) -> None:
        await asyncio.sleep(1)
        raise ValueError("the program's own")

    with pytest.raises(ValueError) as caught:
        with testing.simulation(seed=77) as world:
            world.run(served(world, main))
    assert any("seed 77, after 1." in note for note in caught.value.__notes__)


def test_a_world_ends_with_open_sessions():
    kept: list[object] = []

    async def main() -> None:
        server = await towline.serve(echo, "server", certificate=world.certificate)
        session = await towline.connect(server.url, pins=[world.certificate])
        stream = await session.create_bidirectional_stream()
        await stream.write(b"x")
        assert await stream.read(1) == b"x"
        kept.extend([server, session, stream, asyncio.create_task(stream.read(1))])
        await asyncio.sleep(0)

    with testing.simulation(link=LOSSY) as world:
        world.run(main())
    assert kept.pop().cancelled()


def test_a_world_that_is_over_holds_nothing():
    kept: list[testing.World] = []

    async def main(session: towline.Session) -> None:
        assert await round_trip(session, b"x") == b"x"

    def run_worlds(count: int) -> int:
        for _ in range(count):
            with testing.simulation() as world:
                world.run(served(world, main))
            # Whoever keeps one, keeps no buffers.
            kept.append(world)
        return resident_kilobytes()

    before = run_worlds(5)
    assert run_worlds(30) - before < 15_000


def test_worlds_know_nothing_of_each_other():
    with testing.simulation(seed=9) as other:
        certificate = other.certificate

    def trace() -> list[testing.Sent]:
        async def main() -> None:
            async with towline.serve(echo, "server", certificate=certificate) as server:
                for _ in range(3):
                    async with towline.connect(server.url, pins=[certificate]) as session:
                        await round_trip(session, bytes(1000))

        with testing.simulation(seed=1, link=LOSSY, trace=True) as world:
            world.run(main())
            return world.trace()

    first = trace()
    assert {sent.source.split(":")[0] for sent in first} == {"client", "server"}
    assert trace() == first


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"loss": 2}, ValueError, "argument 'loss': a probability is 0 to 1, not 2"),
        ({"loss": "2%"}, TypeError, "argument 'loss': a number is required, not 'str'"),
        ({"loss": float("nan")}, ValueError, "argument 'loss': a finite number"),
        ({"loss": testing.BurstLoss(0.1, 1.5)}, ValueError, "argument 'leave'"),
        ({"delay": -1}, ValueError, "argument 'delay': 0 to"),
        ({"delay": True}, TypeError, "argument 'delay': a number is required, not 'bool'"),
        ({"rate": 0}, ValueError, "argument 'rate': .*`outage`"),
        ({"queue": 0}, ValueError, "argument 'queue'"),
        ({"queue": 1.5}, TypeError, "argument 'queue': an int is required"),
        ({"policer": 5}, TypeError, "argument 'policer': a pair"),
        ({"drop": 3}, TypeError, "argument 'drop': a tuple of int"),
        ({"drop": (0,)}, ValueError, "argument 'drop': 1 to"),
        ({"reorder_delay": 0.1}, ValueError, "give 'reorder' too"),
        ({"keep_order": 1}, TypeError, "argument 'keep_order': a bool"),
        ({"profile": "5g"}, ValueError, "argument 'profile': one of local, lan"),
        ({"ecn_rewrite": "all"}, ValueError, "argument 'ecn_rewrite': one of bleach"),
        ({"aqm": "codel,loss=1"}, ValueError, "argument 'aqm': .*more than one setting"),
        ({"bandwidth": 5}, TypeError, "bandwidth"),
    ],
)
def test_impossible_links_are_refused(settings, error, words):
    with pytest.raises(error, match=words):
        testing.Link(**settings)


def test_impossible_worlds_are_refused():
    simulation = testing.simulation
    for wrong, error, words in [
        ({"seed": "7"}, TypeError, "argument 'seed': an int"),
        ({"seed": -1}, ValueError, "argument 'seed': 0 to"),
        ({"hosts": "ab"}, TypeError, "argument 'hosts': a list"),
        ({"hosts": []}, ValueError, "argument 'hosts': at least one"),
        ({"hosts": ["a", "a"]}, ValueError, "there is a host 'a' already"),
        ({"hosts": ["A b"]}, ValueError, "'A b' is no name for a host"),
        ({"hosts": ["10.0.0.1"]}, ValueError, "is no name for a host"),
        ({"hosts": [5]}, TypeError, "must be a str, not 'int'"),
        ({"link": 0.5}, TypeError, "argument 'link': a Link is required, not 'float'"),
        ({"link": testing.Link(), "back": 1}, TypeError, "argument 'back'"),
        # What its settings are together, the link itself says.
        ({"link": testing.Link(aqm="codel")}, ValueError, "aqm.*without a bottleneck"),
        ({"link": testing.Link(aqm="magic", rate=1)}, ValueError, "magic"),
    ]:
        with pytest.raises(error, match=words):
            simulation(**wrong)
    world = simulation(hosts=["a", "b", "c"], link=None)
    with pytest.raises(ValueError, match="0 paths: name the two hosts"):
        world.path()
    with pytest.raises(ValueError, match="not joined"):
        world.path("a", "b")
    path = world.join("a", "b", testing.Link())
    with pytest.raises(ValueError, match="joined already"):
        world.join("b", "a", testing.Link())
    with pytest.raises(ValueError, match="reaches itself"):
        world.join("a", "a", testing.Link())
    with pytest.raises(ValueError, match="argument 'b': there is no host 'z'"):
        world.join("a", "z", testing.Link())
    with pytest.raises(ValueError, match="argument 'loss'"):
        path.change(loss=7)
    with pytest.raises(ValueError, match="codel"):
        path.change(aqm="codel")
    assert path.forward.link == testing.Link()
    with pytest.raises(TypeError, match="argument 'nat': a Nat"):
        world.hosts["a"].set_nat("idle=1s")
    with pytest.raises(ValueError, match="argument 'change': one of port"):
        testing.Nat(5, change="name")
    with pytest.raises(ValueError, match="0 never lets"):
        world.hosts["a"].set_nat(testing.Nat(idle=0))
    world.close()

"""Pools: places, order, health, and what is thrown away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from conftest import CERTIFICATE, connected, idle

import towline
from towline.pool import PoolStats, SessionPool, StreamPool


def serving(handler: Any = idle) -> towline.Server:
    return towline.serve(handler, "127.0.0.1", certificate=CERTIFICATE)


def pool_of(server: towline.Server, size: int = 2, **options: Any) -> SessionPool:
    return SessionPool(lambda: towline.connect(server.url, pins=[CERTIFICATE]), size, **options)


async def lines(session: towline.Session) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(answer(stream))


async def answer(stream: towline.BidirectionalStream) -> None:
    with contextlib.suppress(towline.StreamError):
        async with stream:
            async for line in stream.lines():
                await stream.write(line.upper())
                if line == b"end\n":
                    return


def test_sessions_are_lent_again(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with serving() as server, pool_of(server) as pool:
            async with pool.session() as first:
                assert pool.stats == PoolStats(0, 1, 0, 1, 0)
            async with pool.session() as again, pool.session() as other:
                assert again is first and other is not first
                assert pool.stats == PoolStats(0, 2, 0, 2, 0)
            assert pool.stats == PoolStats(2, 0, 0, 2, 0)
        assert first.closed and other.closed
        assert pool.stats == PoolStats(0, 0, 0, 2, 2)

    run(main())


def test_who_waits_is_served_in_order(run: Callable[..., Any]) -> None:
    order: list[int] = []

    async def main() -> None:
        async with serving() as server, pool_of(server, 1) as pool:

            async def use(n: int) -> None:
                async with pool.session():
                    order.append(n)
                    await asyncio.sleep(0)

            async with pool.session():
                tasks = [asyncio.create_task(use(n)) for n in range(5)]
                await asyncio.sleep(0.01)
                assert pool.stats.waiting == 5
                tasks[1].cancel()
                await asyncio.sleep(0)
                late = asyncio.create_task(use(5))
            await asyncio.gather(*tasks, late, return_exceptions=True)
            assert order == [0, 2, 3, 4, 5]
            assert pool.stats == PoolStats(1, 0, 0, 1, 0)

    run(main())


def test_a_place_given_to_who_has_gone_goes_on(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with serving() as server, pool_of(server, 1) as pool:
            first = pool.session()
            await first.__aenter__()
            gone = asyncio.create_task(pool.session().__aenter__())
            next_one = pool.session()
            entering = asyncio.create_task(next_one.__aenter__())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # Given back and cancelled in the same round of the loop.
            pool._lent -= 1
            pool._wake()
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            await entering
            assert pool.stats.lent == 1
            await next_one.__aexit__(None, None, None)
            pool._lent += 1
            await first.__aexit__(None, None, None)

    run(main())


def test_no_more_than_so_many_wait(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with serving() as server, pool_of(server, 1, max_waiting=0) as pool:
            async with pool.session():
                with pytest.raises(asyncio.QueueFull, match="0 wait"):
                    async with pool.session():
                        pass

    run(main())


def test_sessions_that_are_over_or_unfit_are_not_lent(run: Callable[..., Any]) -> None:
    unfit: list[towline.Session] = []

    async def main() -> None:
        async with serving() as server:
            async with pool_of(server, healthy=lambda session: session not in unfit) as pool:
                async with pool.session() as closed:
                    pass
                closed.close()
                async with pool.session() as second:
                    assert second is not closed
                    unfit.append(second)
                async with pool.session() as third:
                    assert third is not second and second.closed
                server.sessions[-1].drain()
                await third.draining
                async with pool.session() as fourth:
                    assert fourth is not third
                while pool.stats.discarded < 3:
                    await asyncio.sleep(0.01)
                assert pool.stats == PoolStats(1, 0, 0, 4, 3)

    run(main())


def test_an_exception_throws_the_session_away(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with serving() as server, pool_of(server, 1) as pool:
            with pytest.raises(LookupError):
                async with pool.session() as session:
                    raise LookupError
            assert session.closed
            task = asyncio.create_task(hold(pool))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with pool.session():
                assert pool.stats.lent == 1

    async def hold(pool: SessionPool) -> None:
        async with pool.session():
            await asyncio.Event().wait()

    run(main())


def test_a_connect_that_fails_frees_its_place(run: Callable[..., Any]) -> None:
    fails = True

    async def main() -> None:
        nonlocal fails

        async with serving() as server:

            async def connect() -> towline.Session:
                if fails:
                    await asyncio.sleep(0.01)
                    raise towline.ConnectFailed("no network")
                return await towline.connect(server.url, pins=[CERTIFICATE])

            async with SessionPool(connect, 1) as pool:

                async def use() -> None:
                    async with pool.session():
                        pass

                tasks = [asyncio.create_task(use()) for _ in range(3)]
                results = await asyncio.gather(*tasks, return_exceptions=True)
                assert [type(result) for result in results] == [towline.ConnectFailed] * 3
                assert pool.stats == PoolStats(0, 0, 0, 0, 0)
                fails = False
                await use()

    run(main())


def test_what_idles_is_closed(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with serving() as server, pool_of(server, max_idle=0.05) as pool:
            async with pool.session() as first, pool.session() as second:
                pass
            await first.closed
            await second.closed
            while pool.stats != PoolStats(0, 0, 0, 2, 2):
                await asyncio.sleep(0.01)

    run(main())


def test_a_pool_that_closes_wakes_who_waits(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with serving() as server:
            async with pool_of(server, 1) as pool:
                holding = pool.session()
                session = await holding.__aenter__()
                waiting = asyncio.create_task(pool.session().__aenter__())
                await asyncio.sleep(0)
            with pytest.raises(towline.UsageError, match="the pool was closed"):
                await waiting
            assert not session.closed, "what is lent is its user's"
            await holding.__aexit__(None, None, None)
            assert session.closed
            with pytest.raises(towline.UsageError, match="the pool is closed"):
                async with pool.session():
                    pass

    run(main())


def test_streams_are_lent_again_while_they_can_be_used(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(lines) as session, StreamPool(session, 2) as pool:

            async def ask(line: bytes) -> tuple[int, bytes]:
                async with pool.stream() as stream:
                    await stream.write(line)
                    return stream.id, await stream.readuntil()

            first, reply = await ask(b"a\n")
            assert reply == b"A\n"
            assert (await ask(b"b\n"))[0] == first
            both = await asyncio.gather(*(ask(b"c\n") for _ in range(6)))
            assert {number for number, _ in both} >= {first}
            assert pool.stats.made == 2
            # The far side ends it; this end finishes it; something is left unread; an exception.
            await ask(b"end\n")
            await asyncio.sleep(0.05)
            async with pool.stream() as stream:
                stream.finish()
            async with pool.stream() as stream:
                await stream.write(b"x\ny\n")
                await stream.readuntil()
                await asyncio.sleep(0.05)
            with pytest.raises(LookupError):
                async with pool.stream():
                    raise LookupError
            made = pool.stats.made
            assert (await ask(b"d\n"))[1] == b"D\n"
            assert pool.stats.lent == 0
            assert pool.stats.discarded >= 3 and made >= 4

    run(main())


def test_a_session_that_ends_is_the_streams_error(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(lines) as session, StreamPool(session) as pool:
            async with pool.stream() as stream:
                await stream.write(b"a\n")
                await stream.readuntil()
            session.close()
            with pytest.raises(towline.SessionClosed):
                async with pool.stream():
                    pass
            assert pool.stats.lent == 0

    run(main())


def test_wrong_arguments_are_named(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(idle) as session:
            with pytest.raises(TypeError, match="'session'"):
                StreamPool(3)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="'size'"):
                StreamPool(session, 0)
            with pytest.raises(ValueError, match="'max_idle'"):
                StreamPool(session, max_idle=0)
            with pytest.raises(ValueError, match="'max_waiting'"):
                StreamPool(session, max_waiting=-1)
            with pytest.raises(TypeError, match="'connect'"):
                SessionPool("https://x")  # type: ignore[arg-type]

    run(main())

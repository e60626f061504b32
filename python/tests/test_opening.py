"""Streams that wait until the peer permits them: first come, first served, and nobody is forgotten."""

from __future__ import annotations

import asyncio

import pytest

import towline
from conftest import connected, idle


async def fill(session: towline.Session) -> list[towline.BidirectionalStream]:
    """Opens as many as the peer permits."""
    streams = []
    try:
        while True:
            async with asyncio.timeout(0.2):
                streams.append(await session.create_bidirectional_stream())
            await streams[-1].write(b"x")
    except TimeoutError:
        return streams


async def read_each(session: towline.Session) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(read(stream))


async def read(stream: towline.BidirectionalStream) -> None:
    async with stream:
        await stream.read()


def opening(session: towline.Session, number: int, order: list[int]) -> asyncio.Task[None]:
    async def opens() -> None:
        stream = await session.create_bidirectional_stream()
        order.append(number)
        async with stream:
            await stream.write(b"y")

    return asyncio.create_task(opens())


def test_those_who_wait_are_served_in_the_order_in_which_they_came(run):
    async def main() -> None:
        async with connected(read_each) as session:
            streams = await fill(session)
            order: list[int] = []
            tasks = [opening(session, number, order) for number in range(300)]
            await asyncio.sleep(0.05)
            assert order == []
            for stream in streams:
                async with stream:
                    pass
            await asyncio.gather(*tasks)
            assert order == list(range(300))

    run(main())


def test_one_who_is_cancelled_keeps_nobody_waiting(run):
    async def main() -> None:
        async with connected(read_each) as session:
            streams = await fill(session)
            order: list[int] = []
            tasks = [opening(session, number, order) for number in range(6)]
            await asyncio.sleep(0.05)
            # The first, one in the middle, and two at once with the word that it is their turn.
            tasks[0].cancel()
            tasks[3].cancel()
            await asyncio.sleep(0)
            tasks[1].cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            tasks[2].cancel()
            for stream in streams:
                async with stream:
                    pass
            results = await asyncio.gather(*tasks, return_exceptions=True)
            cancelled = [isinstance(result, asyncio.CancelledError) for result in results]
            assert cancelled == [True, True, True, True, False, False]
            assert order == [4, 5]
            # Nobody waits any more: the next is served at once.
            stream = await session.create_bidirectional_stream()
            stream.reset()

    run(main())


def test_all_who_wait_learn_of_the_end(run):
    async def main() -> None:
        async with connected(idle) as session:
            await fill(session)
            order: list[int] = []
            tasks = [opening(session, number, order) for number in range(5)]
            await asyncio.sleep(0.05)
            session.close(7, "enough")
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(result) for result in results] == [towline.SessionClosed] * 5
            with pytest.raises(towline.SessionClosed):
                await session.create_bidirectional_stream()

    run(main())

"""Datagrams: what arrives, what is too large, and what is too old."""

from __future__ import annotations

import asyncio

import pytest

import towline
from conftest import connected, idle


async def echo(session: towline.Session) -> None:
    async for datagram in session.datagrams:
        await session.datagrams.send_wait(datagram)


def test_1_000_datagrams_come_back(run):
    async def main() -> None:
        async with connected(echo) as session:
            back = set()

            async def receive() -> None:
                while len(back) < 1000:
                    back.add(await session.datagrams.receive())

            receiving = asyncio.create_task(receive())
            for number in range(1000):
                await session.datagrams.send_wait(b"%d" % number)
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await receiving
            assert back == {b"%d" % number for number in range(1000)}

    run(main())


def test_a_datagram_that_does_not_fit_is_refused(run):
    async def main() -> None:
        async with connected(idle) as session:
            assert session.datagrams.max_size > 1000
            with pytest.raises(towline.DatagramTooLarge) as caught:
                session.datagrams.send(bytes(70_000))
            assert isinstance(caught.value, ValueError)
            assert 1000 < caught.value.limit < 70_000
            assert session.datagrams.send(bytearray(b"fits"))
            with pytest.raises(ValueError, match="'max_age'"):
                session.datagrams.send(b"x", max_age=-1)

    run(main())


def test_a_full_queue_is_said_and_a_waiter_gets_its_turn(run):
    async def main() -> None:
        async with connected(idle) as session:
            datagram = bytes(1000)
            sent = 0
            while session.datagrams.send(datagram):
                sent += 1
                assert sent < 100_000, "the queue has no end"
            await session.datagrams.send_wait(datagram)

    run(main())


def test_what_waited_for_too_long_is_not_sent(run):
    async def main() -> None:
        async with connected(idle) as session:
            # More than leaves at once.
            while session.datagrams.send(bytes(1000), max_age=0.001):
                pass
            await asyncio.sleep(0.2)
            assert (await session.get_stats()).datagrams_expired > 0

    run(main())


def test_a_cancelled_wait_for_a_datagram_takes_none(run):
    async def main() -> None:
        async with connected(echo) as session:
            task = asyncio.create_task(session.datagrams.receive())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            session.datagrams.send(b"for the next")
            async with asyncio.timeout(10):
                assert await session.datagrams.receive() == b"for the next"

    run(main())

"""Typed messages on a stream and in datagrams, and what becomes of a bad one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import towline
from towline.structured import BadMessage, StructuredDatagrams, StructuredStream


@dataclass
class Point:
    x: float
    y: float


@dataclass
class Move:
    ship: str
    to: Point
    via: list[Point] = field(default_factory=list)


async def harbour(session: towline.Session) -> None:
    """Answers moves on streams, and sends positions back as they come."""

    async def positions() -> None:
        datagrams = StructuredDatagrams(session.datagrams, Point)
        async for point in datagrams:
            datagrams.send(Point(point.x + 1, point.y))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(positions())
        async for inner in session.incoming_bidirectional_streams:
            async with StructuredStream(inner, Move, limit=4096) as stream:
                while True:
                    try:
                        move = await stream.receive()
                    except BadMessage as error:
                        print("refused:", error.reason)
                    except EOFError:
                        break
                    else:
                        await stream.send(Move(move.ship, move.via[0] if move.via else move.to))


async def main() -> None:
    certificate = towline.generate_certificate("127.0.0.1")
    async with towline.serve(harbour, "127.0.0.1", certificate=certificate) as server:
        async with towline.connect(server.url, pins=[certificate]) as session:
            inner = await session.create_bidirectional_stream()
            async with StructuredStream(inner, Move) as stream:
                await stream.send(Move("Beatrice", Point(60.1, 24.9), [Point(59.9, 24.0)]))
                print(await stream.receive())
                await stream.send_bytes(b'{"ship": "Beatrice", "to": {"x": "north"}}')
                await stream.send(Move("Beatrice", Point(1, 2)))
                print(await stream.receive())
            positions = StructuredDatagrams(session.datagrams, Point)
            positions.send(Point(1, 2))
            print(await positions.receive())


asyncio.run(main())

"""Two sessions for six callers, and one stream for exchanges in a row."""

from __future__ import annotations

import asyncio

import towline
from towline.pool import SessionPool, StreamPool


async def shout(stream: towline.BidirectionalStream) -> None:
    async with stream:
        async for line in stream.lines():
            await stream.write(line.upper())


async def handler(session: towline.Session) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(shout(stream))


async def ask(pool: SessionPool, words: bytes) -> bytes:
    async with pool.session() as session:
        async with await session.create_bidirectional_stream() as stream:
            await stream.write(words + b"\n")
            return await stream.readuntil()


async def main() -> None:
    certificate = towline.generate_certificate("127.0.0.1")
    async with towline.serve(handler, "127.0.0.1", certificate=certificate) as server:

        def connect() -> towline.Connecting:
            return towline.connect(server.url, pins=[certificate])

        async with SessionPool(connect, size=2) as pool:
            print(await asyncio.gather(*(ask(pool, b"call %d" % n) for n in range(6))))
            print(pool.stats)
            async with pool.session() as session, StreamPool(session, size=1) as streams:
                for words in (b"one\n", b"two\n"):
                    async with streams.stream() as stream:
                        await stream.write(words)
                        print(stream.id, await stream.readuntil())


asyncio.run(main())

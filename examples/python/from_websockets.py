"""A WebSocket server and its client, moved: one stream carries messages in order, as the socket did."""

from __future__ import annotations

import asyncio
import json

import towline


async def handler(session: towline.Session) -> None:
    """Was `async def handler(websocket)`: the client's first stream is the socket."""
    stream = await anext(session.incoming_bidirectional_streams)
    async with stream:
        async for line in stream.lines(limit=1 << 20):  # `max_size` of websockets
            message = json.loads(line)
            await stream.write(json.dumps({"sum": sum(message["add"])}).encode() + b"\n")


async def client(url: str, pin: str) -> None:
    """Was `async with websockets.connect(url) as websocket`."""
    async with towline.connect(url, pins=[pin]) as session:
        async with await session.create_bidirectional_stream() as stream:
            for numbers in ([1, 2, 3], [4, 5]):
                await stream.write(json.dumps({"add": numbers}).encode() + b"\n")
                print(json.loads(await stream.readuntil(b"\n")))
        # New: what does not have to wait for the rest goes beside it.
        session.datagrams.send(b"position")


async def main() -> None:
    """Both ends in one program."""
    certificate = towline.generate_certificate("localhost")
    async with towline.serve(handler, "localhost", certificate=certificate) as server:
        await client(server.url, certificate.sha256)


asyncio.run(main())

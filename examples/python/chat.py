"""A server that shouts back what clients say, and a client that talks to it, each way there is."""

from __future__ import annotations

import asyncio

import towline


async def chat(session: towline.Session) -> None:
    """Answers each stream of a session; cancelled when the session ends."""
    async with asyncio.TaskGroup() as tasks:
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(shout(stream))


async def shout(stream: towline.BidirectionalStream) -> None:
    """Sends each line back in capitals."""
    async with stream:  # a clean exit ends the stream, an exception resets it
        async for line in stream.lines(limit=65536):
            await stream.write(line.upper())  # waits only while the stream's buffer is full


async def client(url: str, pin: str) -> None:
    """Says something on a stream, sends a datagram, and asks how the connection does."""
    async with towline.connect(url, pins=[pin], protocols=["chat.v2"]) as session:
        async with await session.create_bidirectional_stream(send_order=5) as stream:
            await stream.write(b"ahoy\n")
            print(await stream.readuntil(b"\n"))
        # Dropped if it cannot leave within a quarter of a second.
        session.datagrams.send(b"60.1,24.9", max_age=0.25)
        print(session.protocol, (await session.get_stats()).smoothed_rtt < 10)


async def main() -> None:
    """Both ends in one program."""
    certificate = towline.generate_certificate("localhost")
    async with towline.serve(
        chat, "localhost", certificate=certificate, protocols=["chat.v2", "chat.v1"]
    ) as server:
        try:
            await client(f"{server.url}/chat", certificate.sha256)
            await client(f"{server.url}/chat", "0" * 64)
        except towline.HandshakeRefused as error:  # also a ConnectionRefusedError
            print("refused, as it should be:", str(error).partition(":")[0])
        except towline.SessionClosed as error:  # also a ConnectionError
            print(error.code, error.reason)


asyncio.run(main())

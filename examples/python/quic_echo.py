"""QUIC for a protocol of one's own: a server that sends lines back in capitals, and its client."""

from __future__ import annotations

import asyncio

import towline
from towline import quic


async def shout(connection: quic.Connection) -> None:
    async for stream in connection.incoming_bidirectional_streams:
        async with stream:
            async for line in stream.lines():
                await stream.write(line.upper())


async def main() -> None:
    certificate = towline.generate_certificate("localhost")
    # Ships' links sleep: ask for a sign of life before the router forgets the way.
    config = towline.TransportConfig(idle_timeout=60, keep_alive=15)
    async with quic.serve(
        shout, port=0, certificate=certificate, alpn=["shout"], config=config
    ) as server:
        connecting = quic.connect(
            "localhost", server.port, alpn=["shout"], pins=[certificate], config=config
        )
        async with connecting as connection:
            print("speaks", connection.alpn)
            async with await connection.create_bidirectional_stream() as stream:
                await stream.write(b"ahoy\n")
                print((await stream.readuntil()).decode().strip())
                await stream.finished()
            await connection.aclose(2**40, "codes have 62 bits")
            end = await connection.closed
            print(end.code, end.reason)


asyncio.run(main())

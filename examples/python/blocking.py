"""A client without asyncio: the same names, and each call waits until it is done."""

from __future__ import annotations

import asyncio
import threading

import towline
from towline.sync import connect


def client(url: str, pin: str) -> None:
    """What a script or a thread does."""
    with connect(url, pins=[pin], timeout=10) as session:
        with session.create_bidirectional_stream() as stream:
            stream.write(b"hi\n")
            print(stream.readuntil(b"\n", timeout=5))
            try:
                stream.readuntil(b"\n", timeout=0.1)
            except TimeoutError:
                print("nothing more within a tenth of a second")


async def echo(session: towline.Session) -> None:
    """Sends everything back."""
    async for stream in session.incoming_bidirectional_streams:
        async with stream:
            async for chunk in stream.chunks():
                await stream.write(chunk)


async def main() -> None:
    """A server in a loop, and the client in a thread beside it."""
    certificate = towline.generate_certificate("localhost")
    async with towline.serve(echo, "localhost", certificate=certificate) as server:
        arguments = (server.url, certificate.sha256)
        thread = threading.Thread(target=client, args=arguments)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.01)


asyncio.run(main())

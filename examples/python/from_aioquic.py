"""The WebTransport handler of aioquic's demo server, moved: its events are loops here."""

from __future__ import annotations

import asyncio

import towline


async def handler(session: towline.Session) -> None:
    """Was a class with `http_event_received` and a branch for each kind of event."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(datagrams(session))
        tasks.create_task(one_way(session))
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(both_ways(stream))


async def datagrams(session: towline.Session) -> None:
    """Was `DatagramReceived`, `send_datagram` and `transmit`."""
    async for datagram in session.datagrams:
        session.datagrams.send(datagram)


async def both_ways(stream: towline.BidirectionalStream) -> None:
    """Was `WebTransportStreamDataReceived`, `send_stream_data` and `transmit`."""
    async with stream:
        async for chunk in stream.chunks():
            await stream.write(chunk)  # waits while the peer does not read; aioquic's queue grew


async def one_way(session: towline.Session) -> None:
    """Was the branch of unidirectional streams, with `create_webtransport_stream`."""
    async for stream in session.incoming_unidirectional_streams:
        async with stream, await session.create_unidirectional_stream() as back:
            async for chunk in stream.chunks():
                await back.write(chunk)


async def client(url: str, pin: str) -> None:
    """Was a protocol with a waiter for each answer."""
    async with towline.connect(url, pins=[pin]) as session:
        async with await session.create_bidirectional_stream() as stream:
            await stream.write(b"both ways")
            stream.finish()
            print(await stream.read())
        async with await session.create_unidirectional_stream() as there:
            await there.write(b"one way")
        back = await anext(session.incoming_unidirectional_streams)
        print(await back.read())
        session.datagrams.send(b"datagram")
        print(await session.datagrams.receive())


async def main() -> None:
    """Both ends in one program."""
    certificate = towline.generate_certificate("localhost")
    async with towline.serve(handler, "localhost", certificate=certificate) as server:
        await client(server.url, certificate.sha256)


asyncio.run(main())

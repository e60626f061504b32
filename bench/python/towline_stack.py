"""Towline behind the measurements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import sessions
import towline


class Towline(sessions.Stack):
    async def serve(self, handler: Callable[[towline.Session], Awaitable[None]]) -> None:
        certificate = towline.Certificate.load(self.certificate, self.key)
        async with towline.serve(handler, self.host, self.port, certificate=certificate) as running:
            sessions.listening(self.host, running.port)
            await asyncio.Event().wait()

    async def dial(self) -> None:
        self.pins = [towline.Certificate.load(self.certificate, self.key)]

    async def connect(self) -> towline.Session:
        return await towline.connect(self.url, pins=self.pins)

    def close(self, session: towline.Session) -> None:
        session.close()

    def open(self, session: towline.Session) -> Awaitable[towline.BidirectionalStream]:
        return session.create_bidirectional_stream()

    def incoming(self, session: towline.Session) -> AsyncIterator[towline.BidirectionalStream]:
        return session.incoming_bidirectional_streams

    def read(self, stream: towline.BidirectionalStream) -> Awaitable[bytes]:
        return stream.read(sessions.READ_AT_MOST)

    def read_all(self, stream: towline.BidirectionalStream) -> Awaitable[bytes]:
        return stream.read()

    def write(self, stream: towline.BidirectionalStream, data: bytes) -> Awaitable[None]:
        return stream.write(data)

    async def write_last(self, stream: towline.BidirectionalStream, data: bytes) -> None:
        await stream.write(data)
        stream.finish()

    def send(self, session: towline.Session, data: bytes) -> Awaitable[None] | None:
        return session.datagrams.send_wait(data)

    def receive(self, session: towline.Session) -> Awaitable[bytes]:
        return session.datagrams.receive()


if __name__ == "__main__":
    sessions.run(Towline)

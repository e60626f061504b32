"""pywebtransport 0.9 behind the measurements: Python on aioquic. Streams and datagrams come as events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import sessions
from pywebtransport import ClientConfig, ServerApp, ServerConfig, WebTransportClient
from pywebtransport.exceptions import StreamError
from pywebtransport.session import WebTransportSession
from pywebtransport.stream import WebTransportStream
from pywebtransport.types import EventType

# More connections and streams than any measurement has.
MANY = 20_000


class Session:
    """A session and what its events brought; `None` at its end."""

    def __init__(self, session: WebTransportSession) -> None:
        self.session = session
        self.streams: asyncio.Queue[WebTransportStream | None] = asyncio.Queue()
        self.datagrams: asyncio.Queue[bytes | None] = asyncio.Queue()
        events = session.events
        events.on(event_type=EventType.STREAM_OPENED, handler=self.on_stream)
        events.on(event_type=EventType.DATAGRAM_RECEIVED, handler=self.on_datagram)
        events.on(event_type=EventType.SESSION_CLOSED, handler=self.on_closed)

    async def on_stream(self, event) -> None:
        self.streams.put_nowait(event.data["stream"])

    async def on_datagram(self, event) -> None:
        self.datagrams.put_nowait(event.data["data"])

    async def on_closed(self, event) -> None:
        self.streams.put_nowait(None)
        self.datagrams.put_nowait(None)


class PyWebTransport(sessions.Stack):
    async def serve(self, handler: Callable[[Session], Awaitable[None]]) -> None:
        port = self.port or sessions.free_port(self.host)
        config = ServerConfig(
            bind_host=self.host,
            bind_port=port,
            certfile=str(self.certificate),
            keyfile=str(self.key),
            max_connections=MANY,
            max_sessions=MANY,
            initial_max_streams_bidi=MANY,
            initial_max_data=1 << 30,
        )
        app = ServerApp(config=config)

        @app.route(path=sessions.PATH)
        async def serve(session: WebTransportSession) -> None:
            wrapped = Session(session)
            try:
                await handler(wrapped)
            except ConnectionResetError:
                pass
            # A session whose handler returns is closed.
            await asyncio.Event().wait()

        async with app:
            await app.server.listen(host=self.host, port=port)
            sessions.listening(self.host, port)
            await app.server.serve_forever()

    async def dial(self) -> None:
        config = ClientConfig(
            ca_certs=str(self.certificate),
            max_connections=MANY,
            max_sessions=MANY,
            initial_max_streams_bidi=MANY,
            initial_max_data=1 << 30,
        )
        self.client = await WebTransportClient(config=config).__aenter__()

    async def connect(self) -> Session:
        return Session(await self.client.connect(url=self.url))

    async def close(self, session: Session) -> None:
        await session.session._connection.close()

    def open(self, session: Session) -> Awaitable[WebTransportStream]:
        return session.session.create_bidirectional_stream()

    async def incoming(self, session: Session) -> AsyncIterator[WebTransportStream]:
        while (stream := await session.streams.get()) is not None:
            yield stream

    async def read(self, stream: WebTransportStream) -> bytes:
        try:
            return await stream.read(max_bytes=sessions.READ_AT_MOST)
        except StreamError:
            # What a read says whose data and end came together with the end of the other half.
            return b""

    async def read_all(self, stream: WebTransportStream) -> bytes:
        chunks = []
        while chunk := await self.read(stream):
            chunks.append(chunk)
        return b"".join(chunks)

    def write(self, stream: WebTransportStream, data: bytes) -> Awaitable[None]:
        return stream.write(data=data)

    def write_last(self, stream: WebTransportStream, data: bytes) -> Awaitable[None]:
        return stream.write(data=data, end_stream=True)

    def send(self, session: Session, data: bytes) -> Awaitable[None]:
        return session.session.send_datagram(data=data)

    async def receive(self, session: Session) -> bytes:
        data = await session.datagrams.get()
        if data is None:
            raise ConnectionResetError("the session is over")
        return data


if __name__ == "__main__":
    sessions.run(PyWebTransport)

"""pywebtransport 0.21 behind the measurements: Python over a reactor thread in Rust, on quinn."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import sessions
from pywebtransport import ClientConfig, ServerConfig, WebTransportClient, WebTransportServer
from pywebtransport.session import WebTransportSession
from pywebtransport.stream import WebTransportBidirectionalStream

# More connections than any measurement has.
CONNECTIONS = 10_000


class PyWebTransport(sessions.Stack):
    async def serve(self, handler: Callable[[WebTransportSession], Awaitable[None]]) -> None:
        port = self.port or sessions.free_port(self.host)
        config = ServerConfig(
            bind_host=self.host,
            bind_port=port,
            certfile=str(self.certificate),
            keyfile=str(self.key),
            max_connections=CONNECTIONS,
        )
        async with WebTransportServer(config=config) as server:
            await server.listen()
            sessions.listening(self.host, port)
            serving = set()
            async for connection in server.incoming_connections():
                task = asyncio.create_task(self.connection(connection, handler))
                serving.add(task)
                task.add_done_callback(serving.discard)

    async def connection(self, connection, handler) -> None:
        async for session in connection.incoming_sessions():
            await session.accept()
            try:
                await handler(session)
            except Exception:
                # How sessions end whose handlers wait for something.
                if not session.is_closed:
                    raise

    async def dial(self) -> None:
        # The certificate is its own authority, and this stack takes no hashes.
        config = ClientConfig(verify_mode=ssl.CERT_NONE, max_connections=CONNECTIONS)
        self.client = WebTransportClient(config=config)

    def connect(self) -> Awaitable[WebTransportSession]:
        return self.client.connect(url=self.url)

    def close(self, session: WebTransportSession) -> Awaitable[None]:
        return session.connection.close()

    def open(self, session: WebTransportSession) -> Awaitable[WebTransportBidirectionalStream]:
        return session.create_bidirectional_stream()

    def incoming(
        self, session: WebTransportSession
    ) -> AsyncIterator[WebTransportBidirectionalStream]:
        return session.incoming_bidirectional_streams()

    def read(self, stream: WebTransportBidirectionalStream) -> Awaitable[bytes]:
        return stream.read(max_size=sessions.READ_AT_MOST)

    def read_all(self, stream: WebTransportBidirectionalStream) -> Awaitable[bytes]:
        return stream.read_all()

    def write(self, stream: WebTransportBidirectionalStream, data: bytes) -> Awaitable[None]:
        return stream.write(data=data)

    def write_last(self, stream: WebTransportBidirectionalStream, data: bytes) -> Awaitable[None]:
        return stream.write(data=data, end_stream=True)

    def send(self, session: WebTransportSession, data: bytes) -> Awaitable[None]:
        return session.send_datagram(data=data)

    def receive(self, session: WebTransportSession) -> Awaitable[bytes]:
        return session.read_datagram()


if __name__ == "__main__":
    sessions.run(PyWebTransport)

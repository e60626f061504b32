"""web-transport-quinn behind the measurements: Python over tokio threads in Rust, on quinn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import sessions
import web_transport
from cryptography import x509
from cryptography.hazmat.primitives import serialization

Stream = tuple[web_transport.SendStream, web_transport.RecvStream]


class WebTransportQuinn(sessions.Stack):
    def certificate_der(self) -> bytes:
        certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        return certificate.public_bytes(serialization.Encoding.DER)

    async def serve(self, handler: Callable[[web_transport.Session], Awaitable[None]]) -> None:
        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        private_key = key.private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        async with web_transport.Server(
            certificate_chain=[self.certificate_der()],
            private_key=private_key,
            bind=f"{self.host}:{self.port}",
        ) as server:
            sessions.listening(*server.local_addr)
            serving = set()
            async for request in server:
                task = asyncio.create_task(self.session(request, handler))
                serving.add(task)
                task.add_done_callback(serving.discard)

    async def session(self, request, handler) -> None:
        try:
            await handler(await request.accept())
        except web_transport.SessionError:
            # How sessions end whose handlers wait for something.
            pass

    async def dial(self) -> None:
        pin = web_transport.certificate_hash(self.certificate_der())
        client = web_transport.Client(server_certificate_hashes=[pin])
        self.client = await client.__aenter__()

    def connect(self) -> Awaitable[web_transport.Session]:
        return self.client.connect(self.url)

    def close(self, session: web_transport.Session) -> None:
        session.close()

    def open(self, session: web_transport.Session) -> Awaitable[Stream]:
        return session.open_bi()

    async def incoming(self, session: web_transport.Session) -> AsyncIterator[Stream]:
        while True:
            yield await session.accept_bi()

    def read(self, stream: Stream) -> Awaitable[bytes]:
        return stream[1].read(sessions.READ_AT_MOST)

    def read_all(self, stream: Stream) -> Awaitable[bytes]:
        return stream[1].read()

    def write(self, stream: Stream, data: bytes) -> Awaitable[None]:
        return stream[0].write(data)

    async def write_last(self, stream: Stream, data: bytes) -> None:
        await stream[0].write(data)
        await stream[0].finish()

    def send(self, session: web_transport.Session, data: bytes) -> None:
        session.send_datagram(data)

    def receive(self, session: web_transport.Session) -> Awaitable[bytes]:
        return session.receive_datagram()


if __name__ == "__main__":
    sessions.run(WebTransportQuinn)

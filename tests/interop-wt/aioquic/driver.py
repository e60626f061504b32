"""Interop driver for aioquic: WebTransport client and server over its HTTP/3.

The contract is in ../README.md. aioquic has WebTransport's settings, streams and
datagrams; sessions and their capsules are written here.
"""

import asyncio
import functools
import socket
import struct
import sys
from collections import defaultdict
from pathlib import Path

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.asyncio.server import QuicServer
from aioquic.buffer import Buffer, BufferReadError, encode_uint_var
from aioquic.h3 import events as h3_events
from aioquic.h3.connection import FrameType, H3Connection
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration

sys.path.insert(0, str(Path(__file__).parent.parent / "contract"))
import contract

CLOSE_SESSION = 0x2843


def configuration(*, is_client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=["h3"],
        max_datagram_frame_size=65536,
        server_name="localhost" if is_client else None,
        max_data=8 << 20,
        max_stream_data=4 << 20,
    )


def close_capsule(code: int, reason: str) -> bytes:
    payload = struct.pack("!I", code) + reason.encode()
    return encode_uint_var(CLOSE_SESSION) + encode_uint_var(len(payload)) + payload


def find_close(data: bytes) -> tuple[int, str] | None:
    """Code and reason of a close among the capsules in `data`."""
    buf = Buffer(data=data)
    try:
        while not buf.eof():
            kind, length = buf.pull_uint_var(), buf.pull_uint_var()
            payload = buf.pull_bytes(length)
            if kind == CLOSE_SESSION:
                return struct.unpack("!I", payload[:4])[0], payload[4:].decode()
    except BufferReadError:
        pass
    return None


class Protocol(QuicConnectionProtocol):
    """HTTP/3 with the parts of a session that both ends have."""

    def __init__(self, quic, *args, **kwargs) -> None:
        super().__init__(quic, *args, **kwargs)
        self.http = H3Connection(quic, enable_webtransport=True)
        self.capsules: dict[int, bytearray] = defaultdict(bytearray)

    def quic_event_received(self, event: events.QuicEvent) -> None:
        for inner in self.http.handle_event(event):
            if isinstance(inner, h3_events.HeadersReceived):
                self.on_headers(inner)
            elif isinstance(inner, h3_events.DataReceived):
                capsules = self.capsules[inner.stream_id]
                capsules += inner.data
                if (close := find_close(bytes(capsules))) is not None:
                    capsules.clear()
                    self.on_close(inner.stream_id, *close)
            elif isinstance(inner, h3_events.WebTransportStreamDataReceived):
                self.on_stream(inner)
            elif isinstance(inner, h3_events.DatagramReceived):
                self.on_datagram(inner)
        self.transmit()

    def close_session(self, session: int, code: int, reason: str) -> None:
        self.http.send_data(session, close_capsule(code, reason), end_stream=True)
        self.transmit()


class ServerProtocol(Protocol):
    """Echoes streams and datagrams, and prints how sessions ended."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.answers: dict[int, int] = {}

    def on_headers(self, event: h3_events.HeadersReceived) -> None:
        headers = dict(event.headers)
        known = headers.get(b":protocol") == b"webtransport"
        path = headers.get(b":path")
        if not known or path not in (b"/echo", b"/close"):
            print("refused:", headers, file=sys.stderr)
            self.http.send_headers(event.stream_id, [(b":status", b"404")], end_stream=True)
            return
        answer = [(b":status", b"200"), (b"sec-webtransport-http3-draft", b"draft02")]
        self.http.send_headers(event.stream_id, answer)
        if path == b"/close":
            self.close_session(event.stream_id, *contract.SERVER_CLOSE)

    def on_close(self, session: int, code: int, reason: str) -> None:
        contract.session_closed(code, reason)

    def on_stream(self, event: h3_events.WebTransportStreamDataReceived) -> None:
        answer = event.stream_id
        if event.stream_id & 2:
            if event.stream_id not in self.answers:
                created = self.http.create_webtransport_stream(event.session_id, True)
                self.answers[event.stream_id] = created
            answer = self.answers[event.stream_id]
        self._quic.send_stream_data(answer, event.data, event.stream_ended)

    def on_datagram(self, event: h3_events.DatagramReceived) -> None:
        self.http.send_datagram(event.stream_id, event.data)


async def serve(folder: Path) -> None:
    config = configuration(is_client=False)
    config.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 0))
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(
        lambda: QuicServer(configuration=config, create_protocol=ServerProtocol),
        sock=listener,
    )
    contract.listening(listener.getsockname())
    contract.exit_with_input()
    await asyncio.Event().wait()


class ClientProtocol(Protocol):
    """One session on one connection."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.session = 0
        loop = asyncio.get_running_loop()
        self.answer = loop.create_future()
        self.closed = loop.create_future()
        self.stream: asyncio.Queue = asyncio.Queue()
        self.datagrams: asyncio.Queue = asyncio.Queue()

    async def open(self, authority: str, path: str) -> None:
        await self.wait_connected()
        self.session = self._quic.get_next_available_stream_id()
        head = {
            ":method": "CONNECT",
            ":scheme": "https",
            ":authority": authority,
            ":path": path,
            ":protocol": "webtransport",
            "sec-webtransport-http3-draft02": "1",
        }
        fields = [(name.encode(), value.encode()) for name, value in head.items()]
        self.http.send_headers(self.session, fields)
        self.transmit()
        status = await self.answer
        if status != b"200":
            raise RuntimeError(f"status {status.decode()}")

    def send(self, *, is_unidirectional: bool) -> None:
        """Sends the pattern on a new stream."""
        stream = self.http.create_webtransport_stream(self.session, is_unidirectional)
        if not is_unidirectional:
            # aioquic would read what comes back on a stream of its own as frames.
            with self.http._get_or_create_stream(stream) as state:
                state.frame_type = FrameType.WEBTRANSPORT_STREAM
                state.session_id = self.session
        self._quic.send_stream_data(stream, contract.pattern(), end_stream=True)
        self.transmit()

    async def compare(self) -> str:
        data = bytearray()
        ended = False
        while not ended:
            event = await self.stream.get()
            data += event.data
            ended = event.stream_ended
        return contract.compare(bytes(data))

    def on_headers(self, event: h3_events.HeadersReceived) -> None:
        if not self.answer.done():
            self.answer.set_result(dict(event.headers)[b":status"])

    def on_close(self, session: int, code: int, reason: str) -> None:
        if not self.closed.done():
            self.closed.set_result((code, reason))

    def on_stream(self, event: h3_events.WebTransportStreamDataReceived) -> None:
        self.stream.put_nowait(event)

    def on_datagram(self, event: h3_events.DatagramReceived) -> None:
        self.datagrams.put_nowait(event.data)


class SessionOf:
    """A connection with a session, for `async with`."""

    def __init__(self, folder: Path, host: str, port: int, path: str) -> None:
        self.authority, self.path = f"{host}:{port}", path
        config = configuration(is_client=True)
        config.load_verify_locations(str(folder / "cert.pem"))
        self.connection = connect(
            host, port, configuration=config, create_protocol=ClientProtocol
        )

    async def __aenter__(self) -> ClientProtocol:
        client = await self.connection.__aenter__()
        await client.open(self.authority, self.path)
        return client

    async def __aexit__(self, *reason) -> None:
        await self.connection.__aexit__(*reason)


async def run_client(folder: Path, host: str, port: int) -> None:
    session = functools.partial(SessionOf, folder, host, port)

    async def handshake() -> str:
        async with session("/echo"):
            return "Draft02"

    async def bidirectional() -> str:
        async with session("/echo") as client:
            client.send(is_unidirectional=False)
            return await client.compare()

    async def unidirectional() -> str:
        async with session("/echo") as client:
            client.send(is_unidirectional=True)
            return await client.compare()

    async def datagrams() -> str:
        async with session("/echo") as client:
            datagrams = contract.Datagrams()
            while (detail := datagrams.all_back()) is None:
                while (datagram := datagrams.next_to_send()) is not None:
                    client.http.send_datagram(client.session, datagram)
                client.transmit()
                datagrams.came_back(await client.datagrams.get())
            return detail

    async def server_closes() -> str:
        async with session("/close") as client:
            return contract.server_closed(await client.closed)

    async def client_closes() -> str:
        """The runner looks at what the server says of it."""
        async with session("/echo") as client:
            client.close_session(client.session, *contract.CLIENT_CLOSE)
            await asyncio.sleep(contract.PARTING)
            return ""

    await contract.run_cases(
        handshake, bidirectional, unidirectional, datagrams, server_closes, client_closes
    )


if __name__ == "__main__":
    sys.exit(contract.main(serve, run_client))

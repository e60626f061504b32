"""Interop driver for aioquic: WebTransport client and server over its HTTP/3.

The contract is in ../README.md. aioquic has WebTransport's settings, streams and
datagrams; sessions and their capsules are written here.
"""

import asyncio
import socket
import struct
import sys
import threading
from collections import defaultdict
from pathlib import Path

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.asyncio.server import QuicServer
from aioquic.buffer import Buffer, BufferReadError, encode_uint_var
from aioquic.h3 import events as h3_events
from aioquic.h3.connection import FrameType, H3Connection
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration

PATIENCE = 15
PARTING = 0.3
TRANSFER = 1 << 20
DATAGRAMS = 1000
WINDOW = 16
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
            self.close_session(event.stream_id, 4712, "goodbye")

    def on_close(self, session: int, code: int, reason: str) -> None:
        print("closed", code, reason, flush=True)

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
    host, port = listener.getsockname()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def until_input_closes() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    await loop.create_datagram_endpoint(
        lambda: QuicServer(configuration=config, create_protocol=ServerProtocol),
        sock=listener,
    )
    print(f"listening {host}:{port}", flush=True)
    threading.Thread(target=until_input_closes, daemon=True).start()
    await ended.wait()


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
        self._quic.send_stream_data(stream, pattern(), end_stream=True)
        self.transmit()

    async def compare(self) -> str:
        data = bytearray()
        ended = False
        while not ended:
            event = await self.stream.get()
            data += event.data
            ended = event.stream_ended
        if bytes(data) != pattern():
            raise RuntimeError(f"other bytes came back, {len(data)} of them")
        return f"{len(data)} bytes"

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


def pattern() -> bytes:
    """Bytes in which blocks differ from each other."""
    return bytes((i ^ (i >> 8) * 7 ^ (i >> 16) * 31) & 0xFF for i in range(TRANSFER))


async def handshake(session) -> str:
    async with session("/echo"):
        return "Draft02"


async def bidirectional(session) -> str:
    async with session("/echo") as client:
        client.send(is_unidirectional=False)
        return await client.compare()


async def unidirectional(session) -> str:
    async with session("/echo") as client:
        client.send(is_unidirectional=True)
        return await client.compare()


async def datagrams(session) -> str:
    async with session("/echo") as client:
        back: set[int] = set()
        sent = 0
        while len(back) < DATAGRAMS:
            while sent < DATAGRAMS and sent - len(back) < WINDOW:
                datagram = struct.pack("!I", sent) + b"." * 96
                client.http.send_datagram(client.session, datagram)
                sent += 1
            client.transmit()
            datagram = await client.datagrams.get()
            if datagram[4:] != b"." * 96:
                raise RuntimeError("another datagram came back")
            back.add(struct.unpack("!I", datagram[:4])[0])
        return f"{len(back)} of {DATAGRAMS}"


async def close(session) -> str:
    """The server closes one session, this end another; the runner looks at what the server says of that."""
    async with session("/close") as client:
        closed = await client.closed
        if closed != (4712, "goodbye"):
            raise RuntimeError(f"the server's close was: {closed}")
    async with session("/echo") as client:
        client.close_session(client.session, 4711, "see you")
        await asyncio.sleep(PARTING)
    return "both ways"


class SessionOf:
    """A connection with a session, for `async with`."""

    def __init__(self, folder: Path, address: str, path: str) -> None:
        self.authority, self.path = address, path
        host, port = address.rsplit(":", 1)
        config = configuration(is_client=True)
        config.load_verify_locations(str(folder / "cert.pem"))
        self.connection = connect(
            host, int(port), configuration=config, create_protocol=ClientProtocol
        )

    async def __aenter__(self) -> ClientProtocol:
        client = await self.connection.__aenter__()
        await client.open(self.authority, self.path)
        return client

    async def __aexit__(self, *reason) -> None:
        await self.connection.__aexit__(*reason)


async def run_client(folder: Path, address: str) -> None:
    def session(path: str) -> SessionOf:
        return SessionOf(folder, address, path)

    for case in (handshake, bidirectional, unidirectional, datagrams, close):
        try:
            detail = await asyncio.wait_for(case(session), PATIENCE)
            print(case.__name__, "ok", detail, flush=True)
        except Exception as error:
            print(case.__name__, "failed", repr(error), flush=True)


def main() -> int:
    match sys.argv[1:]:
        case ["server", folder]:
            asyncio.run(serve(Path(folder)))
        case ["client", folder, address]:
            asyncio.run(run_client(Path(folder), address))
        case _:
            print("usage: driver.py server FOLDER | client FOLDER ADDR", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

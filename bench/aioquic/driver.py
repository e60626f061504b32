"""Driver for aioquic: one end of one measurement of WebTransport.

Flags, measures and reports are those of `bench/contract/src/sessions.rs`; the drivers in Rust
do the same over other stacks. aioquic has WebTransport's settings, streams and datagrams;
sessions are requested and accepted here.
"""

import argparse
import asyncio
import socket
import sys
import time
from pathlib import Path

import uvloop
from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.asyncio.server import QuicServer
from aioquic.h3 import events as h3_events
from aioquic.h3.connection import FrameType, H3Connection
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration

# What all stacks in Python are measured by.
sys.path.insert(0, str(Path(__file__).parent.parent / "python"))
from meter import Meter, Times, resident_kib, show  # noqa: E402

PATH = b"/bench"
DATAGRAM_BYTES = 64
IDLE_BEFORE = 50
BLOCK = b"Z" * 65536
SETTLE = 3
PARTING = 0.2
LOST = 2
BURST = 64


def configuration(*, is_client: bool) -> QuicConfiguration:
    """aioquic's defaults, and what WebTransport needs."""
    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=["h3"],
        max_datagram_frame_size=65536,
        server_name="localhost" if is_client else None,
    )


class Protocol(QuicConnectionProtocol):
    """HTTP/3 with one session."""

    def __init__(self, quic, *args, **kwargs) -> None:
        super().__init__(quic, *args, **kwargs)
        self.http = H3Connection(quic, enable_webtransport=True)
        self.session = 0

    def quic_event_received(self, event: events.QuicEvent) -> None:
        for inner in self.http.handle_event(event):
            if isinstance(inner, h3_events.WebTransportStreamDataReceived):
                self.on_stream(inner)
            elif isinstance(inner, h3_events.DatagramReceived):
                self.on_datagram(inner)
            elif isinstance(inner, h3_events.HeadersReceived):
                self.on_headers(inner)
        if isinstance(event, events.ConnectionTerminated):
            self.on_end()
        self.transmit()

    def on_end(self) -> None:
        pass


class Stream:
    """What a server knows of a transfer or an exchange."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.received = 0


class ServerProtocol(Protocol):
    """Serves the session of one connection."""

    measure = ""
    arrived = None

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.streams: dict[int, Stream] = {}
        self.meter = None
        self.last = 0.0
        self.count = 0

    def on_headers(self, event: h3_events.HeadersReceived) -> None:
        headers = dict(event.headers)
        if headers.get(b":protocol") != b"webtransport" or headers.get(b":path") != PATH:
            self.http.send_headers(event.stream_id, [(b":status", b"404")], end_stream=True)
            return
        self.session = event.stream_id
        answer = [(b":status", b"200"), (b"sec-webtransport-http3-draft", b"draft02")]
        self.http.send_headers(event.stream_id, answer)
        if self.arrived is not None:
            self.arrived.put_nowait(None)

    def on_stream(self, event: h3_events.WebTransportStreamDataReceived) -> None:
        stream = self.streams.setdefault(event.stream_id, Stream())
        if self.measure in ("cold", "exchanges"):
            stream.head += event.data
            if event.stream_ended:
                self._quic.send_stream_data(event.stream_id, bytes(stream.head), True)
                del self.streams[event.stream_id]
            return
        stream.received += len(event.data)
        if len(stream.head) < 8:
            stream.head += event.data[: 8 - len(stream.head)]
            if len(stream.head) == 8:
                send_bytes(self._quic, event.stream_id, int.from_bytes(stream.head))
        if event.stream_ended:
            count = (stream.received - 8).to_bytes(8)
            self._quic.send_stream_data(event.stream_id, count, True)
            del self.streams[event.stream_id]

    def on_datagram(self, event: h3_events.DatagramReceived) -> None:
        if self.measure == "echo":
            self.http.send_datagram(event.stream_id, event.data)
            return
        if len(event.data) != DATAGRAM_BYTES:
            raise RuntimeError(f"a datagram has {len(event.data)} bytes")
        if self.meter is None:
            self.meter = Meter()
        self.count += 1
        if self.count % 64 == 0:
            self.last = self.meter.elapsed()

    def on_end(self) -> None:
        if self.meter is not None:
            show({**self.meter.report(self.count), "seconds": self.last})


def send_bytes(quic, stream: int, length: int) -> None:
    while length > 0:
        part = min(length, len(BLOCK))
        quic.send_stream_data(stream, BLOCK[:part])
        length -= part


async def watch_memory(arrived: asyncio.Queue, sessions: int) -> None:
    for _ in range(IDLE_BEFORE):
        await arrived.get()
    before, meter = resident_kib(), Meter()
    for _ in range(sessions):
        await arrived.get()
    await asyncio.sleep(SETTLE)
    show(meter.report(sessions, resident_kib=[before, resident_kib()]))


async def serve(options) -> None:
    config = configuration(is_client=False)
    config.load_cert_chain(options.material / "cert.pem", options.material / "key.pem")
    host, port = options.addr.rsplit(":", 1)
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind((host, int(port)))
    ServerProtocol.measure = options.measure
    # Until it is killed.
    waiting = [asyncio.Event().wait()]
    if options.measure == "idle":
        ServerProtocol.arrived = asyncio.Queue()
        waiting.append(watch_memory(ServerProtocol.arrived, options.sessions))
    host, port = listener.getsockname()
    await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: QuicServer(configuration=config, create_protocol=ServerProtocol),
        sock=listener,
    )
    print(f"listening {host}:{port}", flush=True)
    await asyncio.gather(*waiting)


class ClientProtocol(Protocol):
    """Asks for the session, and waits for what comes back."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        loop = asyncio.get_running_loop()
        self.answer = loop.create_future()
        self.datagram = None
        self.waiting: dict[int, asyncio.Future] = {}
        self.parts: dict[int, list[bytes]] = {}

    async def open(self, authority: str) -> None:
        await self.wait_connected()
        self.session = self._quic.get_next_available_stream_id()
        head = {
            b":method": b"CONNECT",
            b":scheme": b"https",
            b":authority": authority.encode(),
            b":path": PATH,
            b":protocol": b"webtransport",
            b"sec-webtransport-http3-draft02": b"1",
        }
        self.http.send_headers(self.session, list(head.items()))
        self.transmit()
        status = await self.answer
        if status != b"200":
            raise RuntimeError(f"status {status.decode()}")

    def stream(self) -> int:
        """A new stream, whose answer is waited for with `rest`."""
        stream = self.http.create_webtransport_stream(self.session, is_unidirectional=False)
        # aioquic would read what comes back on a stream of its own as frames.
        with self.http._get_or_create_stream(stream) as state:
            state.frame_type = FrameType.WEBTRANSPORT_STREAM
            state.session_id = self.session
        self.waiting[stream] = asyncio.get_running_loop().create_future()
        self.parts[stream] = []
        return stream

    async def rest(self, stream: int) -> bytes:
        self.transmit()
        await self.waiting[stream]
        del self.waiting[stream]
        return b"".join(self.parts.pop(stream))

    async def exchange(self, message: bytes) -> None:
        stream = self.stream()
        self._quic.send_stream_data(stream, message, True)
        if await self.rest(stream) != message:
            raise RuntimeError("other bytes came back")

    async def transfer(self, up: int, down: int) -> None:
        stream = self.stream()
        self._quic.send_stream_data(stream, down.to_bytes(8))
        send_bytes(self._quic, stream, up)
        self._quic.send_stream_data(stream, b"", True)
        back = await self.rest(stream)
        if len(back) != down + 8 or int.from_bytes(back[-8:]) != up:
            raise RuntimeError(f"{len(back)} bytes came back")

    def on_headers(self, event: h3_events.HeadersReceived) -> None:
        if not self.answer.done():
            self.answer.set_result(dict(event.headers)[b":status"])

    def on_stream(self, event: h3_events.WebTransportStreamDataReceived) -> None:
        if event.stream_id in self.parts:
            self.parts[event.stream_id].append(event.data)
            if event.stream_ended:
                self.waiting[event.stream_id].set_result(None)

    def on_datagram(self, event: h3_events.DatagramReceived) -> None:
        if self.datagram is not None and not self.datagram.done():
            self.datagram.set_result(event.data)

    def on_end(self) -> None:
        lost = RuntimeError("the connection ended")
        for future in [self.answer, *self.waiting.values()]:
            if not future.done():
                future.set_exception(lost)


class Session:
    """A connection and its session, for `async with`."""

    # Connections that are closed and wait for their end.
    leaving: set[asyncio.Future] = set()

    def __init__(self, options) -> None:
        self.authority = options.addr
        host, port = options.addr.rsplit(":", 1)
        self.connection = connect(
            host, int(port), configuration=options.config, create_protocol=ClientProtocol
        )

    async def __aenter__(self) -> ClientProtocol:
        self.client = await self.connection.__aenter__()
        await self.client.open(self.authority)
        return self.client

    async def __aexit__(self, *reason) -> None:
        # Without waiting for the end, as the other drivers do.
        self.client.close()
        leaving = asyncio.ensure_future(self.connection.__aexit__(None, None, None))
        self.leaving.add(leaving)
        leaving.add_done_callback(self.leaving.discard)


async def transfers(options) -> dict:
    up = 0 if options.measure == "download" else options.bytes
    down = options.bytes if options.measure in ("download", "duplex") else 0
    took, count = 0.0, 0
    meter = Meter()
    for number in range(options.sessions + 1):
        async with Session(options) as client:
            begun = time.perf_counter()
            if options.measure == "mux":
                await asyncio.gather(*(client.transfer(up, down) for _ in range(options.streams)))
            else:
                for _ in range(options.streams):
                    await client.transfer(up, down)
            if number > 0:
                took += time.perf_counter() - begun
                count += options.streams * (up + down)
    return {**meter.report(count), "seconds": took}


async def handshakes(options) -> dict:
    times = Times(options.count)
    for _ in times.rounds():
        begun = time.perf_counter()
        async with Session(options):
            times.took.append(time.perf_counter() - begun)
    return times.report()


async def cold(options) -> dict:
    times = Times(options.count)
    message = b"Z" * options.bytes
    for _ in times.rounds():
        begun = time.perf_counter()
        async with Session(options) as client:
            await client.exchange(message)
        times.took.append(time.perf_counter() - begun)
    return times.report()


async def exchanges(options) -> dict:
    times = Times(options.count)
    message = b"Z" * options.bytes
    async with Session(options) as client:
        for _ in times.rounds():
            begun = time.perf_counter()
            await client.exchange(message)
            times.took.append(time.perf_counter() - begun)
        return times.report()


async def echo(options) -> dict:
    times = Times(options.count)
    message = b"Z" * DATAGRAM_BYTES
    async with Session(options) as client:
        for _ in times.rounds():
            begun = time.perf_counter()
            client.datagram = asyncio.get_running_loop().create_future()
            client.http.send_datagram(client.session, message)
            client.transmit()
            if await asyncio.wait_for(client.datagram, LOST) != message:
                raise RuntimeError("another datagram came back")
            times.took.append(time.perf_counter() - begun)
        return times.report()


async def datagrams(options) -> dict:
    message = b"Z" * DATAGRAM_BYTES
    async with Session(options) as client:
        meter, count = Meter(), 0
        while meter.elapsed() < options.seconds:
            for _ in range(BURST):
                client.http.send_datagram(client.session, message)
            client.transmit()
            count += BURST
            await asyncio.sleep(0)
        report = meter.report(count)
        await asyncio.sleep(PARTING)
        return report


async def idle(options) -> dict:
    held = [Session(options) for _ in range(IDLE_BEFORE + options.sessions)]
    meter = Meter()
    for session in held:
        await session.__aenter__()
    show(meter.report(options.sessions))
    await asyncio.Event().wait()
    return {}


CLIENTS = {
    "upload": transfers,
    "download": transfers,
    "duplex": transfers,
    "mux": transfers,
    "handshakes": handshakes,
    "cold": cold,
    "exchanges": exchanges,
    "echo": echo,
    "datagrams": datagrams,
    "idle": idle,
}


async def drive(options) -> None:
    options.config = configuration(is_client=True)
    options.config.load_verify_locations(str(options.material / "cert.pem"))
    show(await CLIENTS[options.measure](options))
    await asyncio.sleep(PARTING)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("server", "client"))
    parser.add_argument("measure", choices=CLIENTS)
    parser.add_argument("--addr", required=True)
    parser.add_argument("--material", type=Path, required=True)
    for name in ("sessions", "streams", "bytes", "count", "seconds"):
        parser.add_argument(f"--{name}", type=int, default=1)
    options = parser.parse_args()
    uvloop.run((serve if options.role == "server" else drive)(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())

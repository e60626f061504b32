"""Interop driver for aioquic's HTTP/3: the roles http3-server and http3-client.

The contract is in ../README.md. aioquic has frames, QPACK and the order of messages;
requests, answers and files are written here.
"""

import asyncio
import socket
import sys
import threading
from pathlib import Path

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.asyncio.server import QuicServer
from aioquic.h3 import events as h3_events
from aioquic.h3.connection import H3_ALPN, ErrorCode, H3Connection
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration

PATIENCE = 60
AT_A_TIME = 32
MEBIBYTE = 1 << 20
HALF = 32 * 1024
LINK = b"</style.css>; rel=preload"


def pattern(length: int) -> bytes:
    """Bytes in which blocks differ from each other."""
    return bytes((i ^ (i >> 8) * 7 ^ (i >> 16) * 31) & 0xFF for i in range(length))


def configuration(*, is_client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=H3_ALPN,
        server_name="localhost" if is_client else None,
        idle_timeout=30.0,
        max_data=8 << 20,
        max_stream_data=4 << 20,
    )


class ServerProtocol(QuicConnectionProtocol):
    """Files, and the paths of the contract but those of a shutdown: aioquic has no GOAWAY."""

    def __init__(self, quic, *args, root: Path, **kwargs) -> None:
        super().__init__(quic, *args, **kwargs)
        self.root = root
        self.http = H3Connection(quic)
        # Of requests that have a body: their path, and how long it is so far.
        self.bodies: dict[int, list] = {}

    def quic_event_received(self, event: events.QuicEvent) -> None:
        for inner in self.http.handle_event(event):
            stream = inner.stream_id
            if isinstance(inner, h3_events.HeadersReceived) and stream in self.bodies:
                self.on_body(stream, b"", dict(inner.headers), inner.stream_ended)
            elif isinstance(inner, h3_events.HeadersReceived):
                self.on_request(stream, dict(inner.headers))
            elif isinstance(inner, h3_events.DataReceived) and stream in self.bodies:
                self.on_body(stream, inner.data, {}, inner.stream_ended)
        self.transmit()

    def on_request(self, stream: int, head: dict[bytes, bytes]) -> None:
        match head[b":method"], head[b":path"]:
            case b"POST", b"/echo" as path:
                self.http.send_headers(stream, [(b":status", b"200")])
                self.bodies[stream] = [path, 0]
            case b"POST", b"/trailers" as path:
                self.bodies[stream] = [path, 0]
            case b"GET", b"/interim":
                self.http.send_headers(stream, [(b":status", b"103"), (b"link", LINK)])
                self.answer(stream, b"200", b"after 103")
            case b"GET" | b"HEAD" as method, path:
                file = (self.root / path.decode().removeprefix("/")).resolve()
                if file.is_relative_to(self.root) and file.is_file():
                    self.answer(stream, b"200", file.read_bytes(), method == b"HEAD")
                else:
                    self.answer(stream, b"404", b"nothing here", method == b"HEAD")
            case _:
                self.answer(stream, b"405", b"")

    def answer(self, stream: int, status: bytes, body: bytes, is_head: bool = False) -> None:
        head = [(b":status", status), (b"content-length", str(len(body)).encode())]
        is_empty = is_head or not body
        self.http.send_headers(stream, head, end_stream=is_empty)
        if not is_empty:
            self.http.send_data(stream, body, end_stream=True)

    def on_body(self, stream: int, data: bytes, trailers: dict, ended: bool) -> None:
        self.bodies[stream][1] += len(data)
        path, length = self.bodies[stream]
        if path == b"/echo":
            self.http.send_data(stream, data, end_stream=ended)
        elif ended:
            head = [(b":status", b"200"), (b"trailer", b"x-length, x-word")]
            self.http.send_headers(stream, head)
            self.http.send_data(stream, b"counted", end_stream=False)
            word = trailers.get(b"x-word", b"")
            fields = [(b"x-length", str(length).encode()), (b"x-word", word)]
            self.http.send_headers(stream, fields, end_stream=True)
        if ended:
            del self.bodies[stream]


async def serve(cert: str, key: str, root: str) -> None:
    config = configuration(is_client=False)
    config.load_cert_chain(cert, key)
    folder = Path(root).resolve()
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 0))
    host, port = listener.getsockname()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def until_input_closes() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    def create_protocol(*args, **kwargs) -> ServerProtocol:
        return ServerProtocol(*args, root=folder, **kwargs)

    await loop.create_datagram_endpoint(
        lambda: QuicServer(configuration=config, create_protocol=create_protocol),
        sock=listener,
    )
    print(f"listening {host}:{port}", flush=True)
    threading.Thread(target=until_input_closes, daemon=True).start()
    await ended.wait()


class Refused(Exception):
    """The server gave the request up with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"reset with code {code:#x}")
        self.code = code


class Answer:
    """What has come of one request."""

    def __init__(self) -> None:
        self.interim: list[dict] = []
        self.head: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.trailers: dict[bytes, bytes] = {}
        self.half = asyncio.Event()
        self.ended = asyncio.get_running_loop().create_future()

    def on_headers(self, fields: dict[bytes, bytes]) -> None:
        if self.head:
            self.trailers = fields
        elif fields[b":status"].startswith(b"1"):
            self.interim.append(fields)
        else:
            self.head = fields

    def on_data(self, data: bytes) -> None:
        self.body += data
        if len(self.body) >= HALF:
            self.half.set()

    def fail(self, error: Exception) -> None:
        self.half.set()
        if not self.ended.done():
            self.ended.set_exception(error)

    def expect(self, status: bytes) -> "Answer":
        if self.head[b":status"] != status:
            raise RuntimeError(f"status {self.head[b':status']} instead of {status}")
        return self


class ClientProtocol(QuicConnectionProtocol):
    """Requests on one connection."""

    def __init__(self, quic, *args, **kwargs) -> None:
        super().__init__(quic, *args, **kwargs)
        self.http = H3Connection(quic)
        self.answers: dict[int, Answer] = {}

    def begin(self, method: str, path: str, fields: dict | None = None) -> tuple[int, Answer]:
        """Sends a head; the request goes on, unless it is a GET or a HEAD."""
        stream = self._quic.get_next_available_stream_id()
        head = {":method": method, ":scheme": "https", ":authority": "localhost", ":path": path}
        lines = [(n.encode(), v.encode()) for n, v in (head | (fields or {})).items()]
        self.http.send_headers(stream, lines, end_stream=method in ("GET", "HEAD"))
        answer = self.answers[stream] = Answer()
        self.transmit()
        return stream, answer

    async def get(self, path: str, fields: dict | None = None, method: str = "GET") -> Answer:
        _, answer = self.begin(method, path, fields)
        await answer.ended
        return answer

    def quic_event_received(self, event: events.QuicEvent) -> None:
        for inner in self.http.handle_event(event):
            answer = self.answers[inner.stream_id]
            if isinstance(inner, h3_events.HeadersReceived):
                answer.on_headers(dict(inner.headers))
            elif isinstance(inner, h3_events.DataReceived):
                answer.on_data(inner.data)
            if inner.stream_ended and not answer.ended.done():
                answer.ended.set_result(None)
        if isinstance(event, events.StreamReset):
            if event.stream_id in self.answers:
                self.answers[event.stream_id].fail(Refused(event.error_code))
        elif isinstance(event, events.ConnectionTerminated):
            why = ConnectionError(f"{event.error_code:#x} {event.reason_phrase}")
            for answer in self.answers.values():
                answer.fail(why)


class Cases:
    """The cases, each on a connection of its own."""

    def __init__(self, paths: list[str], out: Path) -> None:
        self.paths, self.out = paths, out

    async def site(self, server: ClientProtocol) -> str:
        left = iter(self.paths)

        async def fetch_some() -> None:
            for path in left:
                answer = (await server.get(path)).expect(b"200")
                (self.out / path.removeprefix("/")).write_bytes(answer.body)

        await asyncio.gather(*(fetch_some() for _ in range(AT_A_TIME)))
        return f"{len(self.paths)} files"

    async def ranges(self, server: ClientProtocol) -> str:
        path = self.paths[0]
        whole = (await server.get(path)).expect(b"200")
        length = len(whole.body)
        for wanted, start, end in (
            ("bytes=1000-1999", 1000, 2000),
            ("bytes=-500", length - 500, length),
            ("bytes=0-0", 0, 1),
        ):
            part = (await server.get(path, {"range": wanted})).expect(b"206")
            said = part.head.get(b"content-range")
            right = part.body == whole.body[start:end]
            if said != f"bytes {start}-{end - 1}/{length}".encode() or not right:
                raise RuntimeError(f"{wanted}: {said}, {len(part.body)} bytes")
        behind = (await server.get(path, {"range": "bytes=999999999-"})).expect(b"416")
        if (said := behind.head.get(b"content-range")) != f"bytes */{length}".encode():
            raise RuntimeError(f"416: {said}")
        if b"etag" in whole.head:
            known = {"if-none-match": whole.head[b"etag"].decode()}
        else:
            known = {"if-modified-since": whole.head[b"last-modified"].decode()}
        if (await server.get(path, known)).expect(b"304").body:
            raise RuntimeError("304 with a body")
        return "206, 304, 416"

    async def post(self, server: ClientProtocol) -> str:
        body = pattern(MEBIBYTE)
        stream, answer = server.begin("POST", "/echo")
        for at in range(0, MEBIBYTE, HALF):
            last = at + HALF == MEBIBYTE
            server.http.send_data(stream, body[at : at + HALF], end_stream=last)
            server.transmit()
            # What comes back meanwhile is read.
            await asyncio.sleep(0)
        await answer.ended
        if answer.expect(b"200").body != body:
            raise RuntimeError(f"other bytes came back, {len(answer.body)} of them")
        return f"{len(body)} bytes"

    async def trailers(self, server: ClientProtocol) -> str:
        stream, answer = server.begin("POST", "/trailers", {"trailer": "x-word"})
        server.http.send_data(stream, pattern(2 * HALF), end_stream=False)
        server.http.send_headers(stream, [(b"x-word", b"after the body")], end_stream=True)
        server.transmit()
        await answer.ended
        answer.expect(b"200")
        said = answer.trailers
        if said != {b"x-length": b"65536", b"x-word": b"after the body"} or answer.body != b"counted":
            raise RuntimeError(f"trailers {said}, body {bytes(answer.body)!r}")
        return "both ways"

    async def interim(self, server: ClientProtocol) -> str:
        answer = (await server.get("/interim")).expect(b"200")
        hints = [(head[b":status"], head.get(b"link")) for head in answer.interim]
        if hints != [(b"103", LINK)] or answer.body != b"after 103":
            raise RuntimeError(f"before the answer {hints}, in it {bytes(answer.body)!r}")
        return "103"

    async def goaway(self, server: ClientProtocol) -> str:
        """Four answers are half sent when the server begins to go; they come whole, and it
        takes nothing new: aioquic does not look at GOAWAY, and is told so by a rejection."""
        slow = [server.begin("GET", f"/slow/{number}")[1] for number in range(4)]
        for answer in slow:
            await answer.half.wait()
        (await server.get("/shutdown")).expect(b"200")
        for answer in slow:
            await answer.ended
            if answer.expect(b"200").body != pattern(2 * HALF):
                raise RuntimeError(f"{len(answer.body)} other bytes")
        try:
            late = await server.get("/too-late")
        except Refused as refused:
            if refused.code == ErrorCode.H3_REQUEST_REJECTED:
                return "4 whole, then rejected"
            raise
        raise RuntimeError(f"a late request has status {late.head[b':status']}")


async def run_client(address: str, ca: str, listed: str, out: str, names: list[str]) -> None:
    cases = Cases(Path(listed).read_text().split(), Path(out))
    host, port = address.rsplit(":", 1)

    async def run(name: str) -> str:
        config = configuration(is_client=True)
        config.load_verify_locations(ca)
        connection = connect(
            host, int(port), configuration=config, create_protocol=ClientProtocol
        )
        async with connection as server:
            return await getattr(cases, name)(server)

    for name in names:
        try:
            print(name, "ok", await asyncio.wait_for(run(name), PATIENCE), flush=True)
        except Exception as error:
            print(name, "failed", repr(error), flush=True)


def run(words: list[str]) -> int:
    match words:
        case ["http3-server", cert, key, root]:
            asyncio.run(serve(cert, key, root))
        case ["http3-client", address, ca, listed, out, *names]:
            asyncio.run(run_client(address, ca, listed, out, names))
        case _:
            print("usage: driver.py http3-server CERT KEY ROOT", file=sys.stderr)
            print("       driver.py http3-client ADDR CA LIST OUT CASE...", file=sys.stderr)
            return 2
    return 0

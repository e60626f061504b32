"""Interop driver for aioquic: hq-interop client and server; HTTP/3 is in http3.py.

The contract is in ../README.md. The runner calls this file with the Python of
its own virtual environment. Retry and key updates are read from aioquic's qlog
events, so that the summary says what happened and not what was asked for.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import http3
from aioquic.asyncio import QuicConnectionProtocol
from aioquic.asyncio.server import QuicServer
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.logger import QuicLogger, QuicLoggerTrace
from aioquic.tls import CipherSuite

ALPN = "hq-interop"
REQUEST_LIMIT = 4096
NOT_FOUND = 0x44
# A client told --key-update begins it after this many bytes, or much later when
# the server was faster: two updates within one round trip are not allowed.
UPDATE_AFTER = 16 * 1024
UPDATE_AGAIN_AFTER = 1024 * 1024
# A client told --migrate moves to another local port after this many bytes.
MIGRATE_AFTER = 64 * 1024


class Watcher(QuicLoggerTrace):
    """Counts the events the contract reports instead of keeping them all."""

    def __init__(self, *, is_client: bool, odcid: bytes) -> None:
        super().__init__(is_client=is_client, odcid=odcid)
        self.key_updates = 0
        self.begun = 0
        self.retried = False

    def log_event(self, *, category: str, event: str, data: dict) -> None:
        if event == "key_updated":
            # One event per direction: count the sending one of the client.
            if data["key_type"] == "client_1rtt_secret":
                self.key_updates += data["trigger"] in ("local_update", "remote_update")
                self.begun += data["trigger"] == "local_update"
        elif event == "packet_received":
            if data["header"]["packet_type"] == "retry":
                self.retried = True


class Watchers(QuicLogger):
    """Hands one Watcher to each connection and remembers the latest."""

    latest: Watcher | None = None

    def start_trace(self, is_client: bool, odcid: bytes) -> Watcher:
        self.latest = Watcher(is_client=is_client, odcid=odcid)
        return self.latest

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        pass


def cipher_of(quic: QuicConnection) -> str:
    """The negotiated suite under the name IANA gives it."""
    schedule = getattr(quic.tls, "key_schedule", None)
    return "" if schedule is None else "TLS_" + schedule.cipher_suite.name


def configuration(*, is_client: bool, chacha20: bool) -> QuicConfiguration:
    config = QuicConfiguration(
        is_client=is_client,
        alpn_protocols=[ALPN],
        idle_timeout=30.0,
        quic_logger=Watchers(),
        max_data=8 * 1024 * 1024,
        max_stream_data=4 * 1024 * 1024,
    )
    if chacha20:
        config.cipher_suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
    return config


class ServerProtocol(QuicConnectionProtocol):
    """Answers each `GET /path` with the file and reports at the end."""

    def __init__(self, quic, *, root: Path, retry: bool, watchers: Watchers, **kwargs):
        super().__init__(quic, **kwargs)
        self.root = root
        self.watcher = watchers.latest
        self.requests: dict[int, bytearray] = {}
        self.cipher = ""
        self.resumed = False
        self.addresses: set = set()
        # The retrying server creates no connection before a valid token.
        self.report = {"ok": True, "files": 0, "bytes": 0, "retried": retry}

    def datagram_received(self, data, addr) -> None:
        self.addresses.add(addr)
        super().datagram_received(data, addr)

    def quic_event_received(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.HandshakeCompleted):
            self.cipher = cipher_of(self._quic)
            self.resumed = event.session_resumed
        elif isinstance(event, events.StreamDataReceived):
            request = self.requests.setdefault(event.stream_id, bytearray())
            request += event.data
            if len(request) > REQUEST_LIMIT:
                self._quic.reset_stream(event.stream_id, NOT_FOUND)
            elif event.end_stream:
                self.answer(event.stream_id, bytes(self.requests.pop(event.stream_id)))
        elif isinstance(event, events.ConnectionTerminated):
            if event.error_code != 0:
                self.report["ok"] = False
                self.report["error"] = f"{event.error_code:#x} {event.reason_phrase}"
            self.report["cipher"] = self.cipher
            self.report["resumed"] = self.resumed
            # aioquic has no call for the peer's address; this is where packets came from.
            self.report["moved"] = len(self.addresses) > 1
            self.report["key_updates"] = self.watcher.key_updates
            self.report["key_updates_begun"] = self.watcher.begun
            print("connection", json.dumps(self.report), flush=True)

    def answer(self, stream_id: int, request: bytes) -> None:
        try:
            line = request.decode("ascii").rstrip(" \r\n")
            if not line.startswith("GET /"):
                raise ValueError("not a GET")
            path = (self.root / line.removeprefix("GET /")).resolve()
            if not path.is_relative_to(self.root):
                raise ValueError("path leaves the root")
            data = path.read_bytes()
        except (OSError, ValueError) as error:
            print("aioquic server:", error, file=sys.stderr)
            self._quic.reset_stream(stream_id, NOT_FOUND)
            return
        self._quic.send_stream_data(stream_id, data, end_stream=True)
        self.report["files"] += 1
        self.report["bytes"] += len(data)


async def serve(args: argparse.Namespace) -> None:
    config = configuration(is_client=False, chacha20=args.chacha20)
    config.load_cert_chain(args.cert, args.key)
    root = Path(args.root).resolve()
    host, _, port = args.listen.rpartition(":")

    def create_protocol(quic, **kwargs):
        return ServerProtocol(
            quic, root=root, retry=args.retry, watchers=config.quic_logger, **kwargs
        )

    loop = asyncio.get_running_loop()
    tickets: dict = {}
    transport, server = await loop.create_datagram_endpoint(
        lambda: QuicServer(
            configuration=config,
            create_protocol=create_protocol,
            retry=args.retry,
            session_ticket_fetcher=lambda label: tickets.pop(label, None),
            session_ticket_handler=lambda t: tickets.update({t.ticket: t}),
        ),
        local_addr=(host.strip("[]"), int(port)),
    )
    bound = transport.get_extra_info("sockname")
    print(f"listening {host}:{bound[1]}", flush=True)

    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)

    def until_stdin_closes() -> None:
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=until_stdin_closes, daemon=True).start()
    await stop.wait()
    server.close()


class ClientProtocol(QuicConnectionProtocol):
    """Fetches files, one stream each, and begins a key update when told."""

    def __init__(
        self,
        quic,
        *,
        out: Path,
        key_update: bool,
        migrate: bool,
        watcher: Watcher,
        **kwargs,
    ):
        super().__init__(quic, **kwargs)
        self.out = out
        self.key_update = key_update
        self.migrate = migrate
        self.resumed = False
        self.watcher = watcher
        self.received = 0
        self.files: dict[int, tuple] = {}
        self.failure = ""

    def fetch(self, path: str) -> asyncio.Future:
        name = Path(path).name
        stream_id = self._quic.get_next_available_stream_id()
        done = asyncio.get_running_loop().create_future()
        self.files[stream_id] = (open(self.out / name, "wb"), done)
        request = f"GET /{path.removeprefix('/')}\r\n".encode()
        self._quic.send_stream_data(stream_id, request, end_stream=True)
        self.transmit()
        return done

    def quic_event_received(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.HandshakeCompleted):
            self.resumed = event.session_resumed
        elif isinstance(event, events.StreamDataReceived):
            file, done = self.files[event.stream_id]
            file.write(event.data)
            self.received += len(event.data)
            wait = UPDATE_AGAIN_AFTER if self.watcher.key_updates else UPDATE_AFTER
            if self.key_update and self.received >= wait:
                self.key_update = False
                self.request_key_update()
            if self.migrate and self.received >= MIGRATE_AFTER:
                self.migrate = False
                self.moving = asyncio.ensure_future(self.move())
            if event.end_stream:
                file.close()
                done.set_result(None)
        elif isinstance(event, events.StreamReset):
            _, done = self.files[event.stream_id]
            done.set_exception(ConnectionError(f"stream reset {event.error_code:#x}"))
        elif isinstance(event, events.ConnectionTerminated):
            self.failure = f"{event.error_code:#x} {event.reason_phrase}"
            for _, done in self.files.values():
                if not done.done():
                    done.set_exception(ConnectionError(self.failure))


    async def move(self) -> None:
        """Goes on from another socket, under another connection ID."""
        local = self._transport.get_extra_info("sockname")
        self._quic.change_connection_id()
        self._transport.close()
        await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self, local_addr=(local[0], 0)
        )
        await self.ping()


async def fetch_all(args: argparse.Namespace, report: dict) -> None:
    ticket = None
    paths = args.paths
    if args.resume and len(paths) > 1:
        ticket = await fetch_some(args, paths[:1], None, report)
        paths = paths[1:]
    await fetch_some(args, paths, ticket, report)


async def fetch_some(args: argparse.Namespace, paths: list, ticket, report: dict):
    """Fetches files over one connection; returns the newest ticket."""
    config = configuration(is_client=True, chacha20=args.chacha20)
    config.load_verify_locations(args.ca)
    config.server_name = args.server_name
    config.session_ticket = ticket
    tickets: list = []
    quic = QuicConnection(
        configuration=config, session_ticket_handler=tickets.append
    )
    watcher = config.quic_logger.latest
    host, _, port = args.addr.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(
        lambda: ClientProtocol(
            quic,
            out=Path(args.out),
            key_update=args.key_update,
            migrate=args.migrate,
            watcher=watcher,
        ),
        local_addr=("::" if family == socket.AF_INET6 else "0.0.0.0", 0),
        family=family,
    )
    try:
        # aioquic knows a path by the whole tuple, as the socket gives it.
        scope = (0, 0) if family == socket.AF_INET6 else ()
        protocol.connect((host, int(port), *scope))
        try:
            await protocol.wait_connected()
        except ConnectionError as error:
            raise ConnectionError(f"handshake failed: {protocol.failure}") from error
        report["cipher"] = cipher_of(quic)
        await asyncio.gather(*(protocol.fetch(path) for path in paths))
        report["files"] += len(paths)
        report["bytes"] += protocol.received
        report["resumed"] = protocol.resumed
    finally:
        protocol.close()
        # The closing period is three PTO; the CONNECTION_CLOSE is out by now.
        (protocol._transport or transport).close()
        report["key_updates"] = watcher.key_updates
        report["key_updates_begun"] = watcher.begun
        report["retried"] = watcher.retried
    if args.expect_retry and not watcher.retried:
        raise ConnectionError("no Retry was received")
    return tickets[-1] if tickets else None


def run_client(args: argparse.Namespace) -> int:
    report = {"ok": True, "files": 0, "bytes": 0, "key_updates": 0, "cipher": ""}
    try:
        asyncio.run(fetch_all(args, report))
    except (ConnectionError, OSError) as error:
        report["ok"] = False
        report["error"] = str(error)
        print("aioquic driver:", error, file=sys.stderr)
    print(json.dumps(report), flush=True)
    return 0 if report["ok"] else 1


def main() -> int:
    if sys.argv[1:] and sys.argv[1].startswith("http3-"):
        return http3.run(sys.argv[1:])
    parser = argparse.ArgumentParser()
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser("server")
    server.add_argument("--listen", default="127.0.0.1:0")
    server.add_argument("--cert", required=True)
    server.add_argument("--key", required=True)
    server.add_argument("--root", required=True)
    server.add_argument("--retry", action="store_true")
    server.add_argument("--chacha20", action="store_true")
    client = roles.add_parser("client")
    client.add_argument("--addr", required=True)
    client.add_argument("--ca", required=True)
    client.add_argument("--server-name", default="localhost")
    client.add_argument("--out", required=True)
    client.add_argument("--chacha20", action="store_true")
    client.add_argument("--key-update", action="store_true")
    client.add_argument("--expect-retry", action="store_true")
    client.add_argument("--resume", action="store_true")
    client.add_argument("--migrate", action="store_true")
    client.add_argument("paths", nargs="+")
    args = parser.parse_args()
    if args.role == "server":
        asyncio.run(serve(args))
        return 0
    return run_client(args)


if __name__ == "__main__":
    sys.exit(main())

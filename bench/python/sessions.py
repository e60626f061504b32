"""The measurements of WebTransport for stacks in Python.

Flags, measures and reports are those of `bench/contract/src/sessions.rs`. A stack has a module beside
this one that stands behind `Stack` and ends in `run(stack)`: each operation is the cheapest call of its
public API, on the stack's own objects. Nothing here knows a stack.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from meter import Meter, Times, resident_kib, show

PATH = "/bench"
DATAGRAM_BYTES = 64
IDLE_BEFORE = 50
# What a stream is given at once, and asked for.
BLOCK = b"Z" * 65536
READ_AT_MOST = 262144
SETTLE = 3
PARTING = 0.2
LOST = 2
BURST = 64

Options = argparse.Namespace


class Stack(ABC):
    """What the measurements need of a stack. Sessions and streams are its own."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.certificate = options.material / "cert.pem"
        self.key = options.material / "key.pem"
        host, port = options.addr.rsplit(":", 1)
        self.host, self.port = host, int(port)

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}{PATH}"

    @abstractmethod
    async def serve(self, handler: Callable[[Any], Awaitable[None]]) -> None:
        """Calls the handler with each session, each in a task; says `listening` when it can, and stays."""

    @abstractmethod
    async def dial(self) -> None:
        """Prepares the client."""

    @abstractmethod
    async def connect(self) -> Any:
        """A session, ready to be used."""

    @abstractmethod
    def close(self, session: Any) -> Awaitable[object] | None:
        """Closes the session and its connection without waiting for the peer."""

    @abstractmethod
    def open(self, session: Any) -> Awaitable[Any]:
        """A new stream."""

    @abstractmethod
    def incoming(self, session: Any) -> AsyncIterator[Any]:
        """The peer's streams."""

    @abstractmethod
    def read(self, stream: Any) -> Awaitable[bytes]:
        """What there is, at most `READ_AT_MOST`; nothing at the end."""

    @abstractmethod
    def read_all(self, stream: Any) -> Awaitable[bytes]:
        """All to the end."""

    @abstractmethod
    def write(self, stream: Any, data: bytes) -> Awaitable[object]:
        """Writes all of it."""

    @abstractmethod
    def write_last(self, stream: Any, data: bytes) -> Awaitable[object]:
        """Writes all of it and ends the stream."""

    @abstractmethod
    def send(self, session: Any, data: bytes) -> Awaitable[object] | None:
        """Sends a datagram; an awaitable where the stack has something to wait for."""

    @abstractmethod
    def receive(self, session: Any) -> Awaitable[bytes]:
        """The next datagram. Raises at the end of the session."""


def listening(host: str, port: int) -> None:
    print(f"listening {host}:{port}", flush=True)


def free_port(host: str) -> int:
    """For stacks that pick none themselves."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


async def send_bytes(stack: Stack, stream: Any, length: int) -> None:
    while length > 0:
        part = BLOCK if length >= len(BLOCK) else BLOCK[:length]
        await stack.write(stream, part)
        length -= len(part)


class Server:
    """Serves the streams or datagrams of each session."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.options = stack.options
        self.arrived: asyncio.Queue[None] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        watching = []
        if self.options.measure == "idle":
            watching.append(self.watch_memory())
        await asyncio.gather(self.stack.serve(self.session), *watching)

    async def session(self, session: Any) -> None:
        measure = self.options.measure
        self.arrived.put_nowait(None)
        if measure == "echo":
            await self.echo(session)
        elif measure == "datagrams":
            await self.count(session)
        else:
            serve = self.exchange if measure in ("cold", "exchanges") else self.transfer
            async for stream in self.stack.incoming(session):
                task = asyncio.create_task(serve(stream))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    async def exchange(self, stream: Any) -> None:
        await self.stack.write_last(stream, await self.stack.read_all(stream))

    async def transfer(self, stream: Any) -> None:
        """Counts what comes, sends as much as is asked for, and then the count."""
        stack = self.stack
        head = b""
        while len(head) < 8:
            head += await stack.read(stream)
        received, wanted = len(head) - 8, int.from_bytes(head[:8])
        sending = asyncio.create_task(send_bytes(stack, stream, wanted)) if wanted else None
        while chunk := await stack.read(stream):
            received += len(chunk)
        if sending is not None:
            await sending
        await stack.write_last(stream, received.to_bytes(8))

    async def echo(self, session: Any) -> None:
        stack = self.stack
        while True:
            sent = stack.send(session, await stack.receive(session))
            if sent is not None:
                await sent

    async def count(self, session: Any) -> None:
        receive = self.stack.receive
        count, last = 0, 0.0
        meter = None
        try:
            while True:
                data = await receive(session)
                if meter is None:
                    meter = Meter()
                if len(data) != DATAGRAM_BYTES:
                    raise RuntimeError(f"a datagram has {len(data)} bytes")
                count += 1
                if count % 64 == 0:
                    last = meter.elapsed()
        finally:
            # By an exception or by being cancelled, as the stack has it: the session is over.
            if meter is not None:
                show({**meter.report(count), "seconds": last})

    async def watch_memory(self) -> None:
        for _ in range(IDLE_BEFORE):
            await self.arrived.get()
        before, meter = resident_kib(), Meter()
        for _ in range(self.options.sessions):
            await self.arrived.get()
        await asyncio.sleep(SETTLE)
        show(meter.report(self.options.sessions, resident_kib=[before, resident_kib()]))


class Client:
    """Drives one measurement."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.options = stack.options

    async def run(self) -> None:
        measures = {
            "upload": self.transfers,
            "download": self.transfers,
            "duplex": self.transfers,
            "mux": self.transfers,
            "handshakes": self.handshakes,
            "cold": self.cold,
            "exchanges": self.exchanges,
            "echo": self.echo,
            "datagrams": self.datagrams,
            "idle": self.idle,
        }
        await self.stack.dial()
        show(await measures[self.options.measure]())
        await asyncio.sleep(PARTING)

    async def close(self, session: Any) -> None:
        closing = self.stack.close(session)
        if closing is not None:
            await closing

    async def transfers(self) -> dict[str, object]:
        options = self.options
        up = 0 if options.measure == "download" else options.bytes
        down = options.bytes if options.measure in ("download", "duplex") else 0
        took, count = 0.0, 0
        meter = Meter()
        for number in range(options.sessions + 1):
            session = await self.stack.connect()
            begun = time.perf_counter()
            if options.measure == "mux":
                transfers = (self.transfer(session, up, down) for _ in range(options.streams))
                await asyncio.gather(*transfers)
            else:
                for _ in range(options.streams):
                    await self.transfer(session, up, down)
            if number > 0:
                took += time.perf_counter() - begun
                count += options.streams * (up + down)
            await self.close(session)
        return {**meter.report(count), "seconds": took}

    async def transfer(self, session: Any, up: int, down: int) -> None:
        """One stream; over when all has arrived at both ends, which say how much that was."""
        stack = self.stack
        stream = await stack.open(session)
        if up and down:
            _, (received, tail) = await asyncio.gather(
                self.upload(stream, up, down), self.download(stream)
            )
        else:
            await self.upload(stream, up, down)
            received, tail = await self.download(stream)
        if received != down + 8 or int.from_bytes(tail) != up:
            raise RuntimeError(f"{received} bytes came back")

    async def upload(self, stream: Any, up: int, down: int) -> None:
        stack = self.stack
        head = down.to_bytes(8)
        if not up:
            await stack.write_last(stream, head)
            return
        await stack.write(stream, head)
        whole = (up - 1) // len(BLOCK) * len(BLOCK)
        await send_bytes(stack, stream, whole)
        await stack.write_last(stream, BLOCK[: up - whole])

    async def download(self, stream: Any) -> tuple[int, bytes]:
        """How much came, and its last eight bytes."""
        read, received, tail = self.stack.read, 0, b""
        while chunk := await read(stream):
            received += len(chunk)
            tail = chunk[-8:] if len(chunk) >= 8 else (tail + chunk)[-8:]
        return received, tail

    async def exchange(self, session: Any, message: bytes) -> None:
        stack = self.stack
        stream = await stack.open(session)
        await stack.write_last(stream, message)
        if await stack.read_all(stream) != message:
            raise RuntimeError("other bytes came back")

    async def handshakes(self) -> dict[str, object]:
        times = Times(self.options.count)
        for _ in times.rounds():
            begun = time.perf_counter()
            session = await self.stack.connect()
            times.took.append(time.perf_counter() - begun)
            await self.close(session)
        return times.report()

    async def cold(self) -> dict[str, object]:
        times = Times(self.options.count)
        message = b"Z" * self.options.bytes
        for _ in times.rounds():
            begun = time.perf_counter()
            session = await self.stack.connect()
            await self.exchange(session, message)
            await self.close(session)
            times.took.append(time.perf_counter() - begun)
        return times.report()

    async def exchanges(self) -> dict[str, object]:
        times = Times(self.options.count)
        message = b"Z" * self.options.bytes
        session = await self.stack.connect()
        for _ in times.rounds():
            begun = time.perf_counter()
            await self.exchange(session, message)
            times.took.append(time.perf_counter() - begun)
        report = times.report()
        await self.close(session)
        return report

    async def echo(self) -> dict[str, object]:
        stack = self.stack
        times = Times(self.options.count)
        message = b"Z" * DATAGRAM_BYTES
        session = await stack.connect()
        patience = asyncio.timeout(LOST)
        async with patience:
            for _ in times.rounds():
                # One timer for all: each has so long from now on.
                patience.reschedule(asyncio.get_running_loop().time() + LOST)
                begun = time.perf_counter()
                sent = stack.send(session, message)
                if sent is not None:
                    await sent
                if await stack.receive(session) != message:
                    raise RuntimeError("another datagram came back")
                times.took.append(time.perf_counter() - begun)
        report = times.report()
        await self.close(session)
        return report

    async def datagrams(self) -> dict[str, object]:
        stack = self.stack
        message = b"Z" * DATAGRAM_BYTES
        session = await stack.connect()
        meter, count = Meter(), 0
        while meter.elapsed() < self.options.seconds:
            for _ in range(BURST):
                sent = stack.send(session, message)
                if sent is not None:
                    await sent
            count += BURST
            await asyncio.sleep(0)
        report = meter.report(count)
        await asyncio.sleep(PARTING)
        await self.close(session)
        return report

    async def idle(self) -> dict[str, object]:
        held = []
        meter = Meter()
        for _ in range(IDLE_BEFORE + self.options.sessions):
            held.append(await self.stack.connect())
        show(meter.report(self.options.sessions))
        await asyncio.Event().wait()
        return {}


MEASURES = (
    "upload",
    "download",
    "duplex",
    "mux",
    "handshakes",
    "cold",
    "exchanges",
    "echo",
    "datagrams",
    "idle",
)


def run(stack: type[Stack]) -> None:
    """Plays the role of the command line."""
    # Some stacks log each connection; a server's errors still show.
    logging.basicConfig(level=logging.ERROR)
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("server", "client"))
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--addr", required=True)
    parser.add_argument("--material", type=Path, required=True)
    for name in ("sessions", "streams", "bytes", "count", "seconds"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--event-loop", choices=("uvloop", "asyncio"), default="uvloop")
    options = parser.parse_args()

    async def main() -> None:
        made = stack(options)
        await (Server(made) if options.role == "server" else Client(made)).run()

    (uvloop.run if options.event_loop == "uvloop" else asyncio.run)(main())

"""`bench`: round trips, throughput both ways and datagrams, with `serve` of this package or the program.

Each part has a session of its own, at the path that web/README.md describes. What comes back is compared
byte by byte.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from .._session import Session
from . import _client
from ._client import Number, Peer, figures, limited
from ._failures import Exit, Failure
from ._printer import Printer, millis, size_text
from ._serve import LENGTH, PATTERN

__all__ = ["add_arguments", "run"]

_CHUNK = 256 * 1024
_MOST_SECONDS = 60
# What /download is asked for: more than a stream carries.
_ENDLESS = 1 << 60
# A chunk of /download, wherever it begins.
_EXPECTED = PATTERN + PATTERN[:256]
# How long the last datagrams may take, seconds, and how often the bar moves.
_LATE = 0.5
_TICK = 0.1

Row = dict[str, float | int | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `bench` takes."""
    _client.add_arguments(parser)
    parser.add_argument(
        "--seconds",
        type=_part,
        default=2.0,
        metavar="SECONDS",
        help=f"how long each part is measured, up to {_MOST_SECONDS} (%(default)g)",
    )
    parser.add_argument(
        "--size",
        type=Number(8, 1 << 16),
        default=100,
        metavar="BYTES",
        help="of each message and datagram that comes back (%(default)s)",
    )
    parser.add_argument(
        "--rate",
        type=Number(1, 20_000),
        default=1000,
        metavar="N",
        help="datagrams a second (%(default)s)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(_PARTS),
        metavar="PART",
        help=f"{', '.join(_PARTS)} (repeatable; all)",
    )


async def run(given: argparse.Namespace, printer: Printer) -> Exit:
    """Measures one part after the other."""
    peer = Peer(given)
    rows: dict[str, Row | None] = dict.fromkeys(_PARTS)
    for name, (path, measure) in _PARTS.items():
        if given.only and name not in given.only:
            continue
        async with peer.session(peer.at(path)) as session:
            part = _Part(given, session)
            bar = asyncio.get_running_loop().create_task(_bar(name, part, printer))
            try:
                words = f"{name}: the server did not come to an end"
                async with limited(given.seconds + peer.timeout, words):
                    rows[name] = row = await measure(part)
            finally:
                bar.cancel()
        printer.line(f"{name:<12} {_shown(row)}")
    parts = {name.replace("-", "_"): row for name, row in rows.items()}
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    printer.record(
        "towline.python.bench/1",
        peer=urlsplit(peer.url).netloc,
        loop=loop,
        seconds=given.seconds,
        **parts,
    )
    return Exit.OK


class _Part:
    """One part under way: what it has to do, and how far it is."""

    def __init__(self, given: argparse.Namespace, session: Session) -> None:
        self.session = session
        self.seconds: float = given.seconds
        self.size: int = given.size
        self.rate: int = given.rate
        self.bytes = 0
        self.begun = time.perf_counter()

    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self.begun

    def under_way(self) -> bool:
        """Whether its time is not over."""
        return self.elapsed() < self.seconds

    def throughput(self) -> Row:
        """What went through, and how fast."""
        elapsed = self.elapsed()
        return {
            "bytes": self.bytes,
            "seconds": elapsed,
            "bits_per_second": self.bytes * 8 / elapsed,
        }


async def _round_trips(part: _Part) -> Row:
    message = (PATTERN * (part.size // len(PATTERN) + 1))[: part.size]
    times = array("d")
    async with await part.session.create_bidirectional_stream() as stream:
        while part.under_way():
            begun = time.perf_counter()
            await stream.write(message)
            back = await stream.readexactly(len(message))
            times.append(time.perf_counter() - begun)
            part.bytes += len(message)
            if back != message:
                raise Failure(Exit.PARTIAL, "a message came back changed")
    return {"count": len(times), "per_second": len(times) / part.elapsed(), **figures(times)}


async def _upload(part: _Part) -> Row:
    sent, finished = 0, False
    async with await part.session.create_bidirectional_stream() as stream:

        async def send() -> None:
            nonlocal sent, finished
            while part.under_way():
                await stream.write(PATTERN)
                sent += len(PATTERN)
            finished = True
            stream.finish()

        async def arrive() -> Row:
            left = b""
            async for chunk in stream.chunks():
                counts = left + chunk
                whole = len(counts) // LENGTH * LENGTH
                if whole:
                    part.bytes = int.from_bytes(counts[whole - LENGTH : whole])
                left = counts[whole:]
            if not finished or part.bytes != sent:
                words = f"upload: the server counted {part.bytes} of {sent} bytes and ended"
                raise Failure(Exit.PARTIAL, words, "check that the URL is one of `serve`")
            return part.throughput()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            arriving = tasks.create_task(arrive())
    return arriving.result()


async def _download(part: _Part) -> Row:
    async with await part.session.create_bidirectional_stream() as stream:
        await stream.write(_ENDLESS.to_bytes(LENGTH))
        while part.under_way():
            chunk = await stream.read(_CHUNK)
            if not chunk:
                raise Failure(Exit.PARTIAL, "download: the server ended it early")
            # The pattern begins anew after 256 bytes.
            at = part.bytes % 256
            if chunk != _EXPECTED[at : at + len(chunk)]:
                raise Failure(Exit.PARTIAL, f"download: wrong bytes after {part.bytes}")
            part.bytes += len(chunk)
        row = part.throughput()
        stream.reset()
        stream.stop()
    return row


async def _datagrams(part: _Part) -> Row:
    datagrams = part.session.datagrams
    loop = asyncio.get_running_loop()
    filling = bytes(part.size - LENGTH)
    under_way: dict[bytes, float] = {}
    times = array("d")
    sent = no_room = 0

    async def receive() -> None:
        while True:
            begun = under_way.pop((await datagrams.receive())[:LENGTH], None)
            if begun is not None:
                times.append(time.perf_counter() - begun)
                part.bytes += part.size

    receiving = loop.create_task(receive())
    try:
        while part.under_way():
            # The loop's clock is coarse: as many as are due by now.
            for _ in range(int(part.elapsed() * part.rate) - sent - no_room):
                name = sent.to_bytes(LENGTH)
                if datagrams.send(name + filling):
                    under_way[name] = time.perf_counter()
                    sent += 1
                else:
                    no_room += 1
            waiting = asyncio.wait([receiving], timeout=1 / part.rate)
            if (await waiting)[0]:
                break
        row = part.throughput()
        late = loop.time() + _LATE
        while under_way and not receiving.done() and loop.time() < late:
            await asyncio.wait([receiving], timeout=0.01)
    finally:
        receiving.cancel()
        (outcome,) = await asyncio.gather(receiving, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome
    if sent and not times:
        raise Failure(Exit.TIMEOUT, "no datagram came back", "try --only with other parts")
    return {
        "sent": sent,
        "received": len(times),
        "no_room": no_room,
        "loss_percent": (1 - len(times) / sent) * 100 if sent else None,
        "bits_per_second": row["bits_per_second"],
        **figures(times),
    }


_PARTS: dict[str, tuple[str, Callable[[_Part], Awaitable[Row]]]] = {
    "round-trips": ("/echo", _round_trips),
    "upload": ("/upload", _upload),
    "download": ("/download", _download),
    "datagrams": ("/datagrams", _datagrams),
}


async def _bar(name: str, part: _Part, printer: Printer) -> None:
    while True:
        elapsed = part.elapsed()
        speed = f"{size_text(part.bytes / elapsed)}/s" if elapsed > 0 else ""
        printer.progress(name, elapsed / part.seconds, speed)
        await asyncio.sleep(_TICK)


def _shown(row: Row) -> str:
    texts: list[str] = []
    if "per_second" in row:
        texts.append(f"{row['count']} ({row['per_second']:.0f} a second)")
    if "seconds" in row:
        speed = size_text((row["bits_per_second"] or 0) / 8)
        texts.append(f"{size_text(row['bytes'] or 0)} in {row['seconds']:.2f} s: {speed}/s")
    if "sent" in row:
        loss = row["loss_percent"] or 0
        texts.append(f"{row['sent']} sent, {row['received']} back, {loss:.2f} % lost")
        if row["no_room"]:
            texts.append(f"{row['no_room']} found no room")
    if "rtt_min" in row:
        names = ("rtt_min", "rtt_median", "rtt_p99", "rtt_max")
        shown = "/".join(millis(row[name]) for name in names)
        texts.append(f"rtt min/median/99 %/max {shown} ms")
    return ", ".join(texts)


def _part(text: str) -> float:
    value = _client.seconds(text)
    if value > _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"'{text}': at most {_MOST_SECONDS} seconds")
    return value

"""`echo`: round trips with a server that sends everything back."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time

from .._session import Session
from .._streams import BidirectionalStream
from . import _client
from ._client import Number, Peer, limited
from ._failures import Exit, Failure
from ._printer import Printer, millis

__all__ = ["add_arguments", "run"]

_LEAST, _MOST = 8, 16 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `echo` takes."""
    _client.add_arguments(parser)
    parser.add_argument(
        "--count",
        type=Number(1, 1_000_000),
        default=4,
        metavar="N",
        help="how many messages (%(default)s)",
    )
    parser.add_argument(
        "--size",
        type=Number(_LEAST, _MOST),
        default=64,
        metavar="BYTES",
        help="bytes of each message, at least 8 (%(default)s)",
    )
    parser.add_argument(
        "--interval",
        type=_client.seconds,
        default=0.25,
        metavar="SECONDS",
        help="time from one to the next (%(default)g)",
    )
    parser.add_argument(
        "--datagram",
        action="store_true",
        help="in datagrams, which may get lost, instead of over a stream",
    )


async def run(given: argparse.Namespace, printer: Printer) -> Exit:
    """Sends so many messages, and prints how long each was on its way."""
    peer = Peer(given)
    async with peer.session(peer.url) as session:
        count = _Count(given, printer, peer)
        try:
            if given.datagram:
                await count.datagrams(session)
            else:
                async with await session.create_bidirectional_stream() as stream:
                    await count.messages(stream)
        finally:
            count.summarise(session)
    if not count.times:
        words = f"no datagram came back within {given.timeout:g} s"
        raise Failure(Exit.TIMEOUT, words, "try again without --datagram")
    return Exit.OK


class _Count:
    """Messages that were sent, and what came of them."""

    def __init__(self, given: argparse.Namespace, printer: Printer, peer: Peer) -> None:
        self._given = given
        self._printer = printer
        self._peer = peer
        self._sent = 0
        self.times: list[float] = []

    async def messages(self, stream: BidirectionalStream) -> None:
        for number in range(self._given.count):
            message = self._message(number)
            begun = time.perf_counter()
            self._sent += 1
            async with limited(self._peer.timeout, f"message {number} did not come back"):
                # A long one comes back before all of it is written.
                _, back = await asyncio.gather(
                    stream.write(message), stream.readexactly(len(message))
                )
            if back != message:
                raise Failure(Exit.PARTIAL, f"message {number} came back changed")
            await self._came(number, begun)

    async def datagrams(self, session: Session) -> None:
        datagrams = session.datagrams
        for number in range(self._given.count):
            message = self._message(number)
            begun = time.perf_counter()
            await datagrams.send_wait(message)
            self._sent += 1
            try:
                async with asyncio.timeout(self._peer.timeout):
                    # An earlier one that came late is not this one's answer.
                    while await datagrams.receive() != message:
                        pass
            except TimeoutError:
                self._printer.line(f"seq={number} lost")
                continue
            await self._came(number, begun)

    def summarise(self, session: Session) -> None:
        """The lines at the end."""
        sent, times = self._sent, self.times
        lost = (1 - len(times) / sent) * 100 if sent else 0.0
        mean = statistics.fmean(times) if times else None
        low, high = min(times, default=None), max(times, default=None)
        deviation = statistics.pstdev(times) if times else None
        host, port = session.remote_address
        peer = f"{f'[{host}]' if ':' in host else host}:{port}"
        self._printer.line(
            f"--- {peer}: {sent} sent, {len(times)} received, {lost:.1f} % loss"
        )
        if times:
            shown = "/".join(millis(value) for value in (low, mean, high, deviation))
            self._printer.line(f"rtt min/avg/max/mdev {shown} ms")
        self._printer.record(
            "towline.echo/1",
            peer=peer,
            over="datagram" if self._given.datagram else "stream",
            sent=sent,
            received=len(times),
            loss_percent=lost,
            rtt_min=low,
            rtt_avg=mean,
            rtt_max=high,
            rtt_mdev=deviation,
        )

    def _message(self, number: int) -> bytes:
        return number.to_bytes(_LEAST) + os.urandom(self._given.size - _LEAST)

    async def _came(self, number: int, begun: float) -> None:
        time_taken = time.perf_counter() - begun
        self.times.append(time_taken)
        size = self._given.size
        self._printer.line(f"seq={number} bytes={size} rtt={millis(time_taken)} ms")
        self._printer.record("towline.echo.reply/1", seq=number, bytes=size, rtt=time_taken)
        if number + 1 < self._given.count:
            await asyncio.sleep(max(self._given.interval - time_taken, 0))

"""`serve`: sends everything back, and measures with `bench`.

The paths are those of `towline serve --web` (web/README.md), so that each client works with each server:
`/upload` says on each stream how many of its bytes came, `/download` sends as many as it is asked for,
all others send back what comes: on the same stream, on one of the server's own, as a datagram.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from .._certificates import Certificate, generate_certificate
from .._errors import DatagramTooLarge, IncompleteRead, StreamError
from .._server import Server, serve
from .._session import Session
from .._streams import BidirectionalStream, ReceiveStream
from ._client import Number, seconds
from ._failures import Exit, Failure, of_system
from ._printer import Printer

__all__ = ["LENGTH", "PATTERN", "add_arguments", "answer", "run"]

_CHUNK = 256 * 1024
# The least time between two counts on /upload, seconds.
_COUNT_EVERY = 0.1

LENGTH = 8
"""Bytes of a count, the highest first."""
PATTERN = bytes(range(256)) * (_CHUNK // 256)
"""What /download sends, again and again: each byte is the lowest of its offset."""

Work = Callable[[BidirectionalStream], Awaitable[None]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `serve` takes."""
    parser.add_argument(
        "--host", default="localhost", help='name or address; "" is all of them (localhost)'
    )
    parser.add_argument(
        "--port",
        type=Number(0, 65535),
        default=4433,
        metavar="N",
        help="UDP port; 0 is one that is free (%(default)s)",
    )
    parser.add_argument(
        "--cert", type=Path, metavar="FILE", help="the certificate's chain in PEM (a new one)"
    )
    parser.add_argument("--key", type=Path, metavar="FILE", help="its private key in PEM")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME",
        help="host name or address in a new certificate (localhost, 127.0.0.1, ::1; repeatable)",
    )
    parser.add_argument(
        "--origin",
        action="append",
        metavar="ORIGIN",
        help="let in pages of this origin, such as https://app.example, and no others (repeatable)",
    )
    parser.add_argument(
        "--protocol",
        action="append",
        default=[],
        metavar="NAME",
        help="choose this protocol of those that a client offers (repeatable)",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long clients may go on after SIGTERM or Ctrl-C (%(default)g)",
    )


async def run(given: argparse.Namespace, printer: Printer) -> Exit:
    """Serves until SIGTERM or Ctrl-C, then drains."""
    certificate = _certificate(given)
    try:
        server = await serve(
            answer,
            given.host,
            given.port,
            certificate=certificate,
            origins=given.origin,
            protocols=given.protocol,
            grace=given.grace,
        )
    except OSError as error:
        if error.errno is None:
            raise
        words = f"cannot listen at port {given.port} of {given.host or 'all addresses'}: "
        next = "another --port, or 0; `ss -ulpn` names the program that has it"
        raise Failure(Exit.OTHER, words + of_system(error), next) from error
    try:
        url = f"{server.url}#sha256/{certificate.sha256}"
        printer.line(f"serving at {server.url}")
        printer.line(f"pin        {certificate.sha256}")
        printer.line(f"until      {certificate.not_after:%Y-%m-%d %H:%M} UTC")
        printer.line(f"  python -m towline echo '{url}'")
        printer.line(f"  python -m towline bench '{url}'")
        printer.record(
            "towline.python.listening/1",
            url=server.url,
            port=server.port,
            certificate_pin=f"sha256/{certificate.sha256}",
            expires=int(certificate.not_after.timestamp()),
        )
        await _until_signal(server, printer)
    finally:
        await server.close()
    return Exit.INTERRUPTED


async def _until_signal(server: Server, printer: Printer) -> None:
    """As `serve_forever`, and Ctrl-C drains too; the second one does what it does elsewhere."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        printer.note("towline: waits for the clients to end; once more stops at once")
        signal.raise_signal(signal.SIGTERM)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        await server.serve_forever()
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _certificate(given: argparse.Namespace) -> Certificate:
    if (given.cert is None) != (given.key is None):
        raise Failure(Exit.USAGE, "--cert and --key go together")
    if given.cert is None:
        return generate_certificate(*(given.name or ("localhost", "127.0.0.1", "::1")))
    if given.name:
        raise Failure(Exit.USAGE, "--name is for a new certificate: leave --cert and --key out")
    try:
        return Certificate.load(given.cert, given.key)
    except ValueError as error:
        words = str(error).removeprefix("argument 'chain': ")
        raise Failure(Exit.USAGE, f"{given.cert}, {given.key}: {words}") from error


async def answer(session: Session) -> None:
    """Does what the session's path says."""
    path = session.path.partition("?")[0].rstrip("/")
    works: dict[str, Work] = {"upload": _count, "download": _send_as_asked}
    work = works.get(path.rpartition("/")[2], _echo)
    async with asyncio.TaskGroup() as tasks:
        if work is _echo:
            tasks.create_task(_echo_one_way(session, tasks))
            tasks.create_task(_echo_datagrams(session))
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(_alone(work, stream))


async def _alone(work: Work, stream: BidirectionalStream) -> None:
    # The failure of one stream is no other's.
    with contextlib.suppress(StreamError, IncompleteRead):
        async with stream:
            await work(stream)


async def _echo(stream: BidirectionalStream) -> None:
    async for chunk in stream.chunks(_CHUNK):
        await stream.write(chunk)


async def _echo_one_way(session: Session, tasks: asyncio.TaskGroup) -> None:
    async def back(stream: ReceiveStream) -> None:
        with contextlib.suppress(StreamError):
            async with stream, await session.create_unidirectional_stream() as ours:
                async for chunk in stream.chunks(_CHUNK):
                    await ours.write(chunk)

    async for stream in session.incoming_unidirectional_streams:
        tasks.create_task(back(stream))


async def _echo_datagrams(session: Session) -> None:
    datagrams = session.datagrams
    async for datagram in datagrams:
        # One that finds no room, or no longer fits, is lost as on the network.
        with contextlib.suppress(DatagramTooLarge):
            datagrams.send(datagram)


async def _count(stream: BidirectionalStream) -> None:
    total, said = 0, time.monotonic()
    async for chunk in stream.chunks(_CHUNK):
        total += len(chunk)
        if time.monotonic() - said >= _COUNT_EVERY:
            said = time.monotonic()
            await stream.write(total.to_bytes(LENGTH))
    await stream.write(total.to_bytes(LENGTH))


async def _send_as_asked(stream: BidirectionalStream) -> None:
    wanted = int.from_bytes(await stream.readexactly(LENGTH))
    pattern = memoryview(PATTERN)
    while wanted > 0:
        part = pattern[:wanted]
        await stream.write(part)
        wanted -= len(part)

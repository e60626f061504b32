"""What `echo` and `bench` share: the server, whom to believe, and how long to wait."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

from .._client import connect
from .._errors import HandshakeRefused
from .._session import Session
from ._failures import Exit, Failure, failure_of

__all__ = ["Number", "Peer", "add_arguments", "figures", "limited", "seconds"]

_DEFAULT_TIMEOUT = 10.0
_MOST_SECONDS = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The server, and whom to believe."""
    parser.add_argument(
        "url", metavar="URL", help="https://HOST[:PORT][/PATH][#sha256/PIN], as `serve` prints it"
    )
    parser.add_argument(
        "--pin",
        action="append",
        default=[],
        metavar="HASH",
        help="SHA-256 of the server's certificate or key, 64 hexadecimal digits (repeatable)",
    )
    parser.add_argument(
        "--roots", type=Path, metavar="FILE", help="believe certificates of these roots, in PEM"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=_DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="the longest that an answer is waited for (%(default)g)",
    )


class Peer:
    """The server that a command was given."""

    def __init__(self, given: argparse.Namespace) -> None:
        parts = urldefrag(str(given.url))
        self.url: str = parts.url
        self.timeout: float = given.timeout
        self._pins: list[str] = [*given.pin, *([parts.fragment] if parts.fragment else [])]
        self._roots: bytes | None = given.roots and given.roots.read_bytes()

    def at(self, path: str) -> str:
        """The URL of another path, below the one that was given."""
        parts = urlsplit(self.url)
        return parts._replace(path=parts.path.rstrip("/") + path).geturl()

    @contextlib.asynccontextmanager
    async def session(self, url: str) -> AsyncIterator[Session]:
        """A session at a URL."""
        connecting = connect(url, pins=self._pins, roots=self._roots)
        host = urlsplit(url).netloc
        try:
            async with limited(self.timeout, f"no answer from {host}", Exit.CONNECT):
                session = await connecting.__aenter__()
        except HandshakeRefused as error:
            failure = failure_of(error)
            if failure is None or failure.exit != Exit.TLS or self._pins or self._roots:
                raise
            words = f"{host} is not believed without a pin: {error}"
            raise Failure(Exit.TLS, words, "--pin with the hash that the server prints") from error
        try:
            yield session
        except BaseException as error:
            await connecting.__aexit__(type(error), error, error.__traceback__)
            raise
        await connecting.__aexit__(None, None, None)


@contextlib.asynccontextmanager
async def limited(limit: float, words: str, exit: Exit = Exit.TIMEOUT) -> AsyncIterator[None]:
    """A part of a command that may take so many seconds."""
    timeout = asyncio.timeout(limit)
    try:
        async with timeout:
            yield
    except TimeoutError:
        if not timeout.expired():
            raise
        next = "check that the server runs, and that no firewall is in the way"
        raise Failure(exit, f"{words} within {limit:g} s", next) from None


def figures(samples: Sequence[float]) -> dict[str, float | None]:
    """Least, median, 95 %, 99 % and most of some times; `None` where there are none."""
    names = {"rtt_min": 0.0, "rtt_median": 0.5, "rtt_p95": 0.95, "rtt_p99": 0.99, "rtt_max": 1.0}
    ordered = sorted(samples)
    last = len(ordered) - 1
    return {
        name: ordered[round(part * last)] if ordered else None for name, part in names.items()
    }


def seconds(text: str) -> float:
    """A time on the command line."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= _MOST_SECONDS:
        words = f"'{text}' is no number of seconds above 0 and up to {_MOST_SECONDS:g}"
        raise argparse.ArgumentTypeError(words)
    return value


class Number:
    """A whole number within limits, for argparse."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    def __call__(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = self._least - 1
        if not self._least <= value <= self._most:
            words = f"'{text}' is no whole number from {self._least} to {self._most}"
            raise argparse.ArgumentTypeError(words)
        return value

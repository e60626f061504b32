"""Sessions: streams and datagrams with one peer, under the names of W3C WebTransport."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar

from . import _native
from ._core import Core, checked_code
from ._driver import Driver, settle
from ._errors import ConnectionLost, SessionClosed, StreamError
from ._streams import BidirectionalStream, ReceiveStream, SendStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "FAILED",
    "CloseInfo",
    "Datagrams",
    "Incoming",
    "Moment",
    "Session",
    "SessionStats",
]

FAILED = 1
"""The code of a session whose end was an exception of this end's program."""

# The most bytes of a reason that are sent.
_MAX_REASON = 1024

# What can be waited for at a session.
_ACCEPT_BI = _native.Session.ACCEPT_BI
_ACCEPT_UNI = _native.Session.ACCEPT_UNI
_OPEN_BI = _native.Session.OPEN_BI
_OPEN_UNI = _native.Session.OPEN_UNI
_DATAGRAM = _native.Session.DATAGRAM
_DATAGRAM_ROOM = _native.Session.DATAGRAM_ROOM
_DRAIN = _native.Session.DRAIN
_END = _native.Session.END

_T = TypeVar("_T")
_Stream = TypeVar("_Stream", BidirectionalStream, ReceiveStream)


class CloseInfo(NamedTuple):
    """How a session was closed."""

    code: int
    """The code; 0 where none was given."""
    reason: str
    """The words; empty where none were given."""
    by_peer: bool
    """Whether it was the other end."""


@dataclass(frozen=True, slots=True)
class SessionStats:
    """Counts and measurements: times in seconds, rates in bytes a second.

    Packets, bytes and round trips are those of the connection, which at a server may carry other
    sessions too. What was not measured yet is `None`.
    """

    smoothed_rtt: float
    """The smoothed round-trip time; an estimate before the first measurement."""
    rtt_variation: float
    """Its mean variation."""
    min_rtt: float | None
    """The smallest round trip seen."""
    estimated_send_rate: int | None
    """What the path seems to carry."""
    bytes_sent: int
    """Bytes of packets sent."""
    packets_sent: int
    """Packets sent."""
    bytes_lost: int
    """Bytes of packets declared lost."""
    packets_lost: int
    """Packets declared lost."""
    bytes_received: int
    """Bytes received."""
    packets_received: int
    """Packets received."""
    datagrams_received: int
    """Datagrams of the session that arrived."""
    datagrams_dropped: int
    """Of those, the ones that nobody read in time."""
    datagrams_expired: int
    """Datagrams that were too old to be sent, or had become too large."""
    datagrams_lost: int
    """Datagrams sent and declared lost."""
    streams_opened: int
    """Streams that this end opened."""
    streams_accepted: int
    """Streams of the peer's that were accepted."""
    connection: Mapping[str, int | float | bool | None]
    """Every number of the connection, by its name in Rust and in metrics."""


class Moment(Generic[_T]):
    """Something that happens once: `await` it, or ask whether it has happened by `if`."""

    __slots__ = ("_happened", "_wait")

    def __init__(
        self, wait: Callable[[], Generator[object, None, _T]], happened: Callable[[], bool]
    ) -> None:
        self._wait = wait
        self._happened = happened

    def __await__(self) -> Generator[object, None, _T]:
        return self._wait()

    def __bool__(self) -> bool:
        return self._happened()


class Incoming(Generic[_Stream]):
    """The peer's streams, in the order in which they arrive, for `async for` and `anext`.

    It ends when either end has closed the session, and raises `ConnectionLost` when it was lost.
    """

    __slots__ = ("_accept", "_core", "_wait")

    def __init__(self, core: Core, wait: int, accept: Callable[[], _Stream | None]) -> None:
        self._core = core
        self._wait = wait
        self._accept: Callable[[], _Stream | None] = accept

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Stream:
        try:
            return await self._core.take(self._wait, self._accept)
        except ConnectionLost:
            raise
        except SessionClosed:
            raise StopAsyncIteration from None


class Datagrams:
    """Datagrams: small, unordered, and lost rather than late."""

    __slots__ = ("_core",)

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def max_size(self) -> int:
        """The most bytes that fit into a datagram now."""
        try:
            return self._core.native.max_datagram_size
        except SessionClosed as error:
            raise self._core.explain(error) from None

    def send(
        self, data: ReadableBuffer, max_age: float | None = None, send_order: int = 0
    ) -> bool:
        """Sends a datagram, and says whether there was room for it; it never waits.

        One that cannot leave within `max_age` seconds is dropped. Raises `DatagramTooLarge`, and
        `SessionClosed` when the session is over.
        """
        core = self._core
        try:
            sent = core.native.send_datagram(data, max_age, send_order)
        except SessionClosed as error:
            raise core.explain(error) from None
        core.driver.nudge()
        return sent

    async def send_wait(self, data: ReadableBuffer) -> None:
        """Sends a datagram, and waits while there is no room for it."""
        core = self._core
        try:
            while not core.native.send_datagram_when_room(data):
                await core.driver.wait(core.native.token + _DATAGRAM_ROOM)
        except SessionClosed as error:
            raise core.explain(error) from None
        core.driver.nudge()

    async def receive(self) -> bytes:
        """The next datagram. What arrived before the end of the session can be read after it."""
        core = self._core
        return await core.take(_DATAGRAM, core.native.receive_datagram)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.receive()
        except ConnectionLost:
            raise
        except SessionClosed:
            raise StopAsyncIteration from None


class Session:
    """A WebTransport session.

    `towline.connect` gives them to clients, `towline.serve` to handlers. It belongs to the event loop
    that it was made on. Dropped, it is closed.
    """

    __slots__ = (
        "__weakref__",
        "_core",
        "authority",
        "dialect",
        "headers",
        "origin",
        "path",
        "protocol",
        "remote_address",
    )

    def __init__(
        self,
        driver: Driver,
        native: _native.Session,
        *,
        authority: str,
        path: str,
        origin: str | None,
        headers: list[tuple[str, str]],
    ) -> None:
        self._core = Core(driver, native)
        self.authority = authority
        """The host, and perhaps the port, that the client asked."""
        self.path = path
        """Path and query of the URL."""
        self.origin = origin
        """The page that asked, where a browser did."""
        self.headers = headers
        """The fields of the request at a server, those of the answer at a client."""
        self.protocol: str | None = native.protocol
        """The application protocol that the server chose of those that the client offered."""
        self.dialect: str = native.dialect
        """The version of WebTransport that both ends speak."""
        self.remote_address: tuple[str, int] = native.remote_address
        """Where the peer was when the session began."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Session {self.authority}{self.path} {self.dialect} {state}>"

    @property
    def incoming_bidirectional_streams(self) -> Incoming[BidirectionalStream]:
        """The peer's bidirectional streams, for `async for`."""
        core = self._core

        def accept() -> BidirectionalStream | None:
            halves = core.native.accept_bi()
            return None if halves is None else BidirectionalStream(core, *halves)

        return Incoming(core, _ACCEPT_BI, accept)

    @property
    def incoming_unidirectional_streams(self) -> Incoming[ReceiveStream]:
        """The peer's unidirectional streams, for `async for`."""
        core = self._core

        def accept() -> ReceiveStream | None:
            recv = core.native.accept_uni()
            return None if recv is None else ReceiveStream(core, recv)

        return Incoming(core, _ACCEPT_UNI, accept)

    async def create_bidirectional_stream(self, send_order: int = 0) -> BidirectionalStream:
        """A new stream, as soon as the peer permits one. Among streams that want to send, the one with
        the highest `send_order` goes first."""
        core = self._core
        halves = core.take_now(_OPEN_BI, core.native.open_bi)
        if halves is None:
            halves = await core.take_in_turn(_OPEN_BI, core.native.open_bi)
        send, recv = halves
        stream = BidirectionalStream(core, send, recv)
        if send_order != 0:
            stream.set_send_order(send_order)
        return stream

    async def create_unidirectional_stream(self, send_order: int = 0) -> SendStream:
        """As `create_bidirectional_stream`, a stream that only this end writes."""
        core = self._core
        send = core.take_now(_OPEN_UNI, core.native.open_uni)
        if send is None:
            send = await core.take_in_turn(_OPEN_UNI, core.native.open_uni)
        stream = SendStream(core, send)
        if send_order != 0:
            stream.set_send_order(send_order)
        return stream

    @property
    def datagrams(self) -> Datagrams:
        """The session's datagrams."""
        return Datagrams(self._core)

    async def get_stats(self) -> SessionStats:
        """Counts and measurements as of now."""
        try:
            numbers = self._core.native.stats()
        except SessionClosed as error:
            raise self._core.explain(error) from None
        return _stats(numbers)

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes the session, without waiting: streams and datagrams on their way may be lost.

        The peer is told `code`, 0 to 4294967295, and `reason`, of which 1,024 bytes are sent. A session
        that is over stays as it is.
        """
        checked_code(code)
        if not isinstance(reason, str):
            raise TypeError(f"argument 'reason': a str is required, not '{type(reason).__name__}'")
        if len(reason.encode()) > _MAX_REASON:
            raise ValueError(f"argument 'reason': at most {_MAX_REASON} bytes in UTF-8")
        self._core.close(code, reason)

    async def aclose(self, code: int = 0, reason: str = "") -> None:
        """Closes the session, and waits until the peer knows it, or seems to be gone."""
        self.close(code, reason)
        try:
            await self._settle()
        finally:
            self._release()

    @property
    def closed(self) -> Moment[CloseInfo]:
        """The end of the session: `await session.closed` says how, and raises `ConnectionLost` when it
        was not closed; `if session.closed` asks whether it is over."""
        return Moment(
            lambda: self._wait_closed().__await__(), lambda: self._core.over() is not None
        )

    @property
    def draining(self) -> Moment[None]:
        """The peer's wish that the session end soon, as when a server shuts down."""
        return Moment(lambda: self._wait_draining().__await__(), self._is_draining)

    def drain(self) -> None:
        """Asks the peer to end the session soon; nothing else changes."""
        if self._core.over() is None:
            self._core.native.drain()
            self._core.driver.nudge()

    async def _wait_closed(self) -> CloseInfo:
        core = self._core
        if core.end is None:
            token = core.native.token + _END
            core.end = await core.driver.take(token, core.native.poll_closed)
        end = core.end
        if isinstance(end, SessionClosed) and not isinstance(end, ConnectionLost):
            return CloseInfo(end.code, end.reason, end.by_peer)
        raise copy.copy(end)

    async def _wait_draining(self) -> None:
        await self._core.take(_DRAIN, self._core.native.poll_draining)

    def _is_draining(self) -> bool:
        return self._core.over() is None and self._core.native.poll_draining() is True

    async def _settle(self) -> None:
        """Waits until the peer has what was sent."""
        try:
            await settle(self._core.driver, [self._core.native])
        except (StreamError, SessionClosed):
            # Nobody is there to have it.
            pass

    def _release(self) -> None:
        self._core.release()
        self._core.driver.turn_now()


def _stats(numbers: dict[str, int | float | bool | None]) -> SessionStats:
    def count(name: str) -> int:
        return int(numbers.pop(name) or 0)

    session = {
        "datagrams_received": count("session_datagrams_received"),
        "datagrams_dropped": count("session_datagrams_dropped"),
        "streams_opened": count("session_streams_opened"),
        "streams_accepted": count("session_streams_accepted"),
    }
    minimum, rate = numbers["min_rtt"], numbers["delivery_rate"]
    return SessionStats(
        smoothed_rtt=float(numbers["smoothed_rtt"] or 0),
        rtt_variation=float(numbers["rttvar"] or 0),
        min_rtt=None if minimum is None else float(minimum),
        estimated_send_rate=None if rate is None else int(rate),
        bytes_sent=int(numbers["bytes_sent"] or 0),
        packets_sent=int(numbers["packets_sent"] or 0),
        bytes_lost=int(numbers["bytes_lost"] or 0),
        packets_lost=int(numbers["packets_lost"] or 0),
        bytes_received=int(numbers["bytes_received"] or 0),
        packets_received=int(numbers["packets_received"] or 0),
        datagrams_expired=int(numbers["app_datagrams_expired"] or 0),
        datagrams_lost=int(numbers["app_datagrams_lost"] or 0),
        connection=numbers,
        **session,
    )

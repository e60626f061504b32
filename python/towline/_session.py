"""Sessions: streams and datagrams with one peer, under the names of W3C WebTransport.

What sessions share with QUIC connections is `Peer`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar

from . import _native
from ._arguments import text, whole
from ._core import Core, Moment, checked_code
from ._driver import Driver, settle
from ._errors import ConnectionLost, SessionClosed, StreamError
from ._stats import ConnectionStats, SessionStats, connection_stats, session_stats
from ._streams import BidirectionalStream, ReceiveStream, SendGroup, SendStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "FAILED",
    "CloseInfo",
    "Datagrams",
    "Incoming",
    "Moment",
    "Peer",
    "Session",
    "SessionStats",
]

FAILED = 1
"""The code of a session whose end was an exception of this end's program."""

# The most bytes of a reason that are sent.
_MAX_REASON = 1024
# The most bytes of keying material: what HKDF makes of SHA-256 (RFC 5869 §2.3).
_MAX_KEYING_MATERIAL = 255 * 32

# What can be waited for at a session.
_ACCEPT_BI = _native.Session.ACCEPT_BI
_ACCEPT_UNI = _native.Session.ACCEPT_UNI
_OPEN_BI = _native.Session.OPEN_BI
_OPEN_UNI = _native.Session.OPEN_UNI
_DATAGRAM = _native.Session.DATAGRAM
_DATAGRAM_ROOM = _native.Session.DATAGRAM_ROOM
_DRAIN = _native.Session.DRAIN
_END = _native.Session.END

_Stream = TypeVar("_Stream", BidirectionalStream, ReceiveStream)


class CloseInfo(NamedTuple):
    """How a session was closed."""

    code: int
    """The code; 0 where none was given."""
    reason: str
    """The words; empty where none were given."""
    by_peer: bool
    """Whether it was the other end."""




class Incoming(Generic[_Stream]):
    """The peer's streams, in the order in which they arrive, for `async for` and `anext`.

    It ends when either end has closed the session, and raises `ConnectionLost` when it was lost.

    ```python
    async with await session.create_unidirectional_stream() as stream:
        await stream.write(b"one way")
    async for stream in session.incoming_unidirectional_streams:
        print(await stream.read())  # b'one way'
        break
    ```
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
    """Datagrams: small, unordered, and lost rather than late.

    ```python
    session.datagrams.send(b"60.1,24.9", max_age=0.25)
    print(await session.datagrams.receive())  # b'60.1,24.9'
    ```
    """

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
        self,
        data: ReadableBuffer,
        max_age: float | None = None,
        send_order: int = 0,
        send_group: SendGroup | None = None,
    ) -> bool:
        """Sends a datagram, and says whether there was room for it; it never waits.

        One that cannot leave within `max_age` seconds is dropped. Those of one `send_group` leave in the
        order in which they were sent, with the streams of the group. Raises `DatagramTooLarge`, and
        `SessionClosed` when the session is over.
        """
        core = self._core
        group = 0 if send_group is None else send_group.number_for(core)
        try:
            sent = core.native.send_datagram(data, max_age, send_order, group)
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


class Peer:
    """Streams and datagrams with one peer: what sessions and QUIC connections share."""

    __slots__ = ("__weakref__", "_core", "remote_address")

    _max_reason = _MAX_REASON

    def __init__(self, core: Core) -> None:
        self._core: Core = core
        self.remote_address: tuple[str, int] = core.native.remote_address
        """Where the peer was when it began."""

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

    async def create_bidirectional_stream(
        self, send_order: int = 0, send_group: SendGroup | None = None
    ) -> BidirectionalStream:
        """A new stream, as soon as the peer permits one. Among streams of a group that want to send, the
        one with the highest `send_order` goes first; without `send_group` it is in the group of all
        others."""
        core = self._core
        whole("send_order", send_order)
        halves = core.take_now(_OPEN_BI, core.native.open_bi)
        if halves is None:
            halves = await core.take_in_turn(_OPEN_BI, core.native.open_bi)
        send, recv = halves
        stream = BidirectionalStream(core, send, recv)
        if send_group is not None:
            stream.set_send_group(send_group)
        if send_order != 0:
            stream.set_send_order(send_order)
        return stream

    async def create_unidirectional_stream(
        self, send_order: int = 0, send_group: SendGroup | None = None
    ) -> SendStream:
        """As `create_bidirectional_stream`, a stream that only this end writes."""
        core = self._core
        whole("send_order", send_order)
        send = core.take_now(_OPEN_UNI, core.native.open_uni)
        if send is None:
            send = await core.take_in_turn(_OPEN_UNI, core.native.open_uni)
        stream = SendStream(core, send)
        if send_group is not None:
            stream.set_send_group(send_group)
        if send_order != 0:
            stream.set_send_order(send_order)
        return stream

    def create_send_group(self) -> SendGroup:
        """A group of streams and datagrams that are sent by their own order. Groups share what the path
        carries alike, whatever is in them."""
        return SendGroup(self._core)

    @property
    def datagrams(self) -> Datagrams:
        """Datagrams with the peer."""
        return Datagrams(self._core)

    async def get_stats(self) -> ConnectionStats:
        """Counts and measurements as of now."""
        return connection_stats(self._numbers())

    def export_keying_material(
        self, label: str | bytes, context: bytes = b"", length: int = 32
    ) -> bytes:
        """`length` bytes that both ends can make of the same `label` and `context`, and nobody else
        (RFC 8446 §7.5): to bind something to this session, or to make keys of."""
        if isinstance(label, str):
            label = label.encode()
        whole("length", length, 1, _MAX_KEYING_MATERIAL)
        try:
            return self._core.native.export_keying_material(label, context, length)
        except SessionClosed as error:
            raise self._core.explain(error) from None

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes it, without waiting: streams and datagrams on their way may be lost.

        The peer is told `code`, 0 to 4294967295 at a session and to 2^62 - 1 at a QUIC connection, and
        `reason`, of at most 1,024 bytes at a session and 512 at a connection. What is over stays as it
        is.
        """
        checked_code(code, self._core.max_code)
        if len(text("reason", reason).encode()) > self._max_reason:
            raise ValueError(f"argument 'reason': at most {self._max_reason} bytes in UTF-8")
        self._core.close(code, reason)

    async def aclose(self, code: int = 0, reason: str = "") -> None:
        """Closes it, and waits until the peer knows it, or seems to be gone."""
        self.close(code, reason)
        try:
            await self._settle()
        finally:
            self._release()

    @property
    def closed(self) -> Moment[CloseInfo]:
        """The end: `await session.closed` says how, and raises `ConnectionLost` when it was not closed;
        `if session.closed` asks whether it is over."""
        return Moment(
            lambda: self._wait_closed().__await__(), lambda: self._core.over() is not None
        )

    async def _wait_closed(self) -> CloseInfo:
        core = self._core
        if core.end is None:
            token = core.native.token + _END
            core.end = await core.driver.take(token, core.native.poll_closed)
        end = core.end
        if isinstance(end, SessionClosed) and not isinstance(end, ConnectionLost):
            return CloseInfo(end.code, end.reason, end.by_peer)
        raise copy.copy(end)

    def _numbers(self) -> dict[str, int | float | bool | None]:
        try:
            return self._core.native.stats()
        except SessionClosed as error:
            raise self._core.explain(error) from None

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

    async def _leave(self, kind: type[BaseException] | None, words: str) -> None:
        """Ends it as `async with` does: in peace, or because of an exception."""
        if self.closed:
            self._release()
        elif kind is None:
            # What was written before is on its way, and closing would lose it.
            try:
                await self._settle()
            finally:
                await self.aclose()
        elif issubclass(kind, Exception):
            await self.aclose(FAILED, words)
        else:
            # Cancelled, or the program ends: nothing is waited for.
            self.close()
            self._core.driver.turn_now()
            self._release()


class Session(Peer):
    """A WebTransport session.

    `towline.connect` gives them to clients, `towline.serve` to handlers. It belongs to the event loop
    that it was made on. Dropped, it is closed.

    ```python
    async with await session.create_bidirectional_stream() as stream:
        await stream.write(b"ahoy")
        stream.finish()
        print(await stream.read())  # b'ahoy'
    await session.aclose(7, "that is all")
    print(await session.closed)  # CloseInfo(code=7, reason='that is all', by_peer=False)
    ```
    """

    __slots__ = ("authority", "dialect", "headers", "origin", "path", "protocol")

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
        super().__init__(Core(driver, native))
        self.authority: str = authority
        """The host, and perhaps the port, that the client asked."""
        self.path: str = path
        """Path and query of the URL."""
        self.origin: str | None = origin
        """The page that asked, where a browser did."""
        self.headers: list[tuple[str, str]] = headers
        """The fields of the request at a server, those of the answer at a client."""
        self.protocol: str | None = native.protocol
        """The application protocol that the server chose of those that the client offered."""
        self.dialect: str = native.dialect
        """The version of WebTransport that both ends speak."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Session {self.authority}{self.path} {self.dialect} {state}>"

    async def get_stats(self) -> SessionStats:
        """Counts and measurements as of now.

        ```python
        stats = await session.get_stats()
        print(stats.streams_opened, stats.smoothed_rtt < 10)  # 0 True
        ```
        """
        return session_stats(self._numbers())

    @property
    def draining(self) -> Moment[None]:
        """The peer's wish that the session end soon, as when a server shuts down."""
        return Moment(lambda: self._wait_draining().__await__(), self._is_draining)

    def drain(self) -> None:
        """Asks the peer to end the session soon; nothing else changes."""
        if self._core.over() is None:
            self._core.native.drain()
            self._core.driver.nudge()

    async def _wait_draining(self) -> None:
        await self._core.take(_native.Session.DRAIN, self._core.native.poll_draining)

    def _is_draining(self) -> bool:
        return self._core.over() is None and self._core.native.poll_draining() is True

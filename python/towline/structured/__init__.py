"""Messages on streams and in datagrams: typed values as JSON or MessagePack, each bounded.

    @dataclass
    class Chat:
        room: str
        text: str

    stream = StructuredStream(await session.create_bidirectional_stream(), Chat)
    await stream.send(Chat("lobby", "ahoy"))
    async for message in stream:
        print(message.text)

On a stream each message stands behind its length, 4 bytes, the highest first. A datagram is one
message. What the peer sends is never trusted: length and depth have limits, and a message that does
not fit its type is a `BadMessage`, which names the field and leaves the session as it is.

A message costs memory of up to some 60 times its length while it is read: an empty list is one byte
of MessagePack, or three of JSON with its comma, and 64 here. `limit` is what bounds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar

from .._errors import IncompleteRead, SessionClosed, StreamError, UsageError
from .._session import Datagrams
from .._streams import BidirectionalStream, ReceiveStream, SendStream
from ._codecs import JSON, Codec, MessagePack
from ._convert import Misfit, from_plain, to_plain
from ._messages import (
    DEPTH,
    LIMIT,
    BadMessage,
    EndOfStream,
    Format,
    MessageTooLarge,
    TruncatedMessage,
)

__all__ = [
    "JSON",
    "BadMessage",
    "Codec",
    "EndOfStream",
    "MessagePack",
    "MessageTooLarge",
    "Misfit",
    "StructuredDatagrams",
    "StructuredStream",
    "TruncatedMessage",
    "from_plain",
    "to_plain",
]

T = TypeVar("T")

_HEADER = 4


class StructuredStream(Generic[T]):
    """Messages on a stream.

    `schema` is the type of the messages: a dataclass, or what `json` has, or several by their names
    (`{"chat": Chat, "move": Move}`), which then travel with them. Without it, messages are plain
    values. `codec` is "json", "msgpack" or a `Codec`; both ends need the same. A message has at
    most `limit` bytes and is nested at most `depth` deep, in both directions.

    Calls may be cancelled: a cancelled `receive` has taken nothing, and a message of a cancelled
    `send` is sent not at all or whole. Several tasks may send.
    """

    def __init__(
        self,
        stream: BidirectionalStream | SendStream | ReceiveStream,
        schema: type[T] | Mapping[str, type[T]] | None = None,
        *,
        codec: Codec | str = JSON,
        limit: int = LIMIT,
        depth: int = DEPTH,
    ) -> None:
        if not isinstance(stream, (BidirectionalStream, SendStream, ReceiveStream)):
            kind = type(stream).__name__
            raise TypeError(f"argument 'stream': a stream is required, not '{kind}'")
        self.stream: BidirectionalStream | SendStream | ReceiveStream = stream
        """The stream below."""
        self.received: int = 0
        """Messages that arrived, bad ones too."""
        self.sent: int = 0
        """Messages that were sent."""
        self._format = Format(schema, codec, limit, depth)
        # The length of a message whose rest did not come yet.
        self._length: int | None = None
        self._broken: BadMessage | None = None
        # The rest of a message of which a part was sent.
        self._rest = b""
        self._at = 0
        self._sending = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self._rest:
            # The end of the stream must not come within a message.
            try:
                await self.flush()
            except (StreamError, SessionClosed):
                pass
        await self.stream.__aexit__(kind, error, traceback)

    async def send(self, message: T) -> None:
        """Sends a message, and waits only while the stream's buffer is full.

        Raises `TypeError` for what is no message of this stream and `MessageTooLarge`; otherwise as
        `write` of streams.
        """
        await self.send_bytes(self._format.encode(message))

    async def send_bytes(self, data: bytes) -> None:
        """As `send`, of a message that is written already by the same codec."""
        self._sender()
        if len(data) > self._format.limit:
            raise MessageTooLarge(len(data), self._format.limit)
        async with self._sending:
            await self._flush()
            self._rest, self._at = len(data).to_bytes(_HEADER) + data, 0
            try:
                await self._flush()
            except asyncio.CancelledError:
                if self._at == 0:
                    self._rest = b""
                raise
            self.sent += 1

    async def flush(self) -> None:
        """Sends the rest of a message whose `send` was cancelled."""
        async with self._sending:
            await self._flush()

    def finish(self) -> None:
        """Ends this end's half: the peer reads the messages, then the end.

        Raises `UsageError` while a message waits whose `send` was cancelled: `flush` sends it.
        """
        if self._rest:
            raise UsageError("a part of a message was sent: await `flush()` first")
        self._sender().finish()

    async def receive(self) -> T:
        """The next message.

        Raises `EndOfStream` at the end, `TruncatedMessage` when the end comes within a message, and
        `BadMessage` for one that is none: the next call reads the one behind it. After
        `MessageTooLarge` there is no next one: the peer is asked to stop.
        """
        data = await self.receive_bytes()
        return self._format.decode(data, self.received - 1)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def receive_bytes(self) -> bytes:
        """The next message as it was written, for formats that are read in another way, as
        Protobuf's. It raises as `receive` does."""
        if self._broken is not None:
            raise self._broken.with_traceback(None)
        stream = self._receiver()
        try:
            if self._length is None:
                length = int.from_bytes(await stream.readexactly(_HEADER))
                if length > self._format.limit:
                    error = MessageTooLarge(length, self._format.limit, self.received)
                    self._broken = error
                    stream.stop()
                    raise error
                self._length = length
            data = await stream.readexactly(self._length)
        except IncompleteRead as end:
            if self._length is None and not end.partial:
                raise EndOfStream("the stream ended") from None
            wanted = _HEADER if self._length is None else self._length
            words = f"the stream ended after {len(end.partial)} of {wanted} bytes"
            self._broken = TruncatedMessage(words, self.received)
            raise self._broken from None
        self._length = None
        self.received += 1
        return data

    async def _flush(self) -> None:
        if not self._rest:
            return
        stream = self._sender()
        core, send = stream._core, stream._send
        try:
            while (at := send.write(self._rest, self._at)) is not None:
                self._at = at
                await core.driver.wait(send.token)
        except (StreamError, SessionClosed) as error:
            self._rest = b""
            raise core.explain(error) from None
        self._rest = b""
        core.driver.nudge()

    def _sender(self) -> BidirectionalStream | SendStream:
        if isinstance(self.stream, ReceiveStream):
            raise UsageError("only the peer sends on this stream")
        return self.stream

    def _receiver(self) -> BidirectionalStream | ReceiveStream:
        if isinstance(self.stream, SendStream):
            raise UsageError("only this end sends on this stream")
        return self.stream


class StructuredDatagrams(Generic[T]):
    """Messages in datagrams: each is one, and lost rather than late.

    The arguments are those of `StructuredStream`; `limit` is for what the peer sends, a datagram of
    ours may have `max_size` of the datagrams. With `on_bad`, bad ones are given to it, and skipped.
    """

    def __init__(
        self,
        datagrams: Datagrams,
        schema: type[T] | Mapping[str, type[T]] | None = None,
        *,
        codec: Codec | str = JSON,
        limit: int = LIMIT,
        depth: int = DEPTH,
        on_bad: Callable[[BadMessage], object] | None = None,
    ) -> None:
        if not isinstance(datagrams, Datagrams):
            kind = type(datagrams).__name__
            raise TypeError(f"argument 'datagrams': session.datagrams is required, not '{kind}'")
        self._datagrams = datagrams
        self._format = Format(schema, codec, limit, depth)
        self._on_bad = on_bad
        self.received: int = 0
        """Messages that arrived, bad ones too."""
        self.bad: int = 0
        """Of those, the bad ones."""

    def send(self, message: T, max_age: float | None = None, send_order: int = 0) -> bool:
        """As `send` of `towline.Datagrams`. Raises `TypeError` for what is no message, and
        `DatagramTooLarge`."""
        return self._datagrams.send(self._format.encode(message), max_age, send_order)

    async def send_wait(self, message: T) -> None:
        """As `send`, but waits while there is no room."""
        await self._datagrams.send_wait(self._format.encode(message))

    async def receive(self) -> T:
        """The next message. Raises `BadMessage` for one that is none, unless `on_bad` takes it."""
        return await self._next(self._datagrams.receive)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return await self._next(self._datagrams.__anext__)

    async def _next(self, take: Callable[[], Awaitable[bytes]]) -> T:
        while True:
            data = await take()
            try:
                return self._decode(data)
            except BadMessage as error:
                self.bad += 1
                if self._on_bad is None:
                    raise
                self._on_bad(error)

    def _decode(self, data: bytes) -> T:
        position, self.received = self.received, self.received + 1
        if len(data) > self._format.limit:
            raise MessageTooLarge(len(data), self._format.limit, position)
        return self._format.decode(data, position)

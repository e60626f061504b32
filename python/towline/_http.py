"""Messages of HTTP/3: what `towline.http` shares with servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, cast

from . import _native
from ._core import Core
from ._driver import Driver, Watch
from ._errors import SessionClosed, StreamError, UsageError
from ._streams import _Receiving

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "OF_CONNECTIONS",
    "BodyWriter",
    "Headers",
    "Request",
    "Response",
    "length_of",
    "raise_failure",
    "raw_headers",
    "refuse",
]

_T = TypeVar("_T")

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
"""Fields of a message: those of the same name in their order."""

# Fields that HTTP/1 has for its connections and HTTP/3 must not have (RFC 9114 §4.2).
OF_CONNECTIONS = frozenset(
    ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")
)
# The longest body that is read as a whole, unless the caller says otherwise, bytes.
_BODY_LIMIT = 16 << 20
# Codes of HTTP/3 (RFC 9114 §8.1).
_INTERNAL_ERROR = 0x102
_REQUEST_CANCELLED = 0x10C
_SERVER_ERROR = 500
# Answers that have no body (RFC 9110 §6.4.1).
_NO_BODY = (204, 304)


def raw_headers(headers: Headers | None) -> list[tuple[bytes, bytes]]:
    """Fields as the native half takes them."""
    if headers is None:
        return []
    if isinstance(headers, Mapping):
        headers = cast("Mapping[str, str]", headers).items()
    listed = list(headers)
    for pair in listed:
        is_pair = not isinstance(pair, str) and len(pair) == 2
        if not is_pair or not all(isinstance(text, str) for text in pair):
            raise TypeError(f"argument 'headers': names and values must be str, not {pair!r}")
        if pair[0].lower() in OF_CONNECTIONS:
            words = f"argument 'headers': '{pair[0]}' is for connections of HTTP/1"
            raise ValueError(words)
    return [(name.encode(), value.encode()) for name, value in listed]


def length_of(body: ReadableBuffer) -> int:
    """The bytes of an argument `body`."""
    try:
        return memoryview(body).nbytes
    except TypeError:
        kind = type(body).__name__
        words = f"argument 'body': a bytes-like object is required, not '{kind}'"
        raise TypeError(words) from None


def refuse(request: _native.HttpRequest, status: int) -> None:
    """Answers with a status alone."""
    try:
        request.respond(status, []).finish()
    except (StreamError, SessionClosed):
        # Nobody waits for it.
        pass


class _Message(_Receiving):
    """The body of the peer's message: it is read as a stream is."""

    __slots__ = ("_core", "_recv", "_trailers", "headers")

    def __init__(
        self, core: Core, recv: _native.RecvStream, headers: list[tuple[str, str]]
    ) -> None:
        self._core = core
        self._recv = recv
        self._trailers: list[tuple[str, str]] = []
        self.headers: list[tuple[str, str]] = headers
        """The fields of the message; their names are in lower case."""

    def header(self, name: str, default: str | None = None) -> str | None:
        """The value of the field `name`; of several, the first."""
        name = name.lower()
        return next((value for key, value in self.headers if key == name), default)

    async def read(self, n: int = -1, *, limit: int = _BODY_LIMIT) -> bytes:
        """Up to `n` bytes, as soon as there are any; without `n`, all to the end, which are at most
        `limit`. `b""` at the end.

        Raises `LimitExceeded` when there are more: they wait to be read piece by piece.
        """
        if n < 0:
            return await self._take(self._recv.read_whole, limit)
        return await self._take(self._recv.read, n)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self.read(_CHUNK)
        if not chunk:
            raise StopAsyncIteration
        return chunk

    @property
    def trailers(self) -> list[tuple[str, str]]:
        """The fields after the body, once that was read to its end; before, and without any, none."""
        if not self._trailers and self._recv.ended:
            self._trailers = self._recv.take_trailers()
        return self._trailers

    def stop(self, code: int = _REQUEST_CANCELLED) -> None:
        """Gives up what was not read of the body. HTTP/3 has codes of its own: `code` is not sent."""
        super().stop(code)


# What `async for` gives at most at a time.
_CHUNK = 65536


class BodyWriter:
    """The body of a message of this end's.

    Leaving `async with` ends the message: by an exception, as a reset, so that a part does not look
    like the whole.
    """

    __slots__ = ("_core", "_sender")

    def __init__(self, core: Core, sender: _native.BodySender) -> None:
        self._core = core
        self._sender = sender

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._sender.is_over:
            return
        if kind is None:
            await self.finish()
        else:
            self.reset()

    async def write(self, data: ReadableBuffer) -> None:
        """Writes all of `data`, and waits while the peer takes no more.

        Raises `StreamStopped` when the peer wants no more, `SessionClosed` when the connection is over.
        A call that is cancelled has taken all of it or nothing: what it took leaves before what is written
        next.
        """
        core, sender = self._core, self._sender
        try:
            while (left := sender.write(data)) is None:
                await core.driver.wait(sender.token)
            if not left:
                await self._flush()
        except (StreamError, SessionClosed) as error:
            raise core.explain(error) from None
        if core.engine.wants_turn:
            core.driver.turn_soon()

    async def finish(self, trailers: Headers | None = None) -> None:
        """Ends the message, with fields after its body."""
        await self._finish(raw_headers(trailers))

    async def _finish(self, fields: list[tuple[bytes, bytes]]) -> None:
        try:
            if not self._sender.is_over:
                await self._flush()
            self._sender.finish(fields)
        except (StreamError, SessionClosed) as error:
            raise self._core.explain(error) from None
        self._core.driver.nudge()

    def reset(self) -> None:
        """Gives the message up: the peer learns that it is not whole."""
        self._sender.reset(_INTERNAL_ERROR)
        self._core.driver.nudge()

    async def _flush(self) -> None:
        while not self._sender.flush():
            await self._core.driver.wait(self._sender.token)

    def _end(self, failed: bool) -> None:
        """Ends the message where nobody waits."""
        if self._sender.is_over:
            return
        try:
            if failed or not self._sender.flush():
                self._sender.reset(_INTERNAL_ERROR)
            else:
                self._sender.finish()
        except (StreamError, SessionClosed):
            # Nobody wants it any more.
            pass


class Request(_Message):
    """A client's request at a server: its body is read as a stream is, by `read`, `lines` or
    `async for`."""

    __slots__ = (
        "_body",
        "_gone",
        "_native",
        "authority",
        "method",
        "path",
        "remote_address",
        "scheme",
    )

    def __init__(self, driver: Driver, native: _native.HttpRequest) -> None:
        super().__init__(Core(driver, native.connection()), native.body(), native.headers)
        self._native = native
        self._body: BodyWriter | None = None
        self._gone: Watch | None = None
        self.method: str = native.method
        """`GET`, `POST` and their like."""
        self.scheme: str = native.scheme
        """`https`."""
        self.authority: str = native.authority
        """The host, and perhaps the port, that the client asked."""
        self.path: str = native.path
        """Path and query of the URL."""
        self.remote_address: tuple[str, int] = self._core.native.remote_address
        """Where the client is."""

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.authority}{self.path}>"

    @property
    def is_answered(self) -> bool:
        """Whether the head of the answer was sent."""
        return self._native.is_answered

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        try:
            return self._native.poll_gone() is not None
        except UsageError:
            return True

    def interim(self, status: int, headers: Headers | None = None) -> None:
        """Sends an answer before the answer: 100 to 199, as 103 with links that a page will need."""
        self._interim(status, raw_headers(headers))

    def _interim(self, status: int, fields: list[tuple[bytes, bytes]]) -> None:
        try:
            self._native.interim(status, fields)
        except (StreamError, SessionClosed) as error:
            raise self._core.explain(error) from None
        self._core.driver.nudge()

    def start(self, status: int = 200, headers: Headers | None = None) -> BodyWriter:
        """Sends the head of the answer. Its body is written by what this returns:
        `async with request.start() as body`."""
        return self._start(status, raw_headers(headers))

    async def respond(
        self, status: int = 200, body: ReadableBuffer = b"", headers: Headers | None = None
    ) -> None:
        """Answers, and waits while the client takes no more. Says how long the body is, unless
        `headers` do."""
        fields = raw_headers(headers)
        length = length_of(body)
        if status not in _NO_BODY and not any(
            name.lower() == b"content-length" for name, _ in fields
        ):
            fields.append((b"content-length", str(length).encode()))
        writer = self._start(status, fields)
        if length:
            await writer.write(body)
        await writer.finish()

    def _start(self, status: int, fields: list[tuple[bytes, bytes]]) -> BodyWriter:
        try:
            sender = self._native.respond(status, fields)
        except (StreamError, SessionClosed) as error:
            raise self._core.explain(error) from None
        self._body = BodyWriter(self._core, sender)
        self._core.driver.nudge()
        return self._body

    def _leave(self, failed: bool) -> None:
        self._leave_receiving()

    def _when_gone(self, then: Callable[[], object]) -> None:
        """Has this called when nobody waits for the answer any more."""
        native = self._native
        self._gone = Watch(self._core.driver, native.token, native.poll_gone, then)

    def _end(self, failed: bool) -> None:
        """The handler is done."""
        if self._body is not None:
            self._body._end(failed)
        elif not self.is_answered:
            refuse(self._native, _SERVER_ERROR)

    def _release(self) -> None:
        driver = self._core.driver
        if self._gone is not None:
            self._gone.leave()
        self._recv.release()
        self._native.release()
        self._core.native.release()
        driver.nudge()


class Response(_Message):
    """The answer to a request: its body is read as a stream is, by `read`, `lines` or `async for`.

    Leaving `async with` gives up what was not read. Dropped before its end, it cancels the request.
    """

    __slots__ = ("_sending", "status", "url")

    def __init__(
        self,
        core: Core,
        recv: _native.RecvStream,
        url: str,
        status: int,
        headers: list[tuple[str, str]],
        sending: asyncio.Task[None] | None,
    ) -> None:
        super().__init__(core, recv, headers)
        self._sending = sending
        self.url: str = url
        """What was asked for."""
        self.status: int = status
        """The status, as 200."""

    def __repr__(self) -> str:
        return f"<Response {self.status} {self.url}>"

    async def _take(self, call: Callable[..., _T | None], *args: object) -> _T:
        try:
            return await super()._take(call, *args)
        except StreamError:
            raise_failure(self._sending)
            raise

    def _leave(self, failed: bool) -> None:
        self._leave_receiving()
        if self._sending is not None:
            self._sending.cancel()

    def __del__(self) -> None:
        sending = getattr(self, "_sending", None)
        if sending is not None and not sending.done():
            # The collector may run in any thread, and after the loop.
            with contextlib.suppress(RuntimeError):
                self._core.driver.loop.call_soon_threadsafe(sending.cancel)


def raise_failure(sending: asyncio.Task[None] | None) -> None:
    """Raises why the body of a request could not be sent, if that is so."""
    if sending is not None and sending.done() and not sending.cancelled():
        error = sending.exception()
        if error is not None:
            raise error

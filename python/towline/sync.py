"""WebTransport without asyncio: the same names, each of which waits until it is done.

One thread in the background has an event loop for all sessions of the process. Every call that may wait
takes `timeout`, seconds, and raises `TimeoutError` when they have passed: then it is cancelled, and has
done what a cancelled call of the asyncio package has done.

```python
with towline.sync.connect(url, pins=[pin], timeout=10) as session:
    with session.create_bidirectional_stream() as stream:
        stream.write(b"hi")
        stream.finish()
        print(stream.read(timeout=10))  # b'hi'
```
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from . import _client, _session, _streams
from ._arguments import number
from ._certificates import Certificate
from ._errors import UsageError
from ._session import CloseInfo
from ._stats import SessionStats
from ._streams import SendGroup
from ._transport import TransportConfig

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = [
    "BidirectionalStream",
    "Datagrams",
    "Incoming",
    "ReceiveStream",
    "SendGroup",
    "SendStream",
    "Session",
    "connect",
]

_T = TypeVar("_T")
_S = TypeVar("_S")
# The longest line, or run of bytes to a separator, unless the caller says otherwise.
_LIMIT = 65536
# How long the end of the process waits for the last words to leave, seconds.
_JOIN_LIMIT = 5.0


class _Background:
    """The thread, and its loop."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="towline", daemon=True)
        self._thread.start()

    def call(self, awaitable: Awaitable[_T], timeout: float | None) -> _T:
        """The result of `awaitable` in the loop."""
        try:
            future = self._submit(awaitable, timeout)
        except BaseException:
            if isinstance(awaitable, Coroutine):
                awaitable.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise UsageError("the thread of towline.sync has ended") from None
        except BaseException:
            # It is another's end than the call's own, as KeyboardInterrupt.
            if future.cancel():
                self.loop.call_soon_threadsafe(_forget, awaitable)
            raise

    def _submit(self, awaitable: Awaitable[_T], timeout: float | None) -> Future[_T]:
        if threading.current_thread() is self._thread:
            raise UsageError("towline.sync cannot wait in its own thread: use the asyncio package")
        if not self._thread.is_alive():
            words = "the thread of towline.sync is gone: this process is a fork, or ends"
            raise UsageError(words)
        if timeout is not None:
            number("timeout", timeout)
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable, timeout), self.loop)

    def stop(self) -> None:
        """Ends the thread."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_JOIN_LIMIT)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()


_lock = threading.Lock()
_background: _Background | None = None


def _thread() -> _Background:
    global _background
    with _lock:
        if _background is None:
            _background = _Background()
            atexit.register(_background.stop)
        return _background


def _after_fork() -> None:
    # The thread is the parent's; a session here gets one of its own.
    global _background, _lock
    _lock = threading.Lock()
    if _background is not None:
        atexit.unregister(_background.stop)
        _background = None


os.register_at_fork(after_in_child=_after_fork)


async def _awaited(awaitable: Awaitable[_T], timeout: float | None) -> _T:
    # In the loop, so that a call that is done in time is not given up by who waits for it.
    async with asyncio.timeout(timeout):
        return await awaitable


def _forget(awaitable: Awaitable[object]) -> None:
    """Ends what was cancelled before it began."""
    if inspect.iscoroutine(awaitable):
        if inspect.getcoroutinestate(awaitable) == inspect.CORO_CREATED:
            awaitable.close()


async def _called(call: Callable[..., _T], *args: object) -> _T:
    return call(*args)


class _Bound:
    """Something of the asyncio package, and the thread that it lives in."""

    __slots__ = ("_thread",)

    def __init__(self, thread: _Background) -> None:
        self._thread = thread

    def _wait(self, awaitable: Awaitable[_T], timeout: float | None) -> _T:
        return self._thread.call(awaitable, timeout)

    def _do(self, call: Callable[..., _T], *args: object) -> _T:
        return self._thread.call(_called(call, *args), None)


class _Stream(_Bound):
    """What streams of all kinds are: leaving `with` is leaving the stream's own `async with`."""

    __slots__ = ("_stream",)

    _stream: _streams.SendStream | _streams.ReceiveStream | _streams.BidirectionalStream

    def __init__(
        self,
        thread: _Background,
        stream: _streams.SendStream | _streams.ReceiveStream | _streams.BidirectionalStream,
    ) -> None:
        super().__init__(thread)
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._wait(self._stream.__aexit__(kind, error, traceback), None)


class _Receiving(_Stream):
    __slots__ = ()

    _stream: _streams.ReceiveStream | _streams.BidirectionalStream

    def read(self, n: int = -1, *, timeout: float | None = None) -> bytes:
        """Up to `n` bytes, as soon as there are any; without `n`, all to the end. `b""` at the end."""
        return self._wait(self._stream.read(n), timeout)

    def readexactly(self, n: int, *, timeout: float | None = None) -> bytes:
        """`n` bytes."""
        return self._wait(self._stream.readexactly(n), timeout)

    def readuntil(
        self,
        separator: ReadableBuffer = b"\n",
        limit: int = _LIMIT,
        *,
        timeout: float | None = None,
    ) -> bytes:
        """All bytes up to `separator`, and with it: at most `limit`."""
        return self._wait(self._stream.readuntil(separator, limit), timeout)

    def readinto(self, buffer: WriteableBuffer, *, timeout: float | None = None) -> int:
        """Fills `buffer` from its start with what there is, and says how far: 0 at the end."""
        return self._wait(self._stream.readinto(buffer), timeout)

    def lines(self, limit: int = _LIMIT, *, timeout: float | None = None) -> Iterator[bytes]:
        """The lines, as they arrive, each of at most `limit` bytes and within `timeout`."""
        lines = self._stream.lines(limit)
        while True:
            try:
                yield self._wait(lines.__anext__(), timeout)
            except StopAsyncIteration:
                return

    def stop(self, code: int = 0) -> None:
        """Asks the peer to send no more."""
        self._do(self._stream.stop, code)


class _Sending(_Stream):
    __slots__ = ()

    _stream: _streams.SendStream | _streams.BidirectionalStream

    def write(self, data: ReadableBuffer, *, timeout: float | None = None) -> None:
        """Writes all of `data`, and waits while the stream's buffer is full."""
        self._wait(self._stream.write(data), timeout)

    def finish(self) -> None:
        """Ends this half of the stream."""
        self._do(self._stream.finish)

    def finished(self, *, timeout: float | None = None) -> None:
        """Ends this half of the stream, and waits until the peer has everything."""
        self._wait(self._stream.finished(), timeout)

    def reset(self, code: int = 0) -> None:
        """Gives this half of the stream up."""
        self._do(self._stream.reset, code)

    def wait_stopped(self, *, timeout: float | None = None) -> int | None:
        """Waits until the peer wants no more, and gives its code; `None` where it has none, or has all
        of the stream."""
        return self._wait(self._stream.stopped, timeout)


class SendStream(_Sending):
    """A stream that only this end writes."""

    __slots__ = ()

    _stream: _streams.SendStream


class ReceiveStream(_Receiving):
    """A stream that only the peer writes."""

    __slots__ = ()

    _stream: _streams.ReceiveStream


class BidirectionalStream(_Sending, _Receiving):
    """A stream that both ends write."""

    __slots__ = ()

    _stream: _streams.BidirectionalStream


class Incoming(_Bound, Generic[_S]):
    """The peer's streams, for `for` and `next`; `accept` takes a timeout."""

    __slots__ = ("_take",)

    def __init__(self, thread: _Background, take: Callable[[], Awaitable[_S]]) -> None:
        super().__init__(thread)
        self._take = take

    def accept(self, *, timeout: float | None = None) -> _S:
        """The next stream. Raises `StopIteration` when the session was closed."""
        try:
            return self._wait(self._take(), timeout)
        except StopAsyncIteration:
            raise StopIteration from None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _S:
        return self.accept()


class Datagrams(_Bound):
    """Datagrams: small, unordered, and lost rather than late."""

    __slots__ = ("_datagrams",)

    def __init__(self, thread: _Background, datagrams: _session.Datagrams) -> None:
        super().__init__(thread)
        self._datagrams = datagrams

    def send(
        self,
        data: ReadableBuffer,
        max_age: float | None = None,
        send_order: int = 0,
        send_group: SendGroup | None = None,
    ) -> bool:
        """Sends a datagram, and says whether there was room for it."""
        return self._do(self._datagrams.send, data, max_age, send_order, send_group)

    def receive(self, *, timeout: float | None = None) -> bytes:
        """The next datagram."""
        return self._wait(self._datagrams.receive(), timeout)


class Session:
    """A WebTransport session. `with` closes it at its end."""

    __slots__ = ("_bound", "_connecting", "_session")

    def __init__(
        self, bound: _Bound, connecting: _client.Connecting, session: _session.Session
    ) -> None:
        self._bound = bound
        self._connecting = connecting
        self._session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bound._wait(self._connecting.__aexit__(kind, error, traceback), None)

    @property
    def protocol(self) -> str | None:
        """The application protocol that the server chose."""
        return self._session.protocol

    @property
    def dialect(self) -> str:
        """The version of WebTransport that both ends speak."""
        return self._session.dialect

    @property
    def datagrams(self) -> Datagrams:
        """The session's datagrams."""
        return Datagrams(self._bound._thread, self._session.datagrams)

    @property
    def incoming_bidirectional_streams(self) -> Incoming[BidirectionalStream]:
        """The peer's bidirectional streams."""
        thread, streams = self._bound._thread, self._session.incoming_bidirectional_streams

        async def take() -> BidirectionalStream:
            return BidirectionalStream(thread, await streams.__anext__())

        return Incoming(thread, take)

    @property
    def incoming_unidirectional_streams(self) -> Incoming[ReceiveStream]:
        """The peer's unidirectional streams."""
        thread, streams = self._bound._thread, self._session.incoming_unidirectional_streams

        async def take() -> ReceiveStream:
            return ReceiveStream(thread, await streams.__anext__())

        return Incoming(thread, take)

    def create_send_group(self) -> SendGroup:
        """A group of streams and datagrams that are sent by their own order."""
        return self._bound._do(self._session.create_send_group)

    def create_bidirectional_stream(
        self,
        send_order: int = 0,
        send_group: SendGroup | None = None,
        *,
        timeout: float | None = None,
    ) -> BidirectionalStream:
        """A new stream, as soon as the peer permits one."""
        making = self._session.create_bidirectional_stream(send_order, send_group)
        made = self._bound._wait(making, timeout)
        return BidirectionalStream(self._bound._thread, made)

    def create_unidirectional_stream(
        self,
        send_order: int = 0,
        send_group: SendGroup | None = None,
        *,
        timeout: float | None = None,
    ) -> SendStream:
        """A new stream that only this end writes."""
        making = self._session.create_unidirectional_stream(send_order, send_group)
        made = self._bound._wait(making, timeout)
        return SendStream(self._bound._thread, made)

    def export_keying_material(
        self, label: str | bytes, context: bytes = b"", length: int = 32
    ) -> bytes:
        """Bytes that both ends can make of the same `label` and `context`, and nobody else."""
        return self._bound._do(self._session.export_keying_material, label, context, length)

    def get_stats(self) -> SessionStats:
        """Counts and measurements as of now."""
        return self._bound._wait(self._session.get_stats(), None)

    def wait_closed(self, *, timeout: float | None = None) -> CloseInfo:
        """Waits for the end of the session, and says how it came."""
        return self._bound._wait(self._session.closed, timeout)

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes the session, and waits until the peer knows it."""
        self._bound._wait(self._session.aclose(code, reason), None)


def connect(
    url: str,
    *,
    pins: Iterable[str | bytes | Certificate] = (),
    roots: bytes | None = None,
    protocols: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    config: TransportConfig | None = None,
    timeout: float | None = None,
) -> Session:
    """A session with the server at `url`, as `towline.connect` gives."""
    connecting = _client.connect(
        url, pins=pins, roots=roots, protocols=protocols, headers=headers, config=config
    )
    bound = _Bound(_thread())
    session = bound._wait(connecting.__aenter__(), timeout)
    return Session(bound, connecting, session)

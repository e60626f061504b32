"""Streams: bytes in order, each with an end of its own.

A read that finds data and a write that finds room finish at once. Every call may be cancelled: a
cancelled read has taken nothing, and a cancelled write may have written a part.
"""

from __future__ import annotations

import itertools
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from . import _native
from ._arguments import whole
from ._core import Core, Moment, checked_code
from ._errors import SessionClosed, StreamError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["BidirectionalStream", "Chunks", "Lines", "ReceiveStream", "SendGroup", "SendStream"]

_T = TypeVar("_T")

# The longest line, or run of bytes to a separator, unless the caller says otherwise.
_LIMIT = 65536

# Numbers of groups; 0 is the group of all that have no other.
_group_numbers = itertools.count(1)
_MAX_GROUP = 2**32 - 1


class SendGroup:
    """Streams and datagrams of a session that are sent by their own order: see
    `Session.create_send_group`."""

    __slots__ = ("_core", "_number")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._number = next(_group_numbers) & _MAX_GROUP

    def number_for(self, core: Core) -> int:
        """Its number. Raises `UsageError` where `core` is not its own session."""
        if core is not self._core:
            raise UsageError("argument 'send_group': it belongs to another session")
        return self._number


class Lines:
    """The lines of a stream, each with its end; the last one may have none."""

    __slots__ = ("_limit", "_stream")

    def __init__(self, stream: _Receiving, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        stream = self._stream
        line = await stream._take(stream._recv.read_line, self._limit)
        if not line:
            raise StopAsyncIteration
        return line


class Chunks:
    """What arrives on a stream, as it arrives."""

    __slots__ = ("_limit", "_stream")

    def __init__(self, stream: _Receiving, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._stream.read(self._limit)
        if not chunk:
            raise StopAsyncIteration
        return chunk


class _Stream:
    """What streams of all kinds are: leaving `async with` leaves their halves, and a turn follows."""

    __slots__ = ()

    if TYPE_CHECKING:
        _core: Core

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(kind is not None)
        self._core.driver.nudge()

    def _leave(self, failed: bool) -> None:
        raise NotImplementedError


class _Receiving(_Stream):
    __slots__ = ()

    if TYPE_CHECKING:
        _core: Core
        _recv: _native.RecvStream

    async def read(self, n: int = -1) -> bytes:
        """Up to `n` bytes, as soon as there are any; without `n`, all to the end. `b""` at the end.

        Raises `StreamReset` when the peer gave the stream up, `SessionClosed` when the session is over.
        """
        core, recv = self._core, self._recv
        try:
            while (data := recv.read(n)) is None:
                await core.driver.wait(recv.token)
        except (StreamError, SessionClosed) as error:
            raise core.explain(error) from None
        core.driver.nudge()
        return data

    async def readexactly(self, n: int) -> bytes:
        """`n` bytes. Raises `IncompleteRead` when the stream ends before, which has what came.

        ```python
        await stream.write(b"seven b")
        stream.finish()
        try:
            await stream.readexactly(10)
        except towline.IncompleteRead as error:
            print(error.partial, error.expected)  # b'seven b' 10
        ```
        """
        return await self._take(self._recv.read_exactly, n)

    async def readuntil(self, separator: ReadableBuffer = b"\n", limit: int = _LIMIT) -> bytes:
        """All bytes up to `separator`, and with it: at most `limit`.

        Raises `IncompleteRead` when the stream ends before, which has what came, and `LimitExceeded`
        when the separator does not come in time: what came waits for `read`.

        ```python
        await stream.write(b"key: value\\r\\n")
        print(await stream.readuntil(b": "))  # b'key: '
        print(await stream.readuntil(b"\\r\\n", limit=1000))  # b'value\\r\\n'
        ```
        """
        return await self._take(self._recv.read_until, separator, limit)

    async def readinto(self, buffer: WriteableBuffer) -> int:
        """Fills `buffer` from its start with what there is, and says how far: 0 at the end."""
        return await self._take(self._recv.read_into, buffer)

    def lines(self, limit: int = _LIMIT) -> Lines:
        """The lines, as they arrive, each of at most `limit` bytes."""
        return Lines(self, whole("limit", limit, 1))

    def chunks(self, n: int = _LIMIT) -> Chunks:
        """What arrives, as it arrives, at most `n` bytes at a time."""
        return Chunks(self, whole("n", n, 1))

    def at_eof(self) -> bool:
        """Whether the end was read."""
        return self._recv.ended

    def stop(self, code: int = 0) -> None:
        """Asks the peer to send no more. What was not read is lost, and reads raise `StreamFinished`."""
        self._recv.stop(checked_code(code, self._core.max_code))
        # Whoever waits for bytes has to hear that there are none.
        self._core.driver.wake(self._recv.token)
        self._core.driver.nudge()

    async def _take(self, call: Callable[..., _T | None], *args: object) -> _T:
        core = self._core
        try:
            while (result := call(*args)) is None:
                await core.driver.wait(self._recv.token)
        except (StreamError, SessionClosed) as error:
            raise core.explain(error) from None
        core.driver.nudge()
        return result

    def _leave_receiving(self) -> None:
        self._recv.release()
        self._core.driver.wake(self._recv.token)


class _Sending(_Stream):
    __slots__ = ()

    if TYPE_CHECKING:
        _core: Core
        _send: _native.SendStream

    async def write(self, data: ReadableBuffer) -> None:
        """Writes all of `data`, and waits only while the stream's buffer is full.

        Raises `StreamStopped` when the peer wants no more, `SessionClosed` when the session is over;
        then, and when it is cancelled, a part may have been written.
        """
        core, send = self._core, self._send
        try:
            at = send.write(data)
            while at is not None:
                await core.driver.wait(send.token)
                at = send.write(data, at)
        except (StreamError, SessionClosed) as error:
            raise core.explain(error) from None
        core.driver.nudge()

    def finish(self) -> None:
        """Ends this half of the stream: the peer reads what was written, then the end."""
        try:
            self._send.finish()
        except (StreamError, SessionClosed) as error:
            raise self._core.explain(error) from None
        # A write that waits for room in another task can't go on.
        self._core.driver.wake(self._send.token)
        self._core.driver.nudge()

    def reset(self, code: int = 0) -> None:
        """Gives this half of the stream up. The peer may not get what was written, and learns `code`."""
        self._send.reset(checked_code(code, self._core.max_code))
        self._core.driver.wake(self._send.token)
        # Who waits for the peer to stop it, need not any more.
        self._core.driver.wake(self._send.stopped_token)
        self._core.driver.nudge()

    @property
    def stopped(self) -> Moment[int | None]:
        """The peer's wish for no more of the stream, for who has nothing to write just now: `await
        stream.stopped` gives its code, `None` where it has none or the peer has the whole stream;
        `if stream.stopped` asks whether the peer wants no more. Raises `SessionClosed`."""
        return Moment(lambda: self._wait_stopped().__await__(), self._is_stopped)

    async def _wait_stopped(self) -> int | None:
        core, send = self._core, self._send
        try:
            _, code = await core.driver.take(send.stopped_token, send.poll_stopped)
        except (StreamError, SessionClosed) as error:
            raise core.explain(error) from None
        if code is None and core.over() is not None:
            # The end of a session stops its streams, and no application meant it.
            raise core.explain(SessionClosed("the session is over"))
        return code

    def _is_stopped(self) -> bool:
        try:
            stopped = self._send.poll_stopped()
        except (StreamError, SessionClosed) as error:
            raise self._core.explain(error) from None
        return stopped is not None and stopped[0]

    async def finished(self) -> None:
        """Ends this half of the stream, if that was not done, and waits until the peer has everything:
        its transport does, whether its program has read it or not.

        Call it before the stream is left. Raises `StreamStopped` when the peer wants no more,
        `StreamFinished` after `reset`, `SessionClosed` when the session is over.
        """
        core, send = self._core, self._send
        try:
            await core.driver.take(send.token, send.poll_finished)
        except (StreamError, SessionClosed) as error:
            raise core.explain(error) from None

    def set_send_order(self, send_order: int) -> None:
        """How urgent the stream is among those of its group: higher goes first."""
        try:
            self._send.set_send_order(send_order)
        except (StreamError, SessionClosed) as error:
            raise self._core.explain(error) from None

    def set_send_group(self, send_group: SendGroup | None) -> None:
        """Puts the stream into a group of its session, or into that of all others."""
        group = 0 if send_group is None else send_group.number_for(self._core)
        try:
            self._send.set_send_group(group)
        except (StreamError, SessionClosed) as error:
            raise self._core.explain(error) from None

    def _leave_sending(self, failed: bool) -> None:
        try:
            if failed:
                self._send.reset(0)
            else:
                self._send.finish()
        except (StreamError, SessionClosed):
            # It was ended before, or nobody wants it any more.
            pass
        self._send.release()
        self._core.driver.wake(self._send.token)
        self._core.driver.wake(self._send.stopped_token)


class SendStream(_Sending):
    """A stream that only this end writes. Leaving `async with` ends it: by an exception, as a reset."""

    __slots__ = ("_core", "_send")

    def __init__(self, core: Core, send: _native.SendStream) -> None:
        self._core = core
        self._send = send

    @property
    def id(self) -> int:
        """The stream's number on the wire."""
        return self._send.id

    def _leave(self, failed: bool) -> None:
        self._leave_sending(failed)


class ReceiveStream(_Receiving):
    """A stream that only the peer writes. Leaving `async with` asks it to stop, if it did not end."""

    __slots__ = ("_core", "_recv")

    def __init__(self, core: Core, recv: _native.RecvStream) -> None:
        self._core = core
        self._recv = recv

    @property
    def id(self) -> int:
        """The stream's number on the wire."""
        return self._recv.id

    def _leave(self, failed: bool) -> None:
        self._leave_receiving()


class BidirectionalStream(_Sending, _Receiving):
    """A stream that both ends write.

    Leaving `async with` ends this end's half: by an exception, as a reset. The peer is asked to stop,
    if its half was not read to the end.

    ```python
    async with await session.create_bidirectional_stream(send_order=5) as stream:
        await stream.write(b"one\\ntwo\\n")
        stream.finish()
        async for line in stream.lines():
            print(line)
        print(await stream.read(), stream.at_eof())  # b'' True
    ```
    """

    __slots__ = ("_core", "_recv", "_send")

    def __init__(self, core: Core, send: _native.SendStream, recv: _native.RecvStream) -> None:
        self._core = core
        self._send = send
        self._recv = recv

    @property
    def id(self) -> int:
        """The stream's number on the wire."""
        return self._send.id

    def _leave(self, failed: bool) -> None:
        self._leave_sending(failed)
        self._leave_receiving()

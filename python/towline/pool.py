"""Pools: sessions with one server, and streams of one session, that are lent out one at a time.

    async with SessionPool(lambda: towline.connect(url, pins=[pin]), size=4) as pool:
        async with pool.session() as session:
            ...

A session carries many streams at once, so most programs need one session and no pool. A pool is for
what wants a session to itself for a while, or several paths through the network.

What is lent is given back by leaving `async with`: cleanly, and it is lent again; by an exception,
and it is thrown away. Whoever finds nothing waits, and is served in the order of arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from . import _native
from ._client import Connecting
from ._core import Core
from ._errors import SessionClosed, StreamError, UsageError
from ._session import FAILED, Session
from ._streams import BidirectionalStream

__all__ = ["PoolStats", "SessionPool", "StreamPool"]

logger: logging.Logger = logging.getLogger("towline.pool")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PoolStats:
    """What a pool has now, and what it did."""

    idle: int
    """What waits to be lent."""
    lent: int
    """What is lent, or being made for someone."""
    waiting: int
    """Who waits."""
    made: int
    """What was made."""
    discarded: int
    """Of that, what was thrown away: it was over, unfit, idle for too long, or left by an
    exception."""


class _Pool(Generic[_T]):
    """Things of one kind, at most `size` of them."""

    def __init__(self, size: int, max_waiting: int | None, max_idle: float | None) -> None:
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"argument 'size': at least 1, not {size!r}")
        if max_waiting is not None and max_waiting < 0:
            raise ValueError(f"argument 'max_waiting': at least 0, or None, not {max_waiting!r}")
        if max_idle is not None and not max_idle > 0:
            raise ValueError(f"argument 'max_idle': above 0, or None, not {max_idle!r}")
        self._size = size
        self._max_waiting = max_waiting
        self._max_idle = max_idle
        # Those lent last are lent first, so that the others can become old.
        self._idle: deque[tuple[_T, float]] = deque()
        self._lent = 0
        # Each is woken when it may take an idle one, or make one: its place is counted as lent by
        # then.
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._made = 0
        self._discarded = 0
        self._open = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def stats(self) -> PoolStats:
        """Counts as of now."""
        waiting = sum(not waiter.done() for waiter in self._waiters)
        return PoolStats(len(self._idle), self._lent, waiting, self._made, self._discarded)

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        if self._sweeper is not None:
            self._sweeper.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(UsageError("the pool was closed"))
        idle = [one for one, _ in self._idle]
        self._idle.clear()
        for one in idle:
            await self._throw_away(one, failed=False)
        if self._leaving:
            await asyncio.wait(self._leaving)

    @contextlib.asynccontextmanager
    async def _lend(self) -> AsyncIterator[_T]:
        one = await self._take()
        try:
            yield one
        except BaseException:
            self._lent -= 1
            await self._give_up(one, failed=True)
            raise
        self._lent -= 1
        if self._open and self._is_healthy(one):
            self._idle.append((one, asyncio.get_running_loop().time()))
            self._sweep_later()
            self._wake()
        else:
            await self._give_up(one, failed=False)

    async def _take(self) -> _T:
        if not self._open:
            raise UsageError("the pool is closed: `async with` it first")
        await self._place()
        try:
            while self._idle:
                one, _ = self._idle.pop()
                if self._is_healthy(one):
                    return one
                # Its end is not waited for: the caller has better things to do.
                self._throw_away_soon(one)
            made = await self._make()
            self._made += 1
        except BaseException:
            self._lent -= 1
            self._wake()
            raise
        return made

    async def _place(self) -> None:
        """Waits for a place among those lent, and takes it."""
        if self._lent < self._size and not self._waiters:
            self._lent += 1
            return
        if self._max_waiting is not None and len(self._waiters) >= self._max_waiting:
            raise asyncio.QueueFull(f"{len(self._waiters)} wait for the pool already")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # The place was given to one who has gone: the next one has it.
                self._lent -= 1
                self._wake()
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        """Gives free places to those who wait."""
        while self._lent < self._size and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._lent += 1
                waiter.set_result(None)

    async def _give_up(self, one: _T, *, failed: bool) -> None:
        self._wake()
        await self._throw_away(one, failed=failed)

    async def _throw_away(self, one: _T, *, failed: bool) -> None:
        self._discarded += 1
        try:
            await self._end(one, failed)
        except Exception as error:
            logger.debug("what a pool threw away ended badly: %r", error)

    def _throw_away_soon(self, one: _T) -> None:
        task = asyncio.get_running_loop().create_task(self._throw_away(one, failed=False))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _sweep_later(self) -> None:
        if self._max_idle is not None and self._sweeper is None and self._idle:
            loop = asyncio.get_running_loop()
            self._sweeper = loop.call_at(self._idle[0][1] + self._max_idle, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = asyncio.get_running_loop().time()
        while self._idle and self._max_idle is not None:
            one, since = self._idle[0]
            if now < since + self._max_idle:
                break
            self._idle.popleft()
            self._throw_away_soon(one)
        self._sweep_later()

    async def _make(self) -> _T:
        raise NotImplementedError

    def _is_healthy(self, one: _T) -> bool:
        raise NotImplementedError

    async def _end(self, one: _T, failed: bool) -> None:
        raise NotImplementedError


class SessionPool(_Pool[Session]):
    """Sessions with one server, at most `size` of them.

    `connect` makes a `towline.connect(…)`. A session that is over, or that the server wants to end,
    is not lent again; `healthy(session)` can say more. One that was idle for `max_idle` seconds is
    closed. At most `max_waiting` callers wait: one more gets `asyncio.QueueFull`.
    """

    def __init__(
        self,
        connect: Callable[[], Connecting | Awaitable[Session]],
        size: int = 4,
        *,
        healthy: Callable[[Session], bool] | None = None,
        max_idle: float | None = 60.0,
        max_waiting: int | None = None,
    ) -> None:
        if not callable(connect):
            kind = type(connect).__name__
            raise TypeError(f"argument 'connect': a function is required, not '{kind}'")
        super().__init__(size, max_waiting, max_idle)
        self._connect = connect
        self._healthy = healthy

    def session(self) -> contextlib.AbstractAsyncContextManager[Session]:
        """A session for oneself, for `async with`. Raises what connecting raises; `asyncio.timeout`
        bounds the wait."""
        return self._lend()

    async def _make(self) -> Session:
        return await self._connect()

    def _is_healthy(self, one: Session) -> bool:
        if one.closed or one.draining:
            return False
        return self._healthy is None or self._healthy(one)

    async def _end(self, one: Session, failed: bool) -> None:
        if failed:
            await one.aclose(FAILED, "the client failed")
        else:
            await one.aclose()


class StreamPool(_Pool[BidirectionalStream]):
    """Bidirectional streams of one session, at most `size` of them, for protocols whose streams
    carry one exchange after another.

    One that either end has ended or given up, in which something waits to be read, or that is left
    by an exception, is not lent again: the next exchange could not begin there.
    """

    def __init__(
        self,
        session: Session,
        size: int = 8,
        *,
        max_idle: float | None = None,
        max_waiting: int | None = None,
    ) -> None:
        if not isinstance(session, Session):
            kind = type(session).__name__
            raise TypeError(f"argument 'session': a Session is required, not '{kind}'")
        super().__init__(size, max_waiting, max_idle)
        self._session = session

    def stream(self) -> contextlib.AbstractAsyncContextManager[BidirectionalStream]:
        """A stream for oneself, for `async with`. Raises `SessionClosed` when the session is
        over."""
        return self._lend()

    async def _make(self) -> BidirectionalStream:
        stream = await self._session.create_bidirectional_stream()
        return _PooledStream(stream._core, stream._send, stream._recv)

    def _is_healthy(self, one: BidirectionalStream) -> bool:
        if self._session.closed or (isinstance(one, _PooledStream) and one.ended):
            return False
        try:
            # It finds what was not read, and the peer's end.
            return one._recv.read(1) is None
        except (StreamError, SessionClosed):
            return False

    async def _end(self, one: BidirectionalStream, failed: bool) -> None:
        # After an exception as a reset: whoever reads must not take what came for all.
        one._leave(failed)
        one._core.driver.nudge()


class _PooledStream(BidirectionalStream):
    """A stream that knows whether this end has ended its half."""

    __slots__ = ("ended",)

    def __init__(self, core: Core, send: _native.SendStream, recv: _native.RecvStream) -> None:
        super().__init__(core, send, recv)
        self.ended: bool = False

    def finish(self) -> None:
        self.ended = True
        super().finish()

    def reset(self, code: int = 0) -> None:
        self.ended = True
        super().reset(code)

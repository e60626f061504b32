"""A client that comes back: sessions with one server, one after another, with waits between
attempts.

    async with reconnect.sessions("https://localhost:4433/chat", pins=[pin]) as sessions:
        async for session in sessions:
            try:
                await talk(session)
            except towline.SessionClosed:
                continue                        # the next one follows

`await sessions.run(handler)` does the same for a function that is a server's handler too: it is
cancelled when its session ends, and called with the next one; when it returns, that is the end.

The wait before attempt n is random between 0 and `initial * factor ** n`, at most `maximum` ("full
jitter"), so that many clients of one server do not come back at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ._certificates import Certificate
from ._client import Connecting, connect
from ._errors import ConnectFailed, HandshakeRefused, SessionClosed, UsageError
from ._session import Session

__all__ = ["Backoff", "Sessions", "State", "sessions", "worth_another"]

logger: logging.Logger = logging.getLogger("towline.reconnect")

# Statuses of HTTP that say "later": request timeout, too early, too many, the server's own trouble.
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
# Doublings beyond this are as good as endless.
_MOST_STEPS = 64


class State(enum.Enum):
    """What a reconnecting client does."""

    CONNECTING = "connecting"
    """An attempt is under way."""
    CONNECTED = "connected"
    """There is a session."""
    WAITING = "waiting"
    """The next attempt is waited for."""
    STOPPED = "stopped"
    """It was left, or gave up."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long is waited, seconds.

    A session that lasted `stable` seconds begins the count anew. After `attempts` attempts in a row
    without such a session it gives up; `None` is never.
    """

    initial: float = 0.25
    factor: float = 2.0
    maximum: float = 30.0
    attempts: int | None = None
    stable: float = 10.0

    def __post_init__(self) -> None:
        for name, least in (("initial", 0), ("factor", 1), ("maximum", 0), ("stable", 0)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not value >= least:
                raise ValueError(f"argument '{name}': at least {least}, not {value!r}")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"argument 'attempts': at least 1, or None, not {self.attempts!r}")

    def delay(self, failures: int, jitter: float) -> float:
        """The wait after so many failures in a row, for a `jitter` between 0 and 1."""
        steps = min(max(failures - 1, 0), _MOST_STEPS)
        return jitter * min(self.maximum, self.initial * self.factor**steps)


def worth_another(error: Exception) -> bool:
    """Whether an attempt that failed so may succeed later.

    Nobody answered, the network or the name was not there, the server is overloaded or restarts:
    yes. A certificate that does not fit, a refusal for good (401, 403, 404), a call that makes no
    sense: no.
    """
    if isinstance(error, HandshakeRefused):
        return error.busy or error.status in _LATER
    return isinstance(error, (ConnectFailed, SessionClosed))


class Sessions:
    """Sessions with one server, one after another: see `sessions`."""

    def __init__(
        self,
        connect: Callable[[], Connecting],
        backoff: Backoff,
        retry: Callable[[Exception], bool],
        on_state: Callable[[State, object], object] | None,
        jitter: Callable[[], float],
    ) -> None:
        self._connect = connect
        self._backoff = backoff
        self._retry = retry
        self._on_state = on_state
        self._jitter = jitter
        self._connecting: Connecting | None = None
        self._began = 0.0
        self._failures = 0
        self._entered = False
        self.session: Session | None = None
        """The session of now, or the one before the attempt of now."""
        self.state: State | None = None
        """What it does; `None` before it begins."""
        self.attempts: int = 0
        """Attempts so far."""
        self.connected: int = 0
        """Attempts that became a session."""
        self.last_error: Exception | None = None
        """Why the attempt before failed."""

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered = False
        try:
            await self._leave(kind, error, traceback)
        finally:
            self._tell(State.STOPPED, error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Session:
        """The next session; the one before is closed, if it was not.

        Raises the error of an attempt that is not worth another, or was the last one permitted.
        """
        if not self._entered:
            raise UsageError("`async with` the sessions first: they close the last one")
        await self._leave(None, None, None)
        if self._began:
            self._judge()
        while True:
            if self._failures:
                await self._wait()
            self.attempts += 1
            self._tell(State.CONNECTING, self.attempts)
            connecting = self._connect()
            try:
                session = await connecting.__aenter__()
            except Exception as error:
                self.last_error = error
                self._failures += 1
                last = self._backoff.attempts
                if not self._retry(error) or (last is not None and self._failures >= last):
                    self._tell(State.STOPPED, error)
                    raise
                continue
            self.connected += 1
            self._connecting = connecting
            self._began = asyncio.get_running_loop().time()
            self.session = session
            self._tell(State.CONNECTED, session)
            return session

    async def run(self, handler: Callable[[Session], Awaitable[object]]) -> None:
        """Calls `handler` with each session, in this task, until it returns.

        It is cancelled when its session ends, and what it raises then is the session's end;
        anything else that it raises is raised here.
        """
        async for session in self:
            ended = False
            task = asyncio.current_task()
            assert task is not None, "it is awaited in a task"
            before = task.cancelling()

            async def watch(session: Session = session, task: asyncio.Task[object] = task) -> None:
                nonlocal ended
                with contextlib.suppress(SessionClosed):
                    await session.closed
                ended = True
                task.cancel("the session ended")

            watching = asyncio.create_task(watch(), name="towline: watching a session")
            try:
                await handler(session)
                return
            except asyncio.CancelledError:
                if not ended or task.cancelling() > before + 1:
                    # Somebody else has cancelled it, too or alone.
                    raise
            except SessionClosed:
                if not session.closed:
                    raise
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                if ended:
                    task.uncancel()

    def _judge(self) -> None:
        """Counts a session that was short as a failure."""
        lasted = asyncio.get_running_loop().time() - self._began
        self._began = 0.0
        self._failures = 0 if lasted >= self._backoff.stable else self._failures + 1
        last = self._backoff.attempts
        if last is not None and self._failures >= last:
            error = ConnectFailed(f"{self._failures} sessions or attempts in a row were too short")
            self._tell(State.STOPPED, error)
            raise error

    async def _wait(self) -> None:
        seconds = self._backoff.delay(self._failures, self._jitter())
        self._tell(State.WAITING, seconds)
        await asyncio.sleep(seconds)

    async def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            await connecting.__aexit__(kind, error, traceback)

    def _tell(self, state: State, detail: object) -> None:
        if self.state is State.STOPPED and state is State.STOPPED:
            return
        self.state = state
        if self._on_state is not None:
            try:
                self._on_state(state, detail)
            except Exception:
                logger.exception("`on_state` failed")


def sessions(
    url: str | Callable[[], Connecting],
    *,
    pins: Iterable[str | bytes | Certificate] = (),
    roots: bytes | None = None,
    protocols: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    backoff: Backoff | None = None,
    retry: Callable[[Exception], bool] = worth_another,
    on_state: Callable[[State, object], object] | None = None,
    jitter: Callable[[], float] = random.random,
) -> Sessions:
    """Sessions with the server at `url`, as `towline.connect` gives them, for `async with`.

    `url` may be a function that makes a `towline.connect(…)` for each attempt, as where a token is
    renewed. `retry` says which errors are worth another attempt. `on_state(state, detail)` is told
    what happens: the attempt's number, the session, the seconds to wait, or the error that it
    stopped with, if any; what it raises is logged. `jitter` gives numbers between 0 and 1.
    """
    if callable(url):
        make = url
    else:
        # Kept, because they are gone through at each attempt; single values are `connect`'s to
        # refuse.
        if not isinstance(pins, (str, bytes, Certificate)):
            pins = list(pins)
        if not isinstance(protocols, (str, bytes)):
            protocols = list(protocols)

        def make() -> Connecting:
            return connect(url, pins=pins, roots=roots, protocols=protocols, headers=headers)

        # What makes no sense is told here, and not at the first attempt.
        make()
    return Sessions(make, backoff or Backoff(), retry, on_state, jitter)

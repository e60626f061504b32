"""What a session, its streams and its datagrams share."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from . import _native
from ._driver import Driver
from ._errors import SessionClosed, StreamError

__all__ = ["Core", "checked_code"]

_T = TypeVar("_T")

_MAX_CODE = 2**32 - 1


def checked_code(code: int) -> int:
    """The code, if WebTransport can carry it."""
    if not isinstance(code, int):
        raise TypeError(f"argument 'code': an int is required, not '{type(code).__name__}'")
    if not 0 <= code <= _MAX_CODE:
        raise ValueError(f"argument 'code': 0 to {_MAX_CODE}, not {code}")
    return code


class Core:
    """A native session, its driver, and why it is over."""

    __slots__ = ("driver", "end", "engine", "native", "queues")

    def __init__(self, driver: Driver, native: _native.Session) -> None:
        self.driver = driver
        self.engine = driver.engine
        self.native = native
        self.end: BaseException | None = None
        # Who waits behind the first, by what they wait for.
        self.queues: dict[int, deque[asyncio.Future[None]]] = {}

    def over(self) -> BaseException | None:
        """Why the session is over, if it is."""
        if self.end is None:
            self.end = self.native.close_reason()
        return self.end

    def explain(self, error: BaseException) -> BaseException:
        """What to raise for an error of the native half: the session's end explains most of them."""
        if self.engine.wants_turn and not self.driver.loop.is_closed():
            self.driver.turn_soon()
        if isinstance(error, StreamError):
            if error.code is not None:
                # An application said it, and meant the stream.
                return error
        elif not isinstance(error, SessionClosed):
            return error
        over = self.over()
        # Each raise has a traceback of its own.
        return error if over is None else copy.copy(over)

    async def take(self, wait: int, call: Callable[[], _T | None]) -> _T:
        """What `call` gives, as soon as there is something."""
        try:
            while (result := call()) is None:
                await self.driver.wait(self.native.token + wait)
        except (StreamError, SessionClosed) as error:
            raise self.explain(error) from None
        self.driver.nudge()
        return result

    def take_now(self, wait: int, call: Callable[[], _T | None]) -> _T | None:
        """What `call` gives, if there is something and nobody waits for it."""
        if wait in self.queues:
            return None
        try:
            result = call()
        except (StreamError, SessionClosed) as error:
            raise self.explain(error) from None
        self.driver.nudge()
        return result

    async def take_in_turn(self, wait: int, call: Callable[[], _T | None]) -> _T:
        """As `take`, first come, first served: of many who wait, one is woken for each thing there is."""
        behind = self.queues.get(wait)
        if behind is None:
            behind = self.queues[wait] = deque()
        else:
            turn: asyncio.Future[None] = self.driver.loop.create_future()
            behind.append(turn)
            try:
                await turn
            except BaseException:
                if turn in behind:
                    behind.remove(turn)
                elif not turn.cancelled():
                    self._pass_on(wait, behind)
                raise
        try:
            return await self.take(wait, call)
        finally:
            self._pass_on(wait, behind)

    def _pass_on(self, wait: int, behind: deque[asyncio.Future[None]]) -> None:
        if self.driver.loop.is_closed():
            return
        while behind:
            turn = behind.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self.queues[wait]

    def close(self, code: int, reason: str) -> None:
        """Closes the session; one that is over stays as it is."""
        if self.over() is None:
            self.native.close(code, reason)
            self.over()
            self.driver.nudge()

    def release(self) -> None:
        """Lets the session go, and the connection if it is the session's own."""
        if self.over() is None:
            self.native.close(0, "")
            self.over()
        self.native.release()

"""What a session, its streams and its datagrams share."""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from . import _native
from ._arguments import whole
from ._driver import Driver
from ._errors import SessionClosed, StreamError

__all__ = ["Core", "Moment", "checked_code"]

_T = TypeVar("_T")

# The largest code that a session's stream, and a session, can be ended with.
_MAX_CODE = 2**32 - 1


def checked_code(code: int, most: int = _MAX_CODE) -> int:
    """The code, if it can be sent."""
    return whole("code", code, 0, most)


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


class Core:
    """A native session or connection, its driver, and why it is over."""

    __slots__ = ("driver", "end", "engine", "max_code", "native", "queues")

    def __init__(
        self, driver: Driver, native: _native.Session, max_code: int = _MAX_CODE
    ) -> None:
        self.driver: Driver = driver
        self.engine: _native.Driver = driver.engine
        self.native: _native.Session = native
        self.max_code: int = max_code
        self.end: BaseException | None = None
        # Who waits behind the first, by what they wait for.
        self.queues: dict[int, OrderedDict[asyncio.Future[None], None]] = {}

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
            behind = self.queues[wait] = OrderedDict()
        else:
            turn: asyncio.Future[None] = self.driver.loop.create_future()
            behind[turn] = None
            try:
                await turn
            except BaseException:
                if turn in behind:
                    del behind[turn]
                elif not turn.cancelled():
                    self._pass_on(wait, behind)
                raise
        try:
            return await self.take(wait, call)
        finally:
            self._pass_on(wait, behind)

    def _pass_on(self, wait: int, behind: OrderedDict[asyncio.Future[None], None]) -> None:
        if self.driver.loop.is_closed():
            return
        while behind:
            turn, _ = behind.popitem(last=False)
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

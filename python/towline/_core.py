"""What a session, its streams and its datagrams share."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

from . import _native
from ._driver import Driver
from ._errors import SessionClosed, StreamError

__all__ = ["Core", "checked_code"]

_T = TypeVar("_T")

# The largest code that a session's stream, and a session, can be ended with.
_MAX_CODE = 2**32 - 1


def checked_code(code: int, most: int = _MAX_CODE) -> int:
    """The code, if it can be sent."""
    if not isinstance(code, int):
        raise TypeError(f"argument 'code': an int is required, not '{type(code).__name__}'")
    if not 0 <= code <= most:
        raise ValueError(f"argument 'code': 0 to {most}, not {code}")
    return code


class Core:
    """A native session or connection, its driver, and why it is over."""

    __slots__ = ("driver", "end", "engine", "max_code", "native")

    def __init__(
        self, driver: Driver, native: _native.Session, max_code: int = _MAX_CODE
    ) -> None:
        self.driver = driver
        self.engine = driver.engine
        self.native = native
        self.max_code = max_code
        self.end: BaseException | None = None

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
            return await self.driver.take(self.native.token + wait, call)
        except (StreamError, SessionClosed) as error:
            raise self.explain(error) from None

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

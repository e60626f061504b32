"""An endpoint and the event loop that drives it.

The loop waits for the descriptors of the endpoint's socket and of its timer and gives it a turn when
one of them has something; a call that gave the endpoint work has a turn follow in the same round of
the loop. Whoever waits has a token, and is woken after the turn in which that was called. There is no
thread, and no task for a call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from asyncio import get_running_loop
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from . import _native
from ._errors import ConnectionLost, UsageError

__all__ = [
    "Driver",
    "Watch",
    "client_driver",
    "close_drivers",
    "new_engine",
    "settle",
    "simulated_host",
]

logger = logging.getLogger("towline")

_T = TypeVar("_T")

# What the end of a turn is waited for by; tokens of the native half begin at 0.
_TURN = -1
# Turns that are taken at once when something has to leave before the loop may end.
_MOST_TURNS_AT_ONCE = 64
# The longest that what was written is waited for while the peer acknowledges more and more, seconds.
_SETTLE_LIMIT = 60.0
# The least time that an acknowledgement is given, seconds: a loop may be busy for so long.
_LEAST_PATIENCE = 0.1


class Driver:
    """An endpoint that an event loop drives."""

    __slots__ = (
        "__weakref__",
        "_fd",
        "_scheduled",
        "_timer_fd",
        "_waiting",
        "_writing",
        "closed",
        "engine",
            "loop",
        "pool",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: _native.Driver) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self.engine: _native.Driver = engine
        self.closed: bool = False
        self.pool: object = None
        """What others keep for as long as this endpoint."""
        self._fd = engine.fileno()
        self._timer_fd = engine.timer_fileno()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._scheduled = False
        self._writing = False
        _drivers.add(self)
        loop.add_reader(self._fd, self._turn, True)
        loop.add_reader(self._timer_fd, self._turn, False)

    def nudge(self) -> None:
        """Has a turn follow if one is due."""
        if not self._scheduled and self.engine.wants_turn:
            self.turn_soon()

    def turn_soon(self) -> None:
        """Has a turn follow in this round of the loop."""
        if self._scheduled or self.closed:
            return
        running = asyncio._get_running_loop()
        elsewhere = running is not None and running is not self.loop
        if elsewhere and not self.loop.is_closed():
            raise UsageError("this session belongs to another event loop")
        try:
            self.loop.call_soon(self._scheduled_turn)
        except RuntimeError:
            # In debug mode a loop notices by itself that another thread calls.
            words = "this session belongs to the event loop of another thread"
            if self.loop.is_closed():
                words = "the event loop of this session is closed, and the session with it"
            raise UsageError(words) from None
        self._scheduled = True

    def turn_now(self) -> None:
        """Sends what there is to send."""
        if self.closed or self.loop.is_closed():
            return
        for _ in range(_MOST_TURNS_AT_ONCE):
            self._turn(False)
            if self.closed or not self.engine.wants_turn:
                return

    def when(self, token: int) -> asyncio.Future[None]:
        """A future that is done when the token is called."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._waiting.setdefault(token, []).append(future)
        return future

    async def wait(self, token: int, delay: float | None = None) -> None:
        """Waits until the token is called, or so many seconds have passed."""
        loop = self.loop
        if get_running_loop() is not loop:
            raise UsageError("this session belongs to another event loop")
        if self.closed:
            raise ConnectionLost("this end closed its endpoint")
        if not self._scheduled and self.engine.wants_turn:
            self.turn_soon()
        future: asyncio.Future[None] = loop.create_future()
        waiting = self._waiting.get(token)
        if waiting is None:
            self._waiting[token] = [future]
        else:
            waiting.append(future)
        timer = None
        if delay is not None:
            timer = loop.call_later(delay, self._resolve, (token,))
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            if not future.done() or future.cancelled():
                self._forget(token, future)

    async def take(self, token: int, call: Callable[..., _T | None], *args: object) -> _T:
        """What `call` gives, as soon as that is not `None`."""
        while (result := call(*args)) is None:
            await self.wait(token)
        self.nudge()
        return result

    async def run(self, operation: _native.Operation[_T]) -> _T:
        """The result of an operation, which is given up if this is cancelled."""
        try:
            while (result := operation.poll()) is None:
                await self.wait(operation.token, operation.delay())
        except BaseException:
            operation.cancel()
            if not self.loop.is_closed():
                self.nudge()
            raise
        self.nudge()
        return result

    def wake(self, token: int) -> None:
        """Has whoever waits for the token look again."""
        if not self.loop.is_closed():
            self._resolve((token,))

    def close(self) -> None:
        """Gives the descriptors back. Whoever waits is woken, and finds out."""
        if self.closed:
            return
        self.closed = True
        if not self.loop.is_closed():
            self.loop.remove_reader(self._fd)
            self.loop.remove_reader(self._timer_fd)
            if self._writing:
                self.loop.remove_writer(self._fd)
            self._resolve(tuple(self._waiting))
        self.engine.close()

    def on_fork(self) -> None:
        """This process is a fork: the loop's descriptors are the parent's, and are left alone."""
        self.closed = True
        self.engine.on_fork()

    def _scheduled_turn(self) -> None:
        self._scheduled = False
        self._turn(False)

    def _turn(self, readable: bool) -> None:
        if self.closed:
            return
        try:
            result = self.engine.drive(readable)
        except OSError:
            logger.exception("the socket is unusable: all its connections end")
            self.close()
            return
        if result or self._writing:
            self._follow(result)
        if _TURN in self._waiting:
            self._resolve((_TURN,))

    def _follow(self, result: int) -> None:
        if result & _native.READY:
            self._resolve(self.engine.take_ready())
        if result & _native.REGISTER:
            self._register()
        writing = bool(result & _native.WANT_WRITE)
        if writing != self._writing:
            self._writing = writing
            if writing:
                self.loop.add_writer(self._fd, self._turn, False)
            else:
                self.loop.remove_writer(self._fd)
        if result & _native.AGAIN:
            self.turn_soon()

    def _register(self) -> None:
        # A loop may watch a socket that had an error no more, and its descriptor may be another one.
        self.loop.remove_reader(self._fd)
        if self._writing:
            self.loop.remove_writer(self._fd)
            self._writing = False
        self._fd = self.engine.fileno()
        self.loop.add_reader(self._fd, self._turn, True)

    def _resolve(self, tokens: list[int] | tuple[int, ...]) -> None:
        for token in tokens:
            for future in self._waiting.pop(token, ()):
                if not future.done():
                    future.set_result(None)

    def _forget(self, token: int, future: asyncio.Future[None]) -> None:
        futures = self._waiting.get(token)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._waiting[token]


class Watch:
    """Has `then` called once `poll` gives something, by a token, unless it is left before."""

    __slots__ = ("_called", "_driver", "_poll", "_then", "_token")

    def __init__(
        self,
        driver: Driver,
        token: int,
        poll: Callable[[], object | None],
        then: Callable[[], object],
    ) -> None:
        self._driver = driver
        self._token = token
        self._poll = poll
        self._then = then
        self._called: asyncio.Future[None] | None = None
        self._look()

    def leave(self) -> None:
        """Nobody wants to know any more."""
        called, self._called = self._called, None
        if called is not None and not called.done():
            self._driver._forget(self._token, called)
            called.cancel()

    def _look(self) -> None:
        if self._poll() is not None:
            self._called = None
            self._then()
            return
        self._called = self._driver.when(self._token)
        self._called.add_done_callback(self._on_called)

    def _on_called(self, called: asyncio.Future[None]) -> None:
        # Left meanwhile, or the endpoint is closed and all its tasks with it.
        if called is self._called and not called.cancelled() and not self._driver.closed:
            self._look()


_drivers: weakref.WeakSet[Driver] = weakref.WeakSet()
# By the loop, or the simulated host. The drivers hold their loops, and must not keep them here.
_clients: weakref.WeakKeyDictionary[object, weakref.ReferenceType[Driver]] = (
    weakref.WeakKeyDictionary()
)


class SimulatedHost(Protocol):
    """A host of `towline.testing`, whose loops have no sockets of the system's."""

    @property
    def network(self) -> _native.Network: ...

    def claim(self, address: str, port: int) -> tuple[str, int]: ...


def simulated_host(loop: asyncio.AbstractEventLoop) -> SimulatedHost | None:
    """The host that the running code is at, where the loop is one of `towline.testing`."""
    host: SimulatedHost | None = getattr(loop, "towline_host", None)
    return host


def new_engine(address: str, port: int, *options: Any) -> _native.Driver:
    """An endpoint for the running loop: on a socket of the system's, or of the loop's simulated
    network. `options` are what else the native driver takes."""
    for driver in list(_drivers):
        # A loop that was closed with open sessions left its descriptors.
        if driver.loop.is_closed():
            driver.close()
    host = simulated_host(asyncio.get_running_loop())
    if host is None:
        return _native.Driver(address, port, *options)
    address, port = host.claim(address, port)
    # The checker takes `options` for endless.
    return _native.Driver(address, port, *options, network=host.network)  # type: ignore[misc]


def close_drivers(loop: asyncio.AbstractEventLoop) -> None:
    """Gives back what the endpoints of a loop that is closed still hold."""
    for driver in list(_drivers):
        if driver.loop is loop:
            driver.close()


def client_driver() -> Driver:
    """The endpoint by which the running loop connects."""
    loop = get_running_loop()
    place = simulated_host(loop) or loop
    known = _clients.get(place)
    driver = None if known is None else known()
    if driver is None or driver.closed:
        driver = Driver(loop, _any_address())
        _clients[place] = weakref.ref(driver)
    return driver


def _any_address() -> _native.Driver:
    try:
        return new_engine("::", 0)
    except OSError:
        # A machine without IPv6.
        return new_engine("0.0.0.0", 0)


async def settle(
    driver: Driver, sessions: list[_native.Session] | None = None, limit: float = _SETTLE_LIMIT
) -> None:
    """Waits until the peers have acknowledged what was sent, or seem to be gone, `limit` seconds at
    most. Without `sessions`, all peers of the endpoint."""
    driver.turn_now()
    loop = driver.loop
    until = loop.time() + limit
    least: int | None = None
    patience = 0.0
    while not driver.closed:
        who = [driver.engine] if sessions is None else sessions
        numbers = [one.in_flight() for one in who]
        in_flight = sum(number for number, _ in numbers)
        now = loop.time()
        if least is None or in_flight < least:
            least = in_flight
            wait = 3 * max((pto for _, pto in numbers), default=0.0)
            patience = min(until, now + max(wait, _LEAST_PATIENCE))
        if in_flight == 0 or now >= patience:
            return
        await driver.wait(_TURN, patience - now)


def _after_fork() -> None:
    for driver in list(_drivers):
        driver.on_fork()
    _drivers.clear()
    _clients.clear()


os.register_at_fork(after_in_child=_after_fork)

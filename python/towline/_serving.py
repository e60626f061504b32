"""`Serving`: what servers of all kinds share, from the socket to the tasks of their handlers."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Generic, Self, TypeVar

from . import _native
from ._arguments import number, text, whole
from ._certificates import Certificate
from ._client import addresses_of
from ._driver import Driver, settle, simulated_host
from ._errors import SessionClosed, TowlineError
from ._session import FAILED, Peer
from ._transport import TransportConfig, checked_config

__all__ = ["ANYWHERE", "Handler", "Serving", "cancel_at_end", "checked_handler", "see"]

logger = logging.getLogger("towline")

_P = TypeVar("_P", bound=Peer)
_F = TypeVar("_F")

Handler = Callable[[_P], Awaitable[object]]

# Requests that are answered before others have a turn of the loop.
_REQUESTS_AT_ONCE = 32
ANYWHERE = (None, "")
"""The hosts that are every address."""
_MAX_PORT = 65535
# The longest that a server waits for its clients when it closes, seconds.
_CLOSE_LIMIT = 5.0
# Times that a port is asked of the system which must be free at every address.
_PORT_ATTEMPTS = 8


class Serving(Generic[_P]):
    """A server: `async with` it, or `await` it and close it yourself.

    `port` is known once it runs.
    """

    __slots__ = (
        "_adopt",
        "_certificate",
        "_closing",
        "_config",
        "_draining",
        "_drivers",
        "_grace",
        "_handler",
        "_host",
        "_listeners",
        "_peers",
        "_port",
        "_stopped",
    )

    def __init__(
        self,
        handler: Handler[_P] | None,
        host: str | None,
        port: int,
        certificate: Certificate,
        grace: float,
        config: TransportConfig | None,
    ) -> None:
        self._handler = None if handler is None else checked_handler("handler", handler)
        self._host = None if host is None else text("host", host)
        self._port = whole("port", port, 0, _MAX_PORT)
        self._certificate = checked_certificate(certificate)
        self._grace = number("grace", grace)
        # Makes the endpoints of sockets that are bound already.
        self._adopt: Callable[[_native.Certificate], list[_native.Driver]] | None = None
        self._config = checked_config(config)
        self._drivers: list[Driver] = []
        self._listeners: list[asyncio.Task[None]] = []
        self._peers: dict[asyncio.Task[None], _P] = {}
        self._draining = False
        self._closing = False
        self._stopped: asyncio.Future[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens at."""
        return self._port

    def __await__(self) -> Generator[object, None, Self]:
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        return await self._start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def serve_forever(self) -> None:
        """Runs until SIGTERM comes, or the server is closed. After the signal it drains, then closes.

        Signals come to the main thread alone; elsewhere it runs until it is closed or cancelled.
        """
        loop = asyncio.get_running_loop()
        if self._stopped is None:
            raise RuntimeError("the server does not run: `async with` it first")
        stopped = self._stopped
        before = None
        catches = threading.current_thread() is threading.main_thread()
        if catches:
            before = signal.getsignal(signal.SIGTERM)
            loop.add_signal_handler(signal.SIGTERM, _stop, stopped)
        try:
            await asyncio.shield(stopped)
        finally:
            if catches:
                loop.remove_signal_handler(signal.SIGTERM)
                signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
        await self.drain()
        await self.close()

    async def drain(self, grace: float | None = None) -> None:
        """Takes no new session, asks the clients to end theirs, and waits until they have, at most
        `grace` seconds."""
        grace = self._grace if grace is None else number("grace", grace)
        if self._closing:
            return
        self._draining = True
        for driver in self._drivers:
            driver.engine.shut_down(grace)
        self._ask_for_the_end()
        self._nudge()
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        if others := self._others():
            await asyncio.wait(others, timeout=grace)
        for driver in self._drivers:
            # What handlers wrote before they returned is on its way.
            if not driver.closed and not self._closing:
                await settle(driver, limit=max(0.0, until - loop.time()))

    async def close(self) -> None:
        """Closes everything with code 0, cancels the handlers and gives the port back."""
        if self._closing:
            return
        self._closing = True
        peers = tuple(self._peers.values())
        tasks = [*self._listeners, *self._others(), *self._undecided()]
        for peer in peers:
            if not peer.closed:
                peer.close(0, "the server goes away")
        for task in tasks:
            task.cancel("the server closes")
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            for driver in self._drivers:
                if not driver.closed:
                    await settle(driver, limit=_CLOSE_LIMIT)
        finally:
            for peer in peers:
                peer._release()
            for driver in self._drivers:
                if not driver.closed:
                    driver.engine.close_connections()
                    driver.turn_now()
                    driver.close()
            if self._stopped is not None:
                _stop(self._stopped)

    def _others(self) -> list[asyncio.Task[None]]:
        """Handlers that run, but for the one that asks."""
        current = asyncio.current_task()
        return [task for task in self._tasks() if task is not current]

    async def _start(self) -> Self:
        if self._stopped is not None:
            raise RuntimeError("the server was started before")
        loop = asyncio.get_running_loop()
        for engine in await self._bind(loop):
            self._drivers.append(Driver(loop, engine))
        self._port = self._drivers[0].engine.local_address[1]
        for driver in self._drivers:
            listening = self._listen(driver, driver.engine.listen())
            self._listeners.append(loop.create_task(listening, name="towline: listening"))
        self._stopped = loop.create_future()
        return self

    async def _bind(self, loop: asyncio.AbstractEventLoop) -> list[_native.Driver]:
        if self._adopt is not None:
            return self._adopt(self._certificate._native)
        if self._host in ANYWHERE:
            try:
                return [self._engine("::", self._port)]
            except OSError:
                # A machine without IPv6.
                return [self._engine("0.0.0.0", self._port)]
        addresses = await addresses_of(loop, str(self._host), self._port)
        if self._host == "localhost" and simulated_host(loop) is None:
            # Browsers mean both, whatever the machine's own list of hosts says (RFC 6761 §6.3).
            both = [("127.0.0.1", self._port), ("::1", self._port)]
            addresses = list(dict.fromkeys([*addresses, *both]))
        attempts = _PORT_ATTEMPTS if self._port == 0 else 1
        while True:
            attempts -= 1
            engines: list[_native.Driver] = []
            try:
                self._bind_all(addresses, engines)
                return engines
            except OSError:
                for engine in engines:
                    engine.close()
                # The port that one address had free may be taken at another.
                if not engines or attempts == 0:
                    raise

    def _bind_all(
        self, addresses: list[tuple[str, int]], engines: list[_native.Driver]
    ) -> None:
        """At every address that this machine has, and the same port."""
        missing: OSError | None = None
        for host, _ in addresses:
            port = engines[0].local_address[1] if engines else self._port
            try:
                engines.append(self._engine(host, port))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
        if not engines:
            raise missing or OSError(f"{self._host} has no address")

    async def _listen(self, driver: Driver, listener: _native.Listener) -> None:
        answered = 0
        try:
            while True:
                arrived = await driver.take(listener.token, listener.accept)
                try:
                    self._answer(driver, arrived)
                except TowlineError as error:
                    # Who asked is gone already.
                    logger.debug("a client got nothing of what it asked for: %s", error)
                except Exception:
                    # One client does not end the listening.
                    logger.exception("what a client asked for was not taken")
                driver.nudge()
                answered += 1
                if answered % _REQUESTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except StopAsyncIteration:
            pass
        finally:
            if not self._closing:
                listener.release()
                if not driver.loop.is_closed():
                    driver.nudge()

    def _begin(self, peer: _P) -> None:
        loop = peer._core.driver.loop
        self._follow(loop.create_task(self._handle(peer), name=f"towline: {peer!r}"), peer)

    def _follow(self, task: asyncio.Task[None], peer: _P) -> None:
        """The task is the peer's from now on."""
        self._peers[task] = peer
        task.add_done_callback(self._on_done)
        cancel_at_end(peer, task)

    async def _handle(self, peer: _P) -> None:
        assert self._handler is not None, "without one there is a handler of requests"
        try:
            await self._handler(peer)
            if not peer.closed:
                # What was written is on its way, and closing would lose it.
                await peer._settle()
        except Exception as error:
            if peer.closed or self._closing:
                logger.debug("a handler ended with its session: %r", error)
            else:
                logger.error("the handler of %r failed", peer, exc_info=error)
                peer.close(FAILED, "the handler failed")
        finally:
            if not peer.closed:
                peer.close()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        peer = self._peers.pop(task)
        see(task)
        if not self._closing and not peer._core.driver.loop.is_closed():
            peer._release()

    def _tasks(self) -> list[asyncio.Task[None]]:
        """Those of all handlers."""
        return list(self._peers)

    def _undecided(self) -> list[asyncio.Task[None]]:
        """Those of handlers that have no peer yet."""
        return []

    def _ask_for_the_end(self) -> None:
        """Asks the peers to end soon, where there is a word for it."""

    def _engine(self, host: str, port: int) -> _native.Driver:
        """A new endpoint."""
        raise NotImplementedError

    def _answer(self, driver: Driver, arrived: object) -> None:
        """Begins what a client wants."""
        raise NotImplementedError

    def _nudge(self) -> None:
        for driver in self._drivers:
            driver.nudge()


def checked_certificate(certificate: Certificate) -> Certificate:
    """The argument `certificate` of functions."""
    if not isinstance(certificate, Certificate):
        kind = type(certificate).__name__
        raise TypeError(f"argument 'certificate': a Certificate is required, not '{kind}'")
    return certificate


def checked_handler(argument: str, handler: _F) -> _F:
    """An argument that is called."""
    if not callable(handler):
        kind = type(handler).__name__
        raise TypeError(f"argument '{argument}': a function is required, not '{kind}'")
    return handler


def see(task: asyncio.Task[None]) -> None:
    """Takes notice of how a handler ended."""
    if not task.cancelled():
        error = task.exception()
        if error is not None:
            # Not an `Exception`: the program is to end.
            logger.debug("a handler ended: %r", error)


def _stop(stopped: asyncio.Future[None]) -> None:
    if not stopped.done():
        stopped.set_result(None)


def cancel_at_end(peer: Peer, task: asyncio.Task[None]) -> None:
    """Cancels the task when the session ends."""
    core = peer._core
    try:
        over = core.end or core.native.poll_closed()
    except SessionClosed as error:
        over = error
    if over is not None:
        if core.end is None:
            core.end = over
        task.cancel("the session ended")
        return
    called = core.driver.when(core.native.token + _native.Session.END)

    def look() -> None:
        if not task.done():
            cancel_at_end(peer, task)

    # A round later: a handler that waits for the end learns of it before it is cancelled.
    called.add_done_callback(lambda _: core.driver.loop.call_soon(look))

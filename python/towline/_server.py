"""`serve`: a handler for every session that clients ask for.

What servers of all kinds share is `Serving`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable
from types import TracebackType
from typing import Generic, Self, TypeVar

from . import _native
from ._certificates import Certificate
from ._client import addresses_of, texts
from ._core import Core
from ._driver import Driver, settle
from ._errors import SessionClosed, TowlineError
from ._http import Request, refuse
from ._session import FAILED, Peer, Session
from ._transport import TransportConfig, checked_config

__all__ = [
    "Handler",
    "RequestHandler",
    "Server",
    "Serving",
    "cancel_at_end",
    "checked_handler",
    "see",
    "serve",
]

logger = logging.getLogger("towline")

_P = TypeVar("_P", bound=Peer)
_F = TypeVar("_F")

Handler = Callable[[_P], Awaitable[object]]
RequestHandler = Callable[[Request], Awaitable[object]]

# HTTP statuses of sessions that are refused.
_FORBIDDEN = 403
_UNAVAILABLE = 503
# Requests that are answered before others have a turn of the loop.
_REQUESTS_AT_ONCE = 32
_ANYWHERE = (None, "")
# Times that a port is asked of the system which must be free at every address.
_PORT_ATTEMPTS = 8


class Serving(Generic[_P]):
    """A server: `async with` it, or `await` it and close it yourself.

    `port` is known once it runs.
    """

    __slots__ = (
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
        handler: Handler[_P],
        host: str | None,
        port: int,
        certificate: Certificate,
        grace: float,
        config: TransportConfig | None,
    ) -> None:
        self._handler = checked_handler("handler", handler)
        self._host = host
        self._port = port
        self._certificate = checked_certificate(certificate)
        self._grace = grace
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
        if self._closing:
            return
        grace = self._grace if grace is None else grace
        self._draining = True
        for driver in self._drivers:
            driver.engine.shut_down(grace)
        self._ask_for_the_end()
        self._nudge()
        if others := self._others():
            await asyncio.wait(others, timeout=grace)

    async def close(self) -> None:
        """Closes everything with code 0, cancels the handlers and gives the port back."""
        if self._closing:
            return
        self._closing = True
        peers = tuple(self._peers.values())
        cores = self._cores()
        tasks = [*self._listeners, *self._others()]
        for peer in peers:
            if not peer.closed:
                peer.close(0, "the server goes away")
        for task in tasks:
            task.cancel("the server closes")
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            for driver in self._drivers:
                here = [core.native for core in cores if core.driver is driver]
                if not driver.closed:
                    await settle(driver, here)
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
        if self._host in _ANYWHERE:
            try:
                return [self._engine("::", self._port)]
            except OSError:
                # A machine without IPv6.
                return [self._engine("0.0.0.0", self._port)]
        addresses = await addresses_of(loop, str(self._host), self._port)
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
        task = peer._core.driver.loop.create_task(self._handle(peer), name=f"towline: {peer!r}")
        self._peers[task] = peer
        task.add_done_callback(self._on_done)
        cancel_at_end(peer, task)

    async def _handle(self, peer: _P) -> None:
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

    def _cores(self) -> list[Core]:
        """What is settled before the end."""
        return [peer._core for peer in self._peers.values()]

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


class Server(Serving[Session]):
    """A server of sessions, and of requests if it has a handler for them.

    `async with` it, or `await` it and close it yourself. `url` and `port` are known once it runs.
    """

    __slots__ = ("_http", "_origins", "_protocols", "_requests")

    _cancels_requests = True

    def __init__(
        self,
        handler: Handler[Session],
        host: str | None,
        port: int,
        certificate: Certificate,
        origins: Iterable[str] | None,
        protocols: Iterable[str],
        grace: float,
        config: TransportConfig | None,
        http: RequestHandler | None,
    ) -> None:
        super().__init__(handler, host, port, certificate, grace, checked_config(config, True))
        self._origins = None if origins is None else frozenset(texts("origins", origins))
        self._protocols = texts("protocols", protocols)
        self._http = None if http is None else checked_handler("http", http)
        self._requests: dict[asyncio.Task[None], Request] = {}

    @property
    def url(self) -> str:
        """Where clients find it, with the path `/`."""
        host = "localhost" if self._host in _ANYWHERE else str(self._host)
        return f"https://{f'[{host}]' if ':' in host else host}:{self._port}"

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions whose handlers run."""
        return tuple(self._peers.values())

    def _engine(self, host: str, port: int) -> _native.Driver:
        certificate, takes_requests = self._certificate._native, self._http is not None
        return _native.Driver(host, port, certificate, None, self._config, takes_requests)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [*super()._tasks(), *self._requests]

    def _cores(self) -> list[Core]:
        return [*super()._cores(), *(request._core for request in self._requests.values())]

    def _ask_for_the_end(self) -> None:
        for session in self.sessions:
            session.drain()
        for request in self._requests.values():
            request._core.native.drain()

    def _answer(self, driver: Driver, arrived: object) -> None:
        if isinstance(arrived, _native.SessionRequest):
            self._answer_session(driver, arrived)
        elif isinstance(arrived, _native.HttpRequest):
            if self._draining or self._closing:
                refuse(arrived, _UNAVAILABLE)
            else:
                self._begin_request(Request(driver, arrived))

    def _answer_session(self, driver: Driver, request: _native.SessionRequest) -> None:
        origin = request.origin
        if self._origins is not None and request.has_origin and origin not in self._origins:
            request.reject(_FORBIDDEN)
        elif self._draining or self._closing:
            request.reject(_UNAVAILABLE)
        else:
            self._begin_session(driver, request)

    def _begin_session(self, driver: Driver, request: _native.SessionRequest) -> None:
        self._begin(self._accept(driver, request, None, []))

    def _accept(
        self,
        driver: Driver,
        request: _native.SessionRequest,
        protocol: str | None,
        fields: list[tuple[bytes, bytes]],
    ) -> Session:
        """The session that a client asked for."""
        if protocol is None:
            offered = request.protocols
            protocol = next((name for name in self._protocols if name in offered), None)
        authority, path, headers = request.authority, request.path, request.headers
        origin = request.origin
        native = request.accept(protocol, fields)
        return Session(
            driver, native, authority=authority, path=path, origin=origin, headers=headers
        )

    def _begin_request(self, request: Request) -> None:
        loop = request._core.driver.loop
        task = loop.create_task(self._handle_request(request), name=f"towline: {request!r}")
        self._requests[task] = request
        task.add_done_callback(self._on_request_done)
        if self._cancels_requests:
            request._cancel_when_gone(task)

    async def _handle_request(self, request: Request) -> None:
        assert self._http is not None
        failed = True
        try:
            await self._http(request)
            failed = False
            if not request.is_answered:
                logger.error("the handler of %r did not answer", request)
        except Exception as error:
            if request.is_gone or self._closing:
                logger.debug("a handler ended with its request: %r", error)
            else:
                logger.error("the handler of %r failed", request, exc_info=error)
        finally:
            request._end(failed)

    def _on_request_done(self, task: asyncio.Task[None]) -> None:
        request = self._requests.pop(task)
        see(task)
        if not self._closing and not request._core.driver.loop.is_closed():
            request._release()


def serve(
    handler: Handler[Session],
    host: str | None = "localhost",
    port: int = 0,
    *,
    certificate: Certificate,
    origins: Iterable[str] | None = None,
    protocols: Iterable[str] = (),
    grace: float = 10.0,
    config: TransportConfig | None = None,
    http: RequestHandler | None = None,
) -> Server:
    """Serves WebTransport at `host` and `port`: `handler` is called with each session, in a task.

    `host` may be a name, an address, or `None` for all addresses; port 0 is one that is free. Pages of
    other origins than `origins` are refused with 403; `None` takes all, and clients that are no browsers
    have none. `protocols` are the application's, the favourite first. `grace` is how long clients may go
    on after SIGTERM, seconds. `config` says how connections behave. `http` is called with each request
    that asks for no session, in a task; without it they get status 404.

    A handler is cancelled when its session ends, and when it returns, its session is closed. One that
    raises has its session closed with code `towline.FAILED`, and is logged.
    """
    return Server(
        handler, host, port, certificate, origins, protocols, grace, config, http
    )


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

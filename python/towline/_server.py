"""`serve`: a handler for every session that clients ask for."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable
from types import TracebackType
from typing import Self

from . import _native
from ._certificates import Certificate
from ._client import _texts, addresses_of
from ._driver import Driver, settle
from ._errors import SessionClosed, TowlineError
from ._request import Refused, SessionRequest
from ._session import FAILED, Session

__all__ = ["Server", "serve", "serve_requests"]

logger = logging.getLogger("towline")

Handler = Callable[[Session], Awaitable[object]]
RequestHandler = Callable[[SessionRequest], Awaitable[object]]

# HTTP statuses of sessions that are refused.
_FORBIDDEN = 403
_FAILED_STATUS = 500
_UNAVAILABLE = 503
# Requests that are answered before others have a turn of the loop.
_REQUESTS_AT_ONCE = 32
_ANYWHERE = (None, "")
# Requests that may wait for their answer at once, unless the caller says otherwise.
_PENDING = 256
# Times that a port is asked of the system which must be free at every address.
_PORT_ATTEMPTS = 8


class Server:
    """A server: `async with` it, or `await` it and close it yourself.

    `url` and `port` are known once it runs.
    """

    __slots__ = (
        "_adopt",
        "_asking",
        "_certificate",
        "_closing",
        "_draining",
        "_drivers",
        "_grace",
        "_handler",
        "_host",
        "_listeners",
        "_on_request",
        "_origins",
        "_pending",
        "_port",
        "_protocols",
        "_sessions",
        "_stopped",
        "accepted",
        "refused",
    )

    def __init__(
        self,
        handler: Handler | None,
        host: str | None,
        port: int,
        certificate: Certificate,
        origins: Iterable[str] | None,
        protocols: Iterable[str],
        grace: float,
        on_request: RequestHandler | None = None,
        pending: int = _PENDING,
    ) -> None:
        given = on_request or handler
        if not callable(given):
            kind = type(given).__name__
            raise TypeError(f"argument 'handler': a function is required, not '{kind}'")
        if not isinstance(certificate, Certificate):
            kind = type(certificate).__name__
            raise TypeError(f"argument 'certificate': a Certificate is required, not '{kind}'")
        self._handler = handler
        self._on_request = on_request
        self._pending = pending
        # Makes the endpoints of sockets that are bound already.
        self._adopt: Callable[[_native.Certificate], list[_native.Driver]] | None = None
        self._host = host
        self._port = port
        self._certificate = certificate
        self._origins = None if origins is None else frozenset(_texts("origins", origins))
        self._protocols = _texts("protocols", protocols)
        self._grace = grace
        self._drivers: list[Driver] = []
        self._listeners: list[asyncio.Task[None]] = []
        self._sessions: dict[asyncio.Task[None], Session] = {}
        # Requests without an answer yet.
        self._asking: set[asyncio.Task[None]] = set()
        self.accepted = 0
        """Sessions that clients were given."""
        self.refused = 0
        """Sessions that clients were refused."""
        self._draining = False
        self._closing = False
        self._stopped: asyncio.Future[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens at."""
        return self._port

    @property
    def url(self) -> str:
        """Where clients find it, with the path `/`."""
        host = "localhost" if self._host in _ANYWHERE else str(self._host)
        return f"https://{f'[{host}]' if ':' in host else host}:{self._port}"

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions whose handlers run."""
        return tuple(self._sessions.values())

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
        for session in self.sessions:
            session.drain()
        self._nudge()
        if others := self._others():
            await asyncio.wait(others, timeout=grace)

    async def close(self) -> None:
        """Closes all sessions with code 0, cancels their handlers and gives the port back."""
        if self._closing:
            return
        self._closing = True
        sessions = self.sessions
        tasks = [*self._listeners, *self._others(), *self._asking]
        for session in sessions:
            if not session.closed:
                session.close(0, "the server goes away")
        for task in tasks:
            task.cancel("the server closes")
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            for driver in self._drivers:
                here = [one._core.native for one in sessions if one._core.driver is driver]
                if not driver.closed:
                    await settle(driver, here)
        finally:
            for session in sessions:
                session._release()
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
        return [task for task in self._sessions if task is not current]

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
        certificate = self._certificate._native
        if self._adopt is not None:
            return self._adopt(certificate)
        if self._host in _ANYWHERE:
            try:
                return [_native.Driver("::", self._port, certificate)]
            except OSError:
                # A machine without IPv6.
                return [_native.Driver("0.0.0.0", self._port, certificate)]
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
                engines.append(_native.Driver(host, port, self._certificate._native))
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
                request = await driver.take(listener.token, listener.accept)
                self._answer(driver, request)
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

    def _answer(self, driver: Driver, request: _native.SessionRequest) -> None:
        origin = request.origin
        if self._origins is not None and request.has_origin and origin not in self._origins:
            self._reject(request, _FORBIDDEN)
        elif self._draining or self._closing:
            self._reject(request, _UNAVAILABLE)
        elif self._on_request is not None:
            self._ask(driver, request, self._on_request)
        else:
            offered = request.protocols
            protocol = next((name for name in self._protocols if name in offered), None)
            authority, path, headers = request.authority, request.path, request.headers
            try:
                native = request.accept(protocol)
            except TowlineError as error:
                logger.debug("a session was not accepted: %s", error)
                return
            session = Session(
                driver,
                native,
                authority=authority,
                path=path,
                origin=origin,
                headers=headers,
            )
            self._begin(session)
        driver.nudge()

    def _reject(self, request: _native.SessionRequest, status: int) -> None:
        self.refused += 1
        request.reject(status)

    def _ask(
        self, driver: Driver, native: _native.SessionRequest, on_request: RequestHandler
    ) -> None:
        if len(self._asking) >= self._pending:
            self._reject(native, _UNAVAILABLE)
            return
        request = SessionRequest(driver, native, self._protocols, self._on_accepted)
        deciding = self._decide(request, on_request)
        task = driver.loop.create_task(deciding, name=f"towline: session {request.path}")
        self._asking.add(task)
        task.add_done_callback(self._on_decided)

    async def _decide(self, request: SessionRequest, on_request: RequestHandler) -> None:
        """The whole life of a session, from the wish for it on."""
        status = _FAILED_STATUS
        try:
            await on_request(request)
            if not request.answered:
                logger.error("nobody answered %r: it is refused", request)
        except Exception as error:
            session = request.session
            if isinstance(error, Refused) and session is None:
                status = error.status
            elif self._closing or (session is not None and session.closed):
                logger.debug("a handler ended with its session: %r", error)
            elif session is None and isinstance(error, SessionClosed):
                logger.debug("a session was not accepted: %s", error)
            else:
                logger.error("the handler of %r failed", session or request, exc_info=error)
                if session is not None:
                    session.close(FAILED, "the handler failed")
        except asyncio.CancelledError:
            status = _UNAVAILABLE
            raise
        finally:
            if not request.answered and not request._driver.closed:
                request.refuse(status)
            self.refused += request.session is None
            if request.session is not None and not request.session.closed:
                request.session.close()

    def _on_accepted(self, request: SessionRequest, session: Session) -> None:
        task = asyncio.current_task()
        if task not in self._asking:
            session.close(FAILED, "the server failed")
            raise RuntimeError("a request is accepted in the task that it was given to")
        self._asking.discard(task)
        self._sessions[task] = session
        self.accepted += 1
        task.add_done_callback(self._on_done)
        _cancel_at_end(session, task)

    def _on_decided(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            # Not an `Exception`: the program is to end.
            task.exception()

    def _begin(self, session: Session) -> None:
        loop = session._core.driver.loop
        handling = self._handle(session)
        task = loop.create_task(handling, name=f"towline: session {session.path}")
        self._sessions[task] = session
        self.accepted += 1
        task.add_done_callback(self._on_done)
        _cancel_at_end(session, task)

    async def _handle(self, session: Session) -> None:
        assert self._handler is not None, "without one there is a handler of requests"
        try:
            await self._handler(session)
        except Exception as error:
            if session.closed or self._closing:
                logger.debug("a handler ended with its session: %r", error)
            else:
                logger.error("the handler of %r failed", session, exc_info=error)
                session.close(FAILED, "the handler failed")
        finally:
            if not session.closed:
                session.close()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        session = self._sessions.pop(task)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                # Not an `Exception`: the program is to end.
                logger.debug("a handler ended: %r", error)
        if not self._closing and not session._core.driver.loop.is_closed():
            session._release()

    def _nudge(self) -> None:
        for driver in self._drivers:
            driver.nudge()


def serve(
    handler: Handler,
    host: str | None = "localhost",
    port: int = 0,
    *,
    certificate: Certificate,
    origins: Iterable[str] | None = None,
    protocols: Iterable[str] = (),
    grace: float = 10.0,
) -> Server:
    """Serves WebTransport at `host` and `port`: `handler` is called with each session, in a task.

    `host` may be a name, an address, or `None` for all addresses; port 0 is one that is free. Pages of
    other origins than `origins` are refused with 403; `None` takes all, and clients that are no browsers
    have none. `protocols` are the application's, the favourite first. `grace` is how long clients may go
    on after SIGTERM, seconds.

    A handler is cancelled when its session ends, and when it returns, its session is closed. One that
    raises has its session closed with code `towline.FAILED`, and is logged.
    """
    return Server(handler, host, port, certificate, origins, protocols, grace)


def serve_requests(
    on_request: RequestHandler,
    host: str | None = "localhost",
    port: int = 0,
    *,
    certificate: Certificate,
    origins: Iterable[str] | None = None,
    protocols: Iterable[str] = (),
    grace: float = 10.0,
    pending: int = _PENDING,
) -> Server:
    """As `serve`, where `on_request` is called with each wish for a session, in a task of its own, and
    looks at path, fields and origin before it accepts or refuses.

    The task is the session's from then on: it is cancelled when the session ends, and its end is the
    session's. What it raises before it accepts refuses the session: `Refused` with its status,
    another exception with 500, and that is logged. While `pending` requests wait for their answer,
    further ones are refused with 503.
    """
    if not callable(on_request):
        kind = type(on_request).__name__
        raise TypeError(f"argument 'on_request': a function is required, not '{kind}'")
    if not isinstance(pending, int) or pending < 1:
        raise ValueError(f"argument 'pending': at least 1, not {pending!r}")
    return Server(
        None, host, port, certificate, origins, protocols, grace, on_request, pending
    )


def _stop(stopped: asyncio.Future[None]) -> None:
    if not stopped.done():
        stopped.set_result(None)


def _cancel_at_end(session: Session, task: asyncio.Task[None]) -> None:
    """Cancels the task when the session ends."""
    core = session._core
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
            _cancel_at_end(session, task)

    # A round later: a handler that waits for the end learns of it before it is cancelled.
    called.add_done_callback(lambda _: core.driver.loop.call_soon(look))

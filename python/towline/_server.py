"""`serve`: a handler for every session that clients ask for, and for requests beside them."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Required, TypedDict

from . import _native
from ._arguments import checked_names, texts, whole
from ._certificates import Certificate
from ._driver import Driver, new_engine
from ._errors import SessionClosed
from ._http import Request, refuse
from ._request import Refused, SessionRequest
from ._serving import ANYWHERE, Handler, Serving, checked_handler, see
from ._session import FAILED, Session
from ._transport import TransportConfig, checked_config

__all__ = [
    "HttpHandler",
    "RequestHandler",
    "ServeOptions",
    "Server",
    "serve",
    "serve_requests",
]

logger = logging.getLogger("towline")

HttpHandler = Callable[[Request], Awaitable[object]]
RequestHandler = Callable[[SessionRequest], Awaitable[object]]

# HTTP statuses of sessions that are refused.
_FORBIDDEN = 403
_FAILED_STATUS = 500
_UNAVAILABLE = 503
# Requests that may wait for their answer at once, unless the caller says otherwise.
_PENDING = 256


class Server(Serving[Session]):
    """A server of sessions, and of requests if it has a handler for them.

    `async with` it, or `await` it and close it yourself. `url` and `port` are known once it runs.
    """

    __slots__ = (
        "_asking",
        "_http",
        "_on_request",
        "_origins",
        "_pending",
        "_protocols",
        "_requests",
        "accepted",
        "refused",
    )

    def __init__(
        self,
        handler: Handler[Session] | None,
        host: str | None,
        port: int,
        certificate: Certificate,
        origins: Iterable[str] | None,
        protocols: Iterable[str],
        grace: float,
        config: TransportConfig | None,
        http: HttpHandler | None,
        on_request: RequestHandler | None = None,
        pending: int = _PENDING,
    ) -> None:
        super().__init__(handler, host, port, certificate, grace, checked_config(config, True))
        self._origins = None if origins is None else frozenset(texts("origins", origins))
        self._protocols = checked_names("protocols", protocols)
        self._http = None if http is None else checked_handler("http", http)
        self._requests: dict[asyncio.Task[None], Request] = {}
        self._on_request = on_request
        self._pending = pending
        # Wishes for sessions without an answer yet.
        self._asking: set[asyncio.Task[None]] = set()
        self.accepted: int = 0
        """Sessions that clients were given."""
        self.refused: int = 0
        """Sessions that clients were refused."""

    @property
    def url(self) -> str:
        """Where clients find it, with the path `/`."""
        host = "localhost" if self._host in ANYWHERE else str(self._host)
        return f"https://{f'[{host}]' if ':' in host else host}:{self._port}"

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions whose handlers run."""
        return tuple(self._peers.values())

    def _engine(self, host: str, port: int) -> _native.Driver:
        certificate, takes_requests = self._certificate._native, self._http is not None
        return new_engine(host, port, certificate, None, self._config, takes_requests)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [*super()._tasks(), *self._requests]

    def _undecided(self) -> list[asyncio.Task[None]]:
        return list(self._asking)

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
            self._reject(request, _FORBIDDEN)
        elif self._draining or self._closing:
            self._reject(request, _UNAVAILABLE)
        elif self._on_request is not None:
            self._ask(driver, request, self._on_request)
        else:
            self._begin_session(driver, request)

    def _begin_session(self, driver: Driver, request: _native.SessionRequest) -> None:
        session = self._accept(driver, request, None, [])
        # The answer leaves before the handler begins.
        driver.nudge()
        self._begin(session)

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
        request._when_gone(functools.partial(task.cancel, "the client gave its request up"))

    async def _decide(self, request: SessionRequest, on_request: RequestHandler) -> None:
        """The whole life of a session, from the wish for it on."""
        status = _FAILED_STATUS
        try:
            await on_request(request)
            if not request.answered:
                logger.error("nobody answered %r: it is refused", request)
            if request.session is not None and not request.session.closed:
                # What was written is on its way, and closing would lose it.
                await request.session._settle()
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
        self.accepted += 1
        self._follow(task, session)

    def _on_decided(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        see(task)

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
        self.accepted += 1
        return Session(
            driver, native, authority=authority, path=path, origin=origin, headers=headers
        )

    def _begin_request(self, request: Request) -> None:
        loop = request._core.driver.loop
        task = loop.create_task(self._handle_request(request), name=f"towline: {request!r}")
        self._requests[task] = request
        task.add_done_callback(self._on_request_done)
        request._when_gone(functools.partial(self._on_gone, task))

    def _on_gone(self, task: asyncio.Task[None]) -> None:
        """The client of a request wants no answer any more."""
        task.cancel("the client gave the request up")

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


class ServeOptions(TypedDict, total=False):
    """What functions that serve take beside handler, host and port; `serve` says what each is."""

    certificate: Required[Certificate]
    """Who the server is."""
    origins: Iterable[str] | None
    """The pages that may ask."""
    protocols: Iterable[str]
    """The application's protocols, the favourite first."""
    grace: float
    """How long clients may go on after SIGTERM, seconds."""
    config: TransportConfig | None
    """How connections behave."""
    http: HttpHandler | None
    """Answers requests that ask for no session."""


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
    http: HttpHandler | None = None,
) -> Server:
    """Serves WebTransport at `host` and `port`: `handler` is called with each session, in a task.

    `host` may be a name, an address, or `None` for all addresses; port 0 is one that is free. Pages of
    other origins than `origins` are refused with 403; `None` takes all, and clients that are no browsers
    have none. `protocols` are the application's, the favourite first. `grace` is how long clients may go
    on after SIGTERM, seconds. `config` says how connections behave. `http` is called with each request
    that asks for no session, in a task; without it they get status 404.

    A handler is cancelled when its session ends, and when it returns, its session is closed. One that
    raises has its session closed with code `towline.FAILED`, and is logged.

    ```python
    async def greet(session: towline.Session) -> None:
        async with await session.create_unidirectional_stream() as stream:
            await stream.write(b"welcome")
        await session.closed

    async with towline.serve(greet, "localhost", certificate=certificate) as server:
        async with towline.connect(server.url, pins=[certificate]) as session:
            stream = await anext(session.incoming_unidirectional_streams)
            print(await stream.read())  # b'welcome'
    ```
    """
    checked_handler("handler", handler)
    return Server(
        handler, host, port, certificate, origins, protocols, grace, config, http
    )


def serve_requests(
    on_request: RequestHandler,
    host: str | None = "localhost",
    port: int = 0,
    *,
    certificate: Certificate,
    origins: Iterable[str] | None = None,
    protocols: Iterable[str] = (),
    grace: float = 10.0,
    config: TransportConfig | None = None,
    http: HttpHandler | None = None,
    pending: int = _PENDING,
) -> Server:
    """As `serve`, where `on_request` is called with each wish for a session, in a task of its own, and
    looks at path, fields and origin before it accepts or refuses.

    The task is the session's from then on: it is cancelled when the session ends, and its end is the
    session's. What it raises before it accepts refuses the session: `Refused` with its status,
    another exception with 500, and that is logged. While `pending` requests wait for their answer,
    further ones are refused with 503.
    """
    checked_handler("on_request", on_request)
    whole("pending", pending, 1)
    return Server(
        None,
        host,
        port,
        certificate,
        origins,
        protocols,
        grace,
        config,
        http,
        on_request,
        pending,
    )

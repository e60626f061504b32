"""An ASGI 3 server over HTTP/3, and a scope of its own for WebTransport sessions.

    async with towline.asgi.serve(app, None, 4433, certificate=certificate) as server:
        await server.serve_forever()

`app` gets `lifespan` and `http` scopes, and nothing else: frameworks refuse what they do not know.
Sessions go to the application `webtransport`, which may be the same one, with scopes of the type
`webtransport`. Those have what `http` scopes have, but for `method`, and `protocols`: what the client
offers. The messages:

| direction | `type` | further keys |
|---|---|---|
| receive | `webtransport.connect` | |
| send | `webtransport.accept` | `protocol` (str), `headers` (pairs of bytes): both optional |
| send | `webtransport.reject`, instead | `status` (int, 403 without) |
| receive | `webtransport.session`, once it was accepted | `session`: the `towline.Session` |
| receive | `webtransport.disconnect`, at the end of the session | `code` (int), `reason` (str) |
| send | `webtransport.close` | `code` (int), `reason` (str): both optional |

Streams and datagrams are those of the session. `sessions` makes such an application of a handler as
`towline.serve` has it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Literal, Self
from urllib.parse import unquote

from . import _native
from ._asgi_lifespan import Lifespan
from ._certificates import Certificate
from ._core import Core
from ._driver import Driver, Watch
from ._errors import SessionClosed, StreamError
from ._http import OF_CONNECTIONS, BodyWriter, Request
from ._server import Server as SessionServer
from ._serving import Handler, cancel_at_end, checked_handler, see
from ._session import FAILED, Session
from ._transport import TransportConfig

__all__ = ["Application", "Message", "Receive", "Scope", "Send", "Server", "serve", "sessions"]

logger: logging.Logger = logging.getLogger("towline")

Scope = MutableMapping[str, Any]
"""What a client wants: `type`, `path`, `headers` and so on."""
Message = MutableMapping[str, Any]
"""What server and application tell each other, by its `type`."""
Receive = Callable[[], Awaitable[Message]]
"""Gives the application the server's next message."""
Send = Callable[[Message], Awaitable[None]]
"""Takes a message of the application's."""
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI 3 application."""

_VERSIONS = {"version": "3.0", "spec_version": "2.5"}
_CHUNK = 65536
_FORBIDDEN = 403
_NOT_FOUND = 404
_UNAVAILABLE = 503
_SERVER_ERROR = 500
# Applications that may run on at once after their clients have left.
_MOST_ABANDONED = 100
_ANSWERS = ("webtransport.accept", "webtransport.reject")
_CONTINUE = 100
_EARLY_HINTS = 103
# Applications that are made for HTTP/1 too may send them.
_OF_CONNECTIONS = frozenset(name.encode() for name in OF_CONNECTIONS)


class Server(SessionServer):
    """A server of an ASGI application: `async with` it, or `await` it and close it yourself.

    The application has started when it runs, and is told to stop when it was closed.
    """

    __slots__ = ("_abandoned", "_app", "_lifespan", "_root_path", "_webtransport", "_wishes")

    def __init__(
        self,
        app: Application,
        host: str | None,
        port: int,
        certificate: Certificate,
        webtransport: Application | None,
        origins: Iterable[str] | None,
        protocols: Iterable[str],
        root_path: str,
        lifespan: Literal["auto", "on", "off"],
        grace: float,
        config: TransportConfig | None,
    ) -> None:
        super().__init__(
            _nobody, host, port, certificate, origins, protocols, grace, config, self._serve
        )
        self._app = checked_handler("app", app)
        self._webtransport = None if webtransport is None else _application(webtransport)
        self._root_path = root_path
        self._lifespan = Lifespan(app, lifespan, grace)
        # Tasks of sessions that were asked for, accepted or not.
        self._wishes: set[asyncio.Task[None]] = set()
        # Applications whose clients wait no more, the oldest first.
        self._abandoned: dict[asyncio.Task[None], None] = {}

    async def close(self) -> None:
        """Closes all sessions and requests, gives the port back, and has the application stop."""
        try:
            await super().close()
        finally:
            await self._lifespan.shutdown()

    async def _start(self) -> Self:
        await self._lifespan.startup()
        try:
            return await super()._start()
        except BaseException:
            await self._lifespan.shutdown()
            raise

    def _scope(
        self,
        kind: str,
        path: str,
        authority: str,
        headers: list[tuple[bytes, bytes]],
        client: tuple[str, int],
        core: Core | None,
    ) -> Scope:
        raw_path, _, query = path.partition("?")
        local = None if core is None else core.native.local_ip
        return {
            "type": kind,
            "asgi": dict(_VERSIONS),
            "http_version": "3",
            "scheme": "https",
            "path": self._root_path + unquote(raw_path),
            "raw_path": self._root_path.encode() + raw_path.encode(),
            "query_string": query.encode(),
            "root_path": self._root_path,
            "headers": _headers(authority, headers),
            "client": client,
            "server": (local or self._host or "localhost", self.port),
            "state": dict(self._lifespan.state),
            "extensions": {},
        }

    async def _serve(self, request: Request) -> None:
        scope = self._scope(
            "http",
            request.path,
            request.authority,
            request._native.raw_headers,
            request.remote_address,
            request._core,
        )
        scope["method"] = request.method
        scope["extensions"] = {"http.response.trailers": {}, "http.response.early_hint": {}}
        exchange = _Exchange(request)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        finally:
            exchange.end()

    def _on_gone(self, task: asyncio.Task[None]) -> None:
        # Applications are told by a message, and may go on; but a client can leave as many as it likes.
        self._abandoned[task] = None
        task.add_done_callback(lambda task: self._abandoned.pop(task, None))
        if len(self._abandoned) > _MOST_ABANDONED:
            oldest = next(iter(self._abandoned))
            del self._abandoned[oldest]
            oldest.cancel("the client gave the request up")

    def _begin_session(self, driver: Driver, request: _native.SessionRequest) -> None:
        if self._webtransport is None:
            self._reject(request, _NOT_FOUND)
            return
        if len(self._wishes) - len(self._peers) >= self._pending:
            self._reject(request, _UNAVAILABLE)
            return
        path = request.path
        scope = self._scope(
            "webtransport",
            path,
            request.authority,
            request.raw_headers,
            request.remote_address,
            None,
        )
        scope["protocols"] = request.protocols
        wish = _Wish(self, driver, request)
        handling = self._handle_wish(self._webtransport, scope, wish)
        task = driver.loop.create_task(handling, name=f"towline: session {path}")
        self._wishes.add(task)
        task.add_done_callback(self._on_wish_done)
        wish.watch(task)

    async def _handle_wish(self, app: Application, scope: Scope, wish: _Wish) -> None:
        try:
            await app(scope, wish.receive, wish.send)
            await wish.end()
        except Exception as error:
            session = wish.session
            over = isinstance(error, SessionClosed) if session is None else session.closed
            if self._closing or over:
                logger.debug("an application ended with its session: %r", error)
            else:
                logger.error("the application of %s failed", scope["path"], exc_info=error)
                wish.fail()
        finally:
            wish.leave()

    def _on_wish_done(self, task: asyncio.Task[None]) -> None:
        self._wishes.discard(task)
        session = self._peers.pop(task, None)
        see(task)
        if session is None or self._closing or session._core.driver.loop.is_closed():
            return
        session._release()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return list({*super()._tasks(), *self._wishes})


class _Exchange:
    """One request, as messages."""

    __slots__ = ("_body", "_complete", "_ended", "_expects", "_request", "_trailers")

    def __init__(self, request: Request) -> None:
        self._request = request
        self._body: BodyWriter | None = None
        # The client waits for a word before it sends its body (RFC 9110 §10.1.1).
        self._expects = (request.header("expect") or "").lower() == "100-continue"
        # The body of the request was received.
        self._ended = False
        # Fields after the body of the answer are to come.
        self._trailers: list[tuple[bytes, bytes]] | None = None
        self._complete = False

    async def receive(self) -> Message:
        request = self._request
        if not self._ended and not self._complete:
            try:
                if self._expects and self._body is None:
                    request.interim(_CONTINUE)
                self._expects = False
                chunk = await request.read(_CHUNK)
            except (StreamError, SessionClosed):
                return {"type": "http.disconnect"}
            self._ended = not chunk
            return {"type": "http.request", "body": chunk, "more_body": not self._ended}
        native, driver = request._native, request._core.driver
        while not self._complete and native.poll_gone() is None:
            await driver.wait(native.token)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start" and self._body is None:
            fields = [_field(pair) for pair in message.get("headers", ())]
            fields = [pair for pair in fields if pair[0] not in _OF_CONNECTIONS]
            self._trailers = [] if message.get("trailers", False) else None
            self._body = self._request._start(message["status"], fields)
        elif kind == "http.response.body" and self._body is not None and not self._complete:
            if body := message.get("body", b""):
                await self._body.write(body)
            if not message.get("more_body", False) and self._trailers is None:
                await self._finish()
        elif kind == "http.response.trailers" and self._trailers is not None:
            fields = [_field(pair) for pair in message.get("headers", ())]
            self._trailers.extend(pair for pair in fields if pair[0] not in _OF_CONNECTIONS)
            if not message.get("more_trailers", False):
                await self._finish()
        elif kind == "http.response.early_hint" and self._body is None:
            links = [(b"link", bytes(link)) for link in message["links"]]
            self._request._interim(_EARLY_HINTS, links)
        else:
            raise RuntimeError(f"the message '{kind}' has no place here")

    async def _finish(self) -> None:
        assert self._body is not None
        await self._body._finish(self._trailers or [])
        self._complete = True
        if not self._ended:
            # Nobody needs the rest of the request; whoever waits for it hears so.
            self._request.stop()
        # Whoever waits for more messages is told that there is nothing more.
        self._request._core.driver._resolve((self._request._native.token,))

    def end(self) -> None:
        """The application has returned."""
        if self._body is not None and not self._complete:
            if not self._request.is_gone:
                logger.error("the answer of %r has no end", self._request)
            self._body.reset()


class _Wish:
    """One wish for a session, as messages."""

    __slots__ = ("_asked", "_driver", "_gone", "_request", "_server", "_told", "session")

    def __init__(
        self, server: Server, driver: Driver, request: _native.SessionRequest
    ) -> None:
        self._server = server
        self._driver = driver
        # `None` once it was answered.
        self._request: _native.SessionRequest | None = request
        self._asked = False
        self._told = False
        self._gone: Watch | None = None
        self.session: Session | None = None

    def watch(self, task: asyncio.Task[None]) -> None:
        """Cancels the task when the client leaves before it is answered."""
        if (request := self._request) is not None:
            cancel = functools.partial(task.cancel, "the client gave its request up")
            self._gone = Watch(self._driver, request.token, request.poll_gone, cancel)

    def _take(self) -> _native.SessionRequest | None:
        request, self._request = self._request, None
        if self._gone is not None:
            self._gone.leave()
        return request

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "webtransport.connect"}
        if self.session is None:
            if self._request is not None:
                raise RuntimeError("send 'webtransport.accept' or 'webtransport.reject' first")
            return {"type": "webtransport.disconnect", "code": 0, "reason": ""}
        if not self._told:
            self._told = True
            return {"type": "webtransport.session", "session": self.session}
        code, reason = 0, ""
        try:
            code, reason, _ = await self.session.closed
        except SessionClosed as error:
            reason = str(error)
        return {"type": "webtransport.disconnect", "code": code, "reason": reason}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        request = self._take() if kind in _ANSWERS else None
        if kind == "webtransport.accept" and request is not None:
            protocol = message.get("protocol")
            fields = [_field(pair) for pair in message.get("headers", ())]
            task = asyncio.current_task()
            self.session = self._server._accept(self._driver, request, protocol, fields)
            if task in self._server._wishes:
                self._server._peers[task] = self.session
        elif kind == "webtransport.reject" and request is not None:
            request.reject(message.get("status", _FORBIDDEN))
        elif kind == "webtransport.close" and self.session is not None:
            self.session.close(message.get("code", 0), message.get("reason", ""))
        else:
            raise RuntimeError(f"the message '{kind}' has no place here")
        self._driver.nudge()

    async def end(self) -> None:
        """The application has returned."""
        if self._request is not None:
            logger.error("the application did not answer who asked for %s", self._request.path)
        elif self.session is not None and not self.session.closed:
            await self.session._settle()

    def fail(self) -> None:
        """The application has raised."""
        if self.session is not None:
            self.session.close(FAILED, "the application failed")

    def leave(self) -> None:
        """Nothing more comes of the application."""
        request = self._take()
        if request is not None:
            request.reject(_SERVER_ERROR)
        if self.session is not None and not self.session.closed:
            self.session.close()
        self._driver.nudge()


def serve(
    app: Application,
    host: str | None = "localhost",
    port: int = 0,
    *,
    certificate: Certificate,
    webtransport: Application | None = None,
    origins: Iterable[str] | None = None,
    protocols: Iterable[str] = (),
    root_path: str = "",
    lifespan: Literal["auto", "on", "off"] = "auto",
    grace: float = 10.0,
    config: TransportConfig | None = None,
) -> Server:
    """Serves `app` over HTTP/3, and `webtransport` for sessions: without it they get status 404.

    `host`, `port`, `origins`, `protocols`, `grace` and `config` are as those of `towline.serve`.
    `root_path` is where the application is mounted. `lifespan` says whether the application is told
    of start and end: `auto` does without where it takes no such scope, `on` raises then.

    Browsers learn of HTTP/3 by a field of an answer over TCP, as `alt-svc: h3=":4433"`: send it from
    the server that they come to first.
    """
    return Server(
        app,
        host,
        port,
        certificate,
        webtransport,
        origins,
        protocols,
        root_path,
        lifespan,
        grace,
        config,
    )


def sessions(handler: Handler[Session]) -> Application:
    """An application for `webtransport` scopes of a handler as `towline.serve` has it: each session is
    accepted, and the handler is cancelled when it ends."""
    checked_handler("handler", handler)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "webtransport":
            raise RuntimeError(f"this is for sessions, not for the scope '{scope['type']}'")
        await receive()
        await send({"type": "webtransport.accept"})
        session = (await receive())["session"]
        task = asyncio.current_task()
        assert task is not None
        cancel_at_end(session, task)
        await handler(session)

    return application


async def _nobody(session: Session) -> None:
    """The sessions of this server are an application's."""


def _application(webtransport: Application) -> Application:
    checked_handler("webtransport", webtransport)
    try:
        inspect.signature(webtransport).bind(None, None, None)
    except TypeError:
        words = "an ASGI application is required, which takes scope, receive and send"
        hint = "make one of a handler by asgi.sessions(handler)"
        raise TypeError(f"argument 'webtransport': {words}; {hint}") from None
    except ValueError:
        # Something that has no signature.
        pass
    return webtransport


def _field(pair: Iterable[bytes]) -> tuple[bytes, bytes]:
    name, value = pair
    return bytes(name).lower(), bytes(value)


def _headers(authority: str, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Those of a scope: the authority is the host, and the pieces of a cookie are one again
    (RFC 9114 §4.2.1)."""
    fields = [pair for pair in headers if pair[0] not in (b"host", b"cookie")]
    cookies = [value for name, value in headers if name == b"cookie"]
    if cookies:
        fields.append((b"cookie", b"; ".join(cookies)))
    return [(b"host", authority.encode()), *fields]

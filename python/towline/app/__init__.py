"""`ServerApp`: a server with routes, middleware and hooks.

    app = ServerApp()
    app.use(log_sessions())

    @app.route("/rooms/{room}")
    async def chat(session, request):
        print(request.params["room"])

    app.run("localhost", 4433, certificate=certificate)

A request for a session goes through the middleware, the outermost first, and to the route of its
path. Only there is the session accepted: middleware that raises `Refused` before refuses it with a
status of HTTP, and the client has no session. Paths without a route are refused with 404.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar, Unpack

from .._request import Refused, SessionRequest
from .._server import ServeOptions, Server, serve_requests
from .._session import Session
from ._middleware import (
    Authenticator,
    Middleware,
    Next,
    RateLimit,
    Request,
    allow_origins,
    authenticate,
    log_sessions,
)
from ._routing import Router

__all__ = [
    "Authenticator",
    "Handler",
    "Middleware",
    "Next",
    "RateLimit",
    "Refused",
    "Request",
    "Router",
    "ServerApp",
    "allow_origins",
    "authenticate",
    "log_sessions",
]

Handler = Callable[[Session, Request], Awaitable[object]]
"""What serves the sessions of a route. It is cancelled when its session ends."""

Hook = Callable[[], Awaitable[object] | None]

_HandlerT = TypeVar("_HandlerT", bound=Handler)
_MiddlewareT = TypeVar("_MiddlewareT", bound=Middleware)
_HookT = TypeVar("_HookT", bound=Hook)

_NOT_FOUND = 404
_TIMED_OUT = 504


class ServerApp:
    """Routes, middleware and hooks, and the server that has them.

    `admission_timeout` is how long middleware may take before the session is accepted, seconds:
    after it the request is refused with 504. `pending` is how many requests may be on their way
    through the middleware at once; further ones are refused with 503.
    """

    def __init__(self, *, admission_timeout: float = 10.0, pending: int = 256) -> None:
        if not admission_timeout > 0:
            raise ValueError(f"argument 'admission_timeout': above 0, not {admission_timeout!r}")
        self._routes: Router[Handler] = Router()
        self._default: Handler | None = None
        self._middleware: list[Middleware] = []
        self._startup: list[Hook] = []
        self._shutdown: list[Hook] = []
        self._admission_timeout = admission_timeout
        self._pending = pending

    def route(self, pattern: str) -> Callable[[_HandlerT], _HandlerT]:
        """Has the function below serve the sessions for `pattern`: see `add_route`."""

        def add(handler: _HandlerT) -> _HandlerT:
            self.add_route(pattern, handler)
            return handler

        return add

    def add_route(self, pattern: str, handler: Handler) -> None:
        """Has `handler(session, request)` serve the sessions for `pattern`.

        A pattern is a path whose segments are literal or parameters: `/rooms/{room}` has one
        segment there, `{n:int}`, `{x:float}` and `{id:uuid}` those that read as such, and
        `{rest:path}`, only at the end, all that is left. Their values stand in `request.params`. A
        path without parameters goes before patterns, and patterns are tried in the order in which
        they were added. Raises `ValueError` for a pattern that makes no sense, or is taken.
        """
        if not callable(handler):
            kind = type(handler).__name__
            raise TypeError(f"argument 'handler': a function is required, not '{kind}'")
        self._routes.add(pattern, handler)

    def default(self, handler: _HandlerT) -> _HandlerT:
        """Has the function below serve the sessions whose path has no route, instead of a
        refusal."""
        if self._default is not None:
            raise ValueError("the app has a default handler")
        self._default = handler
        return handler

    def use(self, middleware: _MiddlewareT) -> _MiddlewareT:
        """Puts `middleware(request, call_next)` around the sessions, inside of that added before.

        `await call_next()` is the rest: further middleware, the acceptance, the handler. It returns
        when the session is over, so what stands before it decides whether there is a session.
        """
        if not callable(middleware):
            kind = type(middleware).__name__
            raise TypeError(f"argument 'middleware': a function is required, not '{kind}'")
        self._middleware.append(middleware)
        return middleware

    def on_startup(self, hook: _HookT) -> _HookT:
        """Has the function below called before the server listens. Where it raises, nothing
        starts."""
        self._startup.append(hook)
        return hook

    def on_shutdown(self, hook: _HookT) -> _HookT:
        """Has the function below called after the server is closed, the latest added first. One
        that raises does not keep the others from being called."""
        self._shutdown.append(hook)
        return hook

    @contextlib.asynccontextmanager
    async def serve(
        self,
        host: str | None = "localhost",
        port: int = 0,
        **options: Unpack[ServeOptions],
    ) -> AsyncIterator[Server]:
        """`async with app.serve(…) as server`: the arguments are those of `towline.serve`."""
        server = self.server(host, port, **options)
        async with self.hooks(), server:
            yield server

    def server(
        self,
        host: str | None = "localhost",
        port: int = 0,
        **options: Unpack[ServeOptions],
    ) -> Server:
        """The server of the app, without its hooks: as `towline.serve` gives it."""
        return serve_requests(self.handle, host, port, pending=self._pending, **options)

    @contextlib.asynccontextmanager
    async def hooks(self) -> AsyncIterator[None]:
        """The hooks around what runs inside, for those who serve the app in another way."""
        async with contextlib.AsyncExitStack() as stack:
            for hook in self._shutdown:
                stack.push_async_callback(_call_hook, hook)
            for hook in self._startup:
                await _call_hook(hook)
            yield

    def run(
        self,
        host: str | None = "localhost",
        port: int = 4433,
        *,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
        **options: Unpack[ServeOptions],
    ) -> None:
        """Serves until SIGTERM or Ctrl-C comes, on a loop of its own: `uvloop.new_event_loop` may
        make it."""

        async def main() -> None:
            async with self.serve(host, port, **options) as server:
                await server.serve_forever()

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            with contextlib.suppress(KeyboardInterrupt):
                runner.run(main())

    async def handle(self, wish: SessionRequest) -> None:
        """The whole life of a session, as `towline.serve_requests` has it."""
        found = self._routes.find(wish.path.partition("?")[0])
        handler, params = (self._default, {}) if found is None else found
        request = Request(wish, params)
        admission = asyncio.timeout(self._admission_timeout)
        try:
            async with admission:
                await self._call(0, request, handler, admission)
        except TimeoutError:
            if not admission.expired():
                raise
            raise Refused(_TIMED_OUT, "middleware took too long") from None

    async def _call(
        self,
        index: int,
        request: Request,
        handler: Handler | None,
        admission: asyncio.Timeout,
    ) -> None:
        if index < len(self._middleware):
            called = False

            async def call_next() -> None:
                nonlocal called
                if called:
                    raise RuntimeError("`call_next` is called once")
                called = True
                await self._call(index + 1, request, handler, admission)

            await self._middleware[index](request, call_next)
            return
        if handler is None:
            raise Refused(_NOT_FOUND, "no route has this path")
        if admission.expired():
            raise Refused(_TIMED_OUT, "middleware took too long")
        session = request._wish.accept(request.protocol)
        admission.reschedule(None)
        await handler(session, request)


async def _call_hook(hook: Hook) -> None:
    result = hook()
    if inspect.isawaitable(result):
        await result

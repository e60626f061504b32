"""HTTP/3: `get` and `request` for clients, and what servers hand to the handler `http` of
`towline.serve`.

    response = await towline.http.get("https://boat.example/log")
    print(response.status, await response.read())

Connections are kept for the next request to the same host that believes it in the same way. They end
when nobody has used them for the idle timeout, by `aclose`, or with `asyncio.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Coroutine, Generator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urldefrag

from . import _native
from ._arguments import text
from ._certificates import Certificate
from ._client import client_config, target_of
from ._core import Core
from ._errors import IdleTimeout, SessionClosed, StreamError, StreamStopped
from ._http import (
    BodyWriter,
    Headers,
    Request,
    Response,
    length_of,
    raise_failure,
    raw_headers,
)
from ._pool import client_pool, current_pool
from ._transport import TransportConfig

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["BodyWriter", "Headers", "Request", "Requesting", "Response", "aclose", "get", "request"]

_FIRST_FINAL_STATUS = 200
_IDEMPOTENT = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE")


class Requesting:
    """An answer to come: `await` it, or `async with` it, which gives up what was not read of it."""

    __slots__ = ("_body", "_config", "_fields", "_host", "_method", "_port", "_response", "_url")

    def __init__(
        self,
        method: str,
        url: str,
        body: ReadableBuffer | AsyncIterable[ReadableBuffer] | None,
        headers: Headers | None,
        config: _native.ClientConfig,
    ) -> None:
        if not isinstance(method, str):
            kind = type(method).__name__
            raise TypeError(f"argument 'method': a str is required, not '{kind}'")
        self._url = urldefrag(text("url", url)).url
        target = target_of(self._url)
        self._host, self._port = target.host, target.port
        self._method = method
        self._body = body
        self._fields = raw_headers(headers)
        self._config = config
        self._response: Response | None = None
        if body is not None and not isinstance(body, AsyncIterable):
            length = str(length_of(body)).encode()
            if not any(name.lower() == b"content-length" for name, _ in self._fields):
                self._fields.append((b"content-length", length))

    def __await__(self) -> Generator[object, None, Response]:
        return self._open().__await__()

    async def __aenter__(self) -> Response:
        self._response = await self._open()
        return self._response

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.__aexit__(kind, error, traceback)

    async def _open(self) -> Response:
        while True:
            core, is_old, (sender, native) = await self._begin()
            try:
                return await self._answer(core, sender, native)
            except IdleTimeout:
                raise
            except SessionClosed:
                # The server had closed the connection before it could know of the request.
                if not is_old or not self._may_repeat:
                    raise

    async def _answer(
        self, core: Core, sender: _native.BodySender, native: _native.HttpResponse
    ) -> Response:
        sending = self._send(BodyWriter(core, sender))
        try:
            while True:
                status, headers = await core.driver.take(native.token, native.poll_head)
                if status >= _FIRST_FINAL_STATUS:
                    break
            recv = native.body()
        except BaseException as error:
            native.release()
            if sending is not None and not sending.done():
                sending.cancel()
            if not core.driver.loop.is_closed():
                core.driver.nudge()
            if not isinstance(error, (StreamError, SessionClosed)):
                raise
            raise_failure(sending)
            raise core.explain(error) from None
        return Response(core, recv, self._url, status, headers, sending)

    @property
    def _may_repeat(self) -> bool:
        """Whether it does no harm twice (RFC 9110 §9.2.2)."""
        return self._method in _IDEMPOTENT and not isinstance(self._body, AsyncIterable)

    async def _begin(
        self,
    ) -> tuple[Core, bool, tuple[_native.BodySender, _native.HttpResponse]]:
        """Sends the head, and says whether the connection is an old one. One that the server gave up
        meanwhile is replaced."""
        pool = client_pool()
        key = (self._host, self._port, self._config)
        while True:
            kept, is_old = await pool.connection(key)
            core = kept.core
            assert core is not None
            operation = core.engine.request(core.native, self._method, self._url, self._fields)
            try:
                return core, is_old, await core.driver.run(operation)
            except SessionClosed as error:
                # Nothing was sent.
                pool.forget(key, kept)
                if not is_old:
                    raise core.explain(error) from None

    def _send(self, writer: BodyWriter) -> asyncio.Task[None] | None:
        """Sends the body; in a task, if it does not leave at once."""
        body = self._body
        if isinstance(body, AsyncIterable):
            return _task(writer, _send_all(writer, body))
        try:
            if body is None or writer._sender.write(body):
                writer._sender.finish()
                writer._core.driver.nudge()
                return None
        except (StreamError, SessionClosed):
            # The server's answer says why it wants no more.
            return None
        return _task(writer, _send_rest(writer))


def request(
    method: str,
    url: str,
    *,
    body: ReadableBuffer | AsyncIterable[ReadableBuffer] | None = None,
    headers: Headers | None = None,
    pins: Iterable[str | bytes | Certificate] = (),
    roots: bytes | None = None,
    config: TransportConfig | None = None,
) -> Requesting:
    """Sends a request to `https://host:port/path` and gives the answer, once its head has come.

    `body` is bytes, or an asynchronous iterable of them, which is sent while the answer is read.
    The server is believed as by `towline.connect`. Redirects are not followed.

    Raises `ConnectFailed` and its kinds when there is no connection, `StreamReset` when the server
    gives the request up, `SessionClosed` when the connection is over, and what the iterable raises. A
    request that does no harm twice is sent again where a kept connection turns out to be closed.
    `asyncio.timeout` bounds the whole.
    """
    return Requesting(method, url, body, headers, client_config(pins, roots, config))


def get(
    url: str,
    *,
    headers: Headers | None = None,
    pins: Iterable[str | bytes | Certificate] = (),
    roots: bytes | None = None,
    config: TransportConfig | None = None,
) -> Requesting:
    """As `request` with the method `GET`."""
    return request("GET", url, headers=headers, pins=pins, roots=roots, config=config)


async def aclose() -> None:
    """Closes the connections that the running loop keeps; answers that are not read break off."""
    pool = current_pool()
    if pool is not None:
        await pool.aclose()


def _task(writer: BodyWriter, sending: Coroutine[object, object, None]) -> asyncio.Task[None]:
    task = writer._core.driver.loop.create_task(sending, name="towline: body of a request")
    # Whoever reads the answer is told of a failure; who does not, has no use for it.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def _send_rest(writer: BodyWriter) -> None:
    try:
        async with writer:
            pass
    except (StreamStopped, SessionClosed):
        pass


async def _send_all(writer: BodyWriter, body: AsyncIterable[ReadableBuffer]) -> None:
    try:
        async with writer:
            async for chunk in body:
                await writer.write(chunk)
    except (StreamStopped, SessionClosed):
        # The server's answer says why it wants no more.
        pass

"""What the fixtures of the pytest plugin are made of. `towline_pytest`, which pytest loads, has the
fixtures, and imports this when a test uses one: a run of pytest without them is not held up."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from .._certificates import Certificate
from .._server import Server, serve
from .._session import Session
from ._world import World, simulation

__all__ = ["ServerThreads", "ThreadedServer", "seed_of", "world_of"]

# How long the start and the end of a server are waited for, seconds.
_LIMIT = 30.0


def seed_of(name: str) -> int:
    """The seed of the test with this name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def world_of(arguments: tuple[object, ...], options: dict[str, Any]) -> World:
    """A world as the marker of a test says."""
    if arguments:
        words = "the marker 'towline' takes arguments by name, as towline.testing.simulation"
        raise TypeError(words)
    return simulation(**options)


class ThreadedServer:
    """A server on localhost, in a thread of its own. The fixture `towline_server` gives them."""

    def __init__(
        self,
        handler: Callable[[Session], Awaitable[object]],
        certificate: Certificate,
        **options: Any,
    ) -> None:
        self.certificate: Certificate = certificate
        """What it shows: `pins=[server.certificate]` believes it."""
        self.url: str = ""
        """Where it is, with the path `/`."""
        self.port: int = 0
        """Its port."""
        self._server = serve(handler, certificate=certificate, **{"host": "localhost", **options})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="towline_server", daemon=True)
        self._thread.start()
        if not self._running.wait(_LIMIT):
            raise TimeoutError(f"the server did not start within {_LIMIT:.0f} s")
        if self._failure is not None:
            self._thread.join(_LIMIT)
            raise self._failure

    def __repr__(self) -> str:
        return f"<ThreadedServer {self.url}>"

    def close(self) -> None:
        """Closes its sessions, cancels their handlers, and ends the thread."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_LIMIT)
            if self._thread.is_alive():
                raise TimeoutError("a handler did not end when the server closed")
            if self._failure is not None:
                raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve(self._server))
        except BaseException as error:
            self._failure = error
        finally:
            self._running.set()

    async def _serve(self, server: Server) -> None:
        async with server:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            self.url, self.port = server.url, server.port
            self._running.set()
            await self._stop.wait()


class ServerThreads:
    """Starts servers for a test. Call it with a handler and the options of `towline.serve`."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self._servers: list[ThreadedServer] = []

    def __call__(
        self, handler: Callable[[Session], Awaitable[object]], **options: Any
    ) -> ThreadedServer:
        """A server with this handler, which runs until the test is over."""
        options = {"certificate": self._certificate, **options}
        server = ThreadedServer(handler, **options)
        self._servers.append(server)
        return server

    def close(self) -> None:
        """Closes all of them."""
        for server in self._servers:
            server.close()

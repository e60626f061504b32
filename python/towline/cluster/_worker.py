"""A process of a cluster: it takes the sockets of its place from its parent, and serves there.

The parent starts it, and says by a socket what to serve. When that socket ends, the parent is gone,
and the worker drains as it does after SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from .. import _native
from .._certificates import Certificate
from .._server import Server, serve
from ..app import ServerApp

__all__ = ["load", "main"]

# How often the parent is told the counts, seconds.
_REPORT_EVERY = 1.0
# The longest reason of a failure that the parent is told, letters.
_MOST_WORDS = 4096


def load(target: str) -> Any:
    """What `module:name` or `file.py:name` is. Raises `ValueError` where there is no such thing."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise ValueError(f"'{target}' is none of the form module:name or file.py:name")
    try:
        if place.endswith(".py"):
            path = Path(place)
            spec = importlib.util.spec_from_file_location("__towline_main__", path)
            if spec is None or spec.loader is None or not path.is_file():
                raise ValueError(f"there is no file '{place}'")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            sys.path.insert(0, str(path.resolve().parent))
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except ImportError as error:
        raise ValueError(f"'{place}' cannot be imported: {error}") from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"'{place}' has no '{name}'")
        found = getattr(found, part)
    return found


def main(control: int) -> None:
    """Serves, until SIGTERM comes or the parent is gone."""
    # Ctrl-C reaches the whole group of processes: the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=control)
    config = _first_line(channel)
    sys.path[:] = config["path"]
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] | None = None
        if config["loop"] is not None:
            factory = load(config["loop"])
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_serve(channel, config))
    except Exception as error:
        # The parent reads lines of bounded length.
        _say(channel, {"failed": f"{type(error).__name__}: {error}"[:_MOST_WORDS]})
        raise
    finally:
        channel.close()


async def _serve(channel: socket.socket, config: dict[str, Any]) -> None:
    target = load(config["target"])
    async with _server_of(target, config) as server:
        _say(channel, {"ready": os.getpid()})
        loop = asyncio.get_running_loop()
        channel.setblocking(False)
        parent = loop.create_task(_until_parent_is_gone(channel))
        reporting = loop.create_task(_report(channel, server))
        try:
            await server.serve_forever()
        finally:
            parent.cancel()
            reporting.cancel()
            await asyncio.gather(parent, reporting, return_exceptions=True)


@contextlib.asynccontextmanager
async def _server_of(target: Any, config: dict[str, Any]) -> AsyncIterator[Server]:
    certificate = Certificate.from_pem(config["chain"].encode(), config["key"].encode())
    options: dict[str, Any] = {
        "certificate": certificate,
        "origins": config["origins"],
        "protocols": config["protocols"],
        "grace": config["grace"],
    }
    if isinstance(target, ServerApp):
        server = target.server(config["host"], config["port"], **options)
        hooks: contextlib.AbstractAsyncContextManager[None] = target.hooks()
    elif callable(target):
        handler: Any = target
        server = serve(handler, config["host"], config["port"], **options)
        hooks = contextlib.nullcontext()
    else:
        kind = type(target).__name__
        raise TypeError(f"'{config['target']}' is a '{kind}', neither a ServerApp nor a handler")
    index, count, secret = config["index"], config["count"], bytes.fromhex(config["secret"])

    def adopt(native: _native.Certificate) -> list[_native.Driver]:
        sockets = config["sockets"]
        return [_native.Driver.adopt(fd, native, index, count, secret) for fd in sockets]

    server._adopt = adopt
    async with hooks, server:
        for fd in config["sockets"]:
            # The endpoint has a descriptor of its own.
            os.close(fd)
        yield server


async def _until_parent_is_gone(channel: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while await asyncio.get_running_loop().sock_recv(channel, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


async def _report(channel: socket.socket, server: Server) -> None:
    while True:
        await asyncio.sleep(_REPORT_EVERY)
        engines = [driver.engine for driver in server._drivers]
        report = {
            "sessions": len(server.sessions),
            "connections": sum(engine.connection_count for engine in engines),
            "misdirected": sum(engine.misdirected_count for engine in engines),
        }
        _say(channel, report)


def _say(channel: socket.socket, message: dict[str, Any]) -> None:
    # A parent that does not listen misses a report, and nothing waits for it.
    with contextlib.suppress(OSError):
        channel.send(json.dumps(message).encode() + b"\n")


def _first_line(channel: socket.socket) -> dict[str, Any]:
    data = b""
    while not data.endswith(b"\n"):
        more = channel.recv(65536)
        if not more:
            sys.exit("the parent is gone")
        data += more
    config: dict[str, Any] = json.loads(data)
    return config

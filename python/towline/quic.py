"""QUIC for protocols of your own: `connect` and `serve`, with the streams and datagrams that sessions
have.

    async with towline.quic.connect("localhost", 4433, alpn=["echo"], pins=[pin]) as connection:
        async with await connection.create_bidirectional_stream() as stream:
            await stream.write(b"ahoy")

Codes of streams and connections have 62 bits here; those of sessions have 32.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from types import TracebackType

from . import _native
from ._certificates import Certificate
from ._client import addresses_of, client_config
from ._core import Core
from ._driver import Driver, client_driver, new_engine
from ._serving import Handler, Serving, checked_handler
from ._session import Peer
from ._stats import ConnectionStats
from ._transport import TransportConfig

__all__ = ["Connecting", "Connection", "ConnectionStats", "Server", "connect", "serve"]

_MAX_CODE = 2**62 - 1
_MAX_PORT = 2**16 - 1
# The longest name of a protocol, bytes (RFC 7301 §3.1).
_MAX_ALPN = 255
_HTTP3 = b"h3"


class Connection(Peer):
    """A QUIC connection.

    `connect` gives them to clients, `serve` to handlers. It belongs to the event loop that it was made
    on. Dropped, it is closed.
    """

    __slots__ = ("alpn", "server_name")

    _max_reason = 512

    def __init__(self, driver: Driver, native: _native.Session) -> None:
        super().__init__(Core(driver, native, _MAX_CODE))
        self.alpn: str = native.protocol or ""
        """The protocol that both ends agreed on."""
        self.server_name: str | None = native.server_name
        """The host name that the client asked for, at a server."""

    def __repr__(self) -> str:
        host, port = self.remote_address
        state = "closed" if self.closed else "open"
        return f"<Connection {self.alpn} {host}:{port} {state}>"


class Connecting:
    """A connection to come: `async with` it, or `await` it and close the connection yourself."""

    __slots__ = ("_config", "_connection", "_host", "_port", "_server_name")

    def __init__(
        self, host: str, port: int, server_name: str, config: _native.ClientConfig
    ) -> None:
        self._host = host
        self._port = port
        self._server_name = server_name
        self._config = config
        self._connection: Connection | None = None

    def __await__(self) -> Generator[object, None, Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> Connection:
        self._connection = await self._open()
        return self._connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection._leave(kind, "the client failed")

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        addresses = await addresses_of(loop, self._host, self._port)
        driver = client_driver()
        operation = driver.engine.reach(addresses, self._server_name, self._config, False)
        return Connection(driver, await driver.run(operation))


class Server(Serving[Connection]):
    """A server of connections: `async with` it, or `await` it and close it yourself. `port` is known
    once it runs."""

    __slots__ = ("_alpn",)

    def __init__(
        self,
        handler: Handler[Connection],
        host: str | None,
        port: int,
        certificate: Certificate,
        alpn: tuple[bytes, ...],
        grace: float,
        config: TransportConfig | None,
    ) -> None:
        super().__init__(handler, host, port, certificate, grace, config)
        self._alpn = alpn

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections whose handlers run."""
        return tuple(self._peers.values())

    def _engine(self, host: str, port: int) -> _native.Driver:
        certificate = self._certificate._native
        return new_engine(host, port, certificate, list(self._alpn), self._config)

    def _answer(self, driver: Driver, arrived: object) -> None:
        assert isinstance(arrived, _native.Session)
        if self._draining or self._closing:
            arrived.close(0, "the server goes away")
            arrived.release()
        else:
            self._begin(Connection(driver, arrived))


def connect(
    host: str,
    port: int,
    *,
    alpn: Iterable[str | bytes],
    pins: Iterable[str | bytes | Certificate] = (),
    roots: bytes | None = None,
    server_name: str | None = None,
    config: TransportConfig | None = None,
) -> Connecting:
    """Connects to a server that speaks one of the protocols `alpn`, the favourite first.

    The server is believed as by `towline.connect`; `server_name` is who it must prove to be, if that is
    not `host`. HTTP/3 (`h3`) is spoken by `towline.http` and `towline.connect`.

    `async with connect(…) as connection` closes the connection at its end: what was written is
    delivered before. After an exception it is closed with code `towline.FAILED`.

    Raises `HandshakeRefused` when one end refuses the other, `ConnectTimeout` when nobody answers, and
    `ConnectFailed` when the host cannot be reached. `asyncio.timeout` bounds the whole.
    """
    if not isinstance(host, str):
        raise TypeError(f"argument 'host': a str is required, not '{type(host).__name__}'")
    if not isinstance(port, int):
        raise TypeError(f"argument 'port': an int is required, not '{type(port).__name__}'")
    if not 0 < port <= _MAX_PORT:
        raise ValueError(f"argument 'port': 1 to {_MAX_PORT}, not {port}")
    names = _names(alpn)
    if _HTTP3 in names:
        words = "argument 'alpn': 'h3' is spoken by towline.http and towline.connect"
        raise ValueError(words)
    settings = client_config(pins, roots, config, names)
    return Connecting(host, port, host if server_name is None else server_name, settings)


def serve(
    handler: Handler[Connection],
    host: str | None = "localhost",
    port: int = 0,
    *,
    certificate: Certificate,
    alpn: Iterable[str | bytes],
    grace: float = 10.0,
    config: TransportConfig | None = None,
) -> Server:
    """Serves the protocols `alpn`, the favourite first: `handler` is called with each connection, in a
    task.

    `host`, `port`, `grace` and `config` are as those of `towline.serve`. A handler is cancelled when
    its connection ends, and when it returns, its connection is closed with code 0, after what was
    written has arrived. One that raises has its connection closed with code `towline.FAILED`, and is
    logged.
    """
    checked_handler("handler", handler)
    return Server(handler, host, port, certificate, _names(alpn), grace, config)


def _names(alpn: Iterable[str | bytes]) -> tuple[bytes, ...]:
    if isinstance(alpn, (str, bytes)):
        raise TypeError("argument 'alpn': a list is required, not a single value")
    names = []
    for name in alpn:
        if not isinstance(name, (str, bytes)):
            kind = type(name).__name__
            raise TypeError(f"argument 'alpn': each must be a str or bytes, not '{kind}'")
        encoded = name.encode() if isinstance(name, str) else name
        if not 0 < len(encoded) <= _MAX_ALPN:
            words = f"argument 'alpn': names have 1 to {_MAX_ALPN} bytes, {name!r} has not"
            raise ValueError(words)
        names.append(encoded)
    if not names:
        raise ValueError("argument 'alpn': at least one protocol is required")
    return tuple(names)

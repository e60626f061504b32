"""`connect`: how a client comes to a session."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Generator, Iterable, Mapping
from types import TracebackType
from urllib.parse import urlsplit

from . import _native
from ._certificates import Certificate, pin_text
from ._driver import client_driver
from ._errors import ConnectFailed
from ._session import Session
from ._transport import TransportConfig, checked_config

__all__ = ["Connecting", "addresses_of", "client_config", "connect", "host_and_port", "texts"]

# Configurations that are kept: each remembers its servers, for shorter handshakes.
_KEPT_CONFIGS = 16


class Connecting:
    """A session to come: `async with` it, or `await` it and close the session yourself."""

    __slots__ = ("_config", "_headers", "_host", "_port", "_protocols", "_session", "_url")

    def __init__(
        self,
        url: str,
        pins: Iterable[str | bytes | Certificate],
        roots: bytes | None,
        protocols: Iterable[str],
        headers: Mapping[str, str] | None,
        config: TransportConfig | None,
    ) -> None:
        self._host, self._port = host_and_port(url)
        self._url = url
        self._protocols = texts("protocols", protocols)
        self._headers = [(str(name), str(value)) for name, value in (headers or {}).items()]
        self._config = client_config(pins, roots, config)
        self._session: Session | None = None

    def __await__(self) -> Generator[object, None, Session]:
        return self._open().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._open()
        return self._session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session._leave(kind, "the client failed")

    async def _open(self) -> Session:
        loop = asyncio.get_running_loop()
        addresses = await addresses_of(loop, self._host, self._port)
        driver = client_driver()
        operation = driver.engine.connect(
            addresses, self._url, self._headers, self._protocols, self._config
        )
        native = await driver.run(operation)
        parts = urlsplit(self._url)
        return Session(
            driver,
            native,
            authority=parts.netloc,
            path=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
            origin=None,
            headers=native.headers,
        )


def connect(
    url: str,
    *,
    pins: Iterable[str | bytes | Certificate] = (),
    roots: bytes | None = None,
    protocols: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    config: TransportConfig | None = None,
) -> Connecting:
    """Connects to `https://host:port/path` and asks for a session.

    The server is believed when its certificate, or its key, has the SHA-256 hash of one of `pins` (64
    hexadecimal digits, 32 bytes, or a `Certificate`); without pins, when it has a certificate for the
    host by one of `roots`, in PEM, or of the system's roots. `protocols` are the application's, the
    favourite first. Of several addresses the first that answers is taken (RFC 8305). `config` says how
    the connection below behaves.

    `async with connect(…) as session` closes the session at its end: what was written is delivered
    before. After an exception the session is closed with code `towline.FAILED`.

    Raises `HandshakeRefused` when one end refuses the other, `ConnectTimeout` when nobody answers, and
    `ConnectFailed` when the host cannot be reached. `asyncio.timeout` bounds the whole.
    """
    return Connecting(url, pins, roots, protocols, headers, config)


async def addresses_of(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> list[tuple[str, int]]:
    """Where a host is."""
    try:
        return [(str(ipaddress.ip_address(host)), port)]
    except ValueError:
        pass
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        words = f"{host} was not found: {error.strerror}; check the name and the network"
        raise ConnectFailed(words) from error
    addresses = [(str(address[0]).partition("%")[0], port) for *_, address in found]
    return list(dict.fromkeys(addresses))


def host_and_port(url: str) -> tuple[str, int]:
    """The host and the port of a URL."""
    if not isinstance(url, str):
        raise TypeError(f"argument 'url': a str is required, not '{type(url).__name__}'")
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"argument 'url': '{url}' is none of the form https://host:port/path")
    return parts.hostname, parts.port or 443


def texts(argument: str, values: Iterable[str]) -> list[str]:
    """An argument that is a list of texts."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"argument '{argument}': a list is required, not a single value")
    listed = list(values)
    for text in listed:
        if not isinstance(text, str):
            kind = type(text).__name__
            raise TypeError(f"argument '{argument}': each must be a str, not '{kind}'")
    return listed


def _pins(pins: Iterable[str | bytes | Certificate]) -> list[str]:
    if isinstance(pins, (str, bytes, Certificate)):
        raise TypeError("argument 'pins': a list is required, not a single value")
    return [pin_text(pin) for pin in pins]


def client_config(
    pins: Iterable[str | bytes | Certificate],
    roots: bytes | None,
    config: TransportConfig | None,
    alpn: tuple[bytes, ...] | None = None,
) -> _native.ClientConfig:
    """Whom a client believes, and how it connects; the same object for the same arguments."""
    return _kept_config(tuple(_pins(pins)), roots, checked_config(config, alpn is None), alpn)


@functools.lru_cache(_KEPT_CONFIGS)
def _kept_config(
    pins: tuple[str, ...],
    roots: bytes | None,
    config: TransportConfig | None,
    alpn: tuple[bytes, ...] | None,
) -> _native.ClientConfig:
    return _native.ClientConfig(
        list(pins), roots, None if alpn is None else list(alpn), config
    )

"""`connect`: how a client comes to a session."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Generator, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

from . import _native
from ._arguments import checked_names, fields, octets, text
from ._certificates import Certificate, pin_text
from ._driver import client_driver
from ._errors import ConnectFailed
from ._session import Session
from ._transport import TransportConfig, checked_config

__all__ = ["Connecting", "addresses_of", "client_config", "connect", "target_of"]

# Configurations that are kept: each remembers its servers, for shorter handshakes.
_KEPT_CONFIGS = 16
# URLs and hosts of which is kept what was found out about them.
_KEPT_NAMES = 64


class Connecting:
    """A session to come: `async with` it, or `await` it and close the session yourself."""

    __slots__ = ("_config", "_headers", "_protocols", "_session", "_target", "_url")

    def __init__(
        self,
        url: str,
        pins: Iterable[str | bytes | Certificate],
        roots: bytes | None,
        protocols: Iterable[str],
        headers: Mapping[str, str] | None,
        config: TransportConfig | None,
    ) -> None:
        self._target = target_of(text("url", url))
        self._url = url
        self._protocols = checked_names("protocols", protocols)
        self._headers = fields("headers", headers)
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
        target = self._target
        addresses = await addresses_of(loop, target.host, target.port)
        driver = client_driver()
        operation = driver.engine.connect(
            addresses, self._url, self._headers, self._protocols, self._config
        )
        native = await driver.run(operation)
        return Session(
            driver,
            native,
            authority=target.authority,
            path=target.path,
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

    ```python
    async with towline.connect(url, pins=[pin], protocols=["chat.v2"]) as session:
        print(session.protocol)  # chat.v2
    ```

    Raises `HandshakeRefused` when one end refuses the other, `ConnectTimeout` when nobody answers, and
    `ConnectFailed` when the host cannot be reached. `asyncio.timeout` bounds the whole.
    """
    return Connecting(url, pins, roots, protocols, headers, config)


async def addresses_of(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> list[tuple[str, int]]:
    """Where a host is."""
    address = _literal(host)
    if address is not None:
        return [(address, port)]
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, socket.gaierror) else "it is no name"
        words = f"{host} was not found: {why}; check the name and the network"
        raise ConnectFailed(words) from error
    addresses = [(str(address[0]).partition("%")[0], port) for *_, address in found]
    return list(dict.fromkeys(addresses))


@functools.lru_cache(_KEPT_NAMES)
def _literal(host: str) -> str | None:
    """The address, if that is what the host is."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


class Target(NamedTuple):
    """What a URL names."""

    host: str
    port: int
    authority: str
    path: str


@functools.lru_cache(_KEPT_NAMES)
def target_of(url: str) -> Target:
    """What an `https` URL names."""
    form = "is none of the form https://host:port/path"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"argument 'url': {url!r} {form}: {error}") from None
    if not url.isascii() or not url.isprintable() or " " in url:
        words = "has characters that a URL has not: `urllib.parse.quote` writes them with %"
        raise ValueError(f"argument 'url': {url!r} {words}")
    if parts.scheme != "https" or not parts.hostname or port == 0:
        raise ValueError(f"argument 'url': '{url}' {form}")
    if "@" in parts.netloc or "#" in url:
        raise ValueError(f"argument 'url': '{url}' names a user, or a fragment")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.hostname, 443 if port is None else port, parts.netloc, path)


def _pins(pins: Iterable[str | bytes | Certificate]) -> list[str]:
    if isinstance(pins, (str, bytes, Certificate)):
        raise TypeError("argument 'pins': a list is required, not a single value")
    if not isinstance(pins, Iterable):
        raise TypeError(f"argument 'pins': a list is required, not '{type(pins).__name__}'")
    return [pin_text(pin) for pin in pins]


def client_config(
    pins: Iterable[str | bytes | Certificate],
    roots: bytes | None,
    config: TransportConfig | None,
    alpn: tuple[bytes, ...] | None = None,
) -> _native.ClientConfig:
    """Whom a client believes, and how it connects; the same object for the same arguments."""
    trusted = None if roots is None else octets("roots", roots)
    return _kept_config(tuple(_pins(pins)), trusted, checked_config(config, alpn is None), alpn)


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

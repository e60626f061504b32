"""What stands between a request and its handler: who may come, from where, how often, and the
log."""

from __future__ import annotations

import inspect
import ipaddress
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .._request import Refused, SessionRequest
from .._session import Session

__all__ = [
    "Authenticator",
    "Middleware",
    "Next",
    "RateLimit",
    "Request",
    "allow_origins",
    "authenticate",
    "log_sessions",
]

_UNAUTHORIZED = 401
_FORBIDDEN = 403
_TOO_MANY = 429

# The longest token that is given to an application's check.
_MAX_TOKEN = 8192
# Of a query, the most fields that are read.
_MAX_QUERY_FIELDS = 100
# The part of an IPv6 address that one customer has.
_NETWORK_BITS = 64

logger = logging.getLogger("towline.app")


class Request:
    """A client's wish for a session, as middleware and handlers see it."""

    __slots__ = ("_query", "_wish", "params", "protocol", "state")

    def __init__(self, wish: SessionRequest, params: dict[str, Any]) -> None:
        self._wish = wish
        self._query: dict[str, str] | None = None
        self.params: dict[str, Any] = params
        """The values of the route's parameters."""
        self.state: dict[str, Any] = {}
        """What middleware found out, for whoever comes after it: `authenticate` puts "user"
        here."""
        self.protocol: str | None = None
        """The application protocol to choose, instead of the server's favourite of those
        offered."""

    def __repr__(self) -> str:
        return f"<Request {self.authority}{self.path!r}>"

    @property
    def path(self) -> str:
        """The path as the client wrote it, without its query."""
        return self._wish.path.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        """The fields of the query, the last of each name."""
        if self._query is None:
            text = self._wish.path.partition("?")[2]
            try:
                fields = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
            except ValueError:
                raise Refused(400, "the query has too many fields") from None
            self._query = dict(fields)
        return self._query

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The fields of the request, their names in lower case."""
        return self._wish.headers

    def header(self, name: str) -> str | None:
        """The first field of this name; `None` where there is none."""
        return self._wish.header(name)

    @property
    def authority(self) -> str:
        """The host, and perhaps the port, that the client asked."""
        return self._wish.authority

    @property
    def origin(self) -> str | None:
        """The page that asks, where a browser does; "" where its words are no text."""
        return self._wish.origin

    @property
    def protocols(self) -> list[str]:
        """The application protocols that the client offers, its favourite first."""
        return self._wish.protocols

    @property
    def remote_address(self) -> tuple[str, int]:
        """Where the client is: address and port."""
        return self._wish.remote_address

    @property
    def session(self) -> Session | None:
        """The session, once it was accepted."""
        return self._wish.session


Next = Callable[[], Awaitable[None]]
"""The rest of the way: it returns when the session is over."""

Middleware = Callable[[Request, Next], Awaitable[None]]
"""What stands around sessions. It raises `Refused` where there is to be none."""

Check = Callable[[str], object]


class Authenticator:
    """See `authenticate`."""

    def __init__(self, check: Check, header: str | None, query: str | None, scheme: str) -> None:
        self._check = check
        self._header = header
        self._query = query
        self._scheme = scheme.lower()

    async def __call__(self, request: Request, call_next: Next) -> None:
        token = self._token(request)
        if token is None:
            raise Refused(_UNAUTHORIZED, "no token")
        if len(token) > _MAX_TOKEN:
            raise Refused(_UNAUTHORIZED, f"a token of {len(token)} characters")
        user = self._check(token)
        if inspect.isawaitable(user):
            user = await user
        if user is None or user is False:
            raise Refused(_FORBIDDEN, "the token was not accepted")
        request.state["user"] = user
        await call_next()

    def _token(self, request: Request) -> str | None:
        value = None if self._header is None else request.header(self._header)
        if value is not None:
            if not self._scheme:
                return value
            scheme, _, token = value.partition(" ")
            if scheme.lower() == self._scheme and token.strip():
                return token.strip()
        return None if self._query is None else request.query.get(self._query)


def authenticate(
    check: Check,
    *,
    header: str | None = "authorization",
    query: str | None = None,
    scheme: str = "Bearer",
) -> Authenticator:
    """Middleware that lets in whoever has a token that `check` knows.

    The token stands in the field `header`, behind the word `scheme` (if that is not empty), or in
    the query's field `query`: pages cannot set fields. `check(token)`, plain or `async`, returns
    who that is, which the handler finds as `request.state["user"]`; `None` or `False` refuses with
    403, and there being no token with 401. A check that raises refuses with 500.
    """
    if not callable(check):
        raise TypeError(f"argument 'check': a function is required, not '{type(check).__name__}'")
    if header is None and query is None:
        raise ValueError("argument 'header': either it or 'query' says where the token is")
    return Authenticator(check, header, query, scheme)


def allow_origins(origins: Iterable[str], *, without: bool = True) -> Middleware:
    """Middleware that lets in pages of these origins alone: others are refused with 403.

    `https://*.example.org` is all hosts below `example.org`. Clients that are no browsers name no
    origin; `without` says whether they may come.
    """
    if isinstance(origins, (str, bytes)):
        raise TypeError("argument 'origins': a list is required, not a single value")
    exact: set[str] = set()
    below: set[tuple[str, str, int | None]] = set()
    for origin in origins:
        parts = urlsplit(origin)
        if not parts.scheme or not parts.netloc or parts.path or parts.query:
            raise ValueError(f"argument 'origins': '{origin}' is none of the form https://host")
        if (parts.hostname or "").startswith("*."):
            below.add((parts.scheme, (parts.hostname or "")[1:], parts.port))
        else:
            exact.add(origin.lower())

    def allowed(origin: str) -> bool:
        if origin.lower() in exact:
            return True
        try:
            parts = urlsplit(origin)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        if f"{parts.scheme}://{parts.netloc}" != origin or "@" in parts.netloc:
            return False
        return any(
            parts.scheme == scheme and port == wanted and host.endswith(end)
            for scheme, end, wanted in below
        )

    async def check_origin(request: Request, call_next: Next) -> None:
        origin = request.origin
        if without if origin is None else allowed(origin):
            await call_next()
            return
        raise Refused(_FORBIDDEN, f"origin {origin!r}")

    return check_origin


class RateLimit:
    """Middleware by which each client address gets `rate` sessions a second, and `burst` at once.

    What is beyond is refused with 429 and counted. IPv6 addresses count by their network of 64
    bits. Of at most `addresses` addresses is anything remembered; beyond, the one that was not
    heard of for the longest time is forgotten. `clock` gives seconds.
    """

    def __init__(
        self,
        rate: float,
        burst: int = 10,
        *,
        addresses: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not rate > 0:
            raise ValueError(f"argument 'rate': above 0, not {rate!r}")
        if burst < 1:
            raise ValueError(f"argument 'burst': at least 1, not {burst!r}")
        if addresses < 1:
            raise ValueError(f"argument 'addresses': at least 1, not {addresses!r}")
        self._rate = rate
        self._burst = burst
        self._addresses = addresses
        self._clock = clock
        # When each bucket will be full again; those heard of last are at the end.
        self._full_at: OrderedDict[str, float] = OrderedDict()
        self.allowed: int = 0
        """Requests that were let through."""
        self.refused: int = 0
        """Requests that were refused."""
        self.forgotten: int = 0
        """Addresses that were forgotten while they owed something."""

    def __len__(self) -> int:
        """Addresses that are remembered."""
        return len(self._full_at)

    async def __call__(self, request: Request, call_next: Next) -> None:
        if not self.take(request.remote_address[0]):
            raise Refused(_TOO_MANY, f"too many requests of {request.remote_address[0]}")
        await call_next()

    def take(self, address: str) -> bool:
        """Whether there is one more for this address; it is taken then."""
        key = _network(address)
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now)
        after = full_at + 1 / self._rate
        # A clock far from 0 is coarse: the first of an address is within its burst whatever the sum says.
        if full_at > now and after - now > self._burst / self._rate + 1e-9 + 4 * math.ulp(now):
            self._full_at.move_to_end(key)
            self.refused += 1
            return False
        self._full_at[key] = after
        self._full_at.move_to_end(key)
        self._forget(now)
        self.allowed += 1
        return True

    def _forget(self, now: float) -> None:
        # Two at a time, so that full buckets go sooner than they come.
        for _ in range(2):
            oldest, full_at = next(iter(self._full_at.items()))
            if full_at > now:
                break
            del self._full_at[oldest]
        if len(self._full_at) > self._addresses:
            self._full_at.popitem(last=False)
            self.forgotten += 1


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address, _NETWORK_BITS), strict=False))
    except ValueError:
        return address


def log_sessions(
    log: logging.Logger = logger, *, clock: Callable[[], float] = time.monotonic
) -> Middleware:
    """Middleware that writes a line for each session's beginning and end, and for each refusal.

    Queries are not written, because tokens stand there.
    """

    async def write(request: Request, call_next: Next) -> None:
        host, port = request.remote_address
        # Paths are the client's words: `%r` keeps line ends out of the log.
        started = clock()
        try:
            await call_next()
        except Refused as refusal:
            log.warning("%s:%d %r %s", host, port, request.path, refusal)
            raise
        except Exception as error:
            seconds = clock() - started
            log.error("%s:%d %r failed after %.3f s: %r", host, port, request.path, seconds, error)
            raise
        finally:
            session = request.session
            if session is not None:
                seconds = clock() - started
                log.info("%s:%d %r ended after %.3f s", host, port, request.path, seconds)

    return write

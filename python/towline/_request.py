"""A client's wish for a session, for servers that look before they say yes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import _native
from ._driver import Watch
from ._errors import TowlineError, UsageError
from ._session import Session

if TYPE_CHECKING:
    from ._driver import Driver

__all__ = ["Refused", "SessionRequest", "checked_status"]

_LEAST_REFUSAL = 300
_MOST_STATUS = 599


def checked_status(status: int) -> int:
    """The status, if it is one that refuses a session."""
    if not isinstance(status, int):
        raise TypeError(f"argument 'status': an int is required, not '{type(status).__name__}'")
    if not _LEAST_REFUSAL <= status <= _MOST_STATUS:
        raise ValueError(
            f"argument 'status': {_LEAST_REFUSAL} to {_MOST_STATUS} refuse a session, not {status}"
        )
    return status


class Refused(TowlineError):
    """Raised by a server's own code to refuse a session: the client gets `status`, HTTP's number.

    `reason` stays here: it is for the log.
    """

    def __init__(self, status: int, reason: str = "") -> None:
        self.status: int = checked_status(status)
        self.reason: str = reason
        super().__init__(f"refused with status {status}{f': {reason}' if reason else ''}")


class SessionRequest:
    """A client asks for a session: `accept` or `refuse` it, once."""

    __slots__ = (
        "_begin",
        "_driver",
        "_gone",
        "_native",
        "_protocols",
        "authority",
        "headers",
        "origin",
        "path",
        "protocols",
        "remote_address",
        "session",
    )

    def __init__(
        self,
        driver: Driver,
        native: _native.SessionRequest,
        protocols: list[str],
        begin: Callable[[SessionRequest, Session], None],
    ) -> None:
        self._driver = driver
        self._native: _native.SessionRequest | None = native
        self._protocols = protocols
        self._begin = begin
        self._gone: Watch | None = None
        self.authority: str = native.authority
        """The host, and perhaps the port, that the client asked."""
        self.path: str = native.path
        """Path and query of the URL, as the client wrote them."""
        self.origin: str | None = native.origin
        """The page that asks, where a browser does; "" where its words are no text."""
        if self.origin is None and native.has_origin:
            self.origin = ""
        self.headers: list[tuple[str, str]] = native.headers
        """The fields of the request, their names in lower case."""
        self.protocols: list[str] = native.protocols
        """The application protocols that the client offers, its favourite first."""
        self.remote_address: tuple[str, int] = native.remote_address
        """Where the client is: address and port."""
        self.session: Session | None = None
        """The session, once it was accepted."""

    def __repr__(self) -> str:
        return f"<SessionRequest {self.authority}{self.path!r}>"

    @property
    def answered(self) -> bool:
        """Whether it was accepted or refused."""
        return self._native is None

    def header(self, name: str) -> str | None:
        """The first field of this name, in any case of letters; `None` where there is none."""
        name = name.lower()
        return next((value for other, value in self.headers if other == name), None)

    def accept(self, protocol: str | None = None) -> Session:
        """Gives the client its session. Without `protocol`, the server's choice of those offered.

        Raises `SessionClosed` when the client is gone, and `UsageError` when it was answered
        before.
        """
        native = self._take()
        if protocol is None:
            protocol = next((name for name in self._protocols if name in self.protocols), None)
        session = Session(
            self._driver,
            native.accept(protocol),
            authority=self.authority,
            path=self.path,
            origin=self.origin,
            headers=self.headers,
        )
        self.session = session
        self._begin(self, session)
        self._driver.nudge()
        return session

    def refuse(self, status: int = 403) -> None:
        """Refuses the session with this status of HTTP, 300 to 599."""
        checked_status(status)
        self._take().reject(status)
        self._driver.nudge()

    def _when_gone(self, then: Callable[[], object]) -> None:
        """Has this called when the client gave up, unless it was answered before."""
        if self._native is not None:
            self._gone = Watch(self._driver, self._native.token, self._native.poll_gone, then)

    def _take(self) -> _native.SessionRequest:
        native, self._native = self._native, None
        if self._gone is not None:
            self._gone.leave()
        if native is None:
            raise UsageError("this request for a session was answered before")
        return native

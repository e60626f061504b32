"""The exceptions of the package.

Each is also the builtin exception that a program would catch for the same thing:

    TowlineError
    ├── UsageError                 RuntimeError            a call that cannot work: another loop, a fork
    ├── ConnectFailed              ConnectionError         there is no session, or connection
    │   ├── HandshakeRefused       ConnectionRefusedError  one end said no, and why
    │   └── ConnectTimeout         TimeoutError            nobody answered
    ├── SessionClosed              ConnectionError         the session is over: code and reason
    │   └── ConnectionLost         ConnectionAbortedError  it ended without a word
    │       └── IdleTimeout        TimeoutError            the peer was not heard of for too long
    ├── StreamError                                        one stream; the session goes on
    │   ├── StreamReset            ConnectionResetError    the peer gave its half up: code
    │   ├── StreamStopped          BrokenPipeError         the peer wants no more: code
    │   └── StreamFinished         ValueError              this end has ended its half
    ├── IncompleteRead             EOFError                the stream ended early: partial, expected
    ├── LimitExceeded              ValueError              no separator, or no end, within the limit
    └── DatagramTooLarge           ValueError              more than fits: limit

After `SessionClosed` every call on the session, or connection, and its streams raises it again, but for what arrived
before and was not read. After a `StreamError` the other half of the stream and the session go on. After
`LimitExceeded` and `DatagramTooLarge` everything goes on, and after a cancelled call too.
`docs/python/errors.md` has a row for each.
"""

from __future__ import annotations

__all__ = [
    "ConnectFailed",
    "ConnectTimeout",
    "ConnectionLost",
    "DatagramTooLarge",
    "HandshakeRefused",
    "IdleTimeout",
    "IncompleteRead",
    "LimitExceeded",
    "SessionClosed",
    "StreamError",
    "StreamFinished",
    "StreamReset",
    "StreamStopped",
    "TowlineError",
    "UsageError",
]


class TowlineError(Exception):
    """What the package raises of its own."""


class UsageError(TowlineError, RuntimeError):
    """A call that cannot work where it was made: on another event loop, or in a fork."""


class ConnectFailed(TowlineError, ConnectionError):
    """There is no session: the host was not found, or the network does not reach it."""


class HandshakeRefused(ConnectFailed, ConnectionRefusedError):
    """One end refused the other, and the words say why: a pin, a certificate, a status.

    `status` is that of the server's answer, where it gave one. `busy`: the server takes no connections now,
    because it has too many, or shuts down.
    """

    def __init__(self, message: str, status: int | None = None, busy: bool = False) -> None:
        super().__init__(message)
        self.status: int | None = status
        self.busy: bool = busy


class ConnectTimeout(ConnectFailed, TimeoutError):
    """Nobody answered in time."""


class SessionClosed(TowlineError, ConnectionError):
    """The session, or the connection, is over.

    `code` and `reason` are those that an end closed it with, 0 and "" where it said nothing, and
    `by_peer` says whether it was the other end.
    """

    def __init__(
        self, message: str, code: int = 0, reason: str = "", by_peer: bool = False
    ) -> None:
        super().__init__(message)
        self.code: int = code
        self.reason: str = reason
        self.by_peer: bool = by_peer


class ConnectionLost(SessionClosed, ConnectionAbortedError):
    """The session ended without a word of the peer's: `code` is 0 and `reason` is empty."""


class IdleTimeout(ConnectionLost, TimeoutError):
    """The peer was not heard of for too long."""


class StreamError(TowlineError):
    """Something of one stream. `code` is the application's code, `None` where there is none; in
    `towline.http` it is HTTP/3's."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code: int | None = code


class StreamReset(StreamError, ConnectionResetError):
    """The peer gave its half of the stream up. What was not read is lost."""


class StreamStopped(StreamError, BrokenPipeError):
    """The peer wants no more of the stream."""


class StreamFinished(StreamError, ValueError):
    """This end has finished, reset, stopped or left the stream."""


class IncompleteRead(TowlineError, EOFError):
    """The stream ended before so much came. `partial` is what came, `expected` how much was asked."""

    def __init__(
        self, message: str, partial: bytes = b"", expected: int | None = None
    ) -> None:
        super().__init__(message)
        self.partial: bytes = partial
        self.expected: int | None = expected


class LimitExceeded(TowlineError, ValueError):
    """No separator, or no end of a body, came within `limit` bytes. They wait for `read`."""

    def __init__(self, message: str, limit: int = 0) -> None:
        super().__init__(message)
        self.limit: int = limit


class DatagramTooLarge(TowlineError, ValueError):
    """At most `limit` bytes fit into a datagram now."""

    def __init__(self, message: str, limit: int = 0) -> None:
        super().__init__(message)
        self.limit: int = limit

"""How errors end a command: the code of docs/exit-codes.md, words, and what to do next."""

from __future__ import annotations

import enum
import socket
from typing import cast

from .. import _errors as errors

__all__ = ["Exit", "Failure", "failure_of", "of_system"]


class Exit(enum.IntEnum):
    """How a command ends."""

    OK = 0
    OTHER = 1
    USAGE = 2
    CONNECT = 3
    TLS = 4
    PROTOCOL = 5
    TIMEOUT = 6
    PARTIAL = 7
    INTERRUPTED = 130


class Failure(Exception):
    """Why a command failed, and what its user can do about it."""

    def __init__(self, exit: Exit, message: str, next: str | None = None) -> None:
        super().__init__(message)
        self.exit = exit
        self.message = message
        self.next = next


_NO_PATH = "look at the path in the URL: `serve` has /echo, /upload, /download and /datagrams"
_PIN = "compare the pin with the one that the server printed when it started"
_NO_ANSWER = (
    "check that the server runs, that host and UDP port are right, and that no firewall is in the way"
)
_REFUSED = {
    403: "the server does not let in sessions of this origin: its owner decides which it takes",
    404: _NO_PATH,
    405: _NO_PATH,
    503: "try again later: the server is about to end",
}


def failure_of(error: BaseException) -> Failure | None:
    """The failure that an error is; `None` for one that nobody foresaw."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return failure_of(group.exceptions[0])
    words = str(error)
    match error:
        case Failure():
            return error
        case errors.ConnectFailed():
            return _not_connected(error, words)
        case errors.IdleTimeout():
            return Failure(Exit.TIMEOUT, "the other side went silent", _NO_ANSWER)
        case errors.ConnectionLost():
            # The engine's words say which of its errors it is.
            if "broke the" in words:
                return Failure(Exit.PROTOCOL, words)
            if "stateless reset" in words:
                return Failure(Exit.TIMEOUT, words)
            return Failure(Exit.PARTIAL, words)
        case errors.SessionClosed():
            return Failure(Exit.PARTIAL, words)
        case errors.StreamReset() | errors.StreamStopped() | errors.IncompleteRead():
            next = "check that the URL is one of `serve`, which sends everything back"
            return Failure(Exit.PARTIAL, words, next)
        case errors.UsageError():
            return Failure(Exit.OTHER, words)
        case errors.DatagramTooLarge():
            return Failure(Exit.USAGE, words, "a smaller --size")
        case ValueError():
            return Failure(Exit.USAGE, words)
        case OSError():
            return Failure(Exit.OTHER, of_system(error))
    return None


def _not_connected(error: errors.ConnectFailed, words: str) -> Failure:
    match error:
        case errors.ConnectTimeout():
            return Failure(Exit.CONNECT, words, _NO_ANSWER)
        case errors.HandshakeRefused(status=int(status)):
            return Failure(Exit.OTHER, words, _REFUSED.get(status))
        case errors.HandshakeRefused() if "CONNECTION_REFUSED" in words:
            return Failure(Exit.CONNECT, words, "try again later")
        case errors.HandshakeRefused() if "TLS" in words or "certificate" in words:
            return Failure(Exit.TLS, words, _PIN)
        case errors.HandshakeRefused():
            return Failure(Exit.PROTOCOL, words, "check that this port serves WebTransport")
    if isinstance(error.__cause__, socket.gaierror):
        return Failure(Exit.CONNECT, words)
    return Failure(Exit.CONNECT, words, _NO_ANSWER)


def of_system(error: OSError) -> str:
    """What the system said, without its number."""
    if error.strerror is None:
        return str(error)
    # The words of the native half have the number in them.
    words = error.strerror.partition(" (os error")[0]
    return words if error.filename is None else f"{error.filename}: {words}"

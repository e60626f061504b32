"""What goes wrong with a call, by the codes of JSON-RPC 2.0 (§5.1)."""

from __future__ import annotations

from typing import Any, ClassVar

from .._errors import TowlineError

__all__ = [
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "MethodNotFound",
    "NotPermitted",
    "ParseError",
    "RpcError",
    "RpcTimeout",
    "SlowSubscriber",
    "error_of",
]

_SERVER_ERROR = -32000
_LONGEST_MESSAGE = 1024


class RpcError(TowlineError):
    """A call failed at the far side, which says why: `code`, `message`, and perhaps `data`.

    A method that raises one has the caller get it; codes of an application are outside of -32768 to
    -32000.
    """

    CODE: ClassVar[int] = _SERVER_ERROR

    def __init__(self, message: str, code: int | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.message: str = message
        self.code: int = self.CODE if code is None else code
        self.data: Any = data

    def to_plain(self) -> dict[str, Any]:
        """As it stands in an answer."""
        plain: dict[str, Any] = {"code": self.code, "message": self.message[:_LONGEST_MESSAGE]}
        if self.data is not None:
            plain["data"] = self.data
        return plain


class ParseError(RpcError):
    """The far side could not read the request."""

    CODE: ClassVar[int] = -32700


class InvalidRequest(RpcError):
    """What was sent is no request."""

    CODE: ClassVar[int] = -32600


class MethodNotFound(RpcError):
    """The far side has no such method."""

    CODE: ClassVar[int] = -32601


class InvalidParams(RpcError):
    """The parameters do not fit the method. `message` names the one that does not."""

    CODE: ClassVar[int] = -32602


class InternalError(RpcError):
    """The method failed. Why stands in the far side's log."""

    CODE: ClassVar[int] = -32603


class NotPermitted(RpcError):
    """The far side does not permit it, or has no room for it."""

    CODE: ClassVar[int] = -32001


class SlowSubscriber(RpcError):
    """The subscription was closed because its queue was full."""

    CODE: ClassVar[int] = -32002


class RpcTimeout(RpcError, TimeoutError):
    """The answer did not come in time. The far side was told to stop."""

    CODE: ClassVar[int] = -32003


_KINDS: dict[int, type[RpcError]] = {
    kind.CODE: kind
    for kind in (
        ParseError,
        InvalidRequest,
        MethodNotFound,
        InvalidParams,
        InternalError,
        NotPermitted,
        SlowSubscriber,
    )
}


def error_of(plain: Any) -> RpcError | None:
    """The error that stands in an answer; `None` if that is none."""
    match plain:
        case {"code": int() as code, "message": str() as message}:
            kind = _KINDS.get(code, RpcError)
            return kind(message[:_LONGEST_MESSAGE], code, plain.get("data"))
    return None

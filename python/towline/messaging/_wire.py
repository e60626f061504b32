"""Requests and answers as they travel (JSON-RPC 2.0 §4, §5)."""

from __future__ import annotations

from typing import Any

from .._errors import TowlineError
from ..structured import BadMessage
from ._errors import InvalidRequest, RpcError, error_of

__all__ = ["VERSION", "make_request", "read_request", "read_result", "refusal_of"]

VERSION = "2.0"


def make_request(method: str, params: Any, number: int | None) -> dict[str, Any]:
    """A request; without a number, a notification."""
    if not isinstance(method, str):
        raise TypeError(f"argument 'method': a str is required, not '{type(method).__name__}'")
    request: dict[str, Any] = {"jsonrpc": VERSION, "method": method}
    if params is not None:
        request["params"] = params
    if number is not None:
        request["id"] = number
    return request


def read_request(request: Any) -> tuple[str, Any, RpcError | None]:
    """The method and the number of a request, and what is wrong with it."""
    match request:
        case {"jsonrpc": "2.0", "method": str() as method}:
            number = request.get("id")
            if number is None or type(number) in (int, float, str):
                return method, number, None
            return "", None, InvalidRequest("'id' is neither a number nor a text")
        case list():
            words = "a stream has one request: batches are not taken"
            return "", None, InvalidRequest(words)
    words = "an object with 'jsonrpc': '2.0' and 'method' is required"
    return "", None, InvalidRequest(words)


def read_result(answer: Any, number: int) -> Any:
    """What an answer to this request gives, or raises."""
    match answer:
        case {"jsonrpc": "2.0", "id": other, "result": result} if (
            other == number and "error" not in answer
        ):
            return result
    raise refusal_of(answer)


def refusal_of(answer: Any) -> TowlineError:
    """The error of an answer that has no result."""
    if isinstance(answer, dict):
        error = error_of(answer.get("error"))
        if error is not None:
            return error
    return BadMessage("it is no answer to the request", 0)

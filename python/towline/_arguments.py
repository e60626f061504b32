"""What functions require of their arguments: an error names the one that is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import cast

__all__ = ["checked_names", "fields", "number", "octets", "text", "texts", "whole"]

_MOST = 2**63 - 1
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE = re.compile(r"(?![ \t])[^\x00-\x08\x0a-\x1f\x7f]*(?<![ \t])")
# Visible characters and spaces, as in a string of RFC 9651.
_PROTOCOL = re.compile(r"[ -~]+")


def _wrong(argument: str, required: str, value: object) -> TypeError:
    kind = type(value).__name__
    return TypeError(f"argument '{argument}': {required} is required, not '{kind}'")


def text(argument: str, value: object) -> str:
    """A string that UTF-8 can carry."""
    if not isinstance(value, str):
        raise _wrong(argument, "a str", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"argument '{argument}': half of a surrogate pair is no text") from None
    return value


def texts(argument: str, values: object) -> list[str]:
    """Several strings, and not the letters of one."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"argument '{argument}': a list is required, not a single value")
    if not isinstance(values, Iterable):
        raise _wrong(argument, "a list", values)
    listed: list[str] = []
    for value in cast(Iterable[object], values):
        if not isinstance(value, str):
            kind = type(value).__name__
            raise TypeError(f"argument '{argument}': each must be a str, not '{kind}'")
        listed.append(text(argument, value))
    return listed


def checked_names(argument: str, values: object) -> list[str]:
    """Names of protocols, as WebTransport can carry them."""
    names = texts(argument, values)
    for name in names:
        if not _PROTOCOL.fullmatch(name):
            words = "a name is of visible characters of ASCII"
            raise ValueError(f"argument '{argument}': {words}, not {name!r}")
    return names


def whole(argument: str, value: object, least: int = -_MOST, most: int = _MOST) -> int:
    """A whole number within limits."""
    if not isinstance(value, int):
        raise _wrong(argument, "an int", value)
    if not least <= value <= most:
        raise ValueError(f"argument '{argument}': {least} to {most}, not {value}")
    return value


def number(argument: str, value: object, least: float = 0.0) -> float:
    """A finite number."""
    if not isinstance(value, (int, float)):
        raise _wrong(argument, "a number", value)
    if not (value >= least and math.isfinite(value)):
        raise ValueError(f"argument '{argument}': a number from {least:g} on, not {value}")
    return float(value)


def octets(argument: str, value: object) -> bytes:
    """Bytes."""
    if not isinstance(value, bytes):
        raise _wrong(argument, "bytes", value)
    return value


def fields(argument: str, values: object) -> list[tuple[str, str]]:
    """The fields of a request."""
    if values is None:
        return []
    if not isinstance(values, Mapping):
        raise _wrong(argument, "a dict", values)
    listed: list[tuple[str, str]] = []
    for name, value in cast(Mapping[object, object], values).items():
        if not isinstance(name, str) or not isinstance(value, str):
            kind = type(value if isinstance(name, str) else name).__name__
            raise TypeError(f"argument '{argument}': names and values must be str, not '{kind}'")
        if not _FIELD_NAME.fullmatch(name):
            raise ValueError(f"argument '{argument}': {name!r} is no name of a field")
        if not _FIELD_VALUE.fullmatch(text(argument, value)):
            words = "has spaces around it, or characters that end lines"
            raise ValueError(f"argument '{argument}': the value of {name!r} {words}")
        listed.append((name, value))
    return listed

"""Paths and what is behind them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

__all__ = ["Router"]

_T = TypeVar("_T")

# A parameter of a pattern: its name, and perhaps its kind.
_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?::([a-z]+))?\}")
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_REAL = re.compile(r"-?[0-9]{1,32}(?:\.[0-9]{1,32})?", re.ASCII)
_REST = "path"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _text(segment: str) -> str:
    # Bytes that are no text are no parameter either.
    value = unquote(segment, errors="strict")
    if not value:
        raise ValueError("a parameter is never empty")
    if _CONTROL.search(value):
        raise ValueError("control characters")
    return value


def _rest(segments: str) -> str:
    value = _text(segments)
    # It may become a file's name.
    if {".", ".."} & set(value.split("/")):
        raise ValueError("a way out of where it is looked up")
    return value


def _integer(segment: str) -> int:
    if _INTEGER.fullmatch(segment) is None:
        raise ValueError("no integer")
    return int(segment)


def _real(segment: str) -> float:
    if _REAL.fullmatch(segment) is None:
        raise ValueError("no number")
    return float(segment)


def _uuid(segment: str) -> uuid.UUID:
    value = uuid.UUID(segment)
    if str(value) != segment.lower():
        raise ValueError("not the usual form")
    return value


_KINDS: dict[str, Callable[[str], Any]] = {
    "str": _text,
    "int": _integer,
    "float": _real,
    "uuid": _uuid,
    _REST: _rest,
}


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class _Pattern(Generic[_T]):
    segments: tuple[str | _Parameter, ...]
    """What each segment is: a literal, or a parameter."""
    takes_rest: bool
    target: _T

    def match(self, segments: list[str]) -> dict[str, Any] | None:
        count = len(self.segments)
        if self.takes_rest:
            if len(segments) < count:
                return None
            segments = [*segments[: count - 1], "/".join(segments[count - 1 :])]
        elif len(segments) != count:
            return None
        params: dict[str, Any] = {}
        for wanted, segment in zip(self.segments, segments, strict=True):
            if isinstance(wanted, str):
                if wanted != segment:
                    return None
            else:
                try:
                    params[wanted.name] = _KINDS[wanted.kind](segment)
                except ValueError:
                    return None
        return params


class Router(Generic[_T]):
    """Which path leads to what.

    A path is matched as the client wrote it, but for the values of parameters, which are decoded:
    `.`, `..` and double slashes mean nothing.
    """

    def __init__(self) -> None:
        self._exact: dict[str, _T] = {}
        self._patterns: list[_Pattern[_T]] = []

    def add(self, pattern: str, target: _T) -> None:
        """Has `pattern` lead to `target`. Raises `ValueError` if it makes no sense, or is taken."""
        if not isinstance(pattern, str):
            kind = type(pattern).__name__
            raise TypeError(f"argument 'pattern': a str is required, not '{kind}'")
        if not pattern.startswith("/"):
            raise ValueError(f"argument 'pattern': '{pattern}' does not begin with a slash")
        if "?" in pattern or "#" in pattern:
            raise ValueError(f"argument 'pattern': '{pattern}' is more than a path")
        segments = [_segment(pattern, text) for text in pattern[1:].split("/")]
        parameters = [segment for segment in segments if isinstance(segment, _Parameter)]
        if not parameters:
            if pattern in self._exact:
                raise ValueError(f"the path '{pattern}' has a route")
            self._exact[pattern] = target
            return
        names = [parameter.name for parameter in parameters]
        if len(set(names)) < len(names):
            raise ValueError(f"argument 'pattern': '{pattern}' has a parameter twice")
        rests = [parameter for parameter in parameters if parameter.kind == _REST]
        if rests and (len(rests) > 1 or segments[-1] != rests[0]):
            raise ValueError(f"argument 'pattern': in '{pattern}' the rest is not at the end")
        shape = _shape(segments)
        if any(_shape(list(other.segments)) == shape for other in self._patterns):
            raise ValueError(f"the pattern '{pattern}' has a route")
        self._patterns.append(_Pattern(tuple(segments), bool(rests), target))

    def find(self, path: str) -> tuple[_T, dict[str, Any]] | None:
        """What a path leads to, and its parameters. It has no query."""
        if path in self._exact:
            return self._exact[path], {}
        if self._patterns and path.startswith("/"):
            segments = path[1:].split("/")
            for pattern in self._patterns:
                params = pattern.match(segments)
                if params is not None:
                    return pattern.target, params
        return None


def _segment(pattern: str, text: str) -> str | _Parameter:
    found = _PARAMETER.fullmatch(text)
    if found is None:
        if "{" in text or "}" in text:
            raise ValueError(
                f"argument 'pattern': '{text}' in '{pattern}' is none of the form"
                " {name} or {name:kind}"
            )
        return text
    name, kind = found[1], found[2] or "str"
    if kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise ValueError(f"argument 'pattern': '{kind}' in '{pattern}' is none of {known}")
    return _Parameter(name, kind)


def _shape(segments: list[str | _Parameter]) -> list[tuple[bool, str]]:
    """What a pattern matches, whatever its parameters are called."""
    return [
        (True, segment) if isinstance(segment, str) else (False, segment.kind)
        for segment in segments
    ]

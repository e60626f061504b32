"""Dataclasses to plain values and back, for codecs: what does not fit is named by its path."""

from __future__ import annotations

import base64
import binascii
import collections.abc
import dataclasses
import datetime
import enum
import functools
import math
import threading
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any

__all__ = ["Misfit", "from_plain", "reader", "to_plain"]

Read = Callable[[Any], Any]

_LONGEST_VALUE = 40


class Misfit(ValueError):
    """A value that does not fit its type; `path` leads to it, from the inside out."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words: str = words
        self.path: list[str] = []

    def __str__(self) -> str:
        path = "".join(reversed(self.path)).lstrip(".")
        return f"field '{path}': {self.words}" if path else self.words


def to_plain(value: Any, *, text_only: bool) -> Any:
    """A value of dicts, lists and scalars. `text_only`: bytes become base64, as JSON needs it.

    Raises `TypeError` for what has no such form.
    """
    match value:
        case None | bool() | str():
            return value if not isinstance(value, enum.Enum) else value.value
        case enum.Enum():
            return to_plain(value.value, text_only=text_only)
        case int() | float():
            return value
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode() if text_only else bytes(value)
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(f"the key {_shown(key)} of a dict is no str")
            return {key: to_plain(one, text_only=text_only) for key, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [to_plain(one, text_only=text_only) for one in value]
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_plain(getattr(value, field.name), text_only=text_only)
            for field in dataclasses.fields(value)
        }
    raise TypeError(f"a '{type(value).__name__}' has no form as a message")


def from_plain(kind: Any, value: Any) -> Any:
    """A value of the type `kind`. Raises `Misfit`, and `TypeError` for types that no message can
    have."""
    return reader(kind)(value)


def reader(kind: Any) -> Read:
    """What makes values of a type."""
    return _reader(kind)


@functools.lru_cache(1024)
def _reader(kind: Any) -> Read:
    if kind is Any or kind is object:
        return lambda value: value
    if kind is None or kind is type(None):
        return _exactly(type(None), "null")
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return reader(args[0])
    if origin in (typing.Union, types.UnionType):
        return _union(args)
    if origin is typing.Literal:
        return _literal(args)
    if origin is not None:
        return _container(kind, origin, args)
    if not isinstance(kind, type):
        raise TypeError(f"the type {kind!r} has no form as a message")
    return _plain_type(kind)


def _plain_type(kind: type) -> Read:
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    if issubclass(kind, enum.Enum):
        return _enum(kind)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind in (list, tuple, set, frozenset):
        return _container(kind, kind, (Any, ...) if kind is tuple else (Any,))
    if kind is dict:
        return _container(kind, dict, (str, Any))
    raise TypeError(f"the type '{kind.__name__}' has no form as a message")


def _exactly(kind: type, name: str) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _wrong(name, value)
        return value

    return read


def _real(value: Any) -> float:
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise Misfit("the number is too large") from None
    if type(value) is not float:
        raise _wrong("a number", value)
    if not math.isfinite(value):
        raise Misfit("a finite number is required")
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise _wrong("bytes", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Misfit("the text is no base64") from None


def _parsed(name: str, parse: Callable[[str], Any]) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not str:
            raise _wrong(name, value)
        try:
            return parse(value)
        except ValueError:
            raise Misfit(f"{_shown(value)} is not {name}") from None

    return read


_SCALARS: dict[type, Read] = {
    bool: _exactly(bool, "true or false"),
    int: _exactly(int, "an integer"),
    str: _exactly(str, "a text"),
    float: _real,
    bytes: _bytes,
    datetime.datetime: _parsed("a date with time (ISO 8601)", datetime.datetime.fromisoformat),
    datetime.date: _parsed("a date (ISO 8601)", datetime.date.fromisoformat),
    datetime.time: _parsed("a time (ISO 8601)", datetime.time.fromisoformat),
    uuid.UUID: _parsed("a UUID", uuid.UUID),
}


def _union(kinds: tuple[Any, ...]) -> Read:
    # In their order, so that `int | float` keeps integers.
    readers = [reader(kind) for kind in kinds]

    def choose(value: Any) -> Any:
        misfits: list[Misfit] = []
        for each in readers:
            try:
                return each(value)
            except Misfit as misfit:
                misfits.append(misfit)
        # The one that came the furthest knows best.
        raise max(misfits, key=lambda misfit: len(misfit.path))

    def read(value: Any) -> Any:
        if not isinstance(value, (dict, list)):
            return choose(value)
        # Unions lie in one another: what is inside is not read again for each alternative around it.
        seen: dict[tuple[int, int], Any] | None = getattr(_local, "seen", None)
        if seen is None:
            _local.seen = {}
            try:
                return read(value)
            finally:
                del _local.seen
        key = (id(read), id(value))
        if key not in seen:
            try:
                seen[key] = choose(value)
            except Misfit as misfit:
                # Those around it add to the path of the one that is raised.
                seen[key] = _Failed(misfit.words, tuple(misfit.path))
                raise
        outcome = seen[key]
        if isinstance(outcome, _Failed):
            again = Misfit(outcome.words)
            again.path.extend(outcome.path)
            raise again
        return outcome

    return read


class _Failed(typing.NamedTuple):
    """What no alternative of a union fitted."""

    words: str
    path: tuple[str, ...]


# What unions made of the value that is being read; it outlives no reading.
_local = threading.local()


def _literal(values: tuple[Any, ...]) -> Read:
    def read(value: Any) -> Any:
        for one in values:
            if type(one) is type(value) and one == value:
                return one
        raise Misfit(f"one of {', '.join(map(repr, values))} is required, not {_shown(value)}")

    return read


def _enum(kind: type[enum.Enum]) -> Read:
    def read(value: Any) -> Any:
        for member in kind:
            if type(member.value) is type(value) and member.value == value:
                return member
        known = ", ".join(repr(member.value) for member in kind)
        raise Misfit(f"one of {known} is required, not {_shown(value)}")

    return read


def _container(kind: Any, origin: Any, args: tuple[Any, ...]) -> Read:
    if origin in (list, collections.abc.Sequence, collections.abc.Iterable):
        return _items(reader(args[0]), list)
    if origin in (set, frozenset):
        return _items(reader(args[0]), origin)
    if origin is tuple:
        if len(args) == 2 and args[1] is ...:
            return _items(reader(args[0]), tuple)
        return _fixed_tuple([reader(arg) for arg in args])
    if origin in (dict, collections.abc.Mapping):
        if args[0] is not str:
            raise TypeError(f"the type {kind!r} has keys that are no str")
        return _mapping(reader(args[1]))
    raise TypeError(f"the type {kind!r} has no form as a message")


def _items(each: Read, make: Callable[[list[Any]], Any]) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise _wrong("a list", value)
        index = 0
        items = []
        try:
            for index, one in enumerate(value):
                items.append(each(one))
        except Misfit as misfit:
            misfit.path.append(f"[{index}]")
            raise
        try:
            return make(items)
        except TypeError:
            raise Misfit("the items cannot be those of a set") from None

    return read


def _fixed_tuple(readers: list[Read]) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != len(readers):
            raise _wrong(f"a list of {len(readers)}", value)
        index = 0
        items = []
        try:
            for index, (each, one) in enumerate(zip(readers, value, strict=True)):
                items.append(each(one))
        except Misfit as misfit:
            misfit.path.append(f"[{index}]")
            raise
        return tuple(items)

    return read


def _mapping(each: Read) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong("an object", value)
        made = {}
        for key, one in value.items():
            try:
                made[key] = each(one)
            except Misfit as misfit:
                misfit.path.append(f".{_cut(str(key))}")
                raise
        return made

    return read


def _dataclass(kind: type) -> Read:
    # Late: a class may have fields of its own kind.
    fields: dict[str, tuple[Read, bool]] | None = None

    def known() -> dict[str, tuple[Read, bool]]:
        nonlocal fields
        if fields is None:
            hints = typing.get_type_hints(kind, include_extras=True)
            fields = {
                field.name: (
                    reader(hints[field.name]),
                    field.default is dataclasses.MISSING
                    and field.default_factory is dataclasses.MISSING,
                )
                for field in dataclasses.fields(kind)
                if field.init
            }
        return fields

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong(f"an object ({kind.__name__})", value)
        wanted = known()
        arguments = {}
        for name, one in value.items():
            if name not in wanted:
                raise _at(Misfit(f"{kind.__name__} has no such field"), _cut(str(name)))
            try:
                arguments[name] = wanted[name][0](one)
            except Misfit as misfit:
                raise _at(misfit, name) from None
        for name, (_, required) in wanted.items():
            if required and name not in arguments:
                raise _at(Misfit("it is missing"), name)
        try:
            return kind(**arguments)
        except (ValueError, TypeError) as error:
            # The class's own rules, in its `__post_init__`.
            raise Misfit(f"{kind.__name__}: {error}") from error

    return read


def _at(misfit: Misfit, name: str) -> Misfit:
    misfit.path.append(f".{name}")
    return misfit


def _wrong(name: str, value: Any) -> Misfit:
    return Misfit(f"{name} is required, not {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return {"dict": "an object", "list": "a list"}[type(value).__name__]
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"

"""What is the same for streams and datagrams: messages, their type, and what is wrong with a bad
one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from .._errors import TowlineError
from ._codecs import Codec, codec_of
from ._convert import Misfit, reader, to_plain

__all__ = [
    "DEPTH",
    "LIMIT",
    "BadMessage",
    "EndOfStream",
    "Format",
    "MessageTooLarge",
    "TruncatedMessage",
]

T = TypeVar("T")

LIMIT = 256 * 1024
"""The longest message unless the caller says otherwise, bytes."""
DEPTH = 32
"""How deep a message may be nested unless the caller says otherwise."""


class BadMessage(TowlineError, ValueError):
    """The peer sent a message that is none. The session goes on, and so does what it came by,
    unless a subclass says otherwise.

    `position` counts the messages from 0; `reason` says what is wrong, and names the field where
    one is.
    """

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"message {position} of the peer is bad: {reason}")
        self.reason: str = reason
        self.position: int = position


class MessageTooLarge(BadMessage):
    """A message is longer than `limit` bytes. A stream of the peer's can be read no further; one of
    our own messages was not sent."""

    def __init__(self, length: int, limit: int, position: int | None = None) -> None:
        reason = f"it has {length} bytes, and the limit is {limit}"
        super().__init__(reason, -1 if position is None else position)
        if position is None:
            self.args: tuple[Any, ...] = (f"the message was not sent: {reason}",)
        self.length: int = length
        self.limit: int = limit


class TruncatedMessage(BadMessage, EOFError):
    """The stream ended within a message."""


class EndOfStream(TowlineError, EOFError):
    """The stream ended after the last message."""


class Format(Generic[T]):
    """How messages are written and read."""

    __slots__ = ("_named", "_names", "_only", "_reader", "_readers", "codec", "depth", "limit")

    def __init__(
        self,
        schema: type[T] | Mapping[str, type[T]] | None,
        codec: Codec | str,
        limit: int,
        depth: int,
    ) -> None:
        for name, value in (("limit", limit), ("depth", depth)):
            if not isinstance(value, int) or isinstance(value, bool):
                kind = type(value).__name__
                raise TypeError(f"argument '{name}': an int is required, not '{kind}'")
            if not 1 <= value < 2**32:
                raise ValueError(f"argument '{name}': 1 to {2**32 - 1}, not {value}")
        self.codec: Codec = codec_of(codec)
        self.limit: int = limit
        self.depth: int = depth
        self._named = isinstance(schema, Mapping)
        self._only = schema if isinstance(schema, type) else None
        if isinstance(schema, Mapping):
            self._readers = {name: reader(kind) for name, kind in schema.items()}
            self._names = {kind: name for name, kind in schema.items()}
            if len(self._names) < len(self._readers):
                raise ValueError("argument 'schema': a type stands there twice")
        else:
            self._reader = reader(Any if schema is None else schema)

    def encode(self, message: T) -> bytes:
        """The message as bytes. Raises `TypeError` for what is none, and `MessageTooLarge`."""
        plain: Any = to_plain(message, text_only=self.codec.text_only)
        if self._named:
            name = self._names.get(type(message))
            if name is None:
                kind = type(message).__name__
                raise TypeError(f"argument 'message': '{kind}' is no type of this stream's schema")
            plain = [name, plain]
        elif self._only is not None and not self._fits(message):
            kind, wanted = type(message).__name__, self._only.__name__
            raise TypeError(f"argument 'message': '{wanted}' is required, not '{kind}'")
        data = self.codec.encode(plain)
        if len(data) > self.limit:
            raise MessageTooLarge(len(data), self.limit)
        return data

    def decode(self, data: bytes, position: int) -> T:
        """The message of these bytes. Raises `BadMessage`."""
        try:
            value = self.codec.decode(data, self.depth + self._named)
            if not self._named:
                return self._reader(value)  # type: ignore[no-any-return]
            return self._read_named(value)
        except ValueError as error:
            raise BadMessage(str(error), position) from None

    def _fits(self, message: object) -> bool:
        # Whole numbers are numbers.
        wanted = (int, float) if self._only is float else self._only
        return wanted is object or isinstance(message, wanted or object)

    def _read_named(self, value: Any) -> T:
        match value:
            case [str() as name, inner]:
                read = self._readers.get(name)
                if read is None:
                    raise Misfit(f"the type {name[:40]!r} is unknown")
                return read(inner)  # type: ignore[no-any-return]
        raise Misfit("a list of the type's name and its value is required")

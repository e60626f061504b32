"""How values are written as bytes."""

from __future__ import annotations

import importlib
import json
import math
from typing import Any, Protocol

__all__ = ["JSON", "Codec", "MessagePack", "checked_depth", "codec_of"]

# Made once: `json.dumps` would make one for each message.
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_TOO_DEEP = "it is nested deeper than {depth}"


class Codec(Protocol):
    """How values of dicts, lists and scalars are written as bytes."""

    name: str
    """What it is called in errors."""
    text_only: bool
    """Whether bytes have to be written as text."""

    def encode(self, value: Any) -> bytes:
        """The bytes of a value. Raises `TypeError` or `ValueError` for one that has none."""
        ...

    def decode(self, data: bytes, depth: int) -> Any:
        """The value, nested at most `depth` deep. Raises `ValueError` that says what is wrong."""
        ...


# What is shown of a number.
_LONGEST_NUMBER = 40


class _Json:
    name = "JSON"
    text_only = True

    def encode(self, value: Any) -> bytes:
        return _ENCODE(value).encode()

    def decode(self, data: bytes, depth: int) -> Any:
        try:
            value = json.loads(
                data.decode(), parse_constant=_refuse_constant, parse_float=_finite
            )
        except RecursionError:
            raise ValueError(_TOO_DEEP.format(depth=depth)) from None
        except UnicodeDecodeError as error:
            raise ValueError(f"it is no UTF-8 at byte {error.start}") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"it is no JSON: {error.msg} at character {error.pos}") from None
        # Cheaper than a walk, and enough for most.
        if data.count(b"[") + data.count(b"{") > depth:
            checked_depth(value, depth)
        if b"\\ud" in data or b"\\uD" in data:
            try:
                _ENCODE(value).encode()
            except UnicodeEncodeError:
                raise ValueError("a text has half of a surrogate pair") from None
        return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it is no JSON: {text[:_LONGEST_NUMBER]} is larger than numbers are here")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it is no JSON: {name} is no number")


JSON: Codec = _Json()
"""JSON in UTF-8 (RFC 8259). Bytes are base64, NaN and infinity are refused."""


class MessagePack:
    """MessagePack, by the package `msgpack`. Types of extensions are refused.

    Raises `ImportError` where the package is missing.
    """

    name = "MessagePack"
    text_only = False

    def __init__(self) -> None:
        try:
            msgpack: Any = importlib.import_module("msgpack")
        except ImportError as error:
            words = "MessagePack needs the package msgpack: pip install 'towline[msgpack]'"
            raise ImportError(words) from error
        self._packb = msgpack.packb
        self._unpackb = msgpack.unpackb

    def encode(self, value: Any) -> bytes:
        """The value as MessagePack. Raises `ValueError` for a number that it has not."""
        try:
            packed = self._packb(value, use_bin_type=True)
        except OverflowError as error:
            raise ValueError(f"MessagePack has no such number: {error}") from None
        return bytes(packed)

    def decode(self, data: bytes, depth: int) -> Any:
        """The value of these bytes, of at most `depth` levels. Raises `ValueError`."""
        try:
            value = self._unpackb(
                data, raw=False, strict_map_key=True, timestamp=3, ext_hook=_refuse_extension
            )
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            words = str(error) or type(error).__name__
            raise ValueError(f"it is no MessagePack: {words}") from None
        return checked_depth(value, depth)


def _refuse_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"the extension {code} is unknown")


_NAMED = {"json": lambda: JSON, "msgpack": MessagePack}


def codec_of(codec: Codec | str) -> Codec:
    """The codec of a name, "json" or "msgpack", or `codec` itself."""
    if isinstance(codec, str):
        if codec not in _NAMED:
            raise ValueError(f"argument 'codec': 'json' or 'msgpack', not '{codec}'")
        return _NAMED[codec]()
    if not hasattr(codec, "encode") or not hasattr(codec, "decode"):
        kind = type(codec).__name__
        raise TypeError(f"argument 'codec': a name or a Codec is required, not '{kind}'")
    return codec


def checked_depth(value: Any, depth: int) -> Any:
    """The value, if it is nested at most `depth` deep: scalars are 0 deep, a list of them is 1."""
    level = [value] if type(value) in (list, dict) else []
    for _ in range(depth):
        if not level:
            return value
        level = [
            inner
            for one in level
            for inner in (one if type(one) is list else one.values())
            if type(inner) in (list, dict)
        ]
    if level:
        raise ValueError(_TOO_DEEP.format(depth=depth))
    return value

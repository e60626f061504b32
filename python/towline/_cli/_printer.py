"""Results as lines for people or as JSON, progress on a terminal, and failures in words."""

from __future__ import annotations

import json
import os
import sys
from typing import TextIO

from ._failures import Failure

__all__ = ["Printer", "millis", "size_text"]

_BAR = 24
_CLEAR = "\r\x1b[K"


class Printer:
    """Where results go. A standard output that was closed is no error: its reader had enough."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._progress = not json and sys.stderr.isatty()
        self._drawn = False

    def line(self, text: str) -> None:
        """For people."""
        if not self._json:
            self._clear()
            _write(sys.stdout, text + "\n")

    def record(self, schema: str, **fields: object) -> None:
        """For programs."""
        if self._json:
            _write(sys.stdout, json.dumps({"schema": schema, **fields}) + "\n")

    def note(self, text: str) -> None:
        """A remark that is no result."""
        self._clear()
        _write(sys.stderr, text + "\n")

    def progress(self, name: str, part: float, text: str = "") -> None:
        """A bar on a terminal: `part` of 1 is done."""
        if self._progress:
            full = round(_BAR * min(max(part, 0.0), 1.0))
            bar = "#" * full + "." * (_BAR - full)
            self._drawn = True
            _write(sys.stderr, f"{_CLEAR}{name:<12} [{bar}] {text}")

    def failure(self, failure: Failure) -> None:
        """The end of a command that failed."""
        self._clear()
        next = f"\n  next: {failure.next}" if failure.next else ""
        _write(sys.stderr, f"towline: {failure.message}{next}\n")
        self.record(
            "towline.error/1",
            exit_code=int(failure.exit),
            message=failure.message,
            next=failure.next,
        )

    def end(self) -> None:
        """Nothing more will be printed."""
        self._clear()

    def _clear(self) -> None:
        if self._drawn:
            self._drawn = False
            _write(sys.stderr, _CLEAR)


def _write(to: TextIO, text: str) -> None:
    try:
        to.write(text)
        to.flush()
    except BrokenPipeError:
        # What is left in the buffer would be tried again when the interpreter ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, to.fileno())
        os.close(nowhere)


def millis(seconds: float | None) -> str:
    """Milliseconds, as a person reads them."""
    return "-" if seconds is None else f"{seconds * 1e3:.3f}"


def size_text(count: float) -> str:
    """A number of bytes, as a person reads it."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"

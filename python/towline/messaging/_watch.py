"""`Watch`: a peer that ends or gives up its half of a stream, seen without a task that waits for
it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .._errors import SessionClosed, StreamError
from .._streams import BidirectionalStream

__all__ = ["Watch"]


class Watch:
    """Calls `on_over(clean)` once the peer ends its half, cleanly or not. More than that it must
    not send."""

    __slots__ = ("_future", "_on_over", "_stream")

    def __init__(self, stream: BidirectionalStream, on_over: Callable[[bool], None]) -> None:
        self._stream = stream
        self._on_over = on_over
        self._future: asyncio.Future[None] | None = None
        self._look()

    def stop(self) -> None:
        """Watches no longer."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.remove_done_callback(self._on_called)
            future.cancel()
            self._stream._core.driver._forget(self._stream._recv.token, future)

    def _on_called(self, future: asyncio.Future[None]) -> None:
        if self._future is future and not future.cancelled():
            self._future = None
            self._look()

    def _look(self) -> None:
        try:
            data = self._stream._recv.read(1)
        except (StreamError, SessionClosed):
            self._on_over(False)
            return
        if data is None:
            self._future = self._stream._core.driver.when(self._stream._recv.token)
            self._future.add_done_callback(self._on_called)
        else:
            self._on_over(not data)

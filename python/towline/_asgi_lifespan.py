"""The start and the end of an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["Lifespan"]

logger = logging.getLogger("towline")

_Message = MutableMapping[str, Any]
_Application = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[_Message]],
        Callable[[_Message], Awaitable[None]],
    ],
    Awaitable[None],
]


class Lifespan:
    """Tells an application of start and end, and keeps what it puts into its state."""

    def __init__(self, app: _Application, mode: str, grace: float) -> None:
        if mode not in ("auto", "on", "off"):
            raise ValueError(f"argument 'lifespan': 'auto', 'on' or 'off', not {mode!r}")
        self.state: dict[str, Any] = {}
        self._app = app
        self._mode = mode
        self._grace = grace
        self._task: asyncio.Task[None] | None = None
        self._messages: asyncio.Queue[_Message] = asyncio.Queue()
        self._answered = asyncio.Event()
        # Why the application would not start.
        self._refusal: str | None = None

    async def startup(self) -> None:
        """Has the application start. Raises `RuntimeError` when it does not."""
        if self._mode == "off":
            return
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name="towline: lifespan")
        self._messages.put_nowait({"type": "lifespan.startup"})
        try:
            await self._answered.wait()
        except BaseException:
            await self._cancel()
            raise
        if self._refusal is not None:
            await self._cancel()
            raise RuntimeError(f"the application did not start: {self._refusal}")

    async def shutdown(self) -> None:
        """Has the application stop, if it runs."""
        task = self._task
        if task is None:
            return
        try:
            if not task.done():
                self._answered.clear()
                self._messages.put_nowait({"type": "lifespan.shutdown"})
                async with asyncio.timeout(self._grace):
                    await self._answered.wait()
        except TimeoutError:
            logger.error("the application did not stop within %s s", self._grace)
        finally:
            await self._cancel()

    async def _cancel(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            # What has said its last word may still be about to return.
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            await self._app(scope, self._messages.get, self._send)
        except Exception as error:
            if self._answered.is_set():
                logger.error("the application failed beside its requests", exc_info=error)
            elif self._mode == "on":
                self._refusal = f"it failed with {error!r}"
            else:
                logger.debug("the application has no lifespan: %r", error)
        finally:
            self._answered.set()

    async def _send(self, message: _Message) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.failed":
            self._refusal = message.get("message", "") or "it says so without a reason"
        elif kind == "lifespan.shutdown.failed":
            logger.error("the application did not stop well: %s", message.get("message", ""))
        elif kind not in ("lifespan.startup.complete", "lifespan.shutdown.complete"):
            raise RuntimeError(f"the message '{kind}' has no place here")
        self._answered.set()

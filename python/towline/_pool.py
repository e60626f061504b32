"""Connections of HTTP/3 that are kept for the next request, of one loop."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator

from . import _native
from ._client import addresses_of
from ._core import Core
from ._driver import Driver, client_driver, settle
from ._errors import TowlineError

__all__ = ["Kept", "Pool", "client_pool", "current_pool"]

_MAX_CODE = 2**62 - 1

Key = tuple[str, int, _native.ClientConfig]


class Kept:
    """A connection to one origin, whose certificate was believed in one way."""

    __slots__ = ("core", "failure", "operation", "waiting")

    def __init__(self) -> None:
        self.core: Core | None = None
        # Why there is none.
        self.failure: TowlineError | None = None
        self.operation: _native.Operation[_native.Session] | None = None
        # Requests that wait for the connection; the last one to leave gives the attempt up.
        self.waiting: int = 0

    async def reach(self, driver: Driver, key: Key) -> Core:
        """The connection, as soon as there is one. All who wait share the attempt."""
        host, port, config = key
        self.waiting += 1
        try:
            if self.operation is None:
                addresses = await addresses_of(driver.loop, host, port)
                if self.operation is None:
                    self.operation = driver.engine.reach(addresses, host, config, True)
            operation = self.operation
            while self.core is None:
                if self.failure is not None:
                    raise copy.copy(self.failure)
                try:
                    native = operation.poll()
                except TowlineError as error:
                    self.failure = error
                    raise
                if native is None:
                    await driver.wait(operation.token, operation.delay())
                else:
                    self.core = Core(driver, native, _MAX_CODE)
            driver.nudge()
            return self.core
        finally:
            self.waiting -= 1
            if self.core is None and self.waiting == 0 and self.operation is not None:
                self.operation.cancel()
                self.operation = None
                if not driver.loop.is_closed():
                    driver.nudge()


class Pool:
    """The connections of one loop. They end when nobody has used them for the idle timeout, when they
    are closed, or with the loop, as `asyncio.run` ends it."""

    __slots__ = ("_driver", "_ending", "_kept")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._kept: dict[Key, Kept] = {}
        self._ending: AsyncGenerator[None, None] | None = None

    async def connection(self, key: Key) -> tuple[Kept, bool]:
        """The connection for `key`, and whether it was used before."""
        if self._ending is None:
            # Loops end their asynchronous generators: this one closes the connections then.
            self._ending = self._until_the_end()
            await self._ending.__anext__()
        kept = self._kept.get(key)
        if kept is not None and kept.core is not None:
            if kept.core.over() is None:
                return kept, True
            kept = None
        if kept is None:
            self._forget_the_dead()
            kept = self._kept[key] = Kept()
        try:
            await kept.reach(self._driver, key)
        except BaseException:
            if kept.core is None and (kept.waiting == 0 or kept.failure is not None):
                self.forget(key, kept)
            raise
        return kept, False

    def forget(self, key: Key, kept: Kept) -> None:
        """Takes no new request to this connection; those that run go on."""
        if self._kept.get(key) is kept:
            del self._kept[key]

    async def aclose(self) -> None:
        """Closes all connections, when what was sent has arrived."""
        cores = self._take()
        try:
            if not self._driver.closed:
                await settle(self._driver, [core.native for core in cores])
        finally:
            self._close(cores)

    def _take(self) -> list[Core]:
        kept, self._kept = self._kept, {}
        cores = [one.core for one in kept.values() if one.core is not None]
        return [core for core in cores if core.over() is None]

    def _close(self, cores: list[Core]) -> None:
        for core in cores:
            core.close(0, "")
        self._driver.turn_now()
        for core in cores:
            core.native.release()

    def _forget_the_dead(self) -> None:
        for key, kept in list(self._kept.items()):
            if kept.core is not None and kept.core.over() is not None:
                del self._kept[key]

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._close(self._take())


def client_pool() -> Pool:
    """The connections of the running loop."""
    driver = client_driver()
    pool = driver.pool
    if not isinstance(pool, Pool):
        pool = driver.pool = Pool(driver)
    return pool


def current_pool() -> Pool | None:
    """The same, where there are any."""
    asyncio.get_running_loop()
    pool = client_driver().pool
    return pool if isinstance(pool, Pool) else None

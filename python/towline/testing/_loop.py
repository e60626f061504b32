"""`VirtualLoop`: an asyncio event loop whose time moves by itself.

It has no descriptor and waits for nothing. When nobody has anything to do, its clock goes to the
next moment at which something happens: a timer of the loop's, or something of its simulated
network. Only calls in threads (`run_in_executor`, `asyncio.to_thread`) are waited for, and take no
virtual time.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import math
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, cast

from .. import _native
from .._driver import close_drivers
from .._errors import UsageError
from ._stuck import Deadlock, TimeLimit, waiting_tasks

if TYPE_CHECKING:
    from ._world import Host, World

__all__ = ["VirtualLoop"]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_NANOS = 1_000_000_000
# The least step of the clock, seconds.
_RESOLUTION = 1e-9
# The end of virtual time: some 290 years.
_LAST = 2**63 - 1


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time: `time()` begins at 0, and no call of it waits in real time.

    `towline.testing.simulation` makes one with simulated hosts. Alone, as the `loop_factory` of
    `asyncio.Runner`, it serves programs of timers, tasks and queues. What would need a descriptor
    of the machine (sockets, pipes, processes) raises `UsageError`.
    """

    # What the base class has and its types do not tell.
    _clock_resolution: float

    def __init__(self, world: World | None = None) -> None:
        super().__init__()
        self._world = world
        self._network = _native.Network(0) if world is None else world._network
        self._selector = _Selector(self)
        self._readers: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self._signals: dict[int, object] = {}
        # Calls in threads, and what they wake the loop by.
        self._calls = 0
        self._woken = threading.Event()
        self._numbers = itertools.count()
        # Where a run is given up, nanoseconds.
        self._limit = _LAST
        self._limit_words = ""
        self._clock_resolution = _RESOLUTION
        self.set_task_factory(_task)

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._network.now / _NANOS

    @property
    def towline_host(self) -> Host:
        """The simulated host that the running code is at."""
        if self._world is None:
            raise UsageError(
                "this loop has no simulated hosts; run the program in towline.testing.simulation"
            )
        return self._world.here

    def add_reader(
        self, fd: Any, callback: Callable[[Unpack[_Ts]], Any], *args: Unpack[_Ts]
    ) -> None:
        """For the drivers of simulated sockets."""
        self._check(fd)
        self._readers[fd] = (callback, args)

    def remove_reader(self, fd: Any) -> bool:
        """For the drivers of simulated sockets."""
        return self._readers.pop(fd, None) is not None

    def add_writer(
        self, fd: Any, callback: Callable[[Unpack[_Ts]], Any], *args: Unpack[_Ts]
    ) -> None:
        """Simulated sockets always have room."""
        self._check(fd)
        self.call_soon(callback, *args)

    def remove_writer(self, fd: Any) -> bool:
        """There are none."""
        return False

    def _check(self, fd: object) -> None:
        if not isinstance(fd, int) or fd < _native.Network.FIRST_NUMBER:
            raise _refusal("a descriptor of the machine")

    async def getaddrinfo(  # type: ignore[override]
        self,
        host: str | bytes | None,
        port: str | int | None,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        """The address of a simulated host."""
        name = host.decode() if isinstance(host, bytes) else host or ""
        hosts = {} if self._world is None else self._world.hosts
        if name not in hosts:
            known = ", ".join(hosts) or "there are none"
            words = f"the simulation has no host of this name (hosts: {known})"
            raise socket.gaierror(socket.EAI_NONAME, words)
        address = (hosts[name].address, int(port or 0))
        kind = socket.SOCK_DGRAM if type == 0 else socket.SocketKind(type)
        return [(socket.AF_INET, kind, proto, "", address)]

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[_Ts]], _T], *args: Unpack[_Ts]
    ) -> asyncio.Future[_T]:
        """Calls `func` in a thread. Virtual time stands still until it returns."""
        future = super().run_in_executor(executor, func, *args)
        self._calls += 1
        future.add_done_callback(self._on_return)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Waits for the threads, in real time."""
        self._calls += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._calls -= 1

    def _on_return(self, _: object) -> None:
        self._calls -= 1

    def add_signal_handler(
        self, sig: int, callback: Callable[[Unpack[_Ts]], object], *args: Unpack[_Ts]
    ) -> None:
        """Calls `callback` when the signal comes. For the main thread."""

        def on_signal(*_: object) -> None:
            if not self.is_closed():
                self.call_soon_threadsafe(callback, *args)

        try:
            signal.signal(sig, on_signal)
        except ValueError as error:
            raise RuntimeError(str(error)) from error
        self._signals[sig] = on_signal

    def remove_signal_handler(self, sig: int) -> bool:
        """Has the signal do again what it does by itself."""
        if self._signals.pop(sig, None) is None:
            return False
        default = signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL
        signal.signal(sig, default)
        return True

    def close(self) -> None:
        """Closes the loop, and the endpoints on it."""
        if self.is_closed():
            return
        super().close()
        for sig in list(self._signals):
            self.remove_signal_handler(sig)
        close_drivers(self)
        self._readers.clear()

    # The base class calls these.

    def _write_to_self(self) -> None:
        self._woken.set()

    def _process_events(self, events: list[int]) -> None:
        for fd in events:
            callback, args = self._readers[fd]
            self.call_soon(callback, *args)

    def _due(self) -> list[int]:
        """The drivers that have something to do now."""
        return [fd for fd in self._network.poll() if fd in self._readers]

    def _move_on(self, timeout: float | None) -> None:
        """Goes to the next moment: in `timeout` seconds, or when the network has something."""
        network = self._network
        times = [network.next_timeout()]
        if timeout is not None:
            times.append(min(network.now + math.ceil(timeout * _NANOS), _LAST))
        moment = min((time for time in times if time is not None), default=None)
        if moment is None:
            raise Deadlock(
                f"at {self.time():.6f} s nothing can happen any more: no timer is set and nothing "
                f"is on its way\n{waiting_tasks(self)}"
            )
        if moment > self._limit or moment == _LAST:
            words = self._limit_words or "virtual time has come to its end"
            raise TimeLimit(f"at {self.time():.6f} s {words}\n{waiting_tasks(self)}")
        network.advance_to(moment)
        # A time so far from 0 that floats are coarser than nanoseconds must still be reached.
        self._clock_resolution = max(_RESOLUTION, math.ulp(self.time()))


class _Selector:
    """What the base class waits with."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[int]:
        """The drivers that have something to do. If none has and `timeout` is not 0, time moves."""
        loop = self._loop
        due = loop._due()
        if due or (timeout is not None and timeout <= 0):
            return due
        if loop._calls:
            loop._woken.wait()
        if loop._woken.is_set():
            # Another thread, or a signal, has called something.
            loop._woken.clear()
            return []
        loop._move_on(timeout)
        return loop._due()


class _Task(asyncio.Task[_T]):
    """A task whose place in a set is the same each time: `TaskGroup` cancels in that order."""

    def __new__(
        cls, coroutine: object, *, loop: VirtualLoop, **options: object
    ) -> _Task[_T]:
        task = super().__new__(cls)
        task._number = next(loop._numbers)
        return task

    _number: int

    def __hash__(self) -> int:
        return self._number


def _task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, _T] | Generator[Any, None, _T],
    **options: Any,
) -> _Task[_T]:
    return _Task(coroutine, loop=cast(VirtualLoop, loop), **options)


def _refusal(what: str) -> UsageError:
    return UsageError(
        f"a loop in virtual time has nothing to do with {what}: only simulated hosts are there, by "
        "towline.connect and towline.serve; run what needs more on a real loop"
    )


def _refuse(name: str) -> None:
    def refused(self: VirtualLoop, *args: object, **options: object) -> object:
        raise _refusal(f"`{name}`")

    refused.__name__ = name
    refused.__doc__ = "Raises `UsageError`: there is nothing of the machine's here."
    setattr(VirtualLoop, name, refused)


for _name in (
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getnameinfo",
    "sendfile",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
):
    _refuse(_name)

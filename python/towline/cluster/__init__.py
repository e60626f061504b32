"""`Cluster`: a server of several processes on one UDP port, each of which uses a core of its own.

    cluster = Cluster("myapp:app", "localhost", 4433, workers=4, certificate=certificate)
    cluster.run()

The first byte of a connection ID says which process the connection is in, and the kernel reads it:
a connection stays where it began, also when the client's address changes. The parent keeps the
sockets open and serves nothing: when a worker dies, its socket stays, the next one takes it over,
and tells the clients whose connections are lost. The others notice nothing.

It needs Linux, because of `SO_ATTACH_REUSEPORT_CBPF`. Where the kernel merges datagrams of several
connections of one client address (GRO), those of another process are dropped, and the client sends
them again. A resumed handshake works at the worker that gave the ticket; at the others it is a full
one.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import inspect
import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .. import _native
from .._arguments import checked_names, texts
from .._certificates import Certificate
from .._client import addresses_of
from .._errors import TowlineError

__all__ = ["Cluster", "ClusterError", "WorkerInfo", "WorkerState"]

logger: logging.Logger = logging.getLogger("towline.cluster")

_MOST_WORKERS = 64
# Times that a port is asked of the system which must be free at every address.
_PORT_ATTEMPTS = 8
# How long a worker may take to start, seconds.
_START_LIMIT = 30.0
# What a worker has beyond its grace before it is killed, seconds.
_KILL_AFTER = 5.0
# What reports have after the end of their worker, seconds.
_LAST_REPORTS = 1.0
_LONGEST_REPORT = 65536


class ClusterError(TowlineError):
    """The cluster could not start: a worker failed, and says why."""


class WorkerState(enum.Enum):
    """What a worker does."""

    STARTING = "starting"
    """Its process starts."""
    RUNNING = "running"
    """It serves."""
    WAITING = "waiting"
    """It died, and is started again after a wait."""
    STOPPED = "stopped"
    """The cluster has stopped it."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as of now."""

    index: int
    """Its place: the first byte of its connection IDs."""
    state: WorkerState
    """What it does."""
    pid: int | None
    """Its process, while there is one."""
    restarts: int
    """How often it was started again."""
    last_exit: int | None
    """The status of the process before, negative for a signal; `None` if there was none."""
    sessions: int | None
    """Its sessions, as it told last; `None` before it did."""
    connections: int | None
    """Its connections, as it told last; `None` before it did."""
    misdirected: int | None
    """Datagrams of other workers' that came to this process, as it told last; `None` before it did."""


class _Worker:
    """A place, and the process that has it."""

    def __init__(self, index: int) -> None:
        self.index: int = index
        self.state: WorkerState = WorkerState.STARTING
        self.process: asyncio.subprocess.Process | None = None
        self.ready: asyncio.Event = asyncio.Event()
        self.has_served: bool = False
        self.starts: int = 0
        self.last_exit: int | None = None
        self.failure: str | None = None
        self.sessions: int | None = None
        self.connections: int | None = None
        self.misdirected: int | None = None
        # It is to be started again, and at once.
        self.planned: bool = False

    def info(self) -> WorkerInfo:
        pid = None if self.process is None else self.process.pid
        return WorkerInfo(
            self.index,
            self.state,
            pid,
            max(self.starts - 1, 0),
            self.last_exit,
            self.sessions,
            self.connections,
            self.misdirected,
        )

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Cluster:
    """`workers` processes that serve `target` at one address: `async with` it, or `run()`.

    `target` is `module:name` or `file.py:name` of a `ServerApp` or of a handler of sessions, or a
    handler that is a function at the level of its module. Each worker imports it anew. `loop` is
    such a name of what makes its event loop, `uvloop:new_event_loop`. The other arguments are those
    of `towline.serve`.

    A worker that dies is started again: at once the first time, then after waits that double from
    `backoff` to `max_backoff` seconds, until one has lived for `stable` seconds.
    """

    def __init__(
        self,
        target: str | Callable[..., Any],
        host: str | None = "localhost",
        port: int = 0,
        *,
        certificate: Certificate,
        workers: int | None = None,
        origins: Iterable[str] | None = None,
        protocols: Iterable[str] = (),
        grace: float = 10.0,
        loop: str | None = None,
        backoff: float = 0.5,
        max_backoff: float = 30.0,
        stable: float = 10.0,
    ) -> None:
        if not isinstance(certificate, Certificate):
            kind = type(certificate).__name__
            raise TypeError(f"argument 'certificate': a Certificate is required, not '{kind}'")
        count = workers or len(os.sched_getaffinity(0))
        if not isinstance(count, int) or not 1 <= count <= _MOST_WORKERS:
            raise ValueError(f"argument 'workers': 1 to {_MOST_WORKERS}, not {workers!r}")
        self._target = _target_name(target)
        self._host = host
        self._port = port
        self._certificate = certificate
        self._count = count
        self._origins = None if origins is None else texts("origins", origins)
        self._protocols = checked_names("protocols", protocols)
        self._grace = grace
        self._loop = loop
        self._backoff = backoff
        self._max_backoff = max_backoff
        self._stable = stable
        self._secret = secrets.token_hex(32)
        # At each address, one socket for each worker.
        self._groups: list[list[int]] = []
        self._workers: list[_Worker] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping = False
        self._stopped: asyncio.Event | None = None

    @property
    def port(self) -> int:
        """The port it listens at."""
        return self._port

    @property
    def url(self) -> str:
        """Where clients find it, with the path `/`."""
        host = self._host or "localhost"
        return f"https://{f'[{host}]' if ':' in host else host}:{self._port}"

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """The workers as of now, by their places."""
        return tuple(worker.info() for worker in self._workers)

    async def __aenter__(self) -> Self:
        if self._stopped is not None:
            raise RuntimeError("the cluster was started before")
        self._stopped = asyncio.Event()
        await self._bind()
        loop = asyncio.get_running_loop()
        try:
            for index in range(self._count):
                worker = _Worker(index)
                self._workers.append(worker)
                keeping = self._keep(worker)
                self._keepers.append(loop.create_task(keeping, name=f"towline: worker {index}"))
            for worker in self._workers:
                async with asyncio.timeout(_START_LIMIT):
                    await self._started(worker)
        except TimeoutError:
            await self.close()
            raise ClusterError(
                f"the workers did not start in {_START_LIMIT:.0f} seconds each"
            ) from None
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def run(self) -> None:
        """Serves until SIGTERM or Ctrl-C comes, on a loop of its own."""

        async def main() -> None:
            async with self:
                await self.serve_forever()

        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(main())

    async def serve_forever(self) -> None:
        """Runs until SIGTERM comes, or the cluster is closed. After the signal the workers drain,
        then end."""
        if self._stopped is None:
            raise RuntimeError("the cluster does not run: `async with` it first")
        loop = asyncio.get_running_loop()
        catches = threading.current_thread() is threading.main_thread()
        stopped = self._stopped
        before = None
        if catches:
            before = signal.getsignal(signal.SIGTERM)
            loop.add_signal_handler(signal.SIGTERM, stopped.set)
        try:
            await stopped.wait()
        finally:
            if catches:
                loop.remove_signal_handler(signal.SIGTERM)
                signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
        await self.close()

    async def restart(self, index: int | None = None) -> None:
        """Starts one worker again, or all of them one after another. Each drains before; meanwhile,
        new clients whose connections would be its own are refused.

        One that takes longer than its grace is killed. Raises `ClusterError` for one that does not
        come back in time; it is tried again and again meanwhile.
        """
        chosen = self._workers if index is None else [self._workers[index]]
        for worker in chosen:
            worker.ready.clear()
            process = worker.process
            worker.planned = process is not None
            worker.signal(signal.SIGTERM)
            limit = self._grace + _KILL_AFTER
            if process is not None:
                loop = asyncio.get_running_loop()
                loop.call_later(limit, self._kill_if, worker, process, None)
            try:
                async with asyncio.timeout(limit + _START_LIMIT):
                    await worker.ready.wait()
            except TimeoutError:
                words = f"worker {worker.index} did not come back: {worker.failure}"
                raise ClusterError(words) from None

    async def close(self) -> None:
        """Has the workers drain, and ends them. One that takes longer than the grace is killed."""
        self._stopping = True
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        if self._keepers:
            for keeper, worker in zip(self._keepers, self._workers, strict=True):
                if worker.process is None or worker.process.returncode is not None:
                    # It waits to start again.
                    keeper.cancel()
            _, late = await asyncio.wait(self._keepers, timeout=self._grace + _KILL_AFTER)
            if late:
                for worker in self._workers:
                    worker.signal(signal.SIGKILL)
                await asyncio.wait(late)
            for keeper in self._keepers:
                if not keeper.cancelled() and (error := keeper.exception()) is not None:
                    logger.error("a worker could not be kept", exc_info=error)
            self._keepers.clear()
        for group in self._groups:
            for fd in group:
                os.close(fd)
        self._groups.clear()
        if self._stopped is not None:
            self._stopped.set()

    async def _started(self, worker: _Worker) -> None:
        await worker.ready.wait()
        if worker.failure is not None:
            words = f"worker {worker.index} did not start: {worker.failure}"
            raise ClusterError(words)

    async def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if self._host in (None, ""):
            try:
                self._bind_all([("::", self._port)])
            except OSError:
                # A machine without IPv6.
                self._bind_all([("0.0.0.0", self._port)])
            return
        addresses = await addresses_of(loop, str(self._host), self._port)
        attempts = _PORT_ATTEMPTS if self._port == 0 else 1
        while True:
            attempts -= 1
            try:
                self._bind_all(addresses)
                return
            except OSError:
                bound = bool(self._groups)
                for group in self._groups:
                    for fd in group:
                        os.close(fd)
                self._groups.clear()
                # The port that one address had free may be taken at another.
                if not bound or attempts == 0:
                    raise

    def _bind_all(self, addresses: list[tuple[str, int]]) -> None:
        missing: OSError | None = None
        port = self._port
        for host, _ in addresses:
            try:
                group, port = _native.bind_group(host, port, self._count)
                self._groups.append(group)
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
        if not self._groups:
            raise missing or OSError(f"{self._host} has no address")
        self._port = port

    async def _keep(self, worker: _Worker) -> None:
        """Keeps a place taken, until the cluster stops."""
        loop = asyncio.get_running_loop()
        failures = 0
        try:
            while not self._stopping:
                began = loop.time()
                try:
                    await self._live(worker)
                except OSError as error:
                    worker.failure = f"no process could be started: {error}"
                    logger.error("worker %d: %s", worker.index, worker.failure)
                except Exception as error:
                    # A place is kept whatever one process was like.
                    worker.failure = f"its process could not be kept: {error!r}"
                    logger.exception("worker %d could not be kept", worker.index)
                if self._stopping:
                    return
                if worker.starts == 1 and not worker.has_served:
                    # It never served: whoever starts the cluster is told.
                    worker.failure = worker.failure or f"it ended with status {worker.last_exit}"
                    worker.ready.set()
                    return
                if worker.planned:
                    worker.planned = False
                    failures = 0
                    continue
                lived = loop.time() - began
                failures = 0 if lived >= self._stable else failures + 1
                wait = 0.0
                if failures > 1:
                    wait = min(self._max_backoff, self._backoff * 2.0 ** min(failures - 2, 32))
                logger.error(
                    "worker %d ended with status %s after %.1f s; it starts again in %.1f s",
                    worker.index,
                    worker.last_exit,
                    lived,
                    wait,
                )
                worker.state = WorkerState.WAITING
                await asyncio.sleep(wait)
        finally:
            worker.state = WorkerState.STOPPED
            worker.ready.set()

    async def _live(self, worker: _Worker) -> None:
        """The life of one process."""
        ours, theirs = socket.socketpair()
        sockets = [group[worker.index] for group in self._groups]
        worker.state = WorkerState.STARTING
        worker.starts += 1
        worker.failure = worker.sessions = worker.connections = worker.misdirected = None
        try:
            package = str(Path(__file__).parent.parent.parent)
            code = (
                f"import sys; sys.path.insert(0, {package!r}); "
                f"from towline.cluster._worker import main; main({theirs.fileno()})"
            )
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                code,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *sockets],
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        worker.process = process
        loop = asyncio.get_running_loop()
        late = loop.call_later(_START_LIMIT, self._kill_if, worker, process, WorkerState.STARTING)
        reader, writer = await asyncio.open_connection(sock=ours, limit=_LONGEST_REPORT)
        listening = loop.create_task(self._listen(worker, reader))
        try:
            writer.write(self._config(worker, sockets))
            if self._stopping:
                worker.signal(signal.SIGTERM)
            # Its end decides, not that of the reports: a child that it forked may keep those open.
            worker.last_exit = await process.wait()
            await asyncio.wait({listening}, timeout=_LAST_REPORTS)
        finally:
            late.cancel()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            worker.last_exit = process.returncode
            worker.process = None

    def _kill_if(
        self, worker: _Worker, process: asyncio.subprocess.Process, state: WorkerState | None
    ) -> None:
        """Kills this process of a worker, if it still is that, and in this state."""
        if worker.process is process and state in (None, worker.state):
            logger.error("worker %d took too long, and is killed", worker.index)
            worker.signal(signal.SIGKILL)

    async def _listen(self, worker: _Worker, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while True:
                try:
                    line = await reader.readline()
                    if not line:
                        return
                    report = json.loads(line)
                except ValueError:
                    # A report of which a part did not fit.
                    continue
                if "ready" in report:
                    worker.state = WorkerState.RUNNING
                    worker.has_served = True
                    worker.ready.set()
                elif "failed" in report:
                    worker.failure = report["failed"]
                    logger.error("worker %d failed: %s", worker.index, worker.failure)
                else:
                    worker.sessions = report["sessions"]
                    worker.connections = report["connections"]
                    worker.misdirected = report["misdirected"]

    def _config(self, worker: _Worker, sockets: list[int]) -> bytes:
        # By the socket, because others can read a process's arguments.
        config = {
            "target": self._target,
            "host": self._host,
            "port": self._port,
            "index": worker.index,
            "count": self._count,
            "sockets": sockets,
            "secret": self._secret,
            "chain": self._certificate.certificate_pem,
            "key": self._certificate.private_key_pem,
            "origins": self._origins,
            "protocols": self._protocols,
            "grace": self._grace,
            "loop": self._loop,
            "path": sys.path,
        }
        return json.dumps(config).encode() + b"\n"


def _target_name(target: str | Callable[..., Any]) -> str:
    if isinstance(target, str):
        if ":" not in target:
            raise ValueError(f"argument 'target': '{target}' is none of the form module:name")
        return target
    if not inspect.isfunction(target) or "<" in target.__qualname__:
        words = "a name as 'module:name', or a function at the level of its module is required"
        raise TypeError(f"argument 'target': {words}")
    if target.__module__ != "__main__":
        return f"{target.__module__}:{target.__qualname__}"
    return f"{Path(inspect.getfile(target)).resolve()}:{target.__qualname__}"

"""What a program does, as numbers: snapshots, a bounded history, alerts, JSON and Prometheus text.

    monitor = Monitor(process_values, lambda: server_values(server))
    monitor.alert(Alert("many sessions", "towline_sessions", above=1000, clear=900), print)
    async with monitor:                         # a snapshot each second
        ...
        print(monitor.prometheus())

A source is a function that gives values by their series' names. What was not measured is absent,
never 0.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ._errors import SessionClosed
from ._server import Server
from ._session import Session
from .cluster import Cluster, WorkerState

__all__ = [
    "Alert",
    "AlertEvent",
    "Monitor",
    "Snapshot",
    "Source",
    "cluster_values",
    "process_values",
    "series",
    "server_values",
    "session_values",
]

logger: logging.Logger = logging.getLogger("towline.monitor")

Number = int | float
Source = Callable[[], Mapping[str, Number | None]]
"""What gives values by their series: a name, perhaps with labels, as `series` writes it."""

# Of a server's sessions, the most whose round trips are looked at in one snapshot.
_SAMPLED_SESSIONS = 1000
_SERIES = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{.*\})?", re.DOTALL)

# What a name means, for Prometheus: its kind, and words.
_KNOWN: dict[str, tuple[str, str]] = {
    "process_cpu_seconds_total": ("counter", "Time of processors that the process used."),
    "process_resident_memory_bytes": ("gauge", "Memory of the process that is resident."),
    "process_open_fds": ("gauge", "Descriptors that the process has open."),
    "towline_threads": ("gauge", "Threads of Python."),
    "towline_tasks": ("gauge", "Tasks of the event loop."),
    "towline_loop_lag_seconds": ("gauge", "How late the event loop called the monitor last."),
    "towline_sessions": ("gauge", "Sessions that are open."),
    "towline_connections": ("gauge", "Connections in any state."),
    "towline_requests_pending": ("gauge", "Requests for sessions that have no answer yet."),
    "towline_sessions_accepted_total": ("counter", "Sessions that clients were given."),
    "towline_sessions_refused_total": ("counter", "Sessions that clients were refused."),
    "towline_smoothed_rtt_seconds": ("gauge", "Round trips of the sessions, by their share."),
    "towline_workers": ("gauge", "Workers of the cluster, by their state."),
    "towline_worker_sessions": ("gauge", "Sessions of a worker, as it told last."),
    "towline_worker_connections": ("gauge", "Connections of a worker, as it told last."),
    "towline_worker_restarts_total": ("counter", "How often a worker was started again."),
    "towline_worker_misdirected_datagrams_total": (
        "counter",
        "Datagrams of other workers that came to a worker, and were dropped.",
    ),
    "towline_session_smoothed_rtt_seconds": ("gauge", "Round trip of a session, smoothed."),
    "towline_session_min_rtt_seconds": ("gauge", "Smallest round trip of a session."),
    "towline_session_send_rate_bytes": ("gauge", "What the path seems to carry, a second."),
    "towline_session_sent_bytes_total": ("counter", "Bytes of packets sent."),
    "towline_session_received_bytes_total": ("counter", "Bytes of packets received."),
    "towline_session_lost_packets_total": ("counter", "Packets sent and declared lost."),
    "towline_session_dropped_datagrams_total": ("counter", "Datagrams that nobody read in time."),
}


def series(name: str, /, **labels: object) -> str:
    """The name of a series with labels: `series("hits", path="/a")` is `hits{path="/a"}`."""
    if not labels:
        return name
    escapes = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
    pairs = (
        f'{label}="{"".join(escapes.get(char, char) for char in str(value))}"'
        for label, value in labels.items()
    )
    return f"{name}{{{','.join(pairs)}}}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The values of one moment. What was not measured is not there."""

    time: float
    """When, seconds since 1970."""
    values: Mapping[str, Number]
    """The values by their series."""
    at: float
    """When by the monitor's own clock, seconds."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"time": self.time, "values": dict(self.values)}


@dataclass(frozen=True, slots=True)
class Alert:
    """A threshold of a series, with hysteresis.

    It becomes active when the value is `above`, or `below`, for `hold` seconds, and passive when
    the value comes back to `clear`; without `clear`, to the threshold. With `rate`, the value is
    the series' growth a second over so many seconds. While there is no value, it stays as it is.
    """

    name: str
    """What it is called."""
    series: str
    """The series that it looks at."""
    above: float | None = None
    """It is active above this."""
    below: float | None = None
    """Or below this."""
    clear: float | None = None
    """It is passive again at this."""
    hold: float = 0.0
    """Seconds for which the value must be so before it is active."""
    rate: float | None = None
    """Seconds over which the growth is looked at, instead of the value."""

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            raise ValueError("argument 'above': either it or 'below' is given")
        if self.clear is not None:
            wrong = (
                self.clear > self.above
                if self.above is not None
                else self.clear < (self.below or 0.0)
            )
            if wrong:
                raise ValueError("argument 'clear': it is on the passive side of the threshold")
        if self.hold < 0:
            raise ValueError(f"argument 'hold': at least 0, not {self.hold!r}")
        if self.rate is not None and not self.rate > 0:
            raise ValueError(f"argument 'rate': above 0, not {self.rate!r}")

    def _is_beyond(self, value: float) -> bool:
        if self.above is not None:
            return value > self.above
        return self.below is not None and value < self.below

    def _is_clear(self, value: float) -> bool:
        if self.above is not None:
            return value <= (self.above if self.clear is None else self.clear)
        return value >= (self.below or 0.0 if self.clear is None else self.clear)


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """An alert became active or passive."""

    alert: Alert
    """Which."""
    active: bool
    """Whether it is active now."""
    value: float
    """The value that made it so."""
    time: float
    """When, seconds since 1970."""


class _Watched:
    """An alert, and how it stands."""

    def __init__(self, alert: Alert, callback: Callable[[AlertEvent], object]) -> None:
        self.alert: Alert = alert
        self.callback: Callable[[AlertEvent], object] = callback
        self.active: bool = False
        self.beyond_since: float | None = None


class Monitor:
    """Takes a snapshot of its sources every `interval` seconds, and keeps the last `history` of
    them.

    `async with` it, or call `sample()` yourself. A source that raises is logged once in a row, and
    its values are absent. `clock` gives seconds, for the monitor's own times.
    """

    def __init__(
        self,
        *sources: Source,
        interval: float = 1.0,
        history: int = 300,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for source in sources:
            if not callable(source):
                kind = type(source).__name__
                raise TypeError(f"argument 'sources': each must be a function, not '{kind}'")
        if not interval > 0:
            raise ValueError(f"argument 'interval': above 0, not {interval!r}")
        if not isinstance(history, int) or history < 1:
            raise ValueError(f"argument 'history': at least 1, not {history!r}")
        self._sources = sources
        self._failing: set[int] = set()
        self._interval = interval
        self._clock = clock
        self._history: deque[Snapshot] = deque(maxlen=history)
        self._watched: list[_Watched] = []
        self._lag: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def latest(self) -> Snapshot | None:
        """The last snapshot, if there is one."""
        return self._history[-1] if self._history else None

    @property
    def history(self) -> tuple[Snapshot, ...]:
        """The snapshots that are kept, the oldest first."""
        return tuple(self._history)

    @property
    def active_alerts(self) -> tuple[Alert, ...]:
        """The alerts that are active."""
        return tuple(watched.alert for watched in self._watched if watched.active)

    async def __aenter__(self) -> Self:
        if self._timer is not None:
            raise RuntimeError("the monitor runs already")
        self.sample()
        self._set_timer(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def alert(self, alert: Alert, callback: Callable[[AlertEvent], object]) -> None:
        """Has `callback` told when the alert becomes active, and when it becomes passive. What it
        raises is logged."""
        if not callable(callback):
            kind = type(callback).__name__
            raise TypeError(f"argument 'callback': a function is required, not '{kind}'")
        self._watched.append(_Watched(alert, callback))

    def sample(self) -> Snapshot:
        """Takes a snapshot now."""
        values: dict[str, Number] = {}
        if self._lag is not None:
            values["towline_loop_lag_seconds"] = self._lag
        for index, source in enumerate(self._sources):
            try:
                given = source()
                for name, value in given.items():
                    if value is not None and math.isfinite(value):
                        values[_checked(name)] = value
            except Exception:
                if index not in self._failing:
                    logger.exception("a source of a monitor failed")
                self._failing.add(index)
            else:
                self._failing.discard(index)
        snapshot = Snapshot(time.time(), values, self._clock())
        self._history.append(snapshot)
        for watched in self._watched:
            self._look(watched, snapshot)
        return snapshot

    def rate(self, name: str, over: float) -> float | None:
        """How much a series grew a second, over the last so many seconds; `None` where that is not
        known.

        A counter that began anew, as after a restart, is followed from there.
        """
        latest = self.latest
        if latest is None or name not in latest.values:
            return None
        points: list[tuple[float, Number]] = []
        for snapshot in reversed(self._history):
            value = snapshot.values.get(name)
            if value is None or (points and value > points[-1][1]):
                break
            points.append((snapshot.at, value))
            if latest.at - snapshot.at >= over:
                break
        (end, last), (begin, first) = points[0], points[-1]
        return (last - first) / (end - begin) if end > begin else None

    def to_json(self, *, history: bool = False) -> str:
        """The last snapshot as JSON, or all that are kept."""
        if history:
            return json.dumps([snapshot.to_dict() for snapshot in self._history])
        return json.dumps(None if self.latest is None else self.latest.to_dict())

    def prometheus(self) -> str:
        """The last snapshot in Prometheus's text format 0.0.4."""
        if self.latest is None:
            return ""
        families: dict[str, list[str]] = {}
        for name, value in self.latest.values.items():
            family = name.partition("{")[0]
            families.setdefault(family, []).append(f"{name} {value!r}")
        lines: list[str] = []
        for family, samples in families.items():
            known = _KNOWN.get(family)
            if known is not None:
                lines.append(f"# HELP {family} {known[1]}")
            lines.append(f"# TYPE {family} {'untyped' if known is None else known[0]}")
            lines.extend(samples)
        return "".join(f"{line}\n" for line in lines)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + self._interval

        def tick() -> None:
            self._lag = max(loop.time() - due, 0.0)
            self.sample()
            if self._timer is not None:
                self._set_timer(loop)

        self._timer = loop.call_at(due, tick)

    def _look(self, watched: _Watched, snapshot: Snapshot) -> None:
        alert = watched.alert
        value: Number | None
        if alert.rate is None:
            value = snapshot.values.get(alert.series)
        else:
            value = self.rate(alert.series, alert.rate)
        if value is None:
            return
        if watched.active:
            if alert._is_clear(value):
                watched.active = False
                watched.beyond_since = None
                self._tell(watched, value, snapshot)
        elif not alert._is_beyond(value):
            watched.beyond_since = None
        else:
            if watched.beyond_since is None:
                watched.beyond_since = snapshot.at
            if snapshot.at - watched.beyond_since >= alert.hold:
                watched.active = True
                self._tell(watched, value, snapshot)

    def _tell(self, watched: _Watched, value: Number, snapshot: Snapshot) -> None:
        event = AlertEvent(watched.alert, watched.active, float(value), snapshot.time)
        try:
            watched.callback(event)
        except Exception:
            logger.exception("the callback of the alert '%s' failed", watched.alert.name)


def process_values() -> dict[str, Number | None]:
    """Of this process: processor time, memory, descriptors, threads and tasks."""
    values: dict[str, Number | None] = {
        "process_cpu_seconds_total": time.process_time(),
        "towline_threads": threading.active_count(),
    }
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        values["process_resident_memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
        # The one that the listing itself has is not meant.
        values["process_open_fds"] = len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        pass
    try:
        values["towline_tasks"] = len(asyncio.all_tasks())
    except RuntimeError:
        # No loop runs here.
        pass
    return values


def server_values(server: Server) -> dict[str, Number | None]:
    """Of a server: sessions, connections, requests, and the round trips of at most 1,000 of its
    sessions."""
    sessions = server._peers
    drivers = [driver for driver in server._drivers if not driver.closed]
    values: dict[str, Number | None] = {
        "towline_sessions": len(sessions),
        "towline_requests_pending": len(server._asking),
        "towline_sessions_accepted_total": server.accepted,
        "towline_sessions_refused_total": server.refused,
    }
    if drivers:
        values["towline_connections"] = sum(one.engine.connection_count for one in drivers)
    trips = list(_round_trips(islice(sessions.values(), _SAMPLED_SESSIONS)))
    if trips:
        name = "towline_smoothed_rtt_seconds"
        values[series(name, quantile="0.5")] = statistics.median(trips)
        values[series(name, quantile="1")] = max(trips)
    return values


def session_values(session: Session, /, **labels: object) -> dict[str, Number | None]:
    """Of one session, with labels where there are several. Of one that is over there is nothing."""
    try:
        numbers = session._core.native.stats()
    except SessionClosed:
        return {}
    measured = numbers["min_rtt"] is not None

    def named(name: str) -> str:
        return series(f"towline_session_{name}", **labels)

    return {
        # Before the first measurement it is a guess.
        named("smoothed_rtt_seconds"): numbers["smoothed_rtt"] if measured else None,
        named("min_rtt_seconds"): numbers["min_rtt"],
        named("send_rate_bytes"): numbers["delivery_rate"],
        named("sent_bytes_total"): numbers["bytes_sent"],
        named("received_bytes_total"): numbers["bytes_received"],
        named("lost_packets_total"): numbers["packets_lost"],
        named("dropped_datagrams_total"): numbers["session_datagrams_dropped"],
    }


def cluster_values(cluster: Cluster) -> dict[str, Number | None]:
    """Of a cluster: its workers by their state, and each worker's counts as it told last."""
    workers = cluster.workers
    values: dict[str, Number | None] = {
        series("towline_workers", state=state.value): sum(
            worker.state is state for worker in workers
        )
        for state in WorkerState
    }
    for worker in workers:
        for name, value in (
            ("sessions", worker.sessions),
            ("connections", worker.connections),
            ("restarts_total", worker.restarts),
            ("misdirected_datagrams_total", worker.misdirected),
        ):
            values[series(f"towline_worker_{name}", worker=worker.index)] = value
    return values


def _round_trips(sessions: Iterable[Session]) -> Iterable[float]:
    for session in sessions:
        try:
            numbers = session._core.native.stats()
        except SessionClosed:
            continue
        if numbers["min_rtt"] is not None and numbers["smoothed_rtt"] is not None:
            yield float(numbers["smoothed_rtt"])


def _checked(name: str) -> str:
    if _SERIES.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a series")
    return name

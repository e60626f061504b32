"""Counts and measurements of connections and sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ConnectionStats", "SessionStats", "connection_stats", "session_stats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStats:
    """Counts and measurements: times in seconds, rates in bytes a second. What was not measured yet is
    `None`."""

    smoothed_rtt: float
    """The smoothed round-trip time; an estimate before the first measurement."""
    rtt_variation: float
    """Its mean variation."""
    min_rtt: float | None
    """The smallest round trip seen."""
    estimated_send_rate: int | None
    """What the path seems to carry."""
    bytes_sent: int
    """Bytes of packets sent."""
    packets_sent: int
    """Packets sent."""
    bytes_lost: int
    """Bytes of packets declared lost."""
    packets_lost: int
    """Packets declared lost."""
    bytes_received: int
    """Bytes received."""
    packets_received: int
    """Packets received."""
    datagrams_dropped: int
    """Datagrams that arrived and that nobody read in time."""
    datagrams_expired: int
    """Datagrams that were too old to be sent, or had become too large."""
    datagrams_lost: int
    """Datagrams sent and declared lost."""
    connection: Mapping[str, int | float | bool | None]
    """Every number of the connection, by its name in Rust and in metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStats(ConnectionStats):
    """Counts and measurements of a session.

    Packets, bytes and round trips are those of the connection, which at a server may carry other
    sessions too.
    """

    datagrams_received: int
    """Datagrams of the session that arrived."""
    streams_opened: int
    """Streams that this end opened."""
    streams_accepted: int
    """Streams of the peer's that were accepted."""


_Numbers = dict[str, int | float | bool | None]


def connection_stats(numbers: _Numbers) -> ConnectionStats:
    """Those of a connection, from what the native half says."""
    return ConnectionStats(**_common(numbers, _whole(numbers, "app_datagrams_dropped")))


def session_stats(numbers: _Numbers) -> SessionStats:
    """Those of a session, from what the native half says."""
    own = {name: _whole(numbers, f"session_{name}") for name in _OWN}
    for name in _OWN:
        del numbers[f"session_{name}"]
    return SessionStats(
        datagrams_received=own["datagrams_received"],
        streams_opened=own["streams_opened"],
        streams_accepted=own["streams_accepted"],
        **_common(numbers, own["datagrams_dropped"]),
    )


# Counts of a session's own.
_OWN = ("datagrams_dropped", "datagrams_received", "streams_accepted", "streams_opened")


def _common(numbers: _Numbers, dropped: int) -> dict[str, Any]:
    minimum, rate = numbers["min_rtt"], numbers["delivery_rate"]
    return {
        "smoothed_rtt": float(numbers["smoothed_rtt"] or 0),
        "rtt_variation": float(numbers["rttvar"] or 0),
        "min_rtt": None if minimum is None else float(minimum),
        "estimated_send_rate": None if rate is None else int(rate),
        "bytes_sent": _whole(numbers, "bytes_sent"),
        "packets_sent": _whole(numbers, "packets_sent"),
        "bytes_lost": _whole(numbers, "bytes_lost"),
        "packets_lost": _whole(numbers, "packets_lost"),
        "bytes_received": _whole(numbers, "bytes_received"),
        "packets_received": _whole(numbers, "packets_received"),
        "datagrams_dropped": dropped,
        "datagrams_expired": _whole(numbers, "app_datagrams_expired"),
        "datagrams_lost": _whole(numbers, "app_datagrams_lost"),
        "connection": numbers,
    }


def _whole(numbers: _Numbers, name: str) -> int:
    return int(numbers[name] or 0)

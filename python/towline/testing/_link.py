"""What a simulated link does to datagrams, and what it counts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, fields

__all__ = ["BurstLoss", "Link", "LinkStats", "Nat", "NetworkStats"]

_PROFILES = ("local", "lan", "lte", "3g", "satellite", "poor-cellular")
_REWRITES = ("bleach", "ect0", "ect1", "ce")
_MAX_SECONDS = 9e9


@dataclass(frozen=True, slots=True)
class BurstLoss:
    """Losses in bursts (Gilbert and Elliott): a good and a bad state, a step with each datagram."""

    enter: float
    """The probability of going from the good state to the bad one."""
    leave: float
    """The probability of going back; above 0."""
    good: float = 0.0
    """The share that is lost in the good state."""
    bad: float = 1.0
    """The share that is lost in the bad state."""

    def _text(self) -> str:
        values = [(name, getattr(self, name)) for name in ("enter", "leave", "good", "bad")]
        return "ge:" + ":".join(_probability(name, value) for name, value in values)


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a path: `Link(delay=0.3, rate=1_000_000, loss=0.02)`.

    `Link()` is perfect. What is `None` is as the named network `profile` has it: `lan`, `lte`,
    `3g`, `satellite`, `poor-cellular` or, if none is given, `local`, which has no rate, delay or
    fault. Times are seconds, rates bits a second, sizes bytes, and probabilities 0 to 1.
    """

    profile: str | None = None
    """The named network that the rest changes."""
    _: KW_ONLY
    delay: float | None = None
    """How long a datagram is on its way."""
    jitter: float | None = None
    """Each is late by up to so much more."""
    keep_order: bool | None = None
    """Whether jitter keeps the order, as a queue does; it does if nothing is said."""
    rate: int | float | None = None
    """What the bottleneck carries."""
    queue: int | None = None
    """What may wait for the bottleneck; if nothing is said, what it carries in a round trip."""
    aqm: str | None = None
    """What the queue drops before it is full: `droptail`, `codel`, `red:MIN:MAX:P`, `step:TIME`."""
    ecn: bool | None = None
    """Whether `aqm` marks datagrams where it would drop them."""
    policer: tuple[int | float, int] | None = None
    """What may come to the queue at all: a rate, and a burst."""
    overhead: int | None = None
    """What each datagram costs besides its payload, as 28 for IPv4 and UDP."""
    loss: float | BurstLoss | None = None
    """The share that is lost."""
    drop: tuple[int, ...] | None = None
    """Datagrams that are lost by their place among all that came; the first is 1."""
    duplicate: float | None = None
    """The share that arrives twice."""
    reorder: float | None = None
    """The share that is held back, so that later ones overtake it."""
    reorder_delay: float | None = None
    """How long; 5 ms if nothing is said."""
    corrupt: float | None = None
    """The share that has a bit flipped."""
    truncate: float | None = None
    """The share whose end is cut off."""
    mtu: int | None = None
    """The most bytes that pass; what is longer vanishes."""
    icmp: bool | None = None
    """Whether its sender is told then."""
    ecn_rewrite: str | None = None
    """What becomes of ECN bits: `bleach`, `ect0`, `ect1` or `ce`."""

    def __post_init__(self) -> None:
        self._text()

    def _text(self) -> str:
        """The settings as the native half reads them."""
        items = [_choice("profile", self.profile or "local", _PROFILES)]

        def add(name: str, text: str) -> None:
            items.append(f"{name}={text}")

        if self.delay is not None:
            add("delay", _time("delay", self.delay))
        if self.jitter is not None:
            add("jitter", _time("jitter", self.jitter))
        if self.keep_order is not None:
            add("order", "keep" if _flag("keep_order", self.keep_order) == "on" else "any")
        if self.rate is not None:
            add("rate", _rate("rate", self.rate))
        if self.queue is not None:
            add("queue", _count("queue", self.queue))
        if self.aqm is not None:
            add("aqm", _word("aqm", self.aqm))
        if self.ecn is not None:
            add("ecn", _flag("ecn", self.ecn))
        if self.policer is not None:
            if not isinstance(self.policer, tuple) or len(self.policer) != 2:
                raise TypeError("argument 'policer': a pair of a rate and a burst is required")
            rate, burst = self.policer
            add("police", f"{_rate('policer', rate)}:{_count('policer', burst)}")
        if self.overhead is not None:
            add("overhead", _count("overhead", self.overhead, least=0))
        if isinstance(self.loss, BurstLoss):
            add("loss", self.loss._text())
        elif self.loss is not None:
            add("loss", _probability("loss", self.loss))
        if self.drop:
            add("drop", "+".join(_counts("drop", self.drop)))
        if self.duplicate is not None:
            add("dup", _probability("duplicate", self.duplicate))
        if self.reorder is not None:
            text = _probability("reorder", self.reorder)
            if self.reorder_delay is not None:
                text += "+" + _time("reorder_delay", self.reorder_delay)
            add("reorder", text)
        elif self.reorder_delay is not None:
            raise ValueError("argument 'reorder_delay': nothing is held back; give 'reorder' too")
        if self.corrupt is not None:
            add("corrupt", _probability("corrupt", self.corrupt))
        if self.truncate is not None:
            add("truncate", _probability("truncate", self.truncate))
        if self.mtu is not None:
            add("mtu", _count("mtu", self.mtu))
        if self.icmp is not None:
            add("icmp", _flag("icmp", self.icmp))
        if self.ecn_rewrite is not None:
            add("remark", _choice("ecn_rewrite", self.ecn_rewrite, _REWRITES))
        return ",".join(items)


@dataclass(frozen=True, slots=True)
class Nat:
    """A NAT before a host. Nothing gets in by a mapping that it has forgotten; when the host sends
    again, it has another."""

    idle: float
    """It forgets a mapping that nothing went over, either way, for so many seconds."""
    change: str = "port"
    """What the next mapping has of its own: the `port`, the `address`, or nothing (`same`)."""

    def __post_init__(self) -> None:
        self._text()

    def _text(self) -> str:
        change = _choice("change", self.change, ("port", "address", "same"))
        return f"idle={_time('idle', self.idle)},change={change}"


@dataclass(frozen=True, slots=True)
class LinkStats:
    """What a link has counted since it was made. Bytes are of UDP payload."""

    datagrams_sent: int
    """Datagrams that came to it."""
    bytes_sent: int
    """Bytes that came to it."""
    datagrams_delivered: int
    """Datagrams that came out of it, those that came twice included."""
    bytes_delivered: int
    """Bytes that came out of it."""
    lost: int
    """Datagrams taken by `loss` and `drop`."""
    dropped_in_queue: int
    """Datagrams for which there was no room in the queue, or which its discipline dropped."""
    dropped_by_policer: int
    """Datagrams beyond what the policer lets through."""
    dropped_in_outage: int
    """Datagrams that left the queue in an outage."""
    dropped_as_too_big: int
    """Datagrams longer than the MTU."""
    duplicated: int
    """Datagrams that arrived twice."""
    reordered: int
    """Datagrams held back."""
    corrupted: int
    """Datagrams with a flipped bit."""
    truncated: int
    """Datagrams cut short."""
    marked: int
    """Datagrams marked for congestion (ECN)."""
    queue_peak_bytes: int
    """The most that ever waited."""

    @property
    def dropped(self) -> int:
        """All datagrams that did not come through, whatever took them."""
        return (
            self.lost
            + self.dropped_in_queue
            + self.dropped_by_policer
            + self.dropped_in_outage
            + self.dropped_as_too_big
        )

    def __add__(self, other: LinkStats) -> LinkStats:
        """Both together; of the queues the longer one."""
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
        }
        sums["queue_peak_bytes"] = max(self.queue_peak_bytes, other.queue_peak_bytes)
        return LinkStats(**sums)


@dataclass(frozen=True, slots=True)
class NetworkStats:
    """What the network has counted, besides what its links did."""

    delivered: int
    """Datagrams that came to a host."""
    without_a_link: int
    """Datagrams between hosts that are not joined."""
    to_former_addresses: int
    """Datagrams for an address that its host has no more."""
    kept_out_by_nats: int
    """Datagrams that a NAT had no mapping for."""
    rebindings: int
    """Mappings that NATs made in place of one they had forgotten."""


def _wrong(argument: str, kind: str, value: object) -> TypeError:
    return TypeError(f"argument '{argument}': {kind} is required, not '{type(value).__name__}'")


def _number(argument: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(argument, "a number", value)
    if not math.isfinite(value):
        raise ValueError(f"argument '{argument}': a finite number is required, not {value}")
    return value


def _time(argument: str, value: object) -> str:
    seconds = _number(argument, value)
    if not 0 <= seconds <= _MAX_SECONDS:
        raise ValueError(f"argument '{argument}': 0 to {_MAX_SECONDS:.0f} seconds, not {value}")
    return f"{round(seconds * 1e9)}ns"


def _rate(argument: str, value: object) -> str:
    bits = round(_number(argument, value))
    if not 1 <= bits < 2**63:
        words = f"argument '{argument}': a rate is 1 bit a second or more, not {value}"
        raise ValueError(words + "; a link that carries nothing is in an `outage`")
    return f"{bits}bit"


def _count(argument: str, value: object, least: int = 1) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(argument, "an int", value)
    if not least <= value < 2**32:
        raise ValueError(f"argument '{argument}': {least} to {2**32 - 1}, not {value}")
    return str(value)


def _counts(argument: str, values: object) -> Iterable[str]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise _wrong(argument, "a tuple of int", values)
    return [_count(argument, value) for value in values]


def _probability(argument: str, value: object) -> str:
    share = _number(argument, value)
    if not 0 <= share <= 1:
        raise ValueError(f"argument '{argument}': a probability is 0 to 1, not {value}")
    return f"{share:.12f}"


def _flag(argument: str, value: object) -> str:
    if not isinstance(value, bool):
        raise _wrong(argument, "a bool", value)
    return "on" if value else "off"


def _word(argument: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(argument, "a str", value)
    if "," in value or "=" in value:
        raise ValueError(f"argument '{argument}': '{value}' is more than one setting")
    return value


def _choice(argument: str, value: object, choices: tuple[str, ...]) -> str:
    word = _word(argument, value)
    if word not in choices:
        raise ValueError(f"argument '{argument}': one of {', '.join(choices)}, not '{word}'")
    return word

"""Says whether the deltas that arrived are the ones that were offered, exactly, and how late they are.

    python3 judge.py OFFERED.jsonl RECEIVED.jsonl [--sent SENT.jsonl] [--from LINE] [--count N]

OFFERED has a delta a line, RECEIVED a line {"t":unix_ms,"delta":{...}} for each that was delivered, SENT a line
{"i":line,"t":unix_ms} for each that was handed over; with it, only those count as offered. One JSON object comes out.

What is compared are values, one by one. A received value belongs to the offered one of the same context, path,
$source and timestamp; of several such, to the first of the same value that has not arrived yet. Where none has that
value it is wrong, and what should have come in its place is missing until it comes. Values are the same if they have
the same keys in the same order, the same strings, and the same numbers: as whole numbers of any length, or as doubles
bit for bit. 1 and 1.0 are the same.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

Json = Any
Canon = tuple[Any, ...]


class Key(NamedTuple):
    context: str | None
    path: str | None
    source: str | None
    timestamp: str | None


@dataclass
class Value:
    """One value of a delta: where it stands, what it is, and what else its update says."""

    line: int
    key: Key
    canon: Canon
    rest: Canon


@dataclass
class Group:
    """All offered values with one key, in order, and those of them that have arrived."""

    offered: list[Value] = field(default_factory=list)
    arrived: list[bool] = field(default_factory=list)

    def claim(self, canon: Canon) -> tuple[Value, str]:
        """The offered value that this received one belongs to, and what that makes it."""
        same = [index for index, value in enumerate(self.offered) if value.canon == canon]
        for index in same:
            if not self.arrived[index]:
                self.arrived[index] = True
                return self.offered[index], "arrived"
        if same:
            return self.offered[same[-1]], "duplicate"
        left = (value for value, done in zip(self.offered, self.arrived) if not done)
        return next(left, self.offered[-1]), "wrong"


def parse_int(text: str) -> int | float:
    return -0.0 if text == "-0" else int(text)


def canon(value: Json) -> Canon:
    """A form that is equal for equal values only."""
    if isinstance(value, bool) or value is None:
        return ("literal", value)
    if isinstance(value, str):
        return ("string", value)
    if isinstance(value, int):
        return ("number", value)
    if isinstance(value, float):
        negative_zero = value == 0 and math.copysign(1, value) < 0
        whole = value.is_integer() and not negative_zero
        return ("number", int(value)) if whole else ("bits", struct.pack(">d", value))
    if isinstance(value, list):
        return ("array", *(canon(one) for one in value))
    return ("object", *((name, canon(one)) for name, one in value.items()))


def read(text: str) -> Json:
    return json.loads(text, parse_int=parse_int)


def lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield line


def values(line: int, delta: Json) -> Iterator[Value]:
    context = delta.get("context")
    for update in delta.get("updates", ()):
        rest = canon({name: update[name] for name in sorted(update) if name not in ("values", "$source", "timestamp")})
        for one in update.get("values", ()):
            key = Key(context, one.get("path"), update.get("$source"), update.get("timestamp"))
            yield Value(line, key, canon(one.get("value")), rest)


def percentile(ordered: list[float], percent: float) -> float | None:
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else None


class Judge:
    def __init__(self, offered: Iterable[tuple[int, Json]], sent: dict[int, float]) -> None:
        self.groups: dict[Key, Group] = defaultdict(Group)
        self.sent = sent
        self.values: list[Value] = []
        self.deltas = 0
        for line, delta in offered:
            self.deltas += 1
            for value in values(line, delta):
                group = self.groups[value.key]
                group.offered.append(value)
                group.arrived.append(False)
                self.values.append(value)
        self.count = dict.fromkeys(("arrived", "duplicate", "wrong", "unknown", "stale", "rest_differs"), 0)
        self.stale_of_source = 0
        self.delivered = 0
        self.newest: dict[tuple[str | None, ...], int] = {}
        self.latencies: list[float] = []

    def take(self, time: float, delta: Json) -> None:
        """One delivered delta."""
        self.delivered += 1
        for value in values(-1, delta):
            # A sink may name the source where the offered delta does not.
            unnamed = value.key._replace(source=None)
            group = self.groups.get(value.key) or self.groups.get(unnamed)
            if group is None:
                self.count["unknown"] += 1
                continue
            offered, verdict = group.claim(value.canon)
            self.count[verdict] += 1
            self.count["rest_differs"] += offered.rest != value.rest
            self.count["stale"] += self.overtaken(offered, ("path", value.key.context, value.key.path))
            self.stale_of_source += self.overtaken(
                offered, ("source", value.key.context, value.key.path, value.key.source)
            )
            if verdict == "arrived" and offered.line in self.sent:
                self.latencies.append(time - self.sent[offered.line])

    def overtaken(self, offered: Value, place: tuple[str | None, ...]) -> bool:
        """Whether a newer value has been delivered to this place before."""
        newest = self.newest.get(place, -1)
        self.newest[place] = max(newest, offered.line)
        return offered.line < newest

    def report(self) -> dict[str, Json]:
        missing = [
            (group, index)
            for group in self.groups.values()
            for index, done in enumerate(group.arrived)
            if not done
        ]
        unnamed = sum(group.offered[index].key.path == "" for group, index in missing)
        # Lost is the repetition only: the same value of the same moment is there.
        repeats = sum(
            any(done and other.canon == group.offered[index].canon for other, done in zip(group.offered, group.arrived))
            for group, index in missing
        )
        total = len(self.values)
        ordered = sorted(self.latencies)
        at = {f"latency_p{percent}_ms": percentile(ordered, percent) for percent in (50, 95, 99)}
        return {
            "offered": total,
            "offered_deltas": self.deltas,
            "delivered_deltas": self.delivered,
            "arrived": total - len(missing),
            "arrived_percent": 100 * (total - len(missing)) / total if total else None,
            "missing": len(missing),
            "missing_empty_path": unnamed,
            "missing_repeats": repeats,
            "arrived_percent_of_accepted": accepted(total, len(missing), unnamed, repeats),
            "duplicates": self.count["duplicate"],
            "wrong": self.count["wrong"],
            "unknown": self.count["unknown"],
            "rest_differs": self.count["rest_differs"],
            "stale": self.count["stale"],
            "stale_of_source": self.stale_of_source,
            **at,
            "latency_max_ms": ordered[-1] if ordered else None,
        }


def accepted(total: int, missing: int, unnamed: int, repeats: int) -> float | None:
    """What arrived of all but the values that a program refuses on purpose: no path, or said already."""
    refused = unnamed + repeats
    return 100 * (total - missing) / (total - refused) if total > refused else None


def judge(
    offered: Path, received: Path, sent: Path | None, first: int = 0, count: int | None = None
) -> dict[str, Json]:
    handed = {one["i"]: one["t"] for one in map(json.loads, lines(sent))} if sent else {}
    last = math.inf if count is None else first + count

    def counts(line: int) -> bool:
        return line in handed if sent else first <= line < last

    ours = ((line, read(text)) for line, text in enumerate(lines(offered)) if counts(line))
    verdict = Judge(ours, handed)
    for text in lines(received):
        one = read(text)
        verdict.take(one["t"], one["delta"])
    return verdict.report()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("offered", type=Path)
    parser.add_argument("received", type=Path)
    parser.add_argument("--sent", type=Path)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--count", type=int)
    given = parser.parse_args()
    json.dump(judge(given.offered, given.received, given.sent, given.first, given.count), sys.stdout)
    print()


if __name__ == "__main__":
    main()

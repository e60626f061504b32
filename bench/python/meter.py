"""What the measurements of stacks in Python are taken and told by."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

WARM_UP_PERCENT = 10


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS in /proc/self/status")


class Meter:
    """Wall and processor time from its start on."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.usage = resource.getrusage(resource.RUSAGE_SELF)

    def elapsed(self) -> float:
        return time.perf_counter() - self.started

    def report(self, count: int, **more: object) -> dict[str, object]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "seconds": self.elapsed(),
            "cpu_user": usage.ru_utime - self.usage.ru_utime,
            "cpu_system": usage.ru_stime - self.usage.ru_stime,
            "count": count,
            **more,
        }


def show(report: dict[str, object]) -> None:
    print(json.dumps(report), flush=True)


class Times:
    """How long each of several things took; the first do not count."""

    def __init__(self, count: int) -> None:
        self.warm_up = -(-count * WARM_UP_PERCENT // 100)
        self.count = count
        self.took: list[float] = []
        self.meter = Meter()

    def rounds(self) -> Iterator[int]:
        for number in range(self.warm_up + self.count):
            if number == self.warm_up:
                self.took.clear()
                self.meter = Meter()
            yield number

    def report(self) -> dict[str, object]:
        report = self.meter.report(self.count)
        self.took.sort()

        def at(share: float) -> float:
            rank = -(-int(share * 1000) * len(self.took) // 1000)
            return self.took[max(rank - 1, 0)] * 1e6

        latency = {"min": at(0), "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1)}
        return {**report, "latency": latency}

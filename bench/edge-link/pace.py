"""Hands deltas over as they were recorded, or at a pace that is asked for: a line each on standard output.

For programs that read deltas from standard input; signalk-edge-link's sender paces itself, by the same rules.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import datetime, timezone
from itertools import accumulate, islice
from pathlib import Path

EPOCH_MS = 1_767_225_600_000


def now() -> float:
    """Unix time in milliseconds with their fractions."""
    return time.time_ns() / 1e6


def stamp(line: str) -> float:
    """The recorded time of a delta in milliseconds."""
    text: str = json.loads(line)["updates"][0]["timestamp"]
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000


def due(lines: list[str], rate: float, batch: int, every: float) -> list[float]:
    """When each delta is handed over, in milliseconds from the start; they are in order."""
    if batch:
        return [index // batch * every for index in range(len(lines))]
    if rate:
        return [index * 1000 / rate for index in range(len(lines))]
    first = stamp(lines[0])
    return list(accumulate((stamp(line) - first for line in lines), max))


def read(path: Path, first: int) -> list[str]:
    with path.open(encoding="utf-8") as file:
        return [line.rstrip("\n") for line in islice(file, first, None) if line.strip()]


def seed_payload(path: Path, count: int, batch: int, every: float) -> None:
    """Deltas as in the peer's own benchmarks, with an index that goes on; the stamps are a batch's."""
    with path.open("w", encoding="utf-8") as file:
        for index in range(count):
            moment = datetime.fromtimestamp((EPOCH_MS + index // batch * every) / 1000, timezone.utc)
            update = {
                "source": {"label": "gps", "type": "NMEA2000"},
                "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "values": [
                    {"path": "navigation.position.latitude", "value": 60.1 + index * 0.001},
                    {"path": "navigation.position.longitude", "value": 24.9 + index * 0.001},
                ],
            }
            file.write(json.dumps({"updates": [update]}, separators=(",", ":")) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in", dest="source", type=Path, required=True)
    parser.add_argument("--sent", type=Path, required=True, help='takes {"i":line,"t":unix_ms} for each')
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first line")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--rate", type=float, default=0, help="a second, in place of the recorded pace")
    parser.add_argument("--batch", type=int, default=0, help="so many at once, each --every milliseconds")
    parser.add_argument("--every", type=float, default=0)
    given = parser.parse_args()
    lines = read(given.source, given.first)
    limit = given.seconds * 1000 or float("inf")
    log = []
    start = now()
    for number, (line, moment) in enumerate(zip(lines, due(lines, given.rate, given.batch, given.every))):
        if moment >= limit:
            break
        wait = start + moment - now()
        if wait > 0:
            sys.stdout.flush()
            time.sleep(wait / 1000)
        log.append(f'{{"i":{given.first + number},"t":{now()}}}\n')
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    given.sent.write_text("".join(log))


if __name__ == "__main__":
    main()

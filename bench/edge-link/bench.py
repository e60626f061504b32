#!/usr/bin/env python3
"""The delta link beside signalk-edge-link: every row that is measured in real time, and the bytes of the codec.

    python3 bench.py --towline PROGRAM [--data N2K.jsonl] [--nmea NMEA.jsonl] [--lib DIR] [--quick] [--out FILE]

Data are recorded deltas, one a line. `--lib` is the folder `lib` of a signalk-edge-link 4.0.5; without it, and without one that
npm installed here, the peer's columns are left out, and the lines below say so. Each row is measured by the same
`run.py`, over the same relay with the same seed, one program after the other.

Prints a table, and writes one JSON object to --out. Exit codes: 0, 1 a mark was missed, 2 wrong usage.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The measure, and the most that is allowed: bytes a delta, in batches of 1, 5, 10, 20 and 50.
BATCHES = [1, 5, 10, 20, 50]
N2K_BYTES = [50, 15, 10.5, 8.5, 6.5]
NMEA_BYTES = [50, 12, 7.5, 5, 3]
SEED_BYTES = [60, 15, 9, 6, 3.5]


def seed_delta(index, number):
    """One delta of the peer's benchmark, of the batch with this number, as a line."""
    at = datetime.fromtimestamp(1767225600 + number * 0.137, timezone.utc).isoformat(timespec="milliseconds")
    values = [{"path": "navigation.position.latitude", "value": 60.1 + index * 0.001},
              {"path": "navigation.position.longitude", "value": 24.9 + index * 0.001}]
    update = {"source": {"label": "gps", "type": "NMEA2000"}, "timestamp": at.replace("+00:00", "Z"), "values": values}
    return json.dumps({"updates": [update]}, separators=(",", ":")) + "\n"


def lines(command, **more):
    """The JSON objects that a command prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=HERE, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def table_delta(chance, number):
    """One delta of the peer's table of stages: three random values."""
    at = datetime.fromtimestamp(1767225600 + number * 0.137, timezone.utc).isoformat(timespec="milliseconds")
    values = [{"path": f"navigation.path{path}", "value": chance.random() * 100} for path in range(3)]
    update = {"source": {"label": "test"}, "timestamp": at.replace("+00:00", "Z"), "values": values}
    return json.dumps({"updates": [update]}, separators=(",", ":")) + "\n"


class Bench:
    def __init__(self, arguments):
        self.towline, self.data, self.lib = arguments.towline.resolve(), arguments.data, arguments.lib
        self.quick, self.rows = arguments.quick, []
        self.home = tempfile.mkdtemp(prefix="towline-bench-")
        self.key = subprocess.run([self.towline, "link", "keygen"], env=self.environment(), text=True,
                                  capture_output=True, check=True).stdout.strip()

    def environment(self):
        return {**os.environ, "TOWLINE_HOME": self.home}

    def row(self, name, towline, peer, mark=None, better=min):
        """Adds a row: what was measured, the peer's figure from the same run, and the mark."""
        is_met = None
        if mark is not None and towline is not None:
            is_met = towline <= mark if better is min else towline >= mark
        self.rows.append({"row": name, "towline": towline, "peer": peer, "mark": mark, "is_met": is_met})
        shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in (towline, peer, mark)]
        verdict = {None: "", True: "reached", False: "MISSED"}[is_met]
        print(f"{name:<58} {shown[0]:>10} {shown[1]:>10} {shown[2]:>8}  {verdict}", flush=True)

    def measured(self, data, marks, name):
        batches = ",".join(map(str, BATCHES))
        [ours] = lines([self.towline, "link", "measure", data, "--batch", batches, "--loss", "0.05", "--json"])
        warm = {row["batch"]: row["bytes_per_delta"] for row in ours["rows"] if row["mode"] == "warm"}
        theirs = {}
        if self.lib:
            rows = lines(["node", "bytes.js", "--lib", self.lib, "--in", data])
            theirs = {row["batch"]: row["warm"] for row in rows}
        for batch, mark in zip(BATCHES, marks):
            self.row(f"{name}, batch {batch}: B a delta", round(warm[batch], 2), theirs.get(batch), mark)

    def seed_payload(self):
        """The payload of the peer's own benchmarks (payload.js), whose positions begin anew in each batch, or go on."""
        theirs = {}
        if self.lib:
            for row in lines(["node", "bytes.js", "--lib", self.lib, "--seed"]):
                theirs[row["case"], row["batch"]] = row["bytes_per_delta"]
        for step, name in [(0, "self-contained"), (1, "continuing index")]:
            for size, mark in zip(BATCHES, SEED_BYTES):
                # As many as are cold, and 200 batches.
                with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
                    for number in range(1000 // size + 200):
                        file.writelines(seed_delta(step * number * size + at, number) for at in range(size))
                    file.flush()
                    [ours] = lines([self.towline, "link", "measure", file.name, "--batch", str(size), "--loss", "0.05",
                                    "--json"])
                [warm] = [row["bytes_per_delta"] for row in ours["rows"] if row["mode"] == "warm"]
                peer = theirs.get((f"seed, {name}", size))
                self.row(f"seed_bytes, {name}, batch {size}: B a delta", round(warm, 2), peer and round(peer, 2), mark)

    def stages(self, data):
        """Times of a batch of 20, and memory over 100,000 batches after the first 5,000."""
        [ours] = lines([self.towline, "link", "measure", data, "--batch", "20", "--stages", "--rounds", "105000", "--json"])
        rows = []
        if self.lib:
            rows = lines(["node", "stages.js", "--lib", self.lib, "--in", data])

        def peer(measure, field, **wanted):
            wanted = {"measure": measure, "payload": "batch of 20", "quality": 6, **wanted}
            found = [row[field] for row in rows if all(row.get(key) == value for key, value in wanted.items())]
            return found[0] if found else None

        whole = {name: peer("stage", f"{name}_ms", stage="whole") for name in ("p50", "p95", "p99")}
        stage = ours["stages"]
        both = round(stage["encode"]["p50_us"] + stage["seal"]["p50_us"], 1)
        encode = peer("encode", "wall_us")
        self.row("encode_us: a batch of 20, coded and sealed, µs", both, encode and round(encode, 1), 50)
        for name, mark in [("p50", None), ("p95", None), ("p99", 1)]:
            self.row(f"whole, {name}: ms", round(stage["whole"][f"{name}_us"] / 1e3, 3), whole[name] and round(whole[name], 3), mark)
        for name in ("tx_per_s", "rx_per_s"):
            theirs = peer(name, "per_s")
            self.row(f"{name}: batches of 20 a second", ours[name], theirs and round(theirs))
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            chance = random.Random(1)
            for number in range(2000):
                file.write(table_delta(chance, number))
            file.flush()
            # Some seconds: what else the machine does for a moment decides nothing.
            [table] = lines([self.towline, "link", "measure", file.name, "--batch", "1", "--stages",
                             "--rounds", "200000", "--json"])
        # Ten times what its table says.
        for name, mark in [("tx_per_s", 10870), ("rx_per_s", 63990)]:
            theirs = peer(name, "per_s", payload="seed, 3 values", quality=10)
            self.row(f"{name}: deltas of its table a second", table[name], theirs and round(theirs),
                     mark, max)
        memory = [row for row in rows if row["measure"] == "memory, client pipeline, 100,000"]
        grown = memory and round(memory[0]["rss_mb"], 2)
        self.row("memory over 100,000 batches: MB", round(ours["memory_growth_kib"] / 1024, 2), grown or None, 1)
        self.stage_rows = {"towline": stage, "peer": [row for row in rows if row["measure"] == "stage"]}

    def run(self, program, case, *more, live=False, deadline=None):
        command = [sys.executable, "run.py", "--case", case, "--data", self.data, "--relay", self.towline,
                   "--program", program, *more]
        if program == "edge-link":
            command += ["--lib", self.lib, "--no-telemetry"]
        else:
            sender = f"{self.towline} link pub towline://{{to}}#{self.key} - --json --patience 20s"
            if deadline is not None:
                sender += f" --deadline {deadline}"
            receiver = f"{self.towline} link sub --listen {{listen}}" + (" --live" if live else "")
            command += ["--towline-sender", sender, "--towline-receiver", receiver]
        return lines(command, env=self.environment(), stderr=subprocess.DEVNULL)

    def both(self, case, *more, **ours):
        theirs = self.run("edge-link", case, *more) if self.lib else None
        return zip(mine := self.run("towline", case, *more, **ours), theirs or [None] * len(mine))


def of(run, name):
    return None if run is None else round(run[name], 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towline", type=Path, required=True)
    recorded = HERE.parents[2] / "shared/data"
    parser.add_argument("--data", type=Path, default=recorded / "n2k-race-5000.jsonl")
    parser.add_argument("--nmea", type=Path, default=recorded / "nmea0183-cruise-3000.jsonl")
    parser.add_argument("--lib", type=Path)
    parser.add_argument("--quick", action="store_true", help="bytes, live_bytes and overhead alone")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    for given in (arguments.data, arguments.nmea):
        if not given.is_file():
            parser.error(f"there are no recorded deltas in {given}; give some with --data and --nmea")
    arguments.data = arguments.data.resolve()
    installed = HERE / "node_modules/signalk-edge-link/lib"
    if arguments.lib is None and installed.is_dir():
        arguments.lib = installed
    if arguments.lib is None:
        print("SKIPPED signalk-edge-link: it is not installed (npm install in bench/edge-link, or --lib DIR)")
    bench = Bench(arguments)
    print(f"{'row':<58} {'towline':>10} {'peer':>10} {'mark':>8}")
    bench.measured(arguments.data, N2K_BYTES, "n2k_bytes")
    bench.measured(arguments.nmea.resolve(), NMEA_BYTES, "nmea_bytes")
    bench.seed_payload()
    bench.stages(arguments.data)
    for ours, theirs in bench.both("live_bytes"):
        bench.row("live_bytes: B a delta", of(ours, "bytes_per_delta"), of(theirs, "bytes_per_delta"), 14)
        bench.row("live_bytes: added delay p95, ms", of(ours, "added_p95_ms"), of(theirs, "added_p95_ms"), 300)
    for (ours, theirs), total, share in zip(bench.both("overhead", deadline="0ms"), [1374, 372, 243], [10, 25, 30]):
        every = ours["every_ms"]
        bench.row(f"overhead, a batch each {every:g} ms: B/s", of(ours, "total_b_per_s"), of(theirs, "total_b_per_s"), total)
        bench.row(f"overhead, a batch each {every:g} ms: % of the way back", of(ours, "back_percent"), of(theirs, "back_percent"), share)
    if not arguments.quick:
        for ours, theirs in bench.both("arrived"):
            loss, rtt = ours["loss"], ours["rtt_ms"]
            name = f"arrived, loss {loss * 100:g} %, RTT {rtt:g} ms"
            most = (4 if loss > 0.05 else 2.5) * rtt + 1100 + 250
            bench.row(f"{name}: %", of(ours, "arrived_percent"), of(theirs, "arrived_percent"), 100, max)
            bench.row(f"{name}: p99, ms", of(ours, "latency_p99_ms"), of(theirs, "latency_p99_ms"), most)
            bench.row(f"{name}: wrong", ours["wrong"], theirs and theirs["wrong"], 0)
        for ours, theirs in bench.both("networks"):
            name = f"network {ours['network']}"
            rtt = ours["rtt_ms"]
            bench.row(f"{name}: arrived, %", of(ours, "arrived_percent"), of(theirs, "arrived_percent"), 100, max)
            most = rtt / 2 + 1.5 * rtt + 250
            bench.row(f"{name}: p95, ms", of(ours, "latency_p95_ms"), of(theirs, "latency_p95_ms"), most)
        for ours, theirs in bench.both("blackout"):
            bench.row("20 s blackout: missing", ours["missing"], theirs and theirs["missing"], 0)
        [ours] = bench.run("towline", "blackout", live=True)
        theirs = bench.run("edge-link", "blackout")[0] if bench.lib else None
        bench.row("20 s blackout, live sink: stale", ours["stale"], theirs and theirs["stale"], 0)
    missed = [row["row"] for row in bench.rows if row["is_met"] is False]
    result = {"schema": "towline.bench.link/1", "peer": bool(arguments.lib), "rows": bench.rows, "stages": bench.stage_rows, "missed": missed}
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(bench.rows)} rows, {len(missed)} marks missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

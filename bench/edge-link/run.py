"""Runs a delta link over a bad network in real time and says what came of it: receiver, `towline relay`, sender.

    python3 run.py --case CASE --data FILE.jsonl [--program edge-link [--lib DIR] [--mode default|best]]
    python3 run.py --case CASE --data FILE.jsonl --program towline --towline-sender CMD --towline-receiver CMD

`--case live` is one run with --loss, --rtt and so on; the other cases are the rows of the comparison, one run or
several. Each run prints one JSON object: what judge.py says, and bytes, datagrams, processor seconds. Bytes are
whole UDP payloads as they enter the relay, losses included; `forward` is from sender to receiver.

The commands of another program may name {in} {sent} {out} {to} {listen} {key} {from} {seconds} {rate} {batch} {every}
{linger} {folder}.
Without {in} the deltas are handed to its standard input at their pace; without {out} each line of its standard output
is a delta that was delivered. Both are ended by SIGTERM if they do not end by themselves. A receiver must take packets
when it has printed its first line to standard output ({out} given), else a second after its start.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import judge
import pace

HERE = Path(__file__).parent
KEY = "towline-bench-edge-link-key-0001"
REPORT_EVERY = "200ms"
SETTLE_MS = 2000
PATIENCE = 30.0

Report = dict[str, Any]


@dataclass(frozen=True)
class Network:
    """What both ways do to packets. Delay is one way; jitter comes on top of it."""

    name: str
    delay_ms: float
    loss: float = 0
    jitter_ms: float = 0
    rate: str = ""
    queue: str = ""
    blackout: str = ""

    def spec(self) -> str:
        parts = {
            "rate": self.rate,
            "delay": f"{self.delay_ms:g}ms",
            "jitter": f"{self.jitter_ms:g}ms" if self.jitter_ms else "",
            "queue": self.queue,
            "loss": f"{self.loss * 100:g}%" if self.loss else "",
            "blackout": self.blackout,
        }
        return ",".join(f"{name}={value}" for name, value in parts.items() if value)


# The delays (one way), jitters and losses of the seed's six networks. It models no rate or queue: those are ours,
# what such links have, and wide enough for any program here to fit.
SIX = (
    Network("local", 0),
    Network("LAN", 1, 0, 0.5, "100mbit", "256kb"),
    Network("LTE", 30, 0.01, 10, "10mbit", "256kb"),
    Network("3G", 100, 0.03, 30, "1mbit", "64kb"),
    Network("satellite", 600, 0.02, 50, "1mbit", "128kb"),
    Network("poor cellular", 200, 0.10, 80, "128kbit", "32kb"),
)


@dataclass(frozen=True)
class Load:
    """Which deltas are offered, and when."""

    data: Path
    first: int
    seconds: float
    rate: float = 0
    batch: int = 0
    every: float = 0


@dataclass
class Program:
    """A running program, the lines of its standard output, and what it cost."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    cpu: float = 0
    code: int | None = None
    first_line: threading.Event = field(default_factory=threading.Event)
    reader: threading.Thread | None = None

    @classmethod
    def start(cls, command: list[str], stdin: IO[str] | int | None = None, stamped: IO[str] | None = None) -> Program:
        """With `stamped`, each line is a delivered delta and goes there with its time."""
        process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True, bufsize=1)
        program = cls(process)
        program.reader = threading.Thread(target=program.read, args=(stamped,), daemon=True)
        program.reader.start()
        return program

    def read(self, stamped: IO[str] | None) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if stamped:
                stamped.write(f'{{"t":{pace.now()},"delta":{line.rstrip()}}}\n')
            else:
                self.lines.append(line)
            self.first_line.set()

    def poll(self) -> bool:
        """Whether it has ended; takes its processor time when it has."""
        if self.code is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.code = self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu = usage.ru_utime + usage.ru_stime
        return self.code is not None

    def wait(self, seconds: float) -> bool:
        limit = time.monotonic() + seconds
        while not self.poll() and time.monotonic() < limit:
            time.sleep(0.02)
        return self.code is not None

    def end(self, number: int = signal.SIGTERM) -> None:
        for sent in (number, signal.SIGKILL):
            if self.wait(0):
                break
            self.process.send_signal(sent)
            self.wait(10)
        if self.reader:
            self.reader.join(10)

    def last(self) -> Report:
        """The JSON object in its last line."""
        for line in reversed(self.lines):
            try:
                report = json.loads(line)
            except ValueError:
                continue
            if isinstance(report, dict):
                return report
        return {}


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def filled(command: str, values: dict[str, object]) -> list[str]:
    words = shlex.split(command)
    for name, value in values.items():
        words = [word.replace("{" + name + "}", str(value)) for word in words]
    return words


def at(samples: list[tuple[float, Report]], moment: float, way: str, what: str) -> float:
    """A counter of the relay's at this moment (Unix milliseconds), between two reports."""
    before = (samples[0][0], 0.0)
    for time_ms, report in samples:
        count = report[way][what]
        if time_ms >= moment:
            share = (moment - before[0]) / (time_ms - before[0]) if time_ms > before[0] else 1
            return before[1] + max(0.0, share) * (count - before[1])
        before = (time_ms, count)
    return before[1]


def steady(samples: list[tuple[float, Report]], handed: list[float]) -> Report:
    """Bytes a second while deltas come, without the first two seconds."""
    first, last = handed[0] + SETTLE_MS, handed[-1]
    if last - first < SETTLE_MS or not samples:
        return {}
    seconds = (last - first) / 1000
    forward, back = (
        (at(samples, last, way, "bytes_in") - at(samples, first, way, "bytes_in")) / seconds for way in ("up", "down")
    )
    return {
        "forward_b_per_s": forward,
        "back_b_per_s": back,
        "total_b_per_s": forward + back,
        "back_percent": 100 * back / (forward + back) if forward + back else None,
    }


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.settings: Report = {}
        if given.program == "edge-link":
            self.settings = {"mode": given.mode, "telemetry": not given.no_telemetry}
            more = (["--lib", given.lib] if given.lib else []) + ["--mode", given.mode, "--key", "{key}"]
            node = ["node", "--no-warnings"]
            self.sender = shlex.join(
                [*node, str(HERE / "sender.js"), "--in", "{in}", "--to", "{to}", "--sent", "{sent}", "--from", "{from}"]
                + ["--seconds", "{seconds}", "--rate", "{rate}", "--batch", "{batch}", "--every", "{every}"]
                + ["--delta-timer", "{every}", "--linger", "{linger}", *more]
                + (["--whole"] if given.case == "overhead" and not given.split else [])
                + (["--no-telemetry"] if given.no_telemetry else [])
            )
            self.receiver = shlex.join(
                [*node, str(HERE / "receiver.js"), "--listen", "{listen}", "--out", "{out}", *more]
            )
        else:
            self.sender, self.receiver = given.towline_sender, given.towline_receiver
            if not (self.sender and self.receiver):
                sys.exit("--program towline wants --towline-sender and --towline-receiver")

    def run(self, case: str, network: Network, load: Load, linger: float) -> Report:
        # One function because these are the steps of one run, in their order.
        folder = Path(tempfile.mkdtemp(prefix="bench-link-"))
        received, sent = folder / "received.jsonl", folder / "sent.jsonl"
        listen, front = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        values: dict[str, object] = {
            "in": load.data, "sent": sent, "out": received, "to": front, "listen": listen, "key": KEY,
            "from": load.first, "seconds": f"{load.seconds:g}", "rate": f"{load.rate:g}", "batch": load.batch,
            "every": f"{load.every:g}", "linger": f"{linger:g}", "folder": folder,
        }  # fmt: skip
        programs: list[Program] = []
        stamped = None if "{out}" in self.receiver else received.open("w", encoding="utf-8")
        try:
            receiver = Program.start(filled(self.receiver, values), stamped=stamped)
            programs.append(receiver)
            receiver.first_line.wait(1 if stamped else 10)
            relay = Program.start(
                [*shlex.split(self.given.relay), "relay", "--json", "-q", "-i", REPORT_EVERY]
                + ["--seed", str(self.given.seed), "--both", network.spec(), front, listen]
            )
            programs.append(relay)
            if not relay.first_line.wait(10):
                raise RuntimeError("the relay does not listen")
            relay_start = pace.now()
            pacer = None
            if "{in}" not in self.sender:
                pacer = subprocess.Popen(
                    [sys.executable, str(HERE / "pace.py")]
                    + filled("--in {in} --sent {sent} --from {from} --seconds {seconds}", values)
                    + filled("--rate {rate} --batch {batch} --every {every}", values),
                    stdout=subprocess.PIPE, text=True,
                )  # fmt: skip
            sender = Program.start(filled(self.sender, values), stdin=pacer.stdout if pacer else subprocess.DEVNULL)
            programs.append(sender)
            if pacer:
                if pacer.stdout:
                    pacer.stdout.close()
                pacer.wait()
                sender.wait(linger)
            else:
                sender.wait(load.seconds + linger + PATIENCE)
            sender.end()
            time.sleep(network.delay_ms / 1000 + 0.3)
            receiver.end()
            relay.end(signal.SIGINT)
        finally:
            for program in programs:
                program.end()
            if stamped:
                stamped.close()
        report = self.report(case, network, load, judge.judge(load.data, received, sent), relay, relay_start, sent)
        report |= {
            "cpu_sender_s": sender.cpu, "cpu_receiver_s": receiver.cpu, "cpu_relay_s": relay.cpu,
            "exit_codes": [receiver.code, relay.code, sender.code], "sender": sender.last(),
            "receiver": {} if stamped else receiver.last(),
        }  # fmt: skip
        if self.given.keep:
            print(f"kept {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        return report

    def report(
        self, case: str, network: Network, load: Load, verdict: Report, relay: Program, start: float, sent: Path
    ) -> Report:
        handed = [json.loads(line)["t"] for line in judge.lines(sent)]
        samples, end = [], {}
        for line in relay.lines:
            one = json.loads(line)
            if one["schema"] == "towline.relay.interval/1":
                samples.append((start + one["seconds"] * 1000, one))
            elif one["schema"] == "towline.relay/1":
                end = one
        up, down = end["up"], end["down"]
        deltas, delivered = verdict["offered_deltas"], verdict["delivered_deltas"]
        added = verdict["latency_p95_ms"]
        return {
            "case": case, "program": self.given.program, **self.settings, "network": network.name,
            "link": network.spec(), "loss": network.loss, "rtt_ms": 2 * network.delay_ms, "seed": self.given.seed,
            "seconds": load.seconds, "first": load.first, "batch": load.batch, "every_ms": load.every,
            **verdict,
            "added_p95_ms": None if added is None else added - network.delay_ms,
            "blackout_from_s": (start + blackout(network) - handed[0]) / 1000 if network.blackout else None,
            "bytes_forward": up["bytes_in"], "bytes_back": down["bytes_in"],
            "datagrams_forward": up["datagrams_in"], "datagrams_back": down["datagrams_in"],
            "dropped_forward": sum(up["drops"].values()), "dropped_back": sum(down["drops"].values()),
            "bytes_per_delta": up["bytes_in"] / deltas if deltas else None,
            "bytes_per_delivered": up["bytes_in"] / delivered if delivered else None,
            "deltas_per_packet": delivered / up["datagrams_in"] if up["datagrams_in"] else None,
            **steady(samples, handed),
        }  # fmt: skip


def blackout(network: Network) -> float:
    """When it begins, in milliseconds from the relay's start."""
    return float(network.blackout.split("s+")[0]) * 1000


def patience(network: Network) -> float:
    """How long a sender stays after the last delta."""
    return 3 + 6 * 2 * network.delay_ms / 1000


def cases(given: argparse.Namespace) -> Iterator[tuple[Network, Load, float]]:
    live = Load(given.data, given.first, given.seconds or 30, given.rate, given.batch, given.every)
    if given.case == "live":
        network = Network("live", given.rtt / 2, given.loss, given.jitter, given.bandwidth, given.queue, given.blackout)
        yield network, live, given.linger if given.linger is not None else patience(network)
    elif given.case == "live_bytes":
        yield Network("clean", 25), live, 3
    elif given.case == "overhead":
        for every in (100, 500, 1000):
            count = int(live.seconds * 1000 / every) * 5
            data = given.data
            if given.data.name == "seed":
                data = Path(tempfile.gettempdir()) / f"bench-link-seed-{os.getpid()}-{every}.jsonl"
                pace.seed_payload(data, count, 5, every)
            yield Network("clean", 25), replace(live, data=data, batch=5, every=every), 3
            if data != given.data:
                data.unlink()
    elif given.case == "arrived":
        for loss in (0, 0.05, 0.1):
            for rtt in (50, 200, 600, 1500):
                network = Network(f"{loss * 100:g} % {rtt} ms", rtt / 2, loss)
                yield network, live, patience(network)
    elif given.case == "blackout":
        # The second before is the programs' start.
        yield Network("20 s of 40", 25, blackout="11s+20s"), replace(live, seconds=40), 10
    elif given.case == "networks":
        for network in SIX:
            yield network, live, patience(network)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case", required=True, choices=("live", "live_bytes", "overhead", "arrived", "blackout", "networks")
    )
    parser.add_argument("--data", type=Path, required=True, help="deltas, one a line; for overhead also `seed`")
    parser.add_argument("--program", choices=("edge-link", "towline"), default="edge-link")
    parser.add_argument("--lib", default="", help="the folder `lib` of signalk-edge-link, if it is not installed here")
    parser.add_argument("--mode", default="default", choices=("default", "best"), help="signalk-edge-link's settings")
    parser.add_argument("--no-telemetry", action="store_true", help="without what signalk-edge-link sends of itself")
    parser.add_argument("--split", action="store_true", help="overhead: signalk-edge-link's batcher has the batches")
    parser.add_argument("--towline-sender", default="")
    parser.add_argument("--towline-receiver", default="")
    parser.add_argument("--relay", default="towline", help="the command whose `relay` this is")
    parser.add_argument("--seed", type=int, default=1, help="of the relay's random choices")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first line of the data")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--rate", type=float, default=0, help="deltas a second, in place of the recorded pace")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--every", type=float, default=0)
    parser.add_argument("--loss", type=float, default=0, help="both ways, 0 to 1")
    parser.add_argument("--rtt", type=float, default=50, help="milliseconds")
    parser.add_argument("--jitter", type=float, default=0)
    parser.add_argument("--bandwidth", default="", help="such as 1mbit")
    parser.add_argument("--queue", default="", help="such as 64kb")
    parser.add_argument("--blackout", default="", help="such as 10s+20s, from the relay's start")
    parser.add_argument("--linger", type=float, help="seconds after the last delta; 3 + 6 RTT")
    parser.add_argument("--keep", action="store_true", help="keep what was sent and received")
    given = parser.parse_args()
    bench = Bench(given)
    for network, load, linger in cases(given):
        print(json.dumps(bench.run(given.case, network, load, linger)), flush=True)


if __name__ == "__main__":
    main()

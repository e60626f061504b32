#!/usr/bin/env python3
"""Kills both ends of a delta link, and looks into its sinks.

    python3 chaos.py --towline PROGRAM [--runs 200] [--seed 1] [--loss 0.1] [--records 400]

Each run sends records from `towline link pub --spool` over a relay that loses packets to `towline link run`, which
writes them to PostgreSQL and to NATS JetStream. Each end is killed (SIGKILL) at random times, or ends itself at a
named point (TOWLINE_CRASH_AT, debug builds). At the end nothing is killed any more, and every record whose receipt was
printed, and every other one that was sent, must be in both sinks exactly once and as it was sent.

Prints accepted, found and duplicates of each sink, and one line of JSON. Exit codes: 0 all is well, or a program is not
installed, which it says; 1 a record is missing, doubled or wrong.
"""

import argparse
import base64
import glob
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

POINTS_OF_BOAT = ["spool.appended", "spool.committed", "uplink.sent", "uplink.durable"]
POINTS_OF_SHORE = ["shore.delivered", "log.writing", "log.written", "shore.durable"]
NOBODY = 65534
PATIENCE = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, holds, patience=PATIENCE):
    end = time.monotonic() + patience
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"not within {patience} s: {what}")
        time.sleep(0.05)


class Postgres:
    def __init__(self, folder):
        bins = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not bins:
            raise FileNotFoundError("postgresql is not installed (make setup-system)")
        self.bin, self.folder, self.port = Path(bins[-1]), folder, free_port()
        folder.mkdir()
        self.user = {}
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        self.run("initdb", "-U", "towline", "-A", "trust", "--no-locale", "-E", "UTF8", "-D", folder / "data")
        self.server = subprocess.Popen(
            [self.bin / "postgres", "-D", folder / "data", "-p", str(self.port),
             "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=open(folder / "log", "ab"), **self.user,
        )
        wait_until("PostgreSQL is up", lambda: self.query("SELECT 1", check=False) == "1")

    def run(self, name, *arguments):
        subprocess.run([self.bin / name, *arguments], cwd=self.folder, check=True, stdout=subprocess.DEVNULL,
                       **self.user)

    @property
    def url(self):
        return f"postgresql://towline@127.0.0.1:{self.port}/postgres?sslmode=disable"

    def query(self, text, check=True):
        done = subprocess.run([self.bin / "psql", "-X", "-A", "-t", "-c", text, self.url], capture_output=True, text=True)
        if check and done.returncode != 0:
            raise SystemExit(done.stderr)
        return done.stdout.strip()

    def records(self, name):
        rows = self.query(f"SELECT record FROM towline_records WHERE stream_name = '{name}'", check=False)
        return rows.splitlines()

    def stop(self):
        self.run("pg_ctl", "stop", "-s", "-m", "fast", "-D", self.folder / "data")
        self.server.wait()


class Nats:
    """A server, and as much of the protocol as reads a stream message by message."""

    def __init__(self, folder):
        names = [os.environ.get("TOWLINE_NATS_SERVER"), "nats-server", "/usr/sbin/nats-server"]
        program = next((found for found in map(lambda name: name and shutil.which(name), names) if found), None)
        if not program:
            raise FileNotFoundError("nats-server is not installed (make setup-system)")
        self.port = free_port()
        self.server = subprocess.Popen(
            [program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", folder],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        wait_until("NATS is up", self.is_up)

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def is_up(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def records(self, name):
        """The payloads of a boat's subject, in the order of the stream."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as stream:
            file = stream.makefile("rwb")
            file.readline()
            file.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB inbox 1\r\n')

            def ask(subject, body):
                payload = json.dumps(body).encode()
                file.write(b"PUB %s inbox %d\r\n%s\r\n" % (subject.encode(), len(payload), payload))
                file.flush()
                while True:
                    line = file.readline()
                    if line.startswith(b"PING"):
                        file.write(b"PONG\r\n")
                        file.flush()
                    elif line.startswith((b"MSG", b"HMSG")):
                        payload = file.read(int(line.split()[-1]) + 2)
                        return None if line.startswith(b"HMSG") else json.loads(payload)
                    elif not line:
                        raise SystemExit("NATS closed the connection")

            info = ask("$JS.API.STREAM.INFO.TOWLINE", {})
            if not info or "error" in info:
                return []
            found, sequence = [], 1
            while True:
                body = {"seq": sequence, "next_by_subj": f"towline.{name}"}
                answer = ask("$JS.API.STREAM.MSG.GET.TOWLINE", body)
                if not answer or "error" in answer:
                    return found
                message = answer["message"]
                found.append(base64.b64decode(message["data"]).decode())
                sequence = message["seq"] + 1

    def stop(self):
        self.server.terminate()
        self.server.wait()


class Boat:
    """`towline link pub`, whose records are numbers; started again after each kill."""

    def __init__(self, run):
        self.run, self.accepted, self.sent, self.kills = run, set(), 0, 0

    def start(self, numbers, crash=None, patience="0.2s"):
        environment = dict(self.run.environment)
        if crash:
            environment["TOWLINE_CRASH_AT"] = crash
        self.process = subprocess.Popen(
            [self.run.towline, "-v", "link", "pub", self.run.url, "-", "--name", self.run.name, "--deadline", "20ms",
             "--spool", self.run.folder / "spool", "--receipts", "--patience", patience],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.run.log, text=True,
        )
        self.numbers = list(numbers)
        self.readers = [threading.Thread(target=self.feed), threading.Thread(target=self.read)]
        for reader in self.readers:
            reader.start()

    def feed(self):
        try:
            for number in self.numbers:
                self.process.stdin.write(self.run.line(number) + "\n")
                self.process.stdin.flush()
                time.sleep(self.run.pause)
            self.process.stdin.close()
        except (BrokenPipeError, OSError):
            pass

    def read(self):
        # The first record that this process took has the first number it prints.
        receipts = (line for line in self.process.stdout if line.strip().isdigit())
        for count, _ in enumerate(receipts):
            self.accepted.add(self.numbers[count])

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        code = self.process.wait()
        for reader in self.readers:
            reader.join()
        return code


class Shore:
    def __init__(self, run):
        self.run = run

    def start(self, crash=None):
        environment = dict(self.run.environment)
        if crash:
            environment["TOWLINE_CRASH_AT"] = crash
        self.process = subprocess.Popen(
            [self.run.towline, "-v", "link", "run", self.run.folder / "shore.toml"],
            env=environment, stdout=subprocess.DEVNULL, stderr=self.run.log,
        )

    def kill(self):
        self.process.kill()
        self.process.wait()


class Run:
    """One boat and one shore, and what happens to them."""

    def __init__(self, number, chance, arguments, sinks, folder):
        self.name, self.chance, self.sinks = f"run{number}", chance, sinks
        self.towline, self.count, self.pause = arguments.towline, arguments.records, 0.002
        self.folder = folder / self.name
        self.folder.mkdir()
        self.log = open(self.folder / "log", "wb")
        self.environment = {**os.environ, "TOWLINE_HOME": str(folder / "home")}
        self.environment.pop("TOWLINE_CRASH_AT", None)
        key = subprocess.run([self.towline, "link", "keygen"], env=self.environment, capture_output=True, text=True,
                             check=True).stdout.strip()
        port = free_port()
        (self.folder / "shore.toml").write_text(
            f'name = "shore"\ncontrol = "{self.folder}/shore.sock"\n[listen]\naddress = "127.0.0.1:{port}"\ntls = false\n'
            f'[[client]]\nname = "{self.name}"\nkey = "{key}"\n'
            f'[[sink]]\nkind = "postgres"\nurl = "{sinks[0].url}"\n'
            f'[[sink]]\nkind = "nats"\nurl = "{sinks[1].url}"\nstate = "{self.folder}/state"\n'
        )
        through = free_port()
        self.relay = subprocess.Popen(
            [self.towline, "--quiet", "relay", f"127.0.0.1:{through}", f"127.0.0.1:{port}",
             "--both", f"loss={arguments.loss * 100}%,delay=10ms", "--seed", str(number)],
            env=self.environment, stdout=subprocess.DEVNULL, stderr=self.log,
        )
        self.url = f"towline://127.0.0.1:{through}#{key}"

    def line(self, number):
        return json.dumps({
            "context": "vessels.self",
            "updates": [{"$source": "chaos", "values": [{"path": f"chaos.{number % 7}", "value": number / 4}]}],
        }, separators=(",", ":"))

    def play(self):
        boat, shore = Boat(self), Shore(self)
        shore.start()
        at, kills = 0, {"boat": 0, "shore": 0}
        while at < self.count:
            step = self.chance.randrange(20, 120)
            numbers = range(at, min(at + step, self.count))
            at = numbers.stop
            what = self.chance.choice(["boat", "shore", "boat point", "shore point"])
            crash = None
            if what == "boat point":
                crash = f"{self.chance.choice(POINTS_OF_BOAT)}:{self.chance.randrange(1, 6)}"
            boat.start(numbers, crash)
            if what == "shore point":
                shore.kill()
                shore.start(f"{self.chance.choice(POINTS_OF_SHORE)}:{self.chance.randrange(1, 6)}")
            if what == "boat":
                time.sleep(self.chance.uniform(0.02, 0.5))
                boat.kill()
            else:
                if what == "shore":
                    time.sleep(self.chance.uniform(0.02, 0.5))
                    shore.kill()
                    shore.start()
                boat.end()
            kills["boat" if what.startswith("boat") else "shore"] += 1
            if shore.process.poll() is not None:
                shore.start()
        if shore.process.poll() is None:
            shore.kill()
        shore.start()
        boat.start([], patience=f"{PATIENCE}s")
        code = boat.end()
        shore.kill()
        self.relay.terminate()
        self.relay.wait()
        if code != 0:
            raise SystemExit(f"{self.name}: the last boat ended with {code}:\n{(self.folder / 'log').read_text()[-2000:]}")
        return boat.accepted, kills

    def judge(self, accepted):
        """Of each sink: what was accepted and is not there, what is there twice, what is there and was never sent."""
        sent = {self.line(number): number for number in range(self.count)}
        result = {}
        for sink in self.sinks:
            rows = [json.dumps(json.loads(row), separators=(",", ":")) for row in sink.records(self.name)]
            numbers = [sent.get(row) for row in rows]
            known = [number for number in numbers if number is not None]
            result[type(sink).__name__] = {
                "found": len(set(known)),
                "missing": len(accepted - set(known)),
                "duplicates": len(known) - len(set(known)),
                "wrong": len(numbers) - len(known),
            }
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towline", required=True, type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss", type=float, default=0.1)
    parser.add_argument("--records", type=int, default=400)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="towline-chaos-"))
    folder.chmod(0o755)
    sinks = []
    try:
        try:
            sinks.append(Postgres(folder / "postgres"))
            sinks.append(Nats(folder / "nats"))
        except FileNotFoundError as missing:
            print(f"SKIPPED link-chaos: {missing}")
            print(f"0 passed, 0 failed, {arguments.runs} skipped")
            return 0
        total = {"accepted": 0, "kills": {"boat": 0, "shore": 0}}
        bad = 0
        for number in range(arguments.runs):
            chance = random.Random(arguments.seed * 1_000_003 + number)
            run = Run(number, chance, arguments, sinks, folder)
            accepted, kills = run.play()
            found = run.judge(accepted)
            is_bad = any(sink["missing"] or sink["duplicates"] or sink["wrong"] for sink in found.values())
            bad += is_bad
            total["accepted"] += len(accepted)
            for end, count in kills.items():
                total["kills"][end] += count
            for name, counts in found.items():
                sums = total.setdefault(name, dict.fromkeys(counts, 0))
                for what, count in counts.items():
                    sums[what] += count
            if is_bad:
                print(f"run {number} of seed {arguments.seed}: {found}", file=sys.stderr)
                print(f"  again: --seed {arguments.seed} --runs {number + 1}; its log: {run.folder}/log", file=sys.stderr)
            elif sys.stderr.isatty():
                print(f"\r{number + 1} of {arguments.runs} runs", end="", file=sys.stderr)
            shutil.rmtree(run.folder / "spool", ignore_errors=True)
        total["runs"], total["bad_runs"] = arguments.runs, bad
        for name in ("Postgres", "Nats"):
            sums = total[name]
            print(f"{name}: accepted {total['accepted']}, found {sums['found']}, missing {sums['missing']}, "
                  f"duplicates {sums['duplicates']}, wrong {sums['wrong']}")
        print(json.dumps({"schema": "towline.link.chaos/1", **total}))
        print(f"{arguments.runs - bad} passed, {bad} failed")
        return 1 if bad else 0
    finally:
        for sink in sinks:
            sink.stop()
        if not sys.exc_info()[0]:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

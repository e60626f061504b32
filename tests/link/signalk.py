#!/usr/bin/env python3
"""A real Signal K server at both ends of a delta link that loses packets, and what each of them says afterwards.

    TOWLINE_SIGNALK_SERVER=DIR python3 signalk.py --towline PROGRAM --data DELTAS.jsonl [--loss 0.05] [--records 3000]

DIR is a directory in whose node_modules signalk-server 2.23.0 is. Deltas go into the first server over TCP; `towline link run`
takes them from its WebSocket and carries them through `towline relay` to another `towline link run`, which writes them into
the second server's WebSocket. Then both are asked over REST: every (context, path, $source, timestamp, value), with the bits
of each double, must be the same, and so must names and numbers of vessels, which are values at the empty path. At last the
second server is killed and begins anew, with nothing: it must come to the same values, though the first one sends no more.

Exit codes: 0 they are equal, or there is no server, which it says; 1 they differ.
"""

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from chaos import free_port

START = 120
SETTLE = 15
# The shore tries to connect again after half a minute at most.
AGAIN = 60


class Server:
    def __init__(self, directory, folder, number):
        self.http, self.tcp = free_port(), free_port()
        folder.mkdir()
        (folder / "package.json").write_text("{}")
        (folder / "settings.json").write_text(json.dumps({
            "vessel": {"uuid": f"urn:mrn:signalk:uuid:c0d79334-4e25-4245-8892-54e8ccc802{number:02}"},
            "interfaces": {"mdns": False, "tcp": True, "nmea-tcp": False, "appstore": False, "webapps": False},
            "port": self.http, "mdns": False, "pipedProviders": [],
        }))
        self.program, self.folder = directory / "node_modules/signalk-server/bin/signalk-server", folder
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            ["node", self.program, "-c", self.folder],
            env={**os.environ, "TCPSTREAMPORT": str(self.tcp), "PORT": str(self.http)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )

    def restart(self):
        self.process.kill()
        self.process.wait()
        self.start()
        self.wait()

    def wait(self):
        end = time.monotonic() + START
        while time.monotonic() < end:
            try:
                self.vessels()
                return
            except OSError:
                time.sleep(0.5)
        raise SystemExit("a Signal K server did not start")

    def vessels(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/signalk/v1/api/vessels", timeout=10) as answer:
            return json.load(answer)


def bits(value):
    """A value that equals another only if every double in it has the same bits."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return struct.pack(">d", value).hex()
    if isinstance(value, list):
        return tuple(bits(item) for item in value)
    return tuple(sorted((key, bits(item)) for key, item in value.items()))


def leaves(vessels, contexts):
    """All (context, path, $source, timestamp, value); what has no source is at the empty path."""
    found = set()

    def walk(context, path, node):
        if not isinstance(node, dict):
            found.add((context, path, "", "", bits(node)))
        elif "value" in node or "values" in node and "$source" in node:
            found.add((context, path, node.get("$source"), node.get("timestamp"), bits(node.get("value"))))
            for source, held in node.get("values", {}).items():
                found.add((context, path, source, held.get("timestamp"), bits(held.get("value"))))
        else:
            for name, below in node.items():
                # What the server itself knows of a path is not what was sent.
                if name not in ("meta", "$source", "timestamp", "pgn", "sentence"):
                    walk(context, f"{path}.{name}" if path else name, below)

    for context, vessel in vessels.items():
        if f"vessels.{context}" in contexts:
            walk(context, "", vessel)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towline", required=True, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--loss", type=float, default=0.05)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--rate", type=float, default=200)
    arguments = parser.parse_args()
    directory = os.environ.get("TOWLINE_SIGNALK_SERVER")
    if not directory:
        print("SKIPPED signalk: TOWLINE_SIGNALK_SERVER names no directory with signalk-server in node_modules")
        return 0
    towline = arguments.towline.resolve()
    folder = Path(tempfile.mkdtemp(prefix="towline-signalk-"))
    environment = {**os.environ, "TOWLINE_HOME": str(folder / "home")}
    servers = [Server(Path(directory), folder / f"server{number}", number) for number in (10, 11)]
    running = []

    def start(*command):
        running.append(subprocess.Popen([towline, *map(str, command)], env=environment, stdout=subprocess.DEVNULL))

    try:
        for server in servers:
            server.wait()
        key = subprocess.run([towline, "link", "keygen"], env=environment, capture_output=True, text=True,
                             check=True).stdout.strip()
        port, through = free_port(), free_port()
        (folder / "shore.toml").write_text(
            f'name = "shore"\ncontrol = "{folder}/shore.sock"\n[listen]\naddress = "127.0.0.1:{port}"\n'
            f'[[client]]\nname = "vela"\nkey = "{key}"\n'
            f'[[sink]]\nkind = "signalk"\nurl = "ws://127.0.0.1:{servers[1].http}"\n'
        )
        (folder / "boat.toml").write_text(
            f'name = "vela"\ncontrol = "{folder}/boat.sock"\n[peer]\nurl = "towline://127.0.0.1:{through}"\nkey = "{key}"\n'
            f'fallback = "never"\n[spool]\npath = "{folder}/spool"\n'
            f'[[source]]\nkind = "signalk"\nurl = "ws://127.0.0.1:{servers[0].http}"\n'
        )
        start("link", "run", folder / "shore.toml")
        start("--quiet", "relay", f"127.0.0.1:{through}", f"127.0.0.1:{port}", "--both",
              f"loss={arguments.loss * 100}%,delay=50ms", "--seed", "3")
        start("link", "run", folder / "boat.toml")
        time.sleep(5)
        contexts = set()
        with socket.create_connection(("127.0.0.1", servers[0].tcp)) as into, open(arguments.data) as data:
            for number, line in enumerate(data):
                if number == arguments.records:
                    break
                delta = json.loads(line)
                contexts.add(delta["context"])
                # The first server names what it receives by its own connection, as it does with a bus.
                for update in delta["updates"]:
                    update.pop("$source", None)
                into.sendall(json.dumps(delta).encode() + b"\r\n")
                time.sleep(1 / arguments.rate)
        time.sleep(SETTLE)
        here, there = (leaves(server.vessels(), contexts) for server in servers)
        servers[1].restart()
        end = time.monotonic() + AGAIN
        while (after := leaves(servers[1].vessels(), contexts)) != here and time.monotonic() < end:
            time.sleep(1)
        show = subprocess.run([towline, "link", "show", "--control", folder / "boat.sock", "--json"], env=environment,
                              capture_output=True, text=True)
        report = json.loads(show.stdout) if show.returncode == 0 else {}
    finally:
        running = [server.process for server in servers] + running
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait()
    at_empty_path = sum(1 for leaf in here if not leaf[2])
    differences = (
        ("only at the source", here - there), ("only at the other end", there - here),
        ("not there after the restart", here - after), ("only there after the restart", after - here),
    )
    for name, only in differences:
        for leaf in sorted(only, key=repr)[:10]:
            print(f"{name}: {leaf}", file=sys.stderr)
    print(json.dumps({
        "schema": "towline.link.signalk/1", "contexts": len(contexts), "values": len(here), "at_the_empty_path": at_empty_path,
        "missing": len(here - there), "surplus": len(there - here),
        "missing_after_restart": len(here - after), "surplus_after_restart": len(after - here), "sent_again": report.get("again"),
        "bytes_per_record": report.get("bytes_per_record"),
    }))
    is_good = here == there == after and at_empty_path > 0
    print(f"{int(is_good)} passed, {int(not is_good)} failed")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

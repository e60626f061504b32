#!/usr/bin/env python3
"""A cluster of three NATS servers behind a delta link, whose nodes are killed in turn, and what is in the stream afterwards.

    python3 nats_cluster.py --towline PROGRAM [--records 6000] [--kills 6]

A boat sends numbers over a link that loses 5 % of its datagrams to a shore with a JetStream sink of three replicas. Every
few hundred records a node gets SIGKILL, the stream's leader as often as chance has it, and is started again a little later.
All numbers must be in the stream once, in any order.

Exit codes: 0 they are, or there is no nats-server, which it says; 1 they are not.
"""

import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chaos import Nats, free_port, wait_until

NODES = 3


class Node(Nats):
    """One of the cluster; it is read from as a single server is."""

    def __init__(self, program, folder, number, ports, routes):
        self.program, self.port = program, ports[number]
        urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        self.config = folder / f"node{number}.conf"
        self.config.write_text(
            f'server_name: node{number}\nlisten: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{folder}/node{number}" }}\n'
            f'cluster {{ name: towline, listen: "127.0.0.1:{routes[number]}", routes: [{urls}] }}\n'
        )
        self.start()

    def start(self):
        self.server = subprocess.Popen([self.program, "-c", self.config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until("a node is up", self.is_up)

    def kill(self):
        self.server.kill()
        self.server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towline", required=True, type=Path)
    parser.add_argument("--records", type=int, default=6000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    program = shutil.which("nats-server") or shutil.which("/usr/sbin/nats-server")
    if not program:
        print("SKIPPED nats cluster: nats-server is not installed (make setup-system)")
        return 0
    towline = arguments.towline.resolve()
    chance = random.Random(arguments.seed)
    folder = Path(tempfile.mkdtemp(prefix="towline-nats-"))
    environment = {**os.environ, "TOWLINE_HOME": str(folder / "home")}
    ports, routes = ([free_port() for _ in range(NODES)] for _ in range(2))
    nodes = [Node(program, folder, number, ports, routes) for number in range(NODES)]
    running = []

    def start(*command, **more):
        running.append(subprocess.Popen([towline, *map(str, command)], env=environment, text=True, **more))
        return running[-1]

    try:
        time.sleep(5)
        key = subprocess.run([towline, "link", "keygen"], env=environment, capture_output=True, text=True,
                             check=True).stdout.strip()
        port, through = free_port(), free_port()
        (folder / "shore.toml").write_text(
            f'name = "shore"\ncontrol = "{folder}/shore.sock"\n[listen]\naddress = "127.0.0.1:{port}"\n'
            f'[[client]]\nname = "vela"\nkey = "{key}"\n'
            f'[[sink]]\nkind = "nats"\nurl = "nats://127.0.0.1:{ports[0]}"\nstate = "{folder}/state"\nreplicas = {NODES}\n'
        )
        start("link", "run", folder / "shore.toml", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        start("--quiet", "relay", f"127.0.0.1:{through}", f"127.0.0.1:{port}", "--both", "loss=5%,delay=20ms", "--seed", "1")
        boat = start("link", "pub", f"towline://127.0.0.1:{through}#{key}", "-", "--name", "vela", "--json", "--patience", "120s",
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        every = arguments.records // (arguments.kills + 1)
        killed = []
        for number in range(arguments.records):
            boat.stdin.write(f'{{"number":{number}}}\n')
            boat.stdin.flush()
            time.sleep(0.005)
            if number % every == every - 1 and len(killed) < arguments.kills:
                node = chance.randrange(NODES)
                nodes[node].kill()
                killed.append(node)
                # Two of three are a majority; then it is there again.
                time.sleep(2)
                nodes[node].start()
        boat.stdin.close()
        said = json.loads(boat.stdout.read().splitlines()[-1])
        boat.wait()
        wait_until("the stream can be read", lambda: bool(nodes[0].records("vela")))
        found = collections.Counter(json.loads(text)["number"] for text in nodes[0].records("vela"))
    finally:
        for process in running:
            process.kill()
            process.wait()
        for node in nodes:
            node.kill()
    missing = sum(1 for number in range(arguments.records) if not found[number])
    twice = sum(count - 1 for count in found.values() if count > 1)
    print(json.dumps({"schema": "towline.link.nats-cluster/1", "records": arguments.records, "durable": said["durable"],
                      "killed": killed, "found": sum(found.values()), "missing": missing, "twice": twice}))
    is_good = missing == twice == 0 and said["durable"] == arguments.records
    print(f"{int(is_good)} passed, {int(not is_good)} failed")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

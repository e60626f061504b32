"""The module itself: what it leaves behind, and how it comes and goes."""

import errno
import os
import random
import socket
import struct
import subprocess
import time

from harness import *


@test(agent=None)
def connections_that_come_and_go_leave_nothing():
    def slab():
        with open("/proc/slabinfo") as file:
            return {row[0]: int(row[1]) for row in map(str.split, file) if row[0] in ("TCP", "TCPv6", "sock_inode_cache")}
    seed = int.from_bytes(os.urandom(2))
    print(f"  seed {seed}")
    dice = random.Random(seed)
    agent = Agent()
    problems = []
    with listener() as l, listener(socket.AF_INET6) as l6:
        def serve(l):
            while True:
                try:
                    s, _ = l.accept()
                except OSError:
                    return
                def one(s=s):
                    try:
                        while data := s.recv(1000):
                            s.sendall(data)
                        s.shutdown(socket.SHUT_WR)
                    except OSError as error:
                        problems.append(repr(error))
                    s.close()
                Background(one)
        acceptors = [Background(serve, x) for x in (l, l6)]
        exchange_once(l)
        before, descriptors = slab(), agent_descriptors(agent)
        done = {}
        for n in range(1000):
            target, family = (l, socket.AF_INET) if dice.random() < 0.7 else (l6, socket.AF_INET6)
            kind = dice.choice(("echo", "echo", "reset", "half", "plain", "early", "unread"))
            done[kind] = done.get(kind, 0) + 1
            s = new(family, 0 if kind == "plain" else PROTOCOL)
            try:
                if kind == "early":
                    s.setblocking(False)
                    s.connect_ex(target.getsockname()[:2])
                    time.sleep(dice.random() * 0.01)
                else:
                    s.connect(target.getsockname()[:2])
                if kind == "echo":
                    s.sendall(MARK)
                    assert receive(s, len(MARK)) == MARK
                elif kind == "half":
                    s.sendall(MARK)
                    s.shutdown(socket.SHUT_WR)
                    assert receive(s, len(MARK)) == MARK and s.recv(1) == b""
                elif kind == "unread":
                    s.sendall(MARK)
                elif kind == "plain":
                    s.sendall(b"GET / HTTP/1.0\r\n\r\n"[:dice.randrange(18)])
                if kind == "reset" or dice.random() < 0.2:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError as error:
                assert kind in ("early", "plain"), (kind, error, n, problems[-3:])
            s.close()
            if n == 500:
                agent.stop()
                agent = Agent()
                descriptors = agent_descriptors(agent)
        for x in (l, l6):
            x.shutdown(socket.SHUT_RDWR)
        for acceptor in acceptors:
            acceptor.result()
    until("all handshakes ended", lambda: counter("pending") == 0, 15)
    until("all sockets are gone", lambda: counter("sockets") == 0, 15)
    until("the agent's descriptors are closed", lambda: agent_descriptors(agent) <= descriptors, 15)
    agent.stop()
    time.sleep(0.5)
    after = slab()
    print(f"  {done}; slabs {before} -> {after}")
    # A kernel that looks for errors keeps what was freed for a while; kmemleak tells there.
    for name in after if SLOW == 1 else ():
        assert after[name] - before.get(name, 0) < 150, name


def exchange_once(l):
    s = connect(l)
    s.sendall(MARK)
    assert receive(s, len(MARK)) == MARK
    s.close()


def agent_descriptors(agent):
    return len(os.listdir(f"/proc/{agent.process.pid}/fd"))


@test(agent=None)
def the_module_leaves_when_nothing_is_open_and_comes_back():
    with new():
        assert busybox("rmmod", "stcp").returncode != 0
    with Puppet():
        assert busybox("rmmod", "stcp").returncode != 0
    # TIME_WAIT sockets do not hold it.
    with open("/proc/sys/net/ipv4/tcp_max_tw_buckets", "w") as file:
        file.write("1000")
    with Agent():
        client, server = pair()
        exchange(client, server)
        client.close()
        assert server.recv(1) == b""
        server.close()
        # In TIME_WAIT before its program closes it.
        client, server = pair()
        client.shutdown(socket.SHUT_WR)
        server.recv(1)
        server.shutdown(socket.SHUT_WR)
        client.recv(1)
        time.sleep(0.3)
        client.close()
        server.close()
    with open("/proc/net/sockstat") as file:
        assert "tw 0" not in file.read()
    gone = busybox("rmmod", "stcp")
    assert gone.returncode == 0, gone.stdout
    for protocol in ("256", "262", "6"):
        assert busybox("insmod", "/t/stcp.ko", "protocol=" + protocol).returncode != 0
    fails(errno.EPROTONOSUPPORT, new)
    exchange(*ktls_pair())
    for protocol in (257, 261):
        assert busybox("insmod", "/t/stcp.ko", f"protocol={protocol}").returncode == 0
        assert counter("protocol") == protocol
        with Agent():
            with new(protocol=protocol) as l:
                l.bind(("127.0.0.1", 0))
                l.listen()
                with new(protocol=protocol) as s:
                    s.connect(l.getsockname())
                    exchange(s, l.accept()[0])
        if protocol == 257:
            until("it leaves", lambda: busybox("rmmod", "stcp").returncode == 0)
    with open("/proc/sys/net/ipv4/tcp_max_tw_buckets", "w") as file:
        file.write("0")

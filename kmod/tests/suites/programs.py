"""`towline stcpd` and `towline stcp run`, with programs that know nothing of it.

On Linux 6.6 and later `socket()` is changed by BPF, before that by the preload shim.
"""

import json
import os
import signal
import subprocess
import time

import harness
from harness import *

TEXT = payload(30000)
SHIM = f"towline stcp enter --shim /bin/libtowline_preload.so --protocol {PROTOCOL} --"
RUN = "towline stcp run --tier module --"
with open("/proc/kallsyms") as symbols:
    # A BPF program finds it by BTF.
    HAS_HOOK = " update_socket_protocol\n" in symbols.read() and os.path.exists("/sys/kernel/btf/vmlinux")


def sh(command, **more):
    ended = subprocess.run(command, shell=True, capture_output=True, timeout=60 * SLOW, **more)
    return ended.returncode, (ended.stdout + ended.stderr).decode()


LAST_PORT = 7000


def transfer(run, server="busybox nc -l -p {}", client="busybox nc 127.0.0.1 {}"):
    """TEXT from client to server, each started by `run`, under the sniffer's eyes."""
    global LAST_PORT
    LAST_PORT += 1
    seen = SNIFFER.packets
    with open("/tmp/came", "wb") as came:
        listening = subprocess.Popen(f"{run} {server.format(LAST_PORT)}", shell=True, stdout=came)
    until(f"somebody listens on {LAST_PORT}", lambda: is_listening(LAST_PORT), 20)
    sh(f"{run} {client.format(LAST_PORT)}", input=TEXT)
    listening.wait(20)
    with open("/tmp/came", "rb") as came:
        assert came.read() == TEXT
    SNIFFER.drain()
    assert SNIFFER.packets > seen + 3, "the sniffer saw nothing"


@test(agent=OWN_KEY)
def the_sniffer_sees_plain_programs():
    transfer("")
    assert SNIFFER.marked > 0
    SNIFFER.reset()


@test(agent=OWN_KEY)
def status_names_the_module_as_the_best_tier():
    code, said = sh("towline stcp status")
    assert code == 0 and said.split()[:2] == ["tier", "module:"], said
    assert "handshakes_ok" in said and "\nagent      running" in said, said


# bash connects by itself, python accepts by itself.
ACCEPT = ("python3 -S -c 'import socket, sys; l = socket.socket(); l.bind((\"127.0.0.1\", {})); l.listen(); "
          "s = l.accept()[0]; [sys.stdout.buffer.write(d) for d in iter(lambda: s.recv(65536), b\"\")]'")
CONNECT = "bash -c 'cat > /dev/tcp/127.0.0.1/{}'"


@test(agent=OWN_KEY)
def a_dynamic_program_is_upgraded():
    transfer(RUN, ACCEPT, CONNECT)


# As Go's listeners do from 1.24 on.
MPTCP = "socket.socket(socket.{}, socket.SOCK_STREAM, 262)"
ACCEPT_MPTCP = ACCEPT.replace("socket.socket()", MPTCP.format("AF_INET6")).replace("127.0.0.1", "::1")
CONNECT_MPTCP = ("python3 -S -c 'import socket, sys; s = " + MPTCP + "; s.connect((\"{}\", {{}})); "
                 "s.sendall(sys.stdin.buffer.read())'")


@test(agent=OWN_KEY)
def multipath_tcp_and_ipv6_are_upgraded_too():
    for run in (RUN, SHIM):
        transfer(run, ACCEPT_MPTCP, CONNECT_MPTCP.format("AF_INET6", "::1"))
        transfer(run, ACCEPT.replace("127.0.0.1", "0.0.0.0"), CONNECT_MPTCP.format("AF_INET", "127.0.0.1"))


def made(run, family, kind, protocol, by="made"):
    """What a static program gets when it asks for such a socket."""
    said = sh(f"{run} /t/calls {by} {PROTOCOL} {family} {kind} {protocol}")[1].splitlines()
    return "\n".join(line for line in said if not line.startswith("towline: tier "))


@test(agent=OWN_KEY)
def a_static_program_has_no_stream_past_the_module():
    inet, inet6, smc, unix = 2, 10, 43, 1
    stream, nonblocking, datagram, packets = 1, 1 | os.O_NONBLOCK, 2, 5
    tcp, udp, sctp, mptcp = 6, 17, 132, 262
    assert made("", inet, stream, 0) == "other"
    for family in (inet, inet6):
        for kind, protocol in ((stream, 0), (nonblocking, tcp), (stream, mptcp), (stream, PROTOCOL)):
            if HAS_HOOK:
                assert made(RUN, family, kind, protocol) == "module", (family, kind, protocol)
        for protocol in (0, tcp, mptcp):
            assert made(SHIM, family, stream, protocol) == "Protocol not supported", (family, protocol)
    if HAS_HOOK:
        for what in ((inet, stream, sctp), (inet6, stream, 256), (inet, packets, sctp), (smc, stream, 0)):
            assert made(RUN, *what) == "Protocol not supported", what
        # io_uring does not ask what `socket()` asks.
        for family in (inet, inet6):
            assert made("", family, stream, 0, "uring_made") == "other"
            assert made(RUN, family, stream, 0, "uring_made") == "Protocol not supported"
            assert made(RUN, family, stream, PROTOCOL, "uring_made") == "module"
            assert made(RUN, family, datagram, 0, "uring_made") == "other"
        for what in ((inet, datagram, 0), (inet6, datagram, udp), (unix, stream, 0)):
            assert made(RUN, *what) == "other", what


@test(agent=OWN_KEY)
def a_dynamic_program_is_upgraded_by_the_shim_without_root():
    transfer(SHIM, ACCEPT, CONNECT)
    said = sh(f"busybox su -s /bin/sh nobody -c \"TOWLINE_HOME=/tmp/nobody {RUN} {CONNECT.format(9)}\"")[1]
    assert "Connection refused" in said, said


@test(agent=OWN_KEY)
def a_static_program_is_upgraded_or_refused():
    if HAS_HOOK:
        transfer(RUN)
    else:
        said = sh(f"{RUN} busybox nc 127.0.0.1 9")[1]
        assert "not started" in said and "the program is static" in said, said
    # A child that goes past the shim.
    said = sh(f"{SHIM} busybox nc 127.0.0.1 9")[1]
    assert "Protocol not supported" in said, said


@test(agent=OWN_KEY)
def requests_beside_plain_tcp():
    """The framed echo of `make bench-stcp`. On a software CPU a record costs a multiple of what it does elsewhere."""
    for size, clients in ((256, 50), (4096, 20), (16384, 10), (65536, 5)):
        tcp, ours = (requests_a_second(run, size, clients) for run in ("", SHIM))
        print(f"  {size} B x {clients}: {tcp:.0f} requests/s with TCP, {ours:.0f} with ours: "
              f"ratio {ours / tcp:.2f} (software CPU)")


def requests_a_second(run, size, clients):
    """Of programs for TCP, both started by `run`."""
    global LAST_PORT
    LAST_PORT += 1
    done = counter("handshakes_ok")
    address = f"127.0.0.1:{LAST_PORT}"
    server = subprocess.Popen(f"exec {run} towline stcp echo-server --plain --quiet --listen {address}", shell=True)
    until(f"somebody listens on {LAST_PORT}", lambda: is_listening(LAST_PORT), 20)
    code, said = sh(f"{run} towline stcp echo-load --plain --quiet --json -t 1s -c {clients} -s {size} {address}")
    server.terminate()
    server.wait(20)
    assert code == 0, said
    row = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert row["requests"] > 0 and row["errors"] == 0 and row["connect_errors"] == 0, row
    # What came meanwhile is looked at only now.
    harness.MARK = PAYLOAD[100:140]
    SNIFFER.drain()
    harness.MARK = MARK
    if run:
        assert counter("handshakes_ok") - done >= 2 * clients
        SNIFFER.verdict()
    else:
        assert SNIFFER.marked > 10
        SNIFFER.reset()
    return row["requests_per_s"]


@test(agent=OWN_KEY)
def a_finished_run_leaves_nothing():
    left = os.listdir("/sys/fs/bpf") + [n for n in os.listdir("/sys/fs/cgroup") if n.startswith("towline")]
    assert not left, left


@test(agent=OWN_KEY)
def a_killed_run_goes_on_encrypting_until_it_is_cleaned_up():
    if not HAS_HOOK:
        return      # the shim's filter is the program's own
    run = subprocess.Popen(f"exec {RUN} sh -c 'echo $$ > /tmp/pid; exec sleep 600'", shell=True)
    while not (os.path.exists("/tmp/pid") and open("/tmp/pid").read().strip()):
        time.sleep(0.1)
    run.send_signal(signal.SIGKILL)
    run.wait()
    cgroup = open(f"/proc/{open('/tmp/pid').read().strip()}/cgroup").read().strip().split("::")[1]
    inside = f"sh -c 'echo 0 > /sys/fs/cgroup{cgroup}/cgroup.procs; exec \"$@\"' sh"
    transfer(inside)
    said = sh("towline stcp status")[1]
    commands = [line.strip() for line in said.splitlines() if "towline-stcp-" in line]
    assert len(commands) == 2, said
    for command in commands:
        assert sh(command)[0] == 0, command
    a_finished_run_leaves_nothing()


@test(agent=OWN_KEY)
def the_agent_ends_well_when_it_is_asked_to(agent):
    agent.send(signal.SIGTERM)
    assert agent.process.wait(10) == 0
    # Nobody would make the handshakes.
    code, said = sh(f"{RUN} busybox true")
    assert code == 1 and "no agent serves the kernel module: start `towline stcpd`" in said, said

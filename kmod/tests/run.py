"""`towline stcpd` and `towline stcp run` in the guest: run.py, as root, the module loaded.

Besides what guest.py needs: `towline` with its libraries and libtowline_preload.so in /bin, bash.
On Linux 6.6 and later `socket()` is changed by BPF, before that by the preload shim.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import time

MARK = b"the-marker-that-must-not-be-seen"
DATA = MARK * 1000
PROTOCOL = open("/sys/class/misc/stcp/protocol").read().strip()
SHIM = f"towline stcp enter --shim /bin/libtowline_preload.so --protocol {PROTOCOL} --"
RUN = "towline stcp run --tier module --"
HAS_HOOK = " update_socket_protocol\n" in open("/proc/kallsyms").read()

TESTS = []


def test(function):
    TESTS.append(function)
    return function


class Sniffer:
    """Everything on loopback."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 128 << 20)    # SO_RCVBUFFORCE
        self.socket.setblocking(False)

    def marked(self):
        frames = marked = 0
        try:
            while True:
                frame = self.socket.recv(70000)
                frames += 1
                marked += MARK in frame
        except BlockingIOError:
            assert frames > 3, "the sniffer saw nothing"
            return marked


def sh(command, **more):
    ended = subprocess.run(command, shell=True, capture_output=True, timeout=60, **more)
    return ended.returncode, (ended.stdout + ended.stderr).decode()


def wait_for_port(port):
    for _ in range(200):
        if any(f":{port:04X} " in open(f"/proc/net/{name}").read() for name in ("tcp", "tcp6")):
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens on {port}")


LAST_PORT = 7000


def transfer(run, server="busybox nc -l -p {}", client="busybox nc 127.0.0.1 {}"):
    """DATA from client to server, each started by `run`: (what came, marked frames)."""
    global LAST_PORT
    LAST_PORT += 1
    sniffer = Sniffer()
    with open("/tmp/came", "wb") as came:
        listening = subprocess.Popen(f"{run} {server.format(LAST_PORT)}", shell=True, stdout=came)
    wait_for_port(LAST_PORT)
    sh(f"{run} {client.format(LAST_PORT)}", input=DATA)
    listening.wait(20)
    return open("/tmp/came", "rb").read(), sniffer.marked()


@test
def the_sniffer_sees_plain_programs():
    came, marked = transfer("")
    assert came == DATA and marked > 0


@test
def status_names_the_module_as_the_best_tier():
    code, said = sh("towline stcp status")
    assert code == 0 and said.split()[:2] == ["tier", "module:"], said
    assert "handshakes_ok" in said, said


# bash connects by itself, python accepts by itself.
ACCEPT = ("python3 -S -c 'import socket, sys; l = socket.socket(); l.bind((\"127.0.0.1\", {})); l.listen(); "
          "s = l.accept()[0]; [sys.stdout.buffer.write(d) for d in iter(lambda: s.recv(65536), b\"\")]'")
CONNECT = "bash -c 'cat > /dev/tcp/127.0.0.1/{}'"


@test
def a_dynamic_program_is_upgraded():
    assert transfer(RUN, ACCEPT, CONNECT) == (DATA, 0)


@test
def a_dynamic_program_is_upgraded_by_the_shim_without_root():
    assert transfer(SHIM, ACCEPT, CONNECT) == (DATA, 0)
    said = sh(f"busybox su -s /bin/sh nobody -c \"TOWLINE_HOME=/tmp/nobody {RUN} {CONNECT.format(9)}\"")[1]
    assert "Connection refused" in said, said


@test
def a_static_program_is_upgraded_or_refused():
    if HAS_HOOK:
        assert transfer(RUN) == (DATA, 0)
    else:
        said = sh(f"{RUN} busybox nc 127.0.0.1 9")[1]
        assert "not started" in said and "the program is static" in said, said
    # A child that goes past the shim.
    said = sh(f"{SHIM} busybox nc 127.0.0.1 9")[1]
    assert "Protocol not supported" in said, said


@test
def a_finished_run_leaves_nothing():
    left = os.listdir("/sys/fs/bpf") + [n for n in os.listdir("/sys/fs/cgroup") if n.startswith("towline")]
    assert not left, left


@test
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
    assert transfer(inside) == (DATA, 0)
    said = sh("towline stcp status")[1]
    commands = [line.strip() for line in said.splitlines() if "towline-stcp-" in line]
    assert len(commands) == 2, said
    for command in commands:
        assert sh(command)[0] == 0, command
    a_finished_run_leaves_nothing()


def hand_over(sock, side):
    """A connected socket, given to the agent as the kTLS shim does."""
    def address(a):
        return struct.pack("=H", 2) + struct.pack("!H", a[1]) + socket.inet_aton(a[0]) + bytes(20)
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    agent.connect("/tmp/stcpd.sock")
    request = struct.pack("=HHIiBBHIIQ", 1, 96, 1, -1, side, 1, 0, 0, os.getpid(), 0)
    request += address(sock.getsockname()) + address(sock.getpeername()) + bytes(8)
    socket.send_fds(agent, [request], [sock.fileno()])
    return agent


@test
def a_socket_handed_to_the_agent_has_ktls_afterwards():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    sniffer = Sniffer()
    agents = [hand_over(client, 0), hand_over(server, 1)]
    assert [struct.unpack("=i", agent.recv(4))[0] for agent in agents] == [0, 0]
    for sender, receiver in ((client, server), (server, client)):
        sender.sendall(DATA)
        came = b""
        while len(came) < len(DATA):
            came += receiver.recv(65536)
        assert came == DATA
    assert sniffer.marked() == 0


@test
def a_socket_whose_peer_speaks_in_clear_is_shut_down():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    client.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert struct.unpack("=i", hand_over(server, 1).recv(4))[0] == -71     # EPROTO
    try:
        server.send(MARK)
        raise AssertionError("it can still be written to")
    except BrokenPipeError:
        pass


def main():
    os.environ["TOWLINE_HOME"] = "/tmp/home"
    for kind, path in (("cgroup2", "/sys/fs/cgroup"), ("bpf", "/sys/fs/bpf")):
        subprocess.run(["mount", "-t", kind, kind, path], check=True)
    with open("/etc/passwd", "w") as passwd:
        passwd.write("root:x:0:0:::/bin/sh\nnobody:x:65534:65534:::/bin/sh\n")
    agent = subprocess.Popen(["towline", "stcpd", "--socket", "/tmp/stcpd.sock"], stdout=subprocess.DEVNULL)
    while not os.path.exists("/tmp/stcpd.sock"):
        time.sleep(0.1)
    failed = 0
    for function in TESTS:
        try:
            function()
            print("ok  ", function.__name__, flush=True)
        except Exception as error:
            failed += 1
            print("FAIL", function.__name__, type(error).__name__, str(error)[:500], flush=True)
    agent.send_signal(signal.SIGTERM)
    failed += agent.wait(10) != 0
    print(f"{len(TESTS) - failed} passed, {failed} failed")
    return failed != 0


sys.exit(main())

"""What the guest's tests share: sockets, the agents, the sniffer, keys that a test knows.

A test is a function of `suites/*.py` under `@test()`, whose name says what happens. Every test
runs under a sniffer on `lo`: MARK may never pass in clear, and every packet is TCP's.
"""

import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import threading
import time

SYS = "/sys/class/misc/stcp/"
PARAMETERS = "/sys/module/stcp/parameters/"
MARK = b"PLAINTEXT-MARKER-0123456789."
# What the library's tests and its echo send. In the echo a number takes the place of the first bytes.
PAYLOAD = bytes(at * 31 % 251 for at in range(251))
SOL_TLS, TLS_TX, TLS_RX, TLS_SET_RECORD_TYPE, TLS_GET_RECORD_TYPE = 282, 1, 2, 1, 2
TCP_ULP = 31
ALERT, HANDSHAKE, DATA = 21, 22, 23
AES128, AES256, CHACHA = 51, 52, 54
STCP_PEER = 1
PROTOCOL = 261
# What takes its time, and what is at random: `--seconds` and `--seed` of the runner.
SECONDS = 20
# How many times as long everything may take: kernels that look for errors are slow.
SLOW = 1
SEED = int.from_bytes(os.urandom(3))


def counter(name):
    with open(SYS + name) as file:
        return int(file.read())


def parameter(name, value):
    """Sets a parameter of the module and returns what it was."""
    with open(PARAMETERS + name) as file:
        old = file.read().strip()
    with open(PARAMETERS + name, "w") as file:
        file.write(str(value))
    return old


class with_parameter:
    def __init__(self, name, value):
        self.name, self.value = name, value

    def __enter__(self):
        self.old = parameter(self.name, self.value)

    def __exit__(self, *_):
        parameter(self.name, self.old)


def fails(number, call, *arguments):
    """The call must fail with this errno, or one of several."""
    numbers = number if isinstance(number, tuple) else (number,)
    try:
        result = call(*arguments)
    except OSError as error:
        names = [errno.errorcode[n] for n in numbers]
        assert error.errno in numbers, f"{errno.errorcode.get(error.errno)} instead of {names}"
        return
    raise AssertionError(f"it answered {result!r} instead of {[errno.errorcode[n] for n in numbers]}")


def until(what, condition, seconds=10):
    end = time.monotonic() + seconds * SLOW
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


class Background:
    """Runs a call in a thread; `result` waits for it and passes on what it raised."""

    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        self.value = self.error = None
        try:
            self.value = self.call(*self.arguments)
        except BaseException as error:
            self.error = error

    def result(self, seconds=20):
        self.thread.join(seconds)
        assert not self.thread.is_alive(), f"{self.call} hangs"
        if self.error:
            raise self.error
        return self.value


# Sockets.

def loopback(family):
    return "127.0.0.1" if family == socket.AF_INET else "::1"


def new(family=socket.AF_INET, protocol=PROTOCOL):
    s = socket.socket(family, socket.SOCK_STREAM, protocol)
    s.settimeout(None)
    return s


def listener(family=socket.AF_INET, protocol=PROTOCOL, backlog=128):
    s = new(family, protocol)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((loopback(family), 0))
    s.listen(backlog)
    return s


def connect(to, family=socket.AF_INET, protocol=PROTOCOL):
    s = new(family, protocol)
    s.connect(to.getsockname()[:2])
    return s


def pair(family=socket.AF_INET, protocol=PROTOCOL):
    """Both ends of a connection; of ours, keyed by the running agent."""
    with listener(family, protocol) as l:
        client = connect(l, family, protocol)
        server, _ = l.accept()
    return client, server


def receive(s, length):
    data = bytearray()
    while len(data) < length:
        part = s.recv(length - len(data))
        assert part, f"the stream ended after {len(data)} of {length} bytes"
        data += part
    return bytes(data)


def payload(length):
    return (MARK * (length // len(MARK) + 1))[:length]


def exchange(a, b, length=3000):
    """Bytes both ways, checked."""
    for x, y in ((a, b), (b, a)):
        data = payload(length)
        x.sendall(data)
        assert receive(y, length) == data


def wait_for(s, events, seconds=5):
    poller = select.poll()
    poller.register(s, events)
    ready = poller.poll(seconds * 1000)
    return ready[0][1] if ready else 0


def is_listening(port):
    for name in ("tcp", "tcp6"):
        with open("/proc/net/" + name) as file:
            rows = [line.split() for line in file]
        if any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows[1:]):
            return True
    return False


def busybox(*command):
    return subprocess.run(["/bin/busybox", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


# Agents.

OWN_KEY = ""        # no policy: a key of its own, and peers known from first use
X509 = """
[server]
certificate = "/t/cert.pem"
key = "/t/key.pem"
unauthenticated = "any-client"
[client]
roots = "/t/cert.pem"
"""
RAW_KEYS = """
[server]
key = "/t/server-key.pem"
known_peers = "/tmp/known-clients"
[client]
key = "/t/client-key.pem"
known_peers = "/tmp/known-servers"
"""


class Agent:
    """`towline stcpd`, as a process."""

    def __init__(self, policy=X509):
        command = ["towline", "stcpd"]
        if policy:
            with open("/tmp/stcp.toml", "w") as file:
                file.write(policy)
            command += ["--policy", "/tmp/stcp.toml"]
        environment = dict(os.environ, NO_COLOR="1")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        for line in self.process.stdout:
            if line.startswith(b"module"):      # its last line; the device is open by then
                break
        else:
            raise AssertionError("the agent did not start")

    def send(self, number):
        self.process.send_signal(number)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Puppet:
    """An agent in the test's own hands: keys that both sides know, and no handshake."""

    TX, RX, DONE = 0x40045301, 0x40045302, 0x40285303

    def __init__(self, flags=0):
        self.fd = os.open("/dev/stcp", os.O_RDONLY | flags)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def take(self):
        request = os.read(self.fd, 96)
        assert len(request) == 96
        version, size, number, fd, side, carrier = struct.unpack_from("=HHIiBB", request)
        assert (version, size, carrier) == (1, 96, 0), (version, size, carrier)
        return Request(fd, side, request)


class Request:
    def __init__(self, fd, side, raw):
        self.fd, self.side, self.raw = fd, side, raw

    def key(self, which, cipher=AES128):
        fcntl.ioctl(self.fd, Puppet.TX if which == TLS_TX else Puppet.RX, crypto_info(self.side, which, cipher))

    def done(self, status=0, authentication=0, pin=bytes(32)):
        fcntl.ioctl(self.fd, Puppet.DONE, struct.pack("=iB3x32s", status, authentication, pin))

    def finish(self, cipher=AES128):
        self.key(TLS_TX, cipher)
        self.key(TLS_RX, cipher)
        self.done()
        self.close()

    def close(self):
        os.close(self.fd)


def crypto_info(side, which, cipher=AES128):
    """tls12_crypto_info_* for TLS 1.3; what a client sends with, a server receives with."""
    seed = 1 if (side == 0) == (which == TLS_TX) else 2
    key = bytes([seed + 9] * (16 if cipher == AES128 else 32))
    iv, salt = bytes([seed] * 8), bytes([seed] * 4)
    body = iv + salt + key if cipher == CHACHA else iv + key + salt
    return struct.pack("=HH", 0x304, cipher) + body + bytes(8)


def ktls(s, side, cipher=AES128):
    """kTLS of its own on a plain TCP socket, with the puppet's keys."""
    s.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
    s.setsockopt(SOL_TLS, TLS_TX, crypto_info(side, TLS_TX, cipher))
    s.setsockopt(SOL_TLS, TLS_RX, crypto_info(side, TLS_RX, cipher))


def ktls_pair(family=socket.AF_INET):
    """Both ends of a plain TCP connection, with kTLS of their own."""
    client, server = pair(family, 0)
    ktls(client, 0)
    ktls(server, 1)
    return client, server


def record(s, kind, content):
    """Sends a record of this type from a plain kTLS socket."""
    s.sendmsg([content], [(SOL_TLS, TLS_SET_RECORD_TYPE, bytes([kind]))])


def next_record(s):
    """(type, content) from a plain kTLS socket; (None, b"") at FIN."""
    content, control, _, _ = s.recvmsg(20000, 64)
    return (control[0][2][0] if control else None), content


def puppet_client(family=socket.AF_INET, raw=False, cipher=AES128):
    """(program's keyed client socket, its peer): the peer is a plain TCP socket, with kTLS unless raw."""
    with listener(family, 0) as l, Puppet() as puppet:
        client = new(family)
        connecting = Background(client.connect, l.getsockname()[:2])
        puppet.take().finish(cipher)
        peer, _ = l.accept()
        connecting.result()
    if not raw:
        ktls(peer, 1, cipher)
    return client, peer


def puppet_server(family=socket.AF_INET):
    """(program's keyed server socket, its peer with kTLS)."""
    with listener(family) as l, Puppet() as puppet:
        peer = connect(l, family, 0)
        ktls(peer, 0)
        peer.send(MARK)     # the module waits for a client's first byte
        puppet.take().finish()
        server, _ = l.accept()
    assert receive(server, len(MARK)) == MARK
    return server, peer


# The sniffer and the kernel's log.

class Sniffer:
    ETH_P_ALL, ETH_P_IP, ETH_P_IPV6 = 3, 0x0800, 0x86DD

    def __init__(self, device="lo"):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(self.ETH_P_ALL))
        self.socket.bind((device, self.ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 128 << 20)   # SO_RCVBUFFORCE
        self.socket.setblocking(False)
        self.reset()

    def reset(self):
        self.drain()
        self.packets = self.marked = 0
        self.strange = set()
        self.socket.getsockopt(263, 6, 8)

    def drain(self):
        buffer = bytearray(70000)
        view = memoryview(buffer)
        while True:
            try:
                length, address = self.socket.recvfrom_into(buffer)
            except BlockingIOError:
                return
            protocol = buffer[9] if address[1] == self.ETH_P_IP else buffer[6] if address[1] == self.ETH_P_IPV6 else None
            if getattr(self, "strange", None) is None:
                continue
            self.packets += 1
            if protocol != 6:
                self.strange.add((hex(address[1]), protocol))
            if bytes(view[:length]).find(MARK) >= 0:
                self.marked += 1

    def verdict(self):
        self.drain()
        lost = struct.unpack("II", self.socket.getsockopt(263, 6, 8))[1]
        assert not lost, f"the sniffer lost {lost} packets"
        assert not self.strange, f"packets that are not TCP: {self.strange}"
        assert not self.marked, f"{self.marked} packets with clear bytes"


SNIFFER = Sniffer()


class KernelLog:
    """What the kernel says from here on."""

    def __init__(self):
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.fd, 0, os.SEEK_END)

    def text(self):
        lines = []
        while True:
            try:
                lines.append(os.read(self.fd, 8192).decode(errors="replace"))
            except BlockingIOError:
                return "".join(lines)

    def close(self):
        os.close(self.fd)


# The tests.

TESTS = []


def test(agent=X509):
    """With the agent's policy; None: no agent runs but what the test itself starts. A function
    with a parameter is given the agent."""
    def add(function):
        TESTS.append((function, agent))
        return function
    return add

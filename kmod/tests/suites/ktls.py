"""`towline stcp run --tier ktls`, over a wire between two network namespaces: `near`, which is the
guest's own, and `far`. Without the module.
"""

import ctypes   # programs in strings use it, and the guest has what is imported here
import errno
import os
import signal
import subprocess
import threading
import time

from harness import *

MODULE = False

IP = "/t/ip"
NEAR, FAR = "10.9.0.1", "10.9.0.2"
IN_FAR = [IP, "netns", "exec", "far"]
ANY_CERTIFICATE = "/tmp/any-certificate.toml"
WIRE = None
LAST_PORT = 8000


def set_up():
    """The wire, and who listens on it."""
    global WIRE
    assert busybox("modprobe", "veth").returncode == 0
    for line in (
        f"{IP} netns add far",
        f"{IP} netns exec far sh -c 'echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6'",
        f"{IP} link add near type veth peer name far netns far",
        "echo 1 > /proc/sys/net/ipv6/conf/near/disable_ipv6",
        f"{IP} address add {NEAR}/24 dev near",
        f"{IP} link set near up",
        f"{IP} -n far address add {FAR}/24 dev far",
        f"{IP} -n far link set lo up",
        f"{IP} -n far link set far up",
    ):
        subprocess.run(line, shell=True, check=True)
    with open(ANY_CERTIFICATE, "w") as file:
        file.write('[client]\nunauthenticated = "any-certificate"\n')
    WIRE = Sniffer("near")


def wired(function):
    """A test, with a sniffer on the wire."""
    def run():
        if not WIRE:
            set_up()
        WIRE.reset()
        function()
        WIRE.drain()
        WIRE.strange.discard((hex(0x0806), None))   # ARP
        WIRE.verdict()
        SNIFFER.reset()     # what the kernel takes no keys for is relayed over loopback
    run.__name__ = function.__name__
    test(agent=None)(run)
    return function


PRELUDE = f"import errno, os, select, signal, socket, struct, sys, threading, time\nMARK = {MARK!r}\n"
SERVE = """
l = socket.create_server(("0.0.0.0", {}))
print("ready", flush=True)
"""
ACCEPT = SERVE + "s, peer = l.accept()\n"
CONNECT = "s = socket.create_connection(('" + NEAR + "', {}))\n"
READ_ALL = "data = b''.join(iter(lambda: s.recv(1000), b''))\n"


def python(text):
    return ["python3", "-S", "-c", PRELUDE + text]


def under_ktls(*program, far=False, policy=None):
    before = IN_FAR if far else []
    more = ["--policy", policy] if policy else []
    return [*before, "towline", "stcp", "run", "--tier", "ktls", *more, "--", *program]


def environment(far):
    return dict(os.environ, TOWLINE_HOME="/tmp/home-far" if far else "/tmp/home-near")


def new_port():
    global LAST_PORT
    LAST_PORT += 1
    return LAST_PORT


def serve(text, begin=ACCEPT):
    """A program near, once it listens, and its port."""
    port = new_port()
    command = under_ktls(*python(begin.format(port) + text))
    server = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(False))
    assert server.stdout.readline() == b"ready\n"
    return server, port


def ended(server, code=0):
    with server.stdout:
        said = server.stdout.read().decode()
    assert server.wait(20) == code, (server.returncode, said)
    return said


def run_far(*program, **more):
    command = under_ktls(*program, far=True, **more)
    done = subprocess.run(command, capture_output=True, timeout=80, env=environment(True))
    assert done.returncode == 0, (done.returncode, (done.stdout + done.stderr).decode())
    return done.stdout.decode()


def client(port, text, **more):
    """What a program far says that is connected to one near."""
    return run_far(*python(CONNECT.format(port) + text), **more).strip()


@wired
def the_sniffer_sees_plain_programs_on_the_wire():
    port = new_port()
    server = subprocess.Popen(python(ACCEPT.format(port) + "s.sendall(MARK)"), stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    subprocess.run([*IN_FAR, *python(CONNECT.format(port) + "assert s.recv(99) == MARK")], check=True)
    ended(server)
    WIRE.drain()
    assert WIRE.marked > 0
    WIRE.reset()


@wired
def status_names_it_as_the_best_tier_without_the_module():
    said = subprocess.run(["towline", "stcp", "status"], capture_output=True, env=environment(False))
    assert said.stdout.split()[:2] == [b"tier", b"ktls:"], said.stdout


@wired
def pythons_sockets_and_asyncio_speak_and_end_in_order():
    for kind in ("sockets", "asyncio"):
        port = str(new_port())
        command = ["python3", "-S", "/t/echo.py", kind]
        server = subprocess.Popen(under_ktls(*command, "server", port, "0"), stdout=subprocess.PIPE,
                                  env=dict(environment(False), ECHO_HOST=NEAR))
        assert server.stdout.readline() == b"ready\n"
        subprocess.run(under_ktls(*command, "client", port, "0", "30", far=True), check=True, timeout=60,
                       env=dict(environment(True), ECHO_HOST=NEAR))
        ended(server)
    WIRE.drain()
    assert WIRE.packets > 120, "the sniffer saw nothing"


@wired
def the_addresses_and_options_of_a_socket_are_its_own():
    server, port = serve("""
assert s.getsockopt(socket.IPPROTO_TCP, 31, 16)[:3] == b"tls"
assert s.getsockname() == ("10.9.0.1", l.getsockname()[1]) and s.getpeername() == peer, (s, peer)
assert peer[0] == "10.9.0.2"
s.sendall(MARK)
""")
    said = client(port, """
assert s.getsockopt(socket.IPPROTO_TCP, 31, 16)[:3] == b"tls"
assert s.getsockname()[0] == "10.9.0.2" and s.getpeername()[0] == "10.9.0.1"
""" + READ_ALL + "print(data == MARK)")
    assert said == "True", said
    ended(server)
    server, port = serve("assert s.recv(99) == MARK")
    said = run_far(*python("""
s = socket.socket()
try:
    s.connect(("10.9.0.1", 9))
except ConnectionRefusedError:
    print("refused")
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50000)
wanted = s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
s.setblocking(False)
os.set_inheritable(s.fileno(), True)
s.connect(("10.9.0.1", %d))
assert not os.get_blocking(s.fileno()) and os.get_inheritable(s.fileno())
assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == wanted
s.sendall(MARK)
""" % port))
    assert said.strip() == "refused", said
    ended(server)


@wired
def bash_speaks_with_its_own_calls():
    server, port = serve("s.sendall(s.recv(99).upper())")
    script = f"exec 3<>/dev/tcp/{NEAR}/{port}; echo {MARK.decode()} >&3; read -u 3 line; echo $line"
    assert run_far("bash", "-c", script).strip() == MARK.decode()
    ended(server)


@wired
def every_call_that_reads_says_the_end_once_and_for_all():
    calls = [
        "s.recv(1)", "s.recv(4096)", "os.read(s.fileno(), 99)", "os.readv(s.fileno(), [bytearray(99)]) or b''",
        "s.recvfrom(99)[0]", "s.recvmsg(99)[0]", "s.recvmsg(99, 99)[0]", "s.recv_into(bytearray(99)) or b''",
    ]
    server, port = serve("""
for _ in range(%d):
    s.sendall(MARK)
    s.close()
    s, _ = l.accept()
""" % len(calls))
    for call in calls:
        said = client(port, f"""
assert b"".join(s.recvmsg(1, 99)[0] for _ in MARK) == MARK
assert s.recv(0) == b""
assert select.select([s], [], [], 5)[0]
print([{call} for _ in range(3)])
""")
        assert said == "[b'', b'', b'']", (call, said)
    client(port, "pass")
    ended(server)


@wired
def a_half_of_a_connection_ends_alone():
    server, port = serve("""
data = b"".join(iter(lambda: s.recv(1000), b""))
assert data == MARK, data
time.sleep(0.3)
s.sendall(MARK * 2)
""")
    said = client(port, """
s.sendall(MARK)
s.shutdown(socket.SHUT_WR)
# The kernel's TLS has not always an error for it (Linux 6.12).
signal.signal(signal.SIGPIPE, lambda *_: print("broken"))
try:
    s.send(MARK)
except BrokenPipeError:
    pass
""" + READ_ALL + "print(data == MARK * 2)")
    assert said.split() == ["broken", "True"], said
    ended(server)


@wired
def a_program_may_end_its_reading_alone():
    server, port = serve("assert s.recv(99) == MARK\nassert s.recv(99) == b''")
    assert client(port, "s.shutdown(socket.SHUT_RD)\nprint(s.recv(1))\ns.sendall(MARK)") == "b''"
    ended(server)


@wired
def clients_that_leave_at_once_are_heard():
    server, port = serve("""
for _ in range(30):
    s, peer = l.accept()
    assert s.getpeername() == peer and peer[0] == "10.9.0.2", (s.getpeername(), peer)
    assert b"".join(iter(lambda: s.recv(99), b"")) == MARK
    s.close()
print("heard")
""", SERVE)
    client(port, """
address = s.getpeername()
for _ in range(29):
    s.sendall(MARK)
    s.shutdown(socket.SHUT_WR)
    s = socket.create_connection(address)
s.sendall(MARK)
""")
    assert ended(server).split() == ["heard"]


@wired
def what_was_written_last_arrives_however_slow_the_peer():
    server, port = serve("s.sendall(MARK * 100000)\nl.close()\ns.close()")
    said = client(port, "time.sleep(2)\n" + READ_ALL + "print(data == MARK * 100000)")
    assert said == "True", said
    ended(server)


@wired
def a_server_that_forks_and_closes_in_the_parent_goes_on():
    server, port = serve("""
l.close()
if os.fork():
    s.close()
    assert os.wait()[1] == 0
else:
    s.sendall(MARK)
    time.sleep(2.5)
    s.sendall(MARK)
""")
    assert client(port, READ_ALL + "print(data == MARK * 2)") == "True"
    ended(server)


@wired
def a_socket_that_waits_to_be_received_is_not_closed():
    server, port = serve("""
a, b = socket.socketpair()
if os.fork():
    b.close()
    socket.send_fds(a, [b"x"], [s.fileno()])
    s.close()
    a.close()
    assert os.wait()[1] == 0
else:
    s.close()
    a.close()
    time.sleep(3)
    s = socket.socket(fileno=socket.recv_fds(b, 1, 1)[1][0])
    s.sendall(MARK)
""")
    assert client(port, READ_ALL + "print(data == MARK)") == "True"
    ended(server)


@wired
def connections_that_wait_to_be_accepted_are_not_closed():
    server, port = serve("""
time.sleep(4)
for _ in range(2):
    s, _ = l.accept()
    s.sendall(MARK)
    s.close()
""", SERVE)
    said = client(port, "t = socket.create_connection(s.getpeername())\nfor s in (s, t):\n    " + READ_ALL
                  + "    print(data == MARK)")
    assert said.split() == ["True", "True"], said
    ended(server)


@wired
def the_peer_of_a_killed_program_sees_an_end_in_order():
    server, port = serve("s.sendall(MARK)\ntime.sleep(0.5)\nos.kill(os.getpid(), 9)")
    assert client(port, READ_ALL + "print(data == MARK)") == "True"
    ended(server, 137)


@wired
def a_program_whose_first_thread_has_ended_keeps_its_sockets():
    server, port = serve("""
import ctypes, threading
def work():
    time.sleep(2.5)
    s.sendall(MARK)
    os._exit(0)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60, 0)    # exit, of this thread alone
""")
    assert client(port, READ_ALL + "print(data == MARK)") == "True"
    ended(server)


def openssl_server(*more):
    port = new_port()
    command = ["openssl", "s_server", "-4", "-tls1_3", "-cert", "/t/cert.pem", "-key", "/t/key.pem",
               "-port", str(port), "-naccept", "1", *more]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until("it listens", lambda: is_listening(port), 30)
    return server, port


def reader_far(port, text, **more):
    """A program far that is connected to openssl, once it says that it is ready."""
    program = under_ktls(*python(CONNECT.format(port) + text), far=True, policy=ANY_CERTIFICATE)
    reader = subprocess.Popen(program, stdout=subprocess.PIPE, env=environment(True), **more)
    assert reader.stdout.readline() == b"ready\n"
    return reader


@wired
def openssls_tickets_are_left_out():
    for tickets in ("0", "2", "50"):
        server, port = openssl_server("-num_tickets", tickets, "-rev", "-quiet")
        said = client(port, """
time.sleep(0.5)
s.setblocking(False)
try:
    print(s.recv(9))
except BlockingIOError:
    print("nothing")
s.setblocking(True)
s.sendall(b"desrever\\n")
print(s.recv(9))
s.shutdown(socket.SHUT_WR)
print(s.recv(9))
""", policy=ANY_CERTIFICATE)
        assert said.split() == ["nothing", "b'reversed\\n'", "b''"], said
        server.communicate(timeout=20)


@wired
def a_stream_that_is_cut_is_reset():
    server, port = openssl_server("-rev", "-quiet")
    reader = reader_far(port, """
s.sendall(b"desrever\\n")
assert s.recv(9) == b"reversed\\n"
print("ready", flush=True)
for _ in range(2):
    try:
        print(s.recv(9))
    except ConnectionResetError:
        print("reset")
""")
    server.kill()       # FIN, and no close_notify
    server.communicate()
    assert ended(reader).split() == ["reset", "reset"]


@wired
def new_keys_end_the_stream():
    server, port = openssl_server()
    reader = reader_far(port, """
print("ready", flush=True)
try:
    print(s.recv(9))
except OSError as error:
    print(errno.errorcode[error.errno])
""")
    server.stdin.write(b"k\n")      # a command of s_server: key update
    server.stdin.flush()
    assert ended(reader).split() == ["EPROTO"]
    server.kill()
    server.communicate()


@wired
def a_second_end_of_a_half_does_no_harm():
    server, port = serve("""
assert b"".join(iter(lambda: s.recv(99), b"")) == MARK
s.sendall(MARK)
""")
    said = client(port, """
s.sendall(MARK)
for _ in range(3):
    s.shutdown(socket.SHUT_WR)
""" + READ_ALL + "print(data == MARK)")
    assert said == "True", said
    ended(server)


FREED = """
def work():
    try:
        s.sendall(bytes(32 << 20))
        print("sent")
    except BrokenPipeError:
        print("freed", flush=True)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
"""


@wired
def a_writer_that_waits_is_freed_by_the_end_of_its_half():
    for how in ("SHUT_WR", "SHUT_RDWR"):
        server, port = serve("""
time.sleep(6)
try:
    while s.recv(1 << 16):
        pass
    print("in order")
except ConnectionResetError:
    print("cut")
""")
        said = client(port, FREED + f"""
writer = threading.Thread(target=work)
writer.start()
time.sleep(2)
s.shutdown(socket.{how})
writer.join(20)
""")
        assert said == "freed", said
        assert ended(server).split() == ["cut"]


@wired
def writers_that_wait_hold_up_nobody_else():
    server, port = serve("""
def slowly(s):
    try:
        while s.recv(1 << 15):
            time.sleep(0.02)
    except ConnectionResetError:
        pass
threads = []
for _ in range(6):
    s, _ = l.accept()
    threads.append(threading.Thread(target=slowly, args=[s]))
    threads[-1].start()
s, _ = l.accept()
s.sendall(MARK)
s.close()
[thread.join() for thread in threads]
""", SERVE)
    said = client(port, FREED + """
address = s.getpeername()
all = [s] + [socket.create_connection(address) for _ in range(5)]
threads = []
for s in all:
    threads.append(threading.Thread(target=lambda s=s: s.sendall(bytes(64 << 20))))
threading.excepthook = lambda _: None
[thread.start() for thread in threads]
time.sleep(2)
began = time.monotonic()
for s in all:
    threading.Thread(target=s.shutdown, args=[socket.SHUT_RDWR]).start()
s = socket.create_connection(address)
""" + READ_ALL + """
print(data == MARK, time.monotonic() - began < 10)
[thread.join(20) for thread in threads]
print(any(thread.is_alive() for thread in threads))
""")
    assert said.split() == ["True", "True", "False"], said
    ended(server)


@wired
def a_program_may_have_ktls_of_its_own():
    keys = {side: (crypto_info(side, TLS_TX).hex(), crypto_info(side, TLS_RX).hex()) for side in (0, 1)}
    server, port = serve("s.sendall(MARK)")
    said = client(port, f"""
keys = {keys}
l = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(l.getsockname())
far, _ = l.accept()
for side, own in ((0, near), (1, far)):
    own.setsockopt(socket.IPPROTO_TCP, 31, b"tls")
    for name, key in zip((1, 2), keys[side]):
        own.setsockopt(282, name, bytes.fromhex(key))
near.sendall(MARK)
assert far.recv(99) == MARK
near.sendmsg([bytes([1, 0])], [(282, 1, bytes([21]))])      # its own close_notify
assert far.recvmsg(99, 99)[:2] == (bytes([1, 0]), [(282, 2, bytes([21]))])
near.shutdown(socket.SHUT_WR)
assert far.recv(9) == b""
# What is ours takes no keys of the program.
for level, name, value in ((socket.IPPROTO_TCP, 31, b"tls"), (282, 1, bytes.fromhex(keys[0][0])),
                           (socket.IPPROTO_TCP, 27, struct.pack("i", 0))):
    try:
        s.setsockopt(level, name, value)
        print("taken")
    except OSError as error:
        print(errno.errorcode[error.errno])
""" + READ_ALL + "print(data == MARK)")
    assert said.split() == ["EEXIST", "EBUSY", "EINVAL", "True"], said
    ended(server)


class Meddler:
    """Between a client and a server, and can write into what the server says."""

    def __init__(self, to):
        self.listening = socket.create_server((NEAR, 0))
        self.port = self.listening.getsockname()[1]
        self.to = to
        self.change = None
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        self.client, _ = self.listening.accept()
        self.listening.close()
        self.server = socket.create_connection(("127.0.0.1", self.to))
        threading.Thread(target=self.copy, args=(self.client, self.server, False), daemon=True).start()
        self.copy(self.server, self.client, True)

    def copy(self, source, sink, may_change):
        try:
            while data := source.recv(1 << 16):
                if may_change and self.change:
                    data = self.change(data)
                sink.sendall(data)
        except OSError:
            pass


@wired
def a_record_that_cannot_be_opened_is_an_error_of_the_protocol():
    for change in (
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),     # its tag
        lambda data: b"\x17\x03\x03\xff\xff" + data[5:],    # too long
        lambda data: b"\x17\x09" + data[2:],                # no version
    ):
        server, port = openssl_server("-rev", "-quiet")
        meddler = Meddler(port)
        reader = reader_far(meddler.port, """
s.sendall(b"desrever\\n")
assert s.recv(9) == b"reversed\\n"
print("ready", flush=True)
sys.stdin.readline()
s.sendall(b"desrever\\n")
for call in (lambda: s.recv(9), lambda: s.recvmsg(99, 99)):
    try:
        print(call())
    except OSError as error:
        print(errno.errorcode[error.errno])
""", stdin=subprocess.PIPE)
        meddler.change = change
        reader.stdin.write(b"\n")
        reader.stdin.close()
        said = ended(reader).split()
        assert said[0] == "EPROTO" and said[1] in ("EPROTO", "ECONNRESET"), said
        server.kill()
        server.communicate()


@wired
def sockets_from_the_agent_end_at_exec_from_the_first_moment_on():
    server, port = serve("s.sendall(MARK)\ns.close()\ns, _ = l.accept()\ns.sendall(MARK)")
    assert client(port, READ_ALL + "print(data == MARK)") == "True"
    traced = ["strace", "-f", "-o", "/tmp/traced", "-e", "trace=recvmsg"]
    said = run_far(*traced, *python(CONNECT.format(port) + READ_ALL + "print(data == MARK)"))
    assert said.strip() == "True", said
    ended(server)
    with open("/tmp/traced") as file:
        given = [line for line in file if "SCM_RIGHTS" in line]
    assert len(given) == 2 and all("MSG_CMSG_CLOEXEC" in line for line in given), given


@wired
def a_peer_in_clear_is_refused_and_others_are_served():
    server, port = serve("s.sendall(MARK)")
    plain = python(CONNECT.format(port) + """
s.settimeout(20)
s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
try:
    while (data := s.recv(999)):
        assert data[0] == 21
except ConnectionResetError:
    pass
""")
    subprocess.run([*IN_FAR, *plain], check=True, timeout=40)
    assert client(port, READ_ALL + "print(data == MARK)") == "True"
    ended(server)


@wired
def a_server_in_clear_is_refused():
    port = new_port()
    server = subprocess.Popen(python(ACCEPT.format(port) + "s.recv(999)\ns.sendall(b'220 hello\\r\\n')\ns.recv(9)"),
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert server.stdout.readline() == b"ready\n"
    said = run_far(*python("try:\n    " + CONNECT.format(port) + "except OSError as error:\n    print(error.errno)"))
    assert said.strip() == str(errno.EPROTO), said
    server.kill()
    server.communicate()


@wired
def a_hundred_silent_clients_hold_nobody_up():
    server, port = serve("s.sendall(MARK)")
    silent = python(f"""
all = [socket.create_connection(("{NEAR}", {port})) for _ in range(100)]
print("ready", flush=True)
time.sleep(60)
""")
    silent = subprocess.Popen([*IN_FAR, *silent], stdout=subprocess.PIPE)
    assert silent.stdout.readline() == b"ready\n"
    began = time.monotonic()
    assert client(port, READ_ALL + "print(data == MARK)") == "True"
    assert time.monotonic() - began < 9
    ended(server)
    silent.kill()
    silent.communicate()


@wired
def static_programs_get_no_socket():
    said = subprocess.run(under_ktls("busybox", "nc", FAR, "9"), capture_output=True, env=environment(False)).stderr
    assert b"not started" in said and b"the program is static" in said, said
    said = subprocess.run(under_ktls("bash", "-c", f"busybox nc {FAR} 9; true"), capture_output=True,
                          env=environment(False)).stderr
    assert b"Protocol not supported" in said, said


@wired
def without_the_agent_every_call_fails():
    server, port = serve("""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
run = os.getppid()
t = socket.socket()
print("accepted", flush=True)
while os.getppid() == run:
    time.sleep(0.05)
for call in (socket.socket, lambda: t.connect(peer), l.accept, lambda: t.listen()):
    try:
        call()
        print("?")
    except OSError as error:
        print(errno.errorcode[error.errno])
""")
    far = subprocess.Popen(under_ktls(*python(CONNECT.format(port) + "s.recv(9)"), far=True),
                           stderr=subprocess.DEVNULL, env=environment(True))
    assert server.stdout.readline() == b"accepted\n"
    server.kill()
    assert server.stdout.read().split() == [b"ENETDOWN"] * 4
    server.wait()
    far.wait(20)

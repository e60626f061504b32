"""Sockets as programs use them, under `towline stcp run`: calls.py server PORT | client HOST PORT FREE ANOTHER."""

import ctypes
import errno
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading


# struct timeval
HALF_A_SECOND = struct.pack("ll", 0, 500_000)


def fails(numbers, call, *arguments):
    try:
        result = call(*arguments)
    except OSError as error:
        assert error.errno in numbers, f"{call}: {error}"
        return
    raise AssertionError(f"{call} answered {result!r}")


def serve(port):
    """Two processes accept from one socket; each says its peer, and sends back what comes."""
    listening = socket.socket(socket.AF_INET6)
    assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0
    listening.bind(("::", port))
    listening.listen()
    listening.listen(5)
    for name, value in (
        (socket.SO_ACCEPTCONN, 1),
        (socket.SO_TYPE, socket.SOCK_STREAM),
        (socket.SO_PROTOCOL, socket.IPPROTO_TCP),
        (socket.SO_DOMAIN, socket.AF_INET6),
        (socket.SO_ERROR, 0),
    ):
        assert listening.getsockopt(socket.SOL_SOCKET, name) == value, name
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
    assert listening.getsockname()[:2] == ("::", port), listening.getsockname()
    fails((errno.ENOTCONN,), listening.getpeername)
    fails((errno.EADDRINUSE,), socket.socket(socket.AF_INET6).bind, ("::", port))
    assert not os.get_inheritable(listening.fileno())
    listening.setblocking(False)
    fails((errno.EAGAIN,), listening.accept)
    # SIGTERM goes to the first of them.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    os.fork()
    poller = select.epoll()
    poller.register(listening, select.EPOLLIN)
    while True:
        poller.poll()
        try:
            stream, peer = listening.accept()
        except BlockingIOError:
            continue
        stream.setblocking(True)
        assert stream.family == socket.AF_INET6 and stream.getpeername() == peer
        assert stream.getsockname()[1] == port
        threading.Thread(target=answer, args=(stream, peer)).start()


def answer(stream, peer):
    with stream:
        stream.sendall(f"{peer[0]} {peer[1]}\n".encode())
        for data in iter(lambda: stream.recv(65536), b""):
            stream.sendall(data)


def connected(stream, host, port):
    """The server has seen the address that we see, and sends back what we send."""
    assert stream.getpeername()[:2] == (host, port), stream.getpeername()
    said = stream.makefile().readline().split()
    mine = stream.getsockname()
    assert said in ([mine[0], str(mine[1])], ["::ffff:" + mine[0], str(mine[1])]), (said, mine)
    stream.sendall(b"to the end")
    stream.shutdown(socket.SHUT_WR)
    assert b"".join(iter(lambda: stream.recv(4), b"")) == b"to the end"


def connect(host, port, free, another):
    with socket.create_connection((host, port)) as stream:
        own = stream.getsockname()[0]
        fails((errno.EISCONN,), stream.connect, (host, port))
        connected(stream, host, port)
    # One that does not wait.
    with socket.socket() as stream:
        stream.setblocking(False)
        assert stream.connect_ex((host, port)) == errno.EINPROGRESS
        assert select.select([], [stream], [], 10)[1]
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        stream.setblocking(True)
        with stream.makefile() as said:
            assert said.readline().split()[0] == "::ffff:" + own
    # Two are bound to one address, and only one can listen.
    with socket.socket() as first, socket.socket() as second:
        for stream in (first, second):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stream.bind(("127.0.0.1", free))
        first.listen()
        fails((errno.EADDRINUSE,), second.listen)
    # With an address of its own, and one of IPv4 on a socket of IPv6.
    for waits in (True, False):
        with socket.socket() as stream:
            stream.bind((own, 0))
            stream.setblocking(waits)
            assert stream.connect_ex((host, port)) == (0 if waits else errno.EINPROGRESS)
            stream.setblocking(True)
            if waits:
                connected(stream, host, port)
    with socket.socket(socket.AF_INET6) as stream:
        stream.connect(("::ffff:" + host, port))
    # Nobody is there.
    fails((errno.ECONNREFUSED,), socket.create_connection, (host, free))
    with socket.socket() as stream:
        stream.setblocking(False)
        assert stream.connect_ex((host, free)) == errno.EINPROGRESS
        select.select([stream], [], [], 10)
        stream.setblocking(True)
        fails((errno.ECONNRESET,), stream.recv, 1)
    # Nobody answers, and the program waits no longer than it has said.
    with socket.socket() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, HALF_A_SECOND)
        missing = host + "00"
        fails((errno.EINPROGRESS,), stream.connect, (missing, port))
    # There is no way: an event loop is told so at once, and tries the next address.
    with socket.socket() as stream:
        stream.setblocking(False)
        assert stream.connect_ex(("198.18.0.1", port)) == errno.EINPROGRESS
    with socket.socket(socket.AF_INET6) as stream:
        stream.setblocking(False)
        assert stream.connect_ex(("fe80::1", port)) == errno.EINVAL
    # One address that is many hosts.
    with socket.socket() as stream:
        fails((errno.ENETUNREACH,), stream.connect, ("224.0.0.1", port))
    # What stays on this machine: loopback, and its own addresses.
    link_local = "fe80::78%eth0"
    for address in ("127.0.0.1", own, another, "fd78:1::2", link_local):
        family, *_, at = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as listening:
            listening.bind(at)
            listening.listen()
            to = listening.getsockname()
            assert to[0] == at[0] and to[2:] == at[2:], to
            with socket.socket(family) as near:
                near.connect(to)
                far, peer = listening.accept()
                assert peer == near.getsockname() and near.getpeername() == to
                near.sendall(b"here")
                assert far.recv(9) == b"here"
                far.close()
                assert near.recv(9) == b""
        with socket.socket(family) as refused:
            fails((errno.ECONNREFUSED,), refused.connect, to)
    accept_as_linux()
    # What would go past the agent.
    fails((errno.EOPNOTSUPP,), socket.socket().sendto, b"x", socket.MSG_FASTOPEN, (host, port))
    fails((errno.EPROTONOSUPPORT,), socket.socket, socket.AF_INET, socket.SOCK_SEQPACKET, 132)
    fails((errno.EPROTONOSUPPORT,), socket.socket, 21, socket.SOCK_SEQPACKET)
    fails((errno.EPROTONOSUPPORT,), socket.socket, socket.AF_INET, socket.SOCK_RAW, 6)
    fails((errno.EPROTONOSUPPORT,), socket.socket, socket.AF_INET6, socket.SOCK_RAW, 255)
    fails((errno.EPERM,), socket.socket().setsockopt, socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
    fails((errno.EPERM,), socket.socket().setsockopt, socket.SOL_SOCKET, 62, 2)
    # Others are left alone.
    here, there = socket.socketpair()
    here.sendall(b"unix")
    assert there.recv(9) == b"unix"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.connect((host, port))
        assert datagrams.getpeername() == (host, port)
    print("every call did as it should")


def accept_as_linux():
    """Flags, no room for a descriptor, a time limit, and the end of the listening."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, HALF_A_SECOND)
        listening.listen()
        fails((errno.EAGAIN,), listening.accept)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        library = ctypes.CDLL(None)
        with socket.create_connection(listening.getsockname()):
            accepted = library.accept(listening.fileno(), None, None)
            made = library.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
            ends = library.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, 0)
            inherited = [os.get_inheritable(number) for number in (accepted, made, ends)]
            assert inherited == [True, True, False], inherited
            for number in (accepted, made, ends):
                os.close(number)
        listening.settimeout(20)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.create_connection(listening.getsockname()) as near:
            assert select.select([listening], [], [], 20)[0]
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
            fails((errno.EMFILE,), listening.accept)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            far, _ = listening.accept()
            with far:
                near.sendall(b"it waited")
                assert far.recv(9) == b"it waited"
        listening.shutdown(socket.SHUT_WR)
        with socket.create_connection(listening.getsockname()):
            listening.accept()[0].close()
        listening.settimeout(None)
        waiting = threading.Thread(target=fails, args=((errno.EINVAL,), listening.accept))
        waiting.start()
        listening.shutdown(socket.SHUT_RDWR)
        waiting.join(20)
        assert not waiting.is_alive()
        fails((errno.EINVAL,), listening.accept)


if sys.argv[1] == "server":
    serve(int(sys.argv[2]))
else:
    connect(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])

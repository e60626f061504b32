"""Goes on with every socket that the shim gives, past the shim: past.py HOST PORT DOOR MARKER."""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

CONNECT = {"x86_64": 42, "aarch64": 203}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)


def raw_connect(stream, address):
    if libc.syscall(CONNECT, stream.fileno(), address, len(address)) == 0:
        return 0
    return ctypes.get_errno()


def goes_past(what, stream):
    """Leaves its peer, if it has one, and goes to the host by itself."""
    stream.settimeout(2)
    raw_connect(stream, struct.pack("=H", socket.AF_UNSPEC) + bytes(14))
    to = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host)
    to += bytes(8)
    if stream.family == socket.AF_INET6:
        mapped = bytes(10) + b"\xff\xff" + socket.inet_aton(host)
        to = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 0) + mapped + bytes(4)
    answer = raw_connect(stream, to)
    try:
        stream.send(marker)
        sent = True
    except OSError:
        sent = False
    reached = answer in (0, errno.EISCONN) or sent
    print("reached by" if reached else "stopped", what, os.strerror(answer))


def pair(address):
    with socket.create_server((address, 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        return near, listening.accept()[0]


host, port, door, marker = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()
with socket.create_server(("", door)) as listening:
    far, (peer, _) = listening.accept()
    assert peer == host, peer
    own = far.getsockname()[0]
    goes_past("one from outside", far)
goes_past("a new one", socket.socket())
goes_past("a new one of IPv6", socket.socket(socket.AF_INET6))
for address in ("127.0.0.1", own):
    near, far = pair(address)
    goes_past("one to " + address, near)
    goes_past("one from " + address, far)

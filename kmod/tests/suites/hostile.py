"""Programs and peers that mean harm, and calls that race: what they may cost the host, and that others
lose nothing by them.
"""

import ctypes
import errno
import os
import select
import socket
import struct
import subprocess
import time

from harness import *

LIBC = ctypes.CDLL(None, use_errno=True)


# Connecting.

@test(agent=None)
def threads_that_connect_one_descriptor_are_all_told_the_same():
    # Without an agent each of them fails, and fails for that.
    done = subprocess.run(["/t/calls", "race", str(PROTOCOL)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print("  " + done.stdout.decode().strip().replace("\n", "\n  "))
    assert done.returncode == 0
    until("all sockets are gone", lambda: counter("sockets") == 0, 15)


@test()
def a_socket_may_be_told_to_connect_to_nothing():
    def unspecified(s):
        nothing = struct.pack("=H14x", socket.AF_UNSPEC)
        if LIBC.connect(s.fileno(), nothing, len(nothing)) != 0:
            raise OSError(ctypes.get_errno(), "connect")
    with listener() as l, new() as s:
        unspecified(s)
        unspecified(s)
        s.connect(l.getsockname())
        server, _ = l.accept()
        exchange(s, server)
        # The keys are this connection's.
        fails(errno.EOPNOTSUPP, unspecified, s)
        exchange(s, server)
        # A listener ends, those whom it has not accepted with it, and it may be used again.
        waiting = connect(l)
        until("it is ready", lambda: wait_for(l, select.POLLIN))
        unspecified(l)
        fails(errno.ECONNRESET, waiting.recv, 1)
        fails(errno.EINVAL, l.accept)
        l.listen()
        exchange(connect(l), l.accept()[0])
    # One that waits for an answer gives up.
    with new() as l, new() as s:
        l.bind(("127.0.0.1", 0))
        l.listen(0)
        s.setblocking(False)
        with listener(protocol=0, backlog=0) as full:
            for _ in range(4):
                filler = new(protocol=0)
                filler.setblocking(False)
                filler.connect_ex(full.getsockname())
            time.sleep(0.2)
            fails(errno.EINPROGRESS, s.connect, full.getsockname())
            unspecified(s)
        s.setblocking(True)
        s.connect(l.getsockname())
        exchange(s, l.accept()[0])

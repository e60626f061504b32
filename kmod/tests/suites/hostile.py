"""Programs and peers that mean harm, and calls that race: what they may cost the host, and that others
lose nothing by them.
"""

import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

from harness import *
from seal import Sealer

FIONREAD = 0x541B
LOWAT = 100_000     # more than a handshake's flight
# Of these no stream has more in a row.
IN_A_ROW = 32
TICKET = bytes([4, 0, 1, 0]) + bytes(256)
LIBC = ctypes.CDLL(None, use_errno=True)


def available():
    """Bytes of memory that the guest has left."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def timed(call, *arguments):
    began = time.monotonic()
    try:
        call(*arguments)
    except OSError:
        pass
    return time.monotonic() - began


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


# What a peer may cost.

def empty_records(count):
    sealer = Sealer(1)
    return b"".join(sealer.record(DATA) for _ in range(count))


def alerts(count):
    sealer = Sealer(1)
    return b"".join(sealer.record(ALERT, bytes([1, 90])) for _ in range(count))


def tickets(count):
    sealer = Sealer(1)
    return b"".join(sealer.record(HANDSHAKE, TICKET) for _ in range(count))


def feed(peer, flood):
    """Sends all of it in the background, as far as anybody reads."""
    def run():
        try:
            peer.sendall(flood)
        except OSError:
            pass
    return Background(run)


@test(agent=None)
def records_without_data_take_no_memory_of_one_who_waits():
    client, peer = puppet_client(raw=True)
    flood = empty_records(30000)
    before = available()
    feeding = feed(peer, flood)
    waiting = Background(wait_for, client, select.POLLIN, 20)
    time.sleep(4)
    grown = before - available()
    print(f"  {grown >> 20} MiB more for {len(flood) >> 10} KiB of records")
    try:
        assert grown < 24 << 20
        # It is told, as no data will come.
        assert waiting.result(5) & select.POLLIN
        fails(errno.EPROTO, client.recv, 1)
    finally:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        took = timed(client.close)
        print(f"  close took {took:.2f} s")
    assert took < 1 * SLOW
    feeding.result()


@test(agent=None)
def no_call_works_through_a_flood_of_records_without_data():
    def poll_now(s):
        wait_for(s, select.POLLIN, 0)
    calls = (
        ("poll", poll_now),
        ("FIONREAD", lambda s: fcntl.ioctl(s, FIONREAD, bytes(4))),
        ("recv", lambda s: s.recv(1000, socket.MSG_DONTWAIT)),
        ("peek", lambda s: s.recv(1000, socket.MSG_DONTWAIT | socket.MSG_PEEK)),
        ("close", lambda s: s.close()),
    )
    slow = []
    for make in (alerts, empty_records, tickets):
        flood = make(60000)
        for name, call in calls:
            client, peer = puppet_client(raw=True)
            feeding = feed(peer, flood)
            time.sleep(0.5)
            took = timed(call, client)
            print(f"  {make.__name__}: {name} took {took:.2f} s")
            if took > 0.5 * SLOW:
                slow.append((make.__name__, name))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            client.close()
            feeding.result()
    assert not slow, slow


@test(agent=None)
def a_program_in_a_flood_ends_when_it_is_killed():
    # A byte now and then: nobody can say that this is no stream.
    sealer = Sealer(1)
    flood = b"".join(sealer.record(DATA, b"x" if n % 30 == 0 else b"") for n in range(150_000))

    def killed(flags):
        client, peer = puppet_client(raw=True)
        feeding = feed(peer, flood)
        time.sleep(0.5)
        child = os.fork()
        if not child:
            while client.recv(60000, flags):
                pass
            os._exit(0)
        client.close()
        time.sleep(0.3)
        os.kill(child, signal.SIGKILL)
        took = timed(os.waitpid, child, 0)
        print(f"  flags {flags:#x}: gone {took:.2f} s after SIGKILL")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        feeding.result()
        return took < 0.5 * SLOW

    for flags in (0, socket.MSG_WAITALL, socket.MSG_PEEK | socket.MSG_WAITALL):
        # A busy machine may be late once; what works through the flood is late always.
        assert any(killed(flags) for _ in range(3))


@test(agent=None)
def so_many_records_without_data_in_a_row_are_a_stream():
    for kind, content in ((DATA, b""), (ALERT, bytes([1, 90])), (HANDSHAKE, TICKET)):
        client, peer = puppet_client(raw=True)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 5, 0))
        sealer = Sealer(1)
        for _ in range(3):
            for _ in range(IN_A_ROW):
                peer.sendall(sealer.record(kind, content))
            peer.sendall(sealer.record(DATA, MARK))
            assert receive(client, len(MARK)) == MARK
        for _ in range(IN_A_ROW + 1):
            peer.sendall(sealer.record(kind, content))
        fails(errno.EPROTO, client.recv, 1)
        fails(errno.EPIPE, client.send, MARK)


@test(agent=None)
def close_over_unread_records_loses_nothing_that_was_sent():
    for unread in (tickets(2), empty_records(2000), alerts(40)):
        client, peer = puppet_client(raw=True)
        # The peer's half that reads is the kernel's; what it sends is as it is given.
        peer.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
        peer.setsockopt(SOL_TLS, TLS_RX, crypto_info(1, TLS_RX))
        feeding = feed(peer, unread)
        time.sleep(0.3)
        client.sendall(payload(100_000))
        client.close()
        assert receive(peer, 100_000) == payload(100_000)
        assert next_record(peer) == (ALERT, bytes([1, 0]))


# Waking.

@test(agent=None)
def a_reader_takes_no_wake_up_from_one_who_polls():
    lost = 0
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(2)]
    try:
        for _ in range(20):
            client, peer = puppet_client()
            epoll = select.epoll()
            epoll.register(client, select.EPOLLIN)
            polling = Background(epoll.poll, 3)
            reading = Background(client.recv, 1)
            time.sleep(0.05)
            peer.send(MARK)
            assert reading.result() == MARK[:1]
            # All but the first byte is there.
            lost += polling.result() == []
            client.close()
            peer.close()
            epoll.close()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(f"  {lost} of 20 were lost")
    assert not lost


@test(agent=None)
def a_reader_sleeps_through_nothing_that_a_poll_opened():
    client, peer = puppet_client()
    # Another process, so that nothing but the kernel stands between the two.
    child = os.fork()
    if not child:
        poll = select.poll()
        poll.register(client, select.POLLIN)
        while True:
            poll.poll(0)
    try:
        end, rounds = time.monotonic() + 10, 0
        while time.monotonic() < end:
            reading = Background(client.recv, 1)
            time.sleep(0.001 * (rounds % 3))
            peer.send(MARK[:1])
            assert reading.result() == MARK[:1]
            rounds += 1
        print(f"  {rounds} bytes were read")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def connect_and_reset(to):
    """For ever."""
    try:
        while True:
            s = new(protocol=0)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.connect_ex(to)
            s.close()
    finally:
        os._exit(1)


@test(agent=None)
def a_listener_in_a_flood_hears_its_program():
    slowest, flooders = 0, []
    with Puppet(), listener(backlog=4096) as l:
        try:
            for _ in range(3):
                flooders.append(os.fork())
                if not flooders[-1]:
                    connect_and_reset(l.getsockname())
            time.sleep(1)
            for _ in range(5):
                slowest = max(slowest, timed(l.listen, 4096))
                time.sleep(0.2)
        finally:
            for flooder in flooders:
                os.kill(flooder, signal.SIGKILL)
                os.waitpid(flooder, 0)
    print(f"  the slowest call took {slowest:.2f} s")
    assert slowest < 0.5 * SLOW


# As with TCP.

@test()
def a_low_water_mark_does_not_hold_up_the_handshake():
    for family in (socket.AF_INET, socket.AF_INET6):
        with new(family) as l, new(family) as s:
            for x in (l, s):
                x.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOWAT)
            l.bind((loopback(family), 0))
            l.listen()
            s.connect(l.getsockname()[:2])
            server, _ = l.accept()
            # It holds for what comes then.
            for x, y in ((s, server), (server, s)):
                poller = select.poll()
                poller.register(x, select.POLLIN)
                y.sendall(payload(LOWAT // 2))
                assert poller.poll(300) == []
                reading = Background(x.recv, LOWAT * 2)
                y.sendall(payload(LOWAT // 2))
                data = reading.result(5)
                assert len(data) >= LOWAT, len(data)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            server.sendall(MARK)
            assert s.recv(100) == MARK
            server.close()


@test(agent=None)
def a_lower_low_water_mark_wakes_who_waits_for_more():
    for client, peer in (pair(protocol=0), puppet_client()):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1000)
        peer.sendall(bytes(100))
        assert wait_for(client, select.POLLIN, 0.3) == 0
        waiting = Background(wait_for, client, select.POLLIN, 60)
        time.sleep(0.2)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 50)
        assert waiting.result(5) == select.POLLIN


@test(agent=None)
def a_ticket_in_mid_stream_is_no_end_of_a_read():
    def flight():
        client, peer = puppet_client()
        record(peer, DATA, payload(100))
        record(peer, HANDSHAKE, TICKET)
        record(peer, DATA, payload(100))
        time.sleep(0.2)
        return client, peer
    client, peer = flight()
    assert client.recv(200, socket.MSG_WAITALL) == payload(100) * 2
    client, peer = flight()
    assert struct.unpack("i", fcntl.ioctl(client, FIONREAD, bytes(4)))[0] == 200
    assert client.recv(200, socket.MSG_PEEK | socket.MSG_WAITALL) == payload(100) * 2
    assert client.recv(150, socket.MSG_PEEK) == payload(100) + payload(50)
    assert client.recv(150) == payload(100) + payload(50)
    assert client.recv(150) == payload(100)[50:]
    # What is peeked at may be many small records, and stays in order with what comes later.
    sent = payload(3000)
    for at in range(0, 1000):
        record(peer, DATA, sent[at:at + 1])
    time.sleep(0.2)
    assert client.recv(1000, socket.MSG_PEEK) == sent[:1000]
    record(peer, DATA, sent[1000:])
    assert client.recv(10) == sent[:10]
    assert client.recv(3000, socket.MSG_PEEK | socket.MSG_WAITALL | socket.MSG_DONTWAIT) == sent[10:]
    assert receive(client, 2990) == sent[10:]
    assert struct.unpack("i", fcntl.ioctl(client, FIONREAD, bytes(4)))[0] == 0

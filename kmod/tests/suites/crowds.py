"""More handshakes than there are places: who floods displaces himself, and nobody else."""

import ctypes
import errno
import os
import resource
import signal
import socket

from harness import *

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER = 0x10000000
# What waits for the agent at most, and what shakes hands at one listener.
QUEUE, UNFINISHED = 4096, 1024
FLOODER, ANOTHER = 1000, 1001
# Three networks of this host.
HERE, NEAR, FAR = "192.0.2.1", "192.0.2.7", "198.51.100.1"


def address_of_this_host(address, there=True):
    done = busybox("ip", "address", "add" if there else "del", f"{address}/32", "dev", "lo")
    assert done.returncode == 0, done.stdout


def more_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))


def as_user(uid, call, *arguments):
    """Runs it in a child of this user, as long as the result is open; the child says when it is done."""
    reads, writes = os.pipe()
    ends, held = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(held)
            more_descriptors()
            os.setresuid(uid, uid, uid)
            kept = call(*arguments)
            os.write(writes, b"1")
            os.read(ends, 1)
            del kept
        except BaseException as error:
            print(f"  the child of user {uid}: {error!r}", flush=True)
        os._exit(0)
    os.close(writes)
    os.close(ends)
    return child, reads, held


def is_done(run):
    return os.read(run[1], 1) == b"1"


def end(run):
    os.close(run[1])
    os.close(run[2])
    os.waitpid(run[0], 0)


def connect_often(count, to, protocol, source=None, first=None, turn=None):
    """So many connections, under way at once. `turn` is called before each."""
    kept = []
    for number in range(count):
        if turn:
            turn(number)
        s = new(protocol=protocol)
        if source:
            s.bind((source, 0))
        s.setblocking(not protocol)
        answer = s.connect_ex(to)
        assert answer in (0, errno.EINPROGRESS, errno.EPROTO), errno.errorcode[answer]
        if first:
            s.send(first)
        kept.append(s)
    return kept


def of_a_namespace_with_many_users(count, to):
    """A connection of each of many users, whom one user has made."""
    reads, writes = os.pipe()
    parent_reads, parent_writes = os.pipe()
    helper = os.fork()
    if not helper:
        # Who has the privilege maps the users, as newuidmap does.
        os.read(reads, 1)
        with open(f"/proc/{os.getppid()}/uid_map", "w") as file:
            file.write("0 100000 65536")
        os.write(parent_writes, b"1")
        os._exit(0)
    os.setresuid(FLOODER, FLOODER, FLOODER)
    assert LIBC.unshare(CLONE_NEWUSER) == 0, ctypes.get_errno()
    os.write(writes, b"1")
    assert os.read(parent_reads, 1) == b"1"
    os.waitpid(helper, 0)
    os.setresuid(0, 0, 0)
    return connect_often(count, to, PROTOCOL, turn=lambda number: os.setresuid(number + 1, 0, 0))


def connection_of_another_user():
    """What comes of a connection whose both ends are another user's, once the agent goes on."""
    with listener() as l:
        client = connect(l)
        server, _ = l.accept()
    exchange(client, server)
    return client, server


def others_get_through(agent, flood):
    """`flood` fills the queue of a stopped agent; another user's handshakes outlast it."""
    dropped = counter("handshakes_without_agent")
    run = flood()
    assert is_done(run), "no flood"
    until("the queue is full", lambda: counter("pending") >= QUEUE)
    print(f"  {counter('pending')} wait, {counter('handshakes_without_agent') - dropped} did not find a place")
    other = as_user(ANOTHER, connection_of_another_user)
    until("it waits, or has failed", lambda: counter("pending") > QUEUE or select_now(other), 5)
    agent.send(signal.SIGCONT)
    through = is_done(other)
    end(other)
    end(run)
    assert through, "another user's handshakes failed"
    until("all is over", lambda: counter("pending") == 0, 60)


def select_now(run):
    return wait_for(run[1], 1, 0) != 0


def plain_listener():
    """With room for a whole flood."""
    with open("/proc/sys/net/core/somaxconn", "w") as file:
        file.write(str(4 * QUEUE))
    return listener(protocol=0, backlog=4 * QUEUE)


@test()
def a_user_who_fills_the_queue_keeps_no_other_out(agent):
    with with_parameter("handshake_ms", 60000 * SLOW), plain_listener() as l:
        agent.send(signal.SIGSTOP)
        others_get_through(agent, lambda: as_user(FLOODER, connect_often, QUEUE + 100, l.getsockname(), PROTOCOL))


@test()
def who_has_many_users_in_a_namespace_keeps_no_other_out(agent):
    with with_parameter("handshake_ms", 60000 * SLOW), plain_listener() as l:
        agent.send(signal.SIGSTOP)
        others_get_through(agent, lambda: as_user(0, of_a_namespace_with_many_users, QUEUE + 100, l.getsockname()))


class networks:
    """Addresses of several networks, all of this host."""

    def __enter__(self):
        for address in (HERE, NEAR, FAR):
            address_of_this_host(address)

    def __exit__(self, *_):
        for address in (HERE, NEAR, FAR):
            address_of_this_host(address, False)


def source_of(request):
    """The peer's address in a request."""
    return socket.inet_ntoa(request.raw[64:68])


@test(agent=None)
def a_network_that_fills_the_queue_keeps_no_other_out():
    with networks(), with_parameter("handshake_ms", 60000 * SLOW), with_parameter("pending_max", 4 * QUEUE), \
         Puppet() as puppet, listener() as l:
        to = l.getsockname()
        dropped = counter("handshakes_without_agent")
        flood = as_user(0, connect_often, QUEUE + 100, to, 0, HERE, b"x")
        assert is_done(flood), "no flood"
        # To the last: whoever comes after it is behind it.
        until("all of the flood has come", lambda: counter("handshakes_without_agent") - dropped >= 100)
        peers = []
        for source in (FAR, NEAR):
            [peer] = connect_often(1, to, 0, source)
            ktls(peer, 0)
            peer.send(MARK)
            peers.append(peer)
        until("all have come", lambda: counter("handshakes_without_agent") - dropped >= 102)
        for source in [HERE] * (QUEUE - 2) + [FAR, NEAR]:
            request = puppet.take()
            assert source_of(request) == source, source_of(request)
            request.close() if source == HERE else request.finish()
        for _ in peers:
            server, _ = l.accept()
            assert receive(server, len(MARK)) == MARK
        end(flood)
    assert counter("pending") == 0


@test()
def silent_clients_of_one_network_keep_no_other_out(agent):
    with networks(), with_parameter("handshake_ms", 60000 * SLOW), listener() as l:
        to = l.getsockname()
        agent.send(signal.SIGSTOP)
        dropped = counter("handshakes_dropped")
        good = []
        for source in (FAR, NEAR):
            s = new()
            s.bind((source, 0))
            good.append(Background(s.connect, to))
        until("they wait at both ends", lambda: counter("pending") == 4)
        flood = as_user(0, connect_often, UNFINISHED + 200, to, 0, HERE)
        assert is_done(flood), "no flood"
        until("all are in", lambda: counter("handshakes_dropped") - dropped >= 202)
        print(f"  {counter('pending')} under way, {counter('handshakes_dropped') - dropped} made room")
        agent.send(signal.SIGCONT)
        for connecting in good:
            connecting.result()
        sources = {l.accept()[1][0] for _ in good}
        assert sources == {FAR, NEAR}
        end(flood)

"""The agent, missing, hung, killed, and played by the test itself."""

import errno
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import time

from harness import *


@test(agent=None)
def without_an_agent_a_connection_fails_at_once():
    log = KernelLog()
    with listener(protocol=0) as l, new() as s:
        began = time.monotonic()
        fails(errno.EPROTO, s.connect, l.getsockname())
        assert time.monotonic() - began < 2 * SLOW
        fails(errno.EPROTO, s.send, MARK)
        fails(errno.EPROTO, s.recv, 1)
    with listener() as l:
        plain = connect(l, protocol=0)
        plain.send(b"\x16")
        fails(errno.ECONNRESET, plain.recv, 1)
    assert "no agent" in log.text()
    log.close()


@test(agent=None)
def a_hung_agent_times_out():
    with with_parameter("handshake_ms", 500), Agent() as agent:
        agent.send(signal.SIGSTOP)
        timed_out = counter("handshakes_timed_out")
        with listener(protocol=0) as l, new() as s:
            began = time.monotonic()
            fails(errno.ETIMEDOUT, s.connect, l.getsockname())
            assert 0.3 < time.monotonic() - began < 5 * SLOW
            fails(errno.ECONNRESET, l.accept()[0].recv, 1)
        with listener(protocol=0) as l, new() as s:
            s.setblocking(False)
            fails(errno.EINPROGRESS, s.connect, l.getsockname())
            assert wait_for(s, select.POLLOUT) & select.POLLERR
            assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ETIMEDOUT
            fails(errno.ETIMEDOUT, s.recv, 1)
        with listener() as l:
            silent = connect(l, protocol=0)
            fails(errno.ECONNRESET, silent.recv, 1)
        assert counter("handshakes_timed_out") == timed_out + 3
        # A peer that resets meanwhile is not waited for.
    with with_parameter("handshake_ms", 10000), Agent() as agent:
        agent.send(signal.SIGSTOP)
        with listener(protocol=0) as l, new() as s:
            connecting = Background(s.connect, l.getsockname())
            peer, _ = l.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            until("it waits", lambda: counter("pending") == 1)
            peer.close()
            fails(errno.ECONNRESET, connecting.result, 3)
        # Nor is anybody told to wait who knows of it from poll().
        with listener(protocol=0) as l:
            for _ in range(20):
                with new() as s:
                    s.setblocking(False)
                    fails(errno.EINPROGRESS, s.connect, l.getsockname())
                    peer, _ = l.accept()
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    peer.close()
                    assert wait_for(s, select.POLLOUT) & select.POLLERR
                    fails(errno.ECONNRESET, s.recv, 1)


@test(agent=None)
def a_killed_agent_fails_what_it_had():
    agent = Agent()
    with listener(protocol=0) as l:
        taken = [Background(connect, l) for _ in range(5)]      # nobody answers them
        peers = [l.accept()[0] for _ in range(5)]
        for peer in peers:
            assert peer.recv(1) == b"\x16"      # the agent has begun
        agent.send(signal.SIGSTOP)
        queued = [Background(connect, l) for _ in range(5)]
        until("ten are pending", lambda: counter("pending") == 10)
        agent.stop()
        for connecting in taken + queued:
            fails(errno.EPROTO, connecting.result, 3)
    assert counter("pending") == 0
    with Agent():
        exchange(*pair())


@test(agent=None)
def the_device_is_for_one_and_only_for_root():
    with Puppet(os.O_NONBLOCK) as puppet:
        fails(errno.EBUSY, os.open, "/dev/stcp", os.O_RDONLY)
        fails(errno.EAGAIN, os.read, puppet.fd, 96)
        fails(errno.EINVAL, os.read, puppet.fd, 95)
        assert wait_for(puppet.fd, select.POLLIN, 0.1) == 0
        with listener(protocol=0) as l, new() as s:
            s.setblocking(False)
            fails(errno.EINPROGRESS, s.connect, l.getsockname())
            assert wait_for(puppet.fd, select.POLLIN) == select.POLLIN
            request = puppet.take()
            request.close()
            assert wait_for(s, select.POLLOUT) & select.POLLERR
            assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.EPROTO
    assert os.stat("/dev/stcp").st_mode & 0o777 == 0o600


@test(agent=None)
def the_agents_file_is_its_own_and_ends_with_the_handshake():
    with Puppet() as puppet, listener(protocol=0) as l, new() as s:
        s.setblocking(False)
        fails(errno.EINPROGRESS, s.connect, l.getsockname())
        request = puppet.take()
        peer, _ = l.accept()
        raw = request.raw
        assert raw[12] == 0 and struct.unpack_from("=II", raw, 16) == (0, os.getpid())
        assert struct.unpack_from("=Q", raw, 24)[0] == os.stat("/proc/self/ns/net").st_ino
        assert struct.unpack_from("!H4s", raw, 34) == (s.getsockname()[1], bytes([127, 0, 0, 1]))
        assert struct.unpack_from("!H4s", raw, 62) == (l.getsockname()[1], bytes([127, 0, 0, 1]))
        assert os.readlink(f"/proc/self/fd/{request.fd}") == "anon_inode:[stcp]"
        # O_NONBLOCK is each one's own: the program's is set, the agent's is not.
        reading = Background(os.read, request.fd, 100)
        time.sleep(0.1)
        assert reading.thread.is_alive()
        peer.send(b"raw")
        assert reading.result() == b"raw"
        os.set_blocking(request.fd, False)
        fails(errno.EAGAIN, os.read, request.fd, 1)
        assert wait_for(request.fd, select.POLLIN | select.POLLOUT) == select.POLLOUT
        epoll = select.epoll()
        epoll.register(request.fd, select.EPOLLIN | select.EPOLLET)
        peer.send(b"more")
        assert epoll.poll(5) == [(request.fd, select.EPOLLIN)]
        epoll.close()
        assert os.read(request.fd, 2) == b"mo" and os.read(request.fd, 2) == b"re"
        assert os.write(request.fd, b"out") == 3 and receive(peer, 3) == b"out"
        fails(errno.EAGAIN, s.recv, 1)
        fails(errno.EINVAL, request.done)
        fails(errno.EINVAL, fcntl.ioctl, request.fd, Puppet.TX, struct.pack("=HH36x", 0x303, 51))
        fails(errno.EINVAL, fcntl.ioctl, request.fd, Puppet.TX, struct.pack("=HH36x", 0x304, 7))
        fails(errno.ENOTTY, fcntl.ioctl, request.fd, 0x5301)
        request.key(TLS_TX)
        fails(errno.EINVAL, request.done)
        fails(errno.ESHUTDOWN, os.write, request.fd, b"no more")
        fails(errno.ESHUTDOWN, os.read, request.fd, 1)
        fails(errno.EAGAIN, s.send, MARK)       # one key is not enough
        fails(errno.EBUSY, request.key, TLS_TX)
        request.key(TLS_RX)
        fails(errno.EAGAIN, s.send, MARK)
        fails(errno.EINVAL, request.done, 1)
        request.done(0, 3, bytes(range(32)))
        for call in (lambda: request.done(), lambda: os.write(request.fd, b"x"), lambda: os.read(request.fd, 1),
                     lambda: request.key(TLS_RX)):
            fails(errno.ESHUTDOWN, call)
        assert s.getsockopt(PROTOCOL, STCP_PEER, 36) == bytes([3, 51, 0, 0]) + bytes(range(32))
        ktls(peer, 1)
        s.setblocking(True)
        exchange(s, peer)
        request.close()
        exchange(s, peer)
    # The agent's own errno reaches the program.
    with Puppet() as puppet, listener(protocol=0) as l, new() as s:
        connecting = Background(s.connect, l.getsockname())
        request = puppet.take()
        request.done(-errno.EACCES)
        fails(errno.EACCES, connecting.result)
        request.close()


@test()
def an_agent_without_descriptors_answers_when_it_has_some(agent):
    def limit(soft):
        resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    soft, hard = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)
    taken = [int(name) for name in os.listdir(f"/proc/{agent.process.pid}/fd")]
    limit(next(number for number in range(1000) if number not in taken))
    with listener() as l:
        connecting = Background(connect, l)
        until("it waits", lambda: counter("pending") > 0)
        time.sleep(0.5)
        assert agent.process.poll() is None, "the agent ended"
        limit(soft)
        client = connecting.result()
        server, _ = l.accept()
    exchange(client, server)


@test(agent=None)
def the_program_may_go_while_it_shakes_hands():
    with Puppet() as puppet, listener(protocol=0) as l, listener() as ours:
        for step in range(4):
            s = new()
            s.setblocking(False)
            fails(errno.EINPROGRESS, s.connect, l.getsockname())
            until("it waits", lambda: counter("pending") == 1)
            if step == 0:       # before the agent looked
                s.close()
                continue
            request = puppet.take()
            if step == 2:
                request.key(TLS_TX)
            if step == 3:
                s.shutdown(socket.SHUT_RDWR)
                assert wait_for(s, select.POLLOUT) & select.POLLHUP
            s.close()
            fails(errno.ESHUTDOWN, os.read, request.fd, 1)
            fails(errno.ESHUTDOWN, request.key, TLS_RX)
            fails(errno.ESHUTDOWN, request.done, -errno.EPROTO)
            assert wait_for(request.fd, select.POLLIN) & select.POLLHUP
            request.close()
        plain = connect(ours, protocol=0)
        plain.send(b"x")
        request = puppet.take()
        assert request.side == 1
        ours.close()
        fails(errno.ESHUTDOWN, os.read, request.fd, 1)
        request.close()
        fails(errno.ECONNRESET, plain.recv, 1)
    assert counter("pending") == 0

"""Connecting and accepting."""

import errno
import select
import signal
import socket
import struct
import subprocess
import sys
import time

from harness import *


# Connecting.

@test()
def a_connection_is_writable_when_it_is_keyed_and_not_before(agent):
    agent.send(signal.SIGSTOP)
    with listener() as l, new() as s:
        s.setblocking(False)
        fails(errno.EINPROGRESS, s.connect, l.getsockname())
        until("the client waits for the agent", lambda: counter("pending") >= 1)
        assert wait_for(s, select.POLLOUT | select.POLLIN, 0.3) == 0
        fails(errno.EALREADY, s.connect, l.getsockname())
        fails(errno.EAGAIN, s.send, MARK)
        fails(errno.EAGAIN, s.recv, 1)
        fails(errno.ENOTCONN, s.getsockopt, PROTOCOL, STCP_PEER, 36)
        epoll = select.epoll()
        epoll.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
        assert epoll.poll(0.1) == []
        agent.send(signal.SIGCONT)
        assert epoll.poll(5) == [(s.fileno(), select.EPOLLOUT)]
        # A session ticket may be an edge, but nothing to read.
        assert epoll.poll(0.1) in ([], [(s.fileno(), select.EPOLLOUT)])
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        s.connect(l.getsockname())
        fails(errno.EISCONN, s.connect, l.getsockname())
        server, _ = l.accept()
        # An edge for each arrival.
        for _ in range(3):
            server.sendall(MARK)
            assert epoll.poll(5) == [(s.fileno(), select.EPOLLIN | select.EPOLLOUT)]
            assert s.recv(1000) == MARK
            fails(errno.EAGAIN, s.recv, 1)
        server.close()
        assert epoll.poll(5)[0][1] & select.EPOLLRDHUP
        assert s.recv(1) == b""
        epoll.close()


@test()
def a_blocking_send_and_receive_wait_for_the_keys(agent):
    agent.send(signal.SIGSTOP)
    with listener() as l, new() as s:
        s.setblocking(False)
        fails(errno.EINPROGRESS, s.connect, l.getsockname())
        s.setblocking(True)
        receiving = Background(s.recv, 1000)
        sending = Background(s.sendall, MARK)
        time.sleep(0.2)
        agent.send(signal.SIGCONT)
        server, _ = l.accept()
        sending.result()
        assert receive(server, len(MARK)) == MARK
        server.sendall(MARK)
        assert receiving.result() == MARK


@test()
def an_interrupted_connect_goes_on(agent):
    agent.send(signal.SIGSTOP)
    with listener() as l:
        # PEP 475 has Python wait with poll() after EINTR: the kernel must finish by itself.
        code = ("import socket,signal,sys; signal.signal(signal.SIGALRM, lambda *_: None); "
                "signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1); "
                "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[2])); "
                "s.connect(('127.0.0.1', int(sys.argv[1]))); signal.setitimer(signal.ITIMER_REAL, 0); s.sendall(b'done')")
        child = subprocess.Popen([sys.executable, "-c", code, str(l.getsockname()[1]), str(PROTOCOL)])
        until("the child waits for the agent", lambda: counter("pending") >= 1, 20)
        time.sleep(0.5)
        agent.send(signal.SIGCONT)
        server, _ = l.accept()
        assert receive(server, 4) == b"done"
        assert child.wait(20) == 0


@test()
def a_refused_connection_is_refused_and_can_be_tried_again():
    with new() as l:
        l.bind(("127.0.0.1", 0))
        with new() as s:
            fails(errno.ECONNREFUSED, s.connect, l.getsockname())
            l.listen()
            s.connect(l.getsockname())
            exchange(s, l.accept()[0])
    with new() as s:
        s.setblocking(False)
        fails(errno.EINPROGRESS, s.connect, ("127.0.0.1", 9))
        assert wait_for(s, select.POLLOUT) & (select.POLLERR | select.POLLHUP)
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


@test()
def a_peer_in_clear_is_refused():
    for first in (b"hello, I speak in clear, and long enough for a record", b"", b"\x16\x03\x01"):
        with listener(protocol=0) as l, new() as s:
            connecting = Background(s.connect, l.getsockname())
            peer, _ = l.accept()
            peer.sendall(first)
            peer.close()        # FIN at once: the socket is in CLOSE_WAIT before anyone looks
            fails((errno.EPROTO, errno.ECONNRESET), connecting.result)
            fails((errno.EPROTO, errno.ECONNRESET, errno.EPIPE), s.send, MARK)
            fails((errno.EPROTO, errno.ECONNRESET), s.recv, 100)
    with listener(protocol=0) as l, new() as s:
        s.setblocking(False)
        fails(errno.EINPROGRESS, s.connect, l.getsockname())
        peer, _ = l.accept()
        peer.sendall(b"x" * 100)
        assert wait_for(s, select.POLLOUT) & select.POLLERR
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.EPROTO


@test()
def a_client_in_clear_is_never_accepted():
    with listener() as l:
        failed = counter("handshakes_failed")
        plain = connect(l, protocol=0)
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        try:        # an alert, then the end
            assert plain.recv(1000)[:1] in (b"", b"\x15")
        except ConnectionResetError:
            pass
        until("it has failed", lambda: counter("handshakes_failed") == failed + 1)
        l.setblocking(False)
        fails(errno.EAGAIN, l.accept)


@test()
def ipv6_addrform_does_not_bring_tcp_back(agent):
    agent.send(signal.SIGSTOP)
    with listener(protocol=0) as l, new(socket.AF_INET6) as s:
        s.setblocking(False)
        fails(errno.EINPROGRESS, s.connect, ("::ffff:127.0.0.1", l.getsockname()[1]))
        until("the client waits for the agent", lambda: counter("pending") >= 1)
        fails(errno.EOPNOTSUPP, s.setsockopt, socket.IPPROTO_IPV6, 1, struct.pack("i", socket.AF_INET))
        fails(errno.EAGAIN, s.send, MARK)
        fails(errno.EOPNOTSUPP, s.setsockopt, socket.IPPROTO_TCP, TCP_ULP, b"tls")
        fails(errno.EOPNOTSUPP, s.setsockopt, socket.IPPROTO_TCP, 19, struct.pack("i", 1))
    agent.send(signal.SIGCONT)


# Accepting.

@test()
def a_hundred_silent_clients_do_not_delay_a_good_one():
    with listener() as l:
        def good():
            began = time.monotonic()
            client = connect(l)
            server, _ = l.accept()
            exchange(client, server, 100)
            took = time.monotonic() - began
            client.close()
            server.close()
            return took
        good()
        alone = sorted(good() for _ in range(9))[4]
        silent = [connect(l, protocol=0) for _ in range(100)]
        for s in silent[:50]:
            s.send(b"\x16")     # these keep the agent waiting
        until("all are pending", lambda: counter("pending") >= 100)
        crowded = sorted(good() for _ in range(9))[4]
        print(f"  alone {alone * 1e3:.1f} ms, among 100 silent ones {crowded * 1e3:.1f} ms")
        assert crowded - alone < 0.1 * SLOW
        for s in silent:
            s.close()
    until("none is pending", lambda: counter("pending") == 0)


@test()
def accept_waits_times_out_and_ends_with_its_listener():
    with listener() as l:
        l.setblocking(False)
        fails(errno.EAGAIN, l.accept)
        assert wait_for(l, select.POLLIN, 0.1) == 0
        client = connect(l)
        assert wait_for(l, select.POLLIN) == select.POLLIN
        server, address = l.accept()
        assert address == client.getsockname()
        l.setblocking(True)
        l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 100000))
        fails(errno.EAGAIN, l.accept)
        l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 0))
        accepting = Background(l.accept)
        time.sleep(0.1)
        unaccepted = None
        l.shutdown(socket.SHUT_WR)          # no end for a listener
        fails(errno.EINVAL, l.shutdown, 3)
        assert accepting.thread.is_alive()
        l.shutdown(socket.SHUT_RD)
        fails(errno.EINVAL, accepting.result)
        l.listen()
        unaccepted = connect(l)
        until("it is ready", lambda: wait_for(l, select.POLLIN))
    fails(errno.ECONNRESET, unaccepted.recv, 1)
    exchange(client, server)


@test()
def many_acceptors_share_a_listener():
    with listener() as l:
        accepting = [Background(l.accept) for _ in range(8)]
        clients = [connect(l) for _ in range(8)]
        servers = {a.result()[1]: a.value[0] for a in accepting}
        for c in clients:
            exchange(c, servers[c.getsockname()])


@test()
def a_full_backlog_waits_and_loses_nothing():
    with listener(backlog=2) as l:
        connecting = [Background(connect, l) for _ in range(12)]
        time.sleep(0.5)
        servers = [l.accept()[0] for _ in range(12)]
        clients = {c.result().getsockname(): c.value for c in connecting}
        for s in servers:
            exchange(s, clients[s.getpeername()])


@test()
def the_oldest_unfinished_handshake_makes_room():
    with with_parameter("pending_max", 4), listener() as l:
        dropped = counter("handshakes_dropped")
        silent = []
        for n in range(6):
            silent.append(connect(l, protocol=0))
            until("it is pending", lambda: counter("pending") == min(n + 1, 4))
        until("two were dropped", lambda: counter("handshakes_dropped") == dropped + 2)
        fails(errno.ECONNRESET, silent[0].recv, 1)
        exchange(connect(l), l.accept()[0])

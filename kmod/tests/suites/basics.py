"""What a program does with connected sockets of ours, and what it may not do."""

import errno
import fcntl
import os
import socket
import struct
import subprocess
import time

from harness import *


@test()
def the_sniffer_sees_a_clear_marker_of_plain_tcp():
    with listener(protocol=0) as l:
        client = connect(l, protocol=0)
        server, _ = l.accept()
        exchange(client, server)
        client.close()
        server.close()
    SNIFFER.drain()
    assert SNIFFER.marked > 0 and SNIFFER.packets > 0
    SNIFFER.reset()


@test()
def bytes_go_both_ways_over_ipv4_and_ipv6():
    for family in (socket.AF_INET, socket.AF_INET6):
        client, server = pair(family)
        exchange(client, server)
        data = payload(1 << 20)
        sending = Background(client.sendall, data)
        assert receive(server, len(data)) == data
        sending.result()
        client.close()
        assert server.recv(1) == b""
        server.close()


@test()
def an_ipv6_listener_takes_ipv4_clients():
    with new(socket.AF_INET6) as l:
        l.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        l.bind(("::", 0))
        l.listen()
        client = new()
        client.connect(("127.0.0.1", l.getsockname()[1]))
        server, address = l.accept()
        assert address[0] == "::ffff:127.0.0.1"
        exchange(client, server)
        # And a client's socket of IPv6 with an address of IPv4.
        second = new(socket.AF_INET6)
        second.connect(("::ffff:127.0.0.1", l.getsockname()[1]))
        exchange(second, l.accept()[0])


@test(agent=None)
def every_cipher_works():
    for cipher in (AES128, AES256, CHACHA):
        client, peer = puppet_client(cipher=cipher)
        exchange(client, peer, 40000)
        assert client.getsockopt(PROTOCOL, STCP_PEER, 36)[1] == cipher


@test()
def stcp_peer_tells_who_the_peer_is():
    client, server = pair()
    shown = client.getsockopt(PROTOCOL, STCP_PEER, 36)
    assert len(shown) == 36 and shown[0] == 3 and shown[4:] != bytes(32), shown
    anonymous = server.getsockopt(PROTOCOL, STCP_PEER, 36)
    assert anonymous == bytes([0, shown[1]]) + bytes(34), anonymous
    with new() as fresh:
        fails(errno.ENOTCONN, fresh.getsockopt, PROTOCOL, STCP_PEER, 36)
        fails(errno.ENOPROTOOPT, fresh.getsockopt, PROTOCOL, 99, 36)


@test(agent=RAW_KEYS)
def raw_keys_tell_both_sides_apart():
    seen = set()
    for _ in range(2):
        client, server = pair()
        exchange(client, server)
        for s in (client, server):
            shown = s.getsockopt(PROTOCOL, STCP_PEER, 36)
            assert shown[0] in (1, 2) and shown[4:] != bytes(32), shown
            seen.add(shown[4:])
    assert len(seen) == 2


@test()
def options_of_sockets_and_of_tcp_work():
    client, server = pair()
    for level, name, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 5000),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_IP, socket.IP_TOS, 16),
    ):
        client.setsockopt(level, name, value)
        assert client.getsockopt(level, name) == value, name
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100000)
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 200000
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert client.getpeername() == server.getsockname()
    client.settimeout(0.1)
    began = time.monotonic()
    try:
        client.recv(1)
        raise AssertionError("nothing was sent")
    except TimeoutError:
        assert 0.05 < time.monotonic() - began < 3 * SLOW
    client.settimeout(None)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 100000))
    fails(errno.EAGAIN, client.recv, 1)
    exchange(client, server)


@test()
def what_would_take_the_socket_out_of_our_hands_is_refused():
    client, server = pair()
    with new() as fresh, new(socket.AF_INET6) as six:
        for s in (client, fresh):
            for level, name, value in (
                (socket.IPPROTO_TCP, TCP_ULP, b"tls"),
                (socket.IPPROTO_TCP, 19, struct.pack("i", 1)),      # TCP_REPAIR
                (socket.IPPROTO_TCP, 23, struct.pack("i", 5)),      # TCP_FASTOPEN
                (socket.IPPROTO_TCP, 30, struct.pack("i", 1)),      # TCP_FASTOPEN_CONNECT
                (SOL_TLS, TLS_TX, crypto_info(0, TLS_TX)),
                (SOL_TLS, TLS_RX, crypto_info(0, TLS_RX)),
            ):
                fails(errno.EOPNOTSUPP, s.setsockopt, level, name, value)
            fails(errno.EOPNOTSUPP, s.getsockopt, SOL_TLS, TLS_TX, 40)
            fails(errno.EOPNOTSUPP, s.getsockopt, socket.IPPROTO_TCP, 35, 40)   # TCP_ZEROCOPY_RECEIVE
        for s in (fresh, client):
            fails(errno.EOPNOTSUPP, s.setsockopt, socket.SOL_SOCKET, 42, 0)     # SO_PEEK_OFF
        fails(errno.EOPNOTSUPP, six.setsockopt, socket.IPPROTO_IPV6, 1, struct.pack("i", socket.AF_INET))
        fails(errno.EPIPE, fresh.send, MARK)
        fails(errno.ENOTCONN, fresh.recv, 1)
    fails(errno.EOPNOTSUPP, client.send, MARK, socket.MSG_OOB)
    # A program must not choose the type of its records.
    client.sendmsg([MARK], [(SOL_TLS, TLS_SET_RECORD_TYPE, bytes([ALERT]))])
    assert receive(server, len(MARK)) == MARK
    subprocess.run(["/t/calls", "fastopen", str(PROTOCOL)], check=True)


@test()
def messages_are_peeked_at_waited_for_counted_and_spliced():
    client, server = pair()
    client.sendall(payload(1000))
    assert receive(server, 10) == payload(10)
    assert server.recv(20, socket.MSG_PEEK) == payload(1000)[10:30]
    assert struct.unpack("i", fcntl.ioctl(server, 0x541B, bytes(4)))[0] == 990
    assert receive(server, 990) == payload(1000)[10:]
    assert struct.unpack("i", fcntl.ioctl(server, 0x541B, bytes(4)))[0] == 0
    waiting = Background(server.recv, 600, socket.MSG_WAITALL)
    for at in range(0, 600, 200):
        client.sendall(payload(600)[at:at + 200])
        time.sleep(0.05)
    assert waiting.result() == payload(600)
    client.send(payload(100), socket.MSG_MORE)
    client.send(payload(100))
    assert receive(server, 200) == payload(100) * 2
    with open("/tmp/file", "wb") as file:
        file.write(payload(300000))
    with open("/tmp/file", "rb") as file:
        sending = Background(client.sendfile, file)
        assert receive(server, 300000) == payload(300000)
        assert sending.result() == 300000
    r, w = os.pipe()
    client.sendall(payload(5000))
    moved = b""
    while len(moved) < 5000:
        moved += os.read(r, os.splice(server.fileno(), w, 4000))
    assert moved == payload(5000)
    os.write(w, payload(2000))
    sent = 0
    while sent < 2000:
        sent += os.splice(r, client.fileno(), 2000 - sent)
    assert receive(server, 2000) == payload(2000)
    client.close()
    assert os.splice(server.fileno(), w, 4000) == 0
    subprocess.run(["/t/calls", "mmsg", str(PROTOCOL)], check=True)


@test()
def io_uring_works():
    subprocess.run(["/t/calls", "uring", str(PROTOCOL)], check=True)


@test()
def fork_dup_and_passing_the_descriptor_work():
    client, server = pair()
    copy = client.dup()
    client.close()
    exchange(copy, server)
    left, right = socket.socketpair()
    socket.send_fds(left, [b"x"], [copy.fileno()])
    passed = socket.socket(fileno=socket.recv_fds(right, 1, 1)[1][0])
    copy.close()
    child = os.fork()
    if not child:
        exchange(passed, server)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    exchange(passed, server)
    passed.close()
    assert server.recv(1) == b""


@test()
def other_sockets_of_the_machine_are_left_alone():
    # kTLS makes its tables from whichever socket comes first: by now that was one of ours.
    exchange(*pair())
    exchange(*pair(socket.AF_INET6))
    for family in (socket.AF_INET, socket.AF_INET6):
        client, server = ktls_pair(family)
        exchange(client, server)
        client.close()
        assert server.recv(1) == b""
    SNIFFER.verdict()
    with listener(protocol=0) as l:
        client = connect(l, protocol=0)
        client.sendall(b"plain")
        assert receive(l.accept()[0], 5) == b"plain"

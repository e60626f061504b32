"""The stream's end, alerts, tickets, key updates and the key's limit."""

import errno
import os
import select
import socket
import struct
import time

from harness import *


@test()
def each_direction_ends_by_itself():
    client, server = pair()
    client.sendall(MARK)
    client.shutdown(socket.SHUT_WR)
    fails(errno.EPIPE, client.send, MARK)
    assert receive(server, len(MARK)) == MARK
    assert wait_for(server, select.POLLRDHUP | select.POLLIN) & select.POLLIN
    assert server.recv(1) == b"" and server.recv(1) == b""
    server.sendall(payload(100000))
    server.close()
    assert receive(client, 100000) == payload(100000)
    assert client.recv(1) == b""


@test()
def close_after_a_write_that_did_not_wait_loses_nothing():
    for _ in range(5):
        client, server = pair()
        client.setblocking(False)
        sent = 0
        while True:
            try:
                sent += client.send(payload(50000))
            except BlockingIOError:
                break
        client.close()
        got = 0
        while part := server.recv(100000):
            got += len(part)
        assert got == sent, (got, sent)
        server.close()


@test()
def shutdown_does_not_wait_for_a_sender_whose_peer_does_not_read():
    client, server = pair()
    sending = Background(client.sendall, payload(32 << 20))
    time.sleep(1)
    assert sending.thread.is_alive()
    began = time.monotonic()
    client.shutdown(socket.SHUT_RDWR)
    assert time.monotonic() - began < SLOW
    fails(errno.EPIPE, sending.result, 3)
    # What was under way is cut off, and the peer is told so.
    server.settimeout(5 * SLOW)
    got = 0
    try:
        while part := server.recv(1 << 20):
            got += len(part)
        raise AssertionError("a clean end")
    except ConnectionResetError:
        assert 0 < got < 32 << 20


@test(agent=None)
def a_stream_cut_off_is_a_reset():
    client, peer = puppet_client()
    peer.send(MARK)
    peer.close()
    assert receive(client, len(MARK)) == MARK
    assert wait_for(client, select.POLLIN) & select.POLLIN
    fails(errno.ECONNRESET, client.recv, 1)
    fails(errno.ECONNRESET, client.recv, 1)
    # Cut off within a record.
    client, peer = puppet_client(raw=True)
    peer.send(b"\x17\x03\x03\x01\x00" + bytes(100))
    peer.close()
    fails(errno.ECONNRESET, client.recv, 1)
    # And by the program itself: that is its own end.
    client, peer = puppet_client()
    client.shutdown(socket.SHUT_RD)
    assert client.recv(1) == b""
    # A reset within a record.
    client, peer = puppet_client(raw=True)
    peer.send(b"\x17\x03\x03\x01\x00" + bytes(100))
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    fails(errno.ECONNRESET, client.recv, 1)


@test(agent=None)
def close_notify_is_the_end_and_is_sent():
    client, peer = puppet_client()
    record(peer, DATA, MARK)
    record(peer, ALERT, bytes([1, 0]))
    assert receive(client, len(MARK)) == MARK
    assert wait_for(client, select.POLLIN | select.POLLRDHUP) == select.POLLIN | select.POLLRDHUP
    assert client.recv(100) == b"" and client.recv(100) == b""
    client.send(MARK)       # the other direction goes on
    client.shutdown(socket.SHUT_WR)
    assert next_record(peer) == (DATA, MARK)
    assert next_record(peer) == (ALERT, bytes([1, 0]))
    assert next_record(peer) == (None, b"")
    client, peer = puppet_client()
    client.close()
    assert next_record(peer) == (ALERT, bytes([1, 0]))
    # What the peer said last lies unread: TCP would answer close() with a reset.
    client, peer = puppet_client()
    record(peer, HANDSHAKE, bytes([4, 0, 0, 10]) + bytes(10))
    record(peer, ALERT, bytes([1, 0]))
    time.sleep(0.1)
    client.send(MARK)
    client.close()
    assert next_record(peer) == (DATA, MARK)
    assert next_record(peer) == (ALERT, bytes([1, 0]))
    assert next_record(peer) == (None, b"")


@test(agent=None)
def any_other_alert_is_an_error():
    log = KernelLog()
    client, peer = puppet_client()
    record(peer, ALERT, bytes([1, 90]))     # user_canceled: close_notify will follow
    record(peer, DATA, MARK)
    assert receive(client, len(MARK)) == MARK
    record(peer, ALERT, bytes([2, 80]))
    fails(errno.EPROTO, client.recv, 1)
    fails(errno.EPROTO, client.recv, 1)
    fails(errno.EPIPE, client.send, MARK)
    assert "TLS alert 80" in log.text()
    # One byte at a time, as a reader may have it.
    client, peer = puppet_client()
    record(peer, ALERT, bytes([2]))
    fails(errno.EAGAIN, client.recv, 1, socket.MSG_DONTWAIT)
    record(peer, ALERT, bytes([40]))
    fails(errno.EPROTO, client.recv, 1)
    log.close()


@test(agent=None)
def a_forged_record_ends_the_connection():
    log = KernelLog()
    client, peer = puppet_client(raw=True)
    peer.send(b"\x17\x03\x03\x00\x40" + bytes(64))
    fails(errno.EPROTO, client.recv, 1)
    fails(errno.EPROTO, client.recv, 1)
    fails((errno.EPROTO, errno.EPIPE), client.send, MARK)
    assert "damaged or forged" in log.text()
    # A length that no record may have.
    client, peer = puppet_client(raw=True)
    peer.send(b"\x17\x03\x03\xff\xff" + bytes(64))
    fails(errno.EPROTO, client.recv, 1)
    # Clear bytes after the handshake.
    client, peer = puppet_client(raw=True)
    peer.send(b"GET / HTTP/1.0\r\n\r\n")
    fails(errno.EPROTO, client.recv, 1)
    log.close()


@test(agent=None)
def session_tickets_are_never_seen():
    ticket = bytes([4, 0, 1, 0]) + bytes(256)
    client, peer = puppet_client()
    record(peer, HANDSHAKE, ticket)
    record(peer, HANDSHAKE, ticket + ticket)
    time.sleep(0.1)
    assert wait_for(client, select.POLLIN, 0.2) == 0
    fails(errno.EAGAIN, client.recv, 1, socket.MSG_DONTWAIT)
    receiving = Background(client.recv, 1000)
    record(peer, HANDSHAKE, ticket[:100])       # a message in two records
    record(peer, HANDSHAKE, ticket[100:])
    time.sleep(0.1)
    record(peer, DATA, MARK)
    assert receiving.result() == MARK
    record(peer, HANDSHAKE, ticket)
    record(peer, DATA, MARK)
    assert client.recv(1, socket.MSG_PEEK) == MARK[:1]
    r, w = os.pipe()
    record(peer, HANDSHAKE, ticket)
    assert os.splice(client.fileno(), w, 1000) == len(MARK)
    record(peer, DATA, MARK)
    assert os.splice(client.fileno(), w, 1000) == len(MARK)
    assert os.read(r, 1000) == MARK * 2
    # From a client it is no message that exists.
    server, peer = puppet_server()
    record(peer, HANDSHAKE, ticket)
    fails(errno.EPROTO, server.recv, 1)


@test(agent=None)
def a_message_may_be_16_kib_long_and_no_longer():
    log = KernelLog()
    client, peer = puppet_client()
    longest = bytes([4, 0, 0x40, 0]) + bytes(1 << 14)
    record(peer, HANDSHAKE, longest[:10000])
    record(peer, HANDSHAKE, longest[10000:])
    record(peer, DATA, MARK)
    assert receive(client, len(MARK)) == MARK
    record(peer, HANDSHAKE, bytes([4, 0, 0x40, 1]))
    fails(errno.EPROTO, client.recv, 1)
    assert "longer than 16 KiB" in log.text()
    log.close()


@test(agent=None)
def a_key_update_ends_the_connection_cleanly():
    log = KernelLog()
    server, peer = puppet_server()
    record(peer, DATA, MARK)
    record(peer, HANDSHAKE, bytes([24, 0, 0, 1, 0]))
    assert receive(server, len(MARK)) == MARK
    fails(errno.EPROTO, server.recv, 1)
    fails(errno.EPIPE, server.send, MARK)
    assert next_record(peer) == (ALERT, bytes([1, 0]))
    assert "new keys" in log.text()
    log.close()


@test(agent=None)
def an_aes_gcm_key_is_not_used_beyond_its_limit():
    with with_parameter("gcm_blocks", 20000):      # about 300 kB
        reached = counter("key_limits_reached")
        client, peer = puppet_client()
        sent = 0
        try:
            while True:
                sent += client.send(payload(8000))
                receive(peer, 8000)
        except BrokenPipeError:
            pass
        assert 250_000 < sent < 320_000, sent
        assert next_record(peer) == (ALERT, bytes([1, 0]))
        assert next_record(peer) == (None, b"")
        client, peer = puppet_client()
        got = 0
        try:
            while got < 1_000_000:
                peer.send(payload(8000))
                got += len(receive(client, 8000))
        except OSError as error:
            assert error.errno == errno.EPROTO
        assert 150_000 < got < 320_000, got
        assert next_record(peer) == (ALERT, bytes([1, 0]))
        assert counter("key_limits_reached") == reached + 2


@test(agent=None)
def chacha_has_no_limit():
    with with_parameter("gcm_blocks", 100):
        exchange(*puppet_client(cipher=CHACHA), length=20000)

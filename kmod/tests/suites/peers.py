"""OpenSSL and Python, as they are."""

import errno
import socket
import subprocess
import sys
import time

from harness import *


def openssl(*arguments, **more):
    return subprocess.Popen(["openssl", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, **more)


@test()
def openssl_s_server_serves_a_client_of_ours():
    for tickets in ("0", "2"):
        server = openssl("s_server", "-quiet", "-4", "-tls1_3", "-num_tickets", tickets, "-cert", "/t/cert.pem",
                         "-key", "/t/key.pem", "-port", "4433", "-naccept", "1", "-rev")
        until("it listens", lambda: is_listening(4433), 30)
        s = new()
        s.connect(("127.0.0.1", 4433))
        s.sendall(b"desrever\n")
        assert receive(s, 9) == b"reversed\n"
        s.shutdown(socket.SHUT_WR)
        while s.recv(1000):
            pass
        s.close()
        server.communicate(timeout=20 * SLOW)


@test()
def openssl_s_client_reaches_a_server_of_ours():
    with listener() as l:
        client = openssl("s_client", "-quiet", "-tls1_3", "-CAfile", "/t/cert.pem", "-verify_return_error",
                         "-connect", "127.0.0.1:%d" % l.getsockname()[1])
        client.stdin.write(b"hello from openssl\n")
        client.stdin.flush()
        server, _ = l.accept()
        assert receive(server, 19) == b"hello from openssl\n"
        server.sendall(b"hello from the kernel\n")
        server.close()
        assert b"hello from the kernel\n" in client.communicate(timeout=20 * SLOW)[0]
        # With its key update command, K, after which we end cleanly.
        client = openssl("s_client", "-tls1_3", "-connect", "127.0.0.1:%d" % l.getsockname()[1])
        server, _ = l.accept()
        time.sleep(1)
        client.stdin.write(b"K\n")
        client.stdin.flush()
        fails(errno.EPROTO, server.recv, 1)
        server.close()
        client.communicate(timeout=20 * SLOW)


def run_echo(kind, protocol, count, before=()):
    command = [sys.executable, "-S", "/t/echo.py", kind]
    server = subprocess.Popen([*before, *command, "server", "7000", str(protocol)], stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    subprocess.run([*command, "client", "7000", str(protocol), str(count)], check=True, timeout=60 * SLOW)
    assert server.wait(20) == 0


@test()
def pythons_socket_and_asyncio_change_only_the_protocol():
    for kind in ("sockets", "asyncio"):
        run_echo(kind, PROTOCOL, 50)
    SNIFFER.verdict()
    run_echo("asyncio", 0, 1)
    SNIFFER.reset()


@test()
def a_request_costs_as_many_system_calls_as_with_tcp():
    counts = {}
    for protocol in (0, PROTOCOL):
        run_echo("sockets", protocol, 100, ["strace", "-f", "-c", "-o", "/tmp/strace"])
        with open("/tmp/strace") as file:
            rows = [line.split() for line in file]
        counts[protocol] = sum(int(row[3]) for row in rows if row and row[-1] in ("recvfrom", "sendto", "read", "write", "poll"))
        SNIFFER.reset() if protocol == 0 else None
    ratio = counts[PROTOCOL] / counts[0]
    print(f"  {counts[0]} with TCP, {counts[PROTOCOL]} with ours: ratio {ratio:.3f}")
    assert counts[0] > 250 and abs(ratio - 1) < 0.02

"""The library's streams with records made by the kernel: its own tests, which know of no kTLS, and
the echo. Without the module.
"""

import json
import os
import subprocess
import time

import harness
from harness import *

MODULE = False

PATTERN = PAYLOAD[:40]


def watched(*command, seconds=95, **more):
    """Its output and status, while the sniffer keeps up."""
    old, harness.MARK = harness.MARK, PATTERN
    end = time.monotonic() + seconds * SLOW
    with open("/tmp/said", "w+b") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, **more)
        while process.poll() is None:
            assert time.monotonic() < end, f"{command} hangs"
            SNIFFER.drain()
            time.sleep(0.02)
        SNIFFER.drain()
        said.seek(0)
        text = said.read().decode(errors="replace")
    harness.MARK = old
    return process.returncode, text


def tests_of(program, *names):
    code, said = watched("/t/library/" + program, "--test-threads=4", *names)
    assert code == 0, said[-6000:]
    # Without it they would pass all the same.
    assert "no kTLS here" not in said, said[-6000:]


@test(agent=None)
def streams_keep_their_promises():
    tests_of("stcp", "streams::")


@test(agent=None)
def a_listener_keeps_its_promises():
    tests_of("stcp", "listener::")


@test(agent=None)
def openssl_and_the_library():
    tests_of("stcp", "interop::")


@test(agent=None)
def random_operations():
    tests_of("stcp", "model::")


@test(agent=None)
def what_only_the_kernels_records_do():
    tests_of("stcp", "kernel::")


@test(agent=None)
def files_and_splices():
    tests_of("stcp", "files::", "splices::")


@test(agent=None)
def a_file_arrives_when_tcp_has_memory_again():
    # kTLS then takes nothing though there is room, and no event tells when it would.
    path = "/proc/sys/net/ipv4/tcp_mem"
    with open(path) as file:
        usual = file.read()

    def allow(pages):
        with open(path, "w") as file:
            file.write(pages)
    allow("1 1 1")
    relief = threading.Timer(3, allow, [usual])
    relief.start()
    try:
        tests_of("stcp", "files::a_file_arrives")
    finally:
        relief.join()


@test(agent=None)
def connections_at_random():
    tests_of("stcp_chaos")



def echo(server, load):
    """The load's record, of one second (more on a slow kernel) with each flag of the load."""
    address = "127.0.0.1:4434"
    environment = dict(os.environ, TOWLINE_HOME="/tmp/home-server")
    listening = subprocess.Popen(["towline", "stcp", "echo-server", "--listen", address, *server],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        until("it listens", lambda: is_listening(4434))
        code, said = watched("towline", "stcp", "echo-load", address, "-t", f"{SLOW}s", "--json", *load)
    finally:
        listening.terminate()
        listening.wait(20)
    assert code == 0, said
    record = next(json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert record["errors"] == record["connect_errors"] == 0 and record["requests"] > 10, record
    return record


@test(agent=None)
def the_sniffer_sees_a_clear_echo():
    echo(["--plain"], ["--plain", "--size", "1000"])
    assert SNIFFER.marked > 10
    SNIFFER.reset()


@test(agent=None)
def the_echo_has_the_kernels_records():
    for cipher, name in (("aes128gcm", "AES_128_GCM"), ("aes256gcm", "AES_256_GCM"), ("chacha20", "CHACHA20")):
        for size in ("1", "4K", "100K"):
            record = echo(["--kernel", "--anonymous-clients"], ["--kernel", "--insecure", "--cipher", cipher, "--size", size, "--clients", "10"])
            assert record["records"] == "kernel" and name in record["cipher_suite"], record

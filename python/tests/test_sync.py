"""`towline.sync`: the same without asyncio."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import towline
import towline.sync
from conftest import CERTIFICATE, complaints

pytestmark = pytest.mark.keeps_thread


def test_streams_and_datagrams_without_asyncio(url):
    with towline.sync.connect(url, pins=[CERTIFICATE], timeout=10) as session:
        assert session.dialect == "draft-16"
        with session.create_bidirectional_stream() as stream:
            stream.write(b"hi\n")
            assert stream.readuntil(b"\n", timeout=10) == b"hi\n"
            with pytest.raises(TimeoutError):
                stream.readuntil(b"\n", timeout=0.05)
            stream.write(b"later\n")
            assert stream.readuntil(b"\n", timeout=10) == b"later\n"
            stream.finish()
            assert stream.read(timeout=10) == b""
            assert stream.wait_stopped(timeout=10) is None
        incoming = next(session.incoming_unidirectional_streams)
        assert list(incoming.lines(timeout=10)) == [b"hello\n", b"and good bye"]
        assert session.datagrams.send(b"datagram")
        assert session.datagrams.receive(timeout=10) == b"datagram"
        assert session.get_stats().streams_opened == 1
        session.close(3, "done")
        assert session.wait_closed(timeout=10) == (3, "done", False)
        with pytest.raises(ConnectionError):
            session.create_bidirectional_stream(timeout=10)


def test_errors_come_through(url):
    with pytest.raises(towline.HandshakeRefused):
        towline.sync.connect(url, pins=["0" * 64])
    with pytest.raises(ValueError, match="'url'"):
        towline.sync.connect("http://localhost")
    with towline.sync.connect(url, pins=[CERTIFICATE]) as session:
        with session.create_bidirectional_stream() as stream:
            stream.write(b"three")
            stream.finish()
            with pytest.raises(EOFError):
                stream.readexactly(10, timeout=10)


def test_many_threads_share_the_one_in_the_background(url):
    failures: list[BaseException] = []

    def thread() -> None:
        try:
            with towline.sync.connect(url, pins=[CERTIFICATE]) as session:
                for number in range(20):
                    with session.create_bidirectional_stream() as stream:
                        stream.write(b"%d" % number)
                        stream.finish()
                        assert stream.read(timeout=20) == b"%d" % number
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=thread) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures
    names = [one.name for one in threading.enumerate()]
    assert names.count("towline") == 1


def test_what_w3c_has_beside_streams(url):
    with towline.sync.connect(url, pins=[CERTIFICATE], timeout=10) as session:
        group = session.create_send_group()
        with session.create_bidirectional_stream(5, group) as stream:
            stream.write(b"all of it")
            stream.finished(timeout=10)
        assert session.datagrams.send(b"x", send_group=group)
        assert len(session.export_keying_material("mine")) == 32


SCRIPT = """
import logging, sys
logging.getLogger("asyncio").setLevel(logging.ERROR)
from towline.sync import connect
session = connect(sys.argv[1], pins=[sys.argv[2]], timeout=10)
stream = session.create_bidirectional_stream()
stream.write(b"left open")
"""


def test_a_program_ends_that_closed_nothing(url):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", SCRIPT, url, CERTIFICATE.sha256],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, complaints(done.stderr)) == (0, "", [])

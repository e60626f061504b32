"""Arguments that make no sense: the error names the one that is wrong, and nothing was begun."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import towline
import towline.sync
from conftest import CERTIFICATE, connected, echo, idle

URL = "https://localhost:4433/"
CHAIN = CERTIFICATE.certificate_pem.encode()
OTHER_KEY = towline.generate_certificate("a").private_key_pem.encode()

Case = tuple[str, type[Exception], Callable[..., Any]]


def named(raised: pytest.ExceptionInfo[Exception]) -> str:
    """The words of an exception and its notes, which a traceback shows."""
    return "\n".join([str(raised.value), *getattr(raised.value, "__notes__", ())])


FUNCTIONS: list[Case] = [
    ("names", TypeError, lambda: towline.generate_certificate(5)),
    ("names", TypeError, lambda: towline.generate_certificate(b"localhost")),
    ("names", TypeError, lambda: towline.generate_certificate()),
    ("names", ValueError, lambda: towline.generate_certificate("")),
    ("names", ValueError, lambda: towline.generate_certificate("two words")),
    ("names", ValueError, lambda: towline.generate_certificate("\ud800")),
    ("native", TypeError, lambda: towline.Certificate("PEM")),
    ("chain", TypeError, lambda: towline.Certificate.load(5, "key.pem")),
    ("key", TypeError, lambda: towline.Certificate.load(__file__, None)),
    ("chain", TypeError, lambda: towline.Certificate.from_pem("PEM", b"PEM")),
    ("key", TypeError, lambda: towline.Certificate.from_pem(CHAIN, "PEM")),
    ("chain", ValueError, lambda: towline.Certificate.from_pem(b"", b"")),
    ("chain", ValueError, lambda: towline.Certificate.from_pem(CHAIN, OTHER_KEY)),
    ("url", TypeError, lambda: towline.connect(b"https://localhost/")),
    ("url", TypeError, lambda: towline.connect(None)),
    ("url", ValueError, lambda: towline.connect("")),
    ("url", ValueError, lambda: towline.connect("http://localhost/")),
    ("url", ValueError, lambda: towline.connect("https://localhost:99999/")),
    ("url", ValueError, lambda: towline.connect("https://localhost:port/")),
    ("url", ValueError, lambda: towline.connect("https://localhost:0/")),
    ("url", ValueError, lambda: towline.connect("https://[::1/")),
    ("url", ValueError, lambda: towline.connect("https://user@localhost/")),
    ("url", ValueError, lambda: towline.connect("https://localhost/#part")),
    ("url", ValueError, lambda: towline.connect("https://localhost/two words")),
    ("url", ValueError, lambda: towline.connect("https://localhost/grüße")),
    ("url", ValueError, lambda: towline.connect("https://localhost/\n")),
    ("url", ValueError, lambda: towline.connect("https://localhost/\ud800")),
    ("pins", TypeError, lambda: towline.connect(URL, pins=5)),
    ("pins", TypeError, lambda: towline.connect(URL, pins=None)),
    ("pins", TypeError, lambda: towline.connect(URL, pins="0" * 64)),
    ("pins", TypeError, lambda: towline.connect(URL, pins=CERTIFICATE)),
    ("pins", TypeError, lambda: towline.connect(URL, pins=[5])),
    ("pins", ValueError, lambda: towline.connect(URL, pins=[b"short"])),
    ("pins", ValueError, lambda: towline.connect(URL, pins=["short"])),
    ("pins", ValueError, lambda: towline.connect(URL, pins=["ü" * 64])),
    ("roots", TypeError, lambda: towline.connect(URL, roots="PEM")),
    ("roots", ValueError, lambda: towline.connect(URL, roots=b"no PEM")),
    ("protocols", TypeError, lambda: towline.connect(URL, protocols="chat")),
    ("protocols", TypeError, lambda: towline.connect(URL, protocols=5)),
    ("protocols", TypeError, lambda: towline.connect(URL, protocols=[b"chat"])),
    ("protocols", ValueError, lambda: towline.connect(URL, protocols=[""])),
    ("protocols", ValueError, lambda: towline.connect(URL, protocols=["grüße"])),
    ("protocols", ValueError, lambda: towline.connect(URL, protocols=["a\nb"])),
    ("headers", TypeError, lambda: towline.connect(URL, headers=[("a", "b")])),
    ("headers", TypeError, lambda: towline.connect(URL, headers={"a": 5})),
    ("headers", TypeError, lambda: towline.connect(URL, headers={b"a": "b"})),
    ("headers", ValueError, lambda: towline.connect(URL, headers={"a b": "c"})),
    ("headers", ValueError, lambda: towline.connect(URL, headers={":path": "/"})),
    ("headers", ValueError, lambda: towline.connect(URL, headers={"a": "b\r\nc: d"})),
    ("headers", ValueError, lambda: towline.connect(URL, headers={"a": " b"})),
    ("handler", TypeError, lambda: towline.serve("echo", certificate=CERTIFICATE)),
    ("host", TypeError, lambda: towline.serve(idle, 5, certificate=CERTIFICATE)),
    ("port", TypeError, lambda: towline.serve(idle, port="4433", certificate=CERTIFICATE)),
    ("port", ValueError, lambda: towline.serve(idle, port=-1, certificate=CERTIFICATE)),
    ("port", ValueError, lambda: towline.serve(idle, port=65536, certificate=CERTIFICATE)),
    ("certificate", TypeError, lambda: towline.serve(idle, certificate=CHAIN)),
    ("origins", TypeError, lambda: towline.serve(idle, certificate=CERTIFICATE, origins="x")),
    ("origins", TypeError, lambda: towline.serve(idle, certificate=CERTIFICATE, origins=[5])),
    ("protocols", TypeError, lambda: towline.serve(idle, certificate=CERTIFICATE, protocols=5)),
    ("protocols", ValueError, lambda: towline.serve(idle, certificate=CERTIFICATE, protocols=[""])),
    ("grace", TypeError, lambda: towline.serve(idle, certificate=CERTIFICATE, grace="10")),
    ("grace", ValueError, lambda: towline.serve(idle, certificate=CERTIFICATE, grace=-1)),
    ("grace", ValueError, lambda: towline.serve(idle, certificate=CERTIFICATE, grace=float("nan"))),
]


@pytest.mark.parametrize("argument, kind, call", FUNCTIONS)
def test_functions_name_the_argument(argument, kind, call):
    with pytest.raises(kind) as raised:
        call()
    assert f"'{argument}'" in named(raised)


@pytest.mark.keeps_thread
@pytest.mark.parametrize("timeout, kind", [("1", TypeError), (-1, ValueError)])
def test_a_timeout_that_is_none_begins_nothing(timeout, kind):
    with pytest.raises(kind, match="'timeout'"):
        towline.sync.connect(URL, timeout=timeout)


# Called with a session, a stream of it, and its server.
METHODS: list[Case] = [
    ("send_order", TypeError, lambda s, b, _: s.create_bidirectional_stream("5")),
    ("send_order", TypeError, lambda s, b, _: s.create_bidirectional_stream(1.5)),
    ("send_order", ValueError, lambda s, b, _: s.create_bidirectional_stream(2**80)),
    ("send_order", TypeError, lambda s, b, _: s.create_unidirectional_stream(None)),
    ("code", TypeError, lambda s, b, _: s.close("0")),
    ("code", ValueError, lambda s, b, _: s.close(-1)),
    ("code", ValueError, lambda s, b, _: s.aclose(2**32)),
    ("reason", TypeError, lambda s, b, _: s.close(0, b"bytes")),
    ("reason", TypeError, lambda s, b, _: s.aclose(0, None)),
    ("reason", ValueError, lambda s, b, _: s.close(0, "x" * 1025)),
    ("reason", ValueError, lambda s, b, _: s.close(0, "\ud800")),
    ("data", TypeError, lambda s, b, _: s.datagrams.send("text")),
    ("data", TypeError, lambda s, b, _: s.datagrams.send(None)),
    ("max_age", TypeError, lambda s, b, _: s.datagrams.send(b"", max_age="1")),
    ("max_age", ValueError, lambda s, b, _: s.datagrams.send(b"", max_age=-1)),
    ("max_age", ValueError, lambda s, b, _: s.datagrams.send(b"", max_age=float("nan"))),
    ("send_order", TypeError, lambda s, b, _: s.datagrams.send(b"", send_order="1")),
    ("send_order", OverflowError, lambda s, b, _: s.datagrams.send(b"", send_order=2**80)),
    ("data", TypeError, lambda s, b, _: s.datagrams.send_wait(5)),
    ("data", TypeError, lambda s, b, _: b.write("text")),
    ("data", TypeError, lambda s, b, _: b.write(5)),
    ("data", TypeError, lambda s, b, _: b.write([1, 2])),
    ("data", BufferError, lambda s, b, _: b.write(memoryview(b"abcd")[::2])),
    ("code", TypeError, lambda s, b, _: b.reset(None)),
    ("code", ValueError, lambda s, b, _: b.reset(2**32)),
    ("code", TypeError, lambda s, b, _: b.stop(1.0)),
    ("code", ValueError, lambda s, b, _: b.stop(-1)),
    ("send_order", TypeError, lambda s, b, _: b.set_send_order("1")),
    ("send_order", OverflowError, lambda s, b, _: b.set_send_order(2**80)),
    ("n", TypeError, lambda s, b, _: b.read(None)),
    ("n", TypeError, lambda s, b, _: b.read(1.5)),
    ("n", OverflowError, lambda s, b, _: b.read(2**80)),
    ("n", TypeError, lambda s, b, _: b.readexactly("5")),
    ("n", ValueError, lambda s, b, _: b.readexactly(-1)),
    ("separator", TypeError, lambda s, b, _: b.readuntil("\n")),
    ("separator", ValueError, lambda s, b, _: b.readuntil(b"")),
    ("limit", TypeError, lambda s, b, _: b.readuntil(b"\n", "5")),
    ("limit", ValueError, lambda s, b, _: b.readuntil(b"\n", -1)),
    ("buffer", TypeError, lambda s, b, _: b.readinto(b"read only")),
    ("buffer", TypeError, lambda s, b, _: b.readinto("text")),
    ("limit", TypeError, lambda s, b, _: b.lines("5")),
    ("limit", ValueError, lambda s, b, _: b.lines(0)),
    ("n", TypeError, lambda s, b, _: b.chunks(None)),
    ("n", ValueError, lambda s, b, _: b.chunks(0)),
    ("grace", TypeError, lambda s, b, server: server.drain("5")),
    ("grace", ValueError, lambda s, b, server: server.drain(-5)),
]


def test_methods_name_the_argument_and_leave_everything_as_it_was():
    async def main() -> None:
        async with towline.serve(echo, "127.0.0.1", certificate=CERTIFICATE) as server:
            async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
                stream = await session.create_bidirectional_stream()
                await stream.write(b"abc")
                before = (await session.get_stats()).streams_opened
                for argument, kind, call in METHODS:
                    with pytest.raises(kind) as raised:
                        result = call(session, stream, server)
                        if asyncio.iscoroutine(result):
                            await result
                    assert f"'{argument}'" in named(raised), raised.value
                # Neither a stream was opened, nor a byte taken, nor anything ended.
                assert (await session.get_stats()).streams_opened == before
                await stream.write(b"def")
                stream.finish()
                assert await stream.read() == b"abcdef"

    asyncio.run(main())


def test_what_only_the_package_makes_is_made_by_nobody_else():
    for kind in (towline.Session, towline.SendStream, towline.ReceiveStream):
        with pytest.raises(TypeError):
            kind()
    with pytest.raises(TypeError):
        towline.Certificate()


def test_a_handler_that_is_no_coroutine_function_is_said(caplog):
    def handler(session: towline.Session) -> None:
        pass

    async def main() -> None:
        async with connected(handler) as session:
            assert (await session.closed).code == towline.FAILED

    asyncio.run(main())
    assert "await" in caplog.text

"""Real browsers against a server in Python.

They run the cases that the tests in Rust have them run: `crates/cli/tests/browsers/cases.js` says
what the page does and what each path of the server is to do, and this what has to come of it. What a
browser lacks is asserted as lacking. Where one is not installed, its test is skipped by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

import towline
from browsers import Content, browsing, installed, site
from conftest import CERTIFICATE

ROOT = Path(__file__).parents[2]
# The browser client's scripts, and the cases.
FOLDERS = {
    "js": ROOT / "web/dist",
    "tests": ROOT / "crates/cli/tests/browsers",
}
KINDS = {".html": "text/html", ".js": "text/javascript"}

# For all cases, on a machine with other work.
PATIENCE = 240.0
# What the server's `/codes` is asked for.
CODES = [0, 7, 255, 256, 300, 65536, 2**32 - 1]

Sending = towline.BidirectionalStream | towline.SendStream
Receiving = towline.BidirectionalStream | towline.ReceiveStream


@dataclass
class Heard:
    """What browsers told the server."""

    resets: list[int | None] = field(default_factory=list)
    stops: list[int | None] = field(default_factory=list)
    closes: list[tuple[int, str]] = field(default_factory=list)
    datagrams: list[bool] = field(default_factory=list)
    dialects: set[str] = field(default_factory=set)
    origins: set[str | None] = field(default_factory=set)

    async def handle(self, session: towline.Session) -> None:
        self.dialects.add(session.dialect)
        self.origins.add(session.origin)
        match session.path.split("/")[1:]:
            case ["echo"]:
                await self.echo(session)
            case ["codes"]:
                await codes(session)
            case ["close", code, reason]:
                session.close(int(code), unquote(reason))
            case ["drain"]:
                session.drain()
                await session.closed
            case ["protocol"]:
                await session.closed
            case ["open", both, one_way, length]:
                await open_streams(session, int(both), int(one_way), int(length))

    async def echo(self, session: towline.Session) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.bidirectional(session, tasks))
                tasks.create_task(self.unidirectional(session, tasks))
                async for datagram in session.datagrams:
                    self.datagrams.append(session.datagrams.send(datagram))
        finally:
            with contextlib.suppress(towline.ConnectionLost):
                closed = await session.closed
                self.closes.append((closed.code, closed.reason))

    async def bidirectional(
        self, session: towline.Session, tasks: asyncio.TaskGroup
    ) -> None:
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(self.mirror(stream, stream))

    async def unidirectional(
        self, session: towline.Session, tasks: asyncio.TaskGroup
    ) -> None:
        async for incoming in session.incoming_unidirectional_streams:
            outgoing = await session.create_unidirectional_stream()
            tasks.create_task(self.mirror(incoming, outgoing))

    async def mirror(self, incoming: Receiving, outgoing: Sending) -> None:
        """Bytes go back, and so do codes, those of stops even while there is nothing to write."""
        copying = asyncio.ensure_future(self.copy(incoming, outgoing))
        stopping = asyncio.ensure_future(outgoing.stopped)
        both = [copying, stopping]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not copying.done() and outgoing.stopped:
                self.stop(incoming, stopping.result())
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def copy(self, incoming: Receiving, outgoing: Sending) -> None:
        try:
            async for chunk in incoming.chunks():
                await outgoing.write(chunk)
            outgoing.finish()
        except towline.StreamReset as error:
            self.resets.append(error.code)
            outgoing.reset(error.code or 0)
        except towline.StreamStopped as error:
            self.stop(incoming, error.code)

    def stop(self, incoming: Receiving, code: int | None) -> None:
        self.stops.append(code)
        incoming.stop(code or 0)


async def codes(session: towline.Session) -> None:
    """Resets and stops streams with the codes that they name."""
    async for stream in session.incoming_bidirectional_streams:
        code = int.from_bytes(await stream.readexactly(8), "big")
        stream.reset(code)
        stream.stop(code)


async def open_streams(session: towline.Session, both: int, one_way: int, length: int) -> None:
    """Opens streams, compares what comes back, and closes with the result."""

    def content(number: int) -> bytes:
        return bytes((number + at) & 0xFF for at in range(length))

    for number in range(one_way):
        outgoing = await session.create_unidirectional_stream()
        await outgoing.write(content(both + number))
        outgoing.finish()
    right = 0
    for number in range(both):
        stream = await session.create_bidirectional_stream()
        await stream.write(content(number))
        stream.finish()
        right += await stream.read() == content(number)
    session.close(int(right != both), f"{right} came back")


def content(about: dict[str, Any]) -> Content:
    """The site of the cases; `about` is what pages are told that ask where WebTransport is."""

    def at(path: str) -> tuple[str, bytes] | None:
        if path == "/towline.json":
            return "application/json", json.dumps(about).encode()
        folder, _, name = path[1:].partition("/")
        file = FOLDERS.get(folder, ROOT) / name
        if folder not in FOLDERS or file.suffix not in KINDS or not file.is_file():
            return None
        return KINDS[file.suffix], file.read_bytes()

    return at


async def found(
    program: str, *, origin: str | None = None, only: str = ""
) -> tuple[dict[str, Any], Heard]:
    """What the page found, and what the server heard that takes pages of `origin` (the site's own)."""
    heard = Heard()
    about: dict[str, Any] = {"pins": [CERTIFICATE.sha256]}
    async with (
        site(content(about)) as pages,
        towline.serve(
            heard.handle,
            "127.0.0.1",
            certificate=CERTIFICATE,
            origins=[origin or pages.origin],
            protocols=["second"],
        ) as server,
    ):
        about["url"] = server.url
        with browsing(program, f"{pages.origin}/tests/cases.html{only}"):
            async with asyncio.timeout(PATIENCE):
                result = await pages.result
        assert heard.origins <= {pages.origin}
    return result, heard


def program(*names: str) -> str:
    found = installed(*names)
    if found is None:
        pytest.skip(f"{names[0]} is not installed (make setup-system)")
    return found


def check(found: dict[str, Any], heard: Heard) -> None:
    """What every browser has to find."""
    cases = found["cases"]
    assert cases["open by certificate hash"]["milliseconds"] > 0, cases
    assert cases["a wrong hash is refused"] == "refused", cases
    assert cases["1,000 streams of 64 KB"]["right"] == 1000, cases
    assert cases["one-way streams"] == 20, cases
    opened = cases["streams that the server opens"]
    assert opened == {"right": 20, "ended": 0, "reason": "10 came back"}, cases
    # On a busy machine Firefox drops many that the server has sent back.
    assert cases["datagrams come back"]["received"] > 0, cases
    assert all(heard.datagrams) and len(heard.datagrams) >= 450, len(heard.datagrams)
    closed = cases["the server closes with code and reason"]
    assert (closed["clean"], closed["code"], closed["reason"]) == (True, 7, "bye bye"), cases
    assert (300, "that is all") in heard.closes, heard
    assert cases["other sessions live on"] is True, cases
    assert {0, 7, 255} <= set(heard.resets), heard
    assert cases["codes that the page sends"]["300"] == "RangeError", cases


def test_chromium_finds_everything_but_what_it_keeps_behind_a_flag() -> None:
    result, heard = asyncio.run(found(program("chromium")))
    check(result, heard)
    cases = result["cases"]
    assert heard.dialects == {"draft-02"}
    assert cases["datagrams come back"]["received"] >= 450, cases
    assert cases["subprotocol"] == "second", cases
    assert cases["draining"] == "lacking", cases
    assert {0, 7, 255} <= set(heard.stops), heard
    for code in [0, 7, 255]:
        assert cases["codes that the page sends"][str(code)]["reset"] == code, cases
    for code in CODES:
        came = cases["codes that the server sends"][str(code)]
        assert came["reset"] == code, came
        # It may notice the stream's end before it notices the code.
        assert came["stop"] in (code, "no code"), came


def test_firefox_finds_everything_but_what_it_lacks() -> None:
    result, heard = asyncio.run(found(program("firefox-esr", "firefox")))
    check(result, heard)
    cases = result["cases"]
    assert heard.dialects == {"draft-02"}
    assert result["features"]["protocols"] is False
    assert cases["draining"] == "lacking", cases
    # It stops streams with a code of HTTP/3, whatever the page says.
    assert set(heard.stops) <= {None}, heard
    for code in CODES:
        came = cases["codes that the server sends"][str(code)]
        told = code if code <= 255 else 0
        # It seldom tells the page the code of a reset.
        assert came["reset"] in (told, "no code"), came
        assert came["stop"] == told, came


def test_a_page_of_another_origin_is_refused() -> None:
    case = "open by certificate hash"
    elsewhere = found(
        program("chromium"), origin="https://app.example", only=f"?only={quote(case)}"
    )
    result, heard = asyncio.run(elsewhere)
    assert heard.dialects == set()
    assert list(result["cases"]) == [case]
    assert "ConnectError" in result["cases"][case]["failed"], result

"""Headless browsers, and the pages that tests have them open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

# The longest result that a page may post.
LONGEST = 1 << 20

Content = Callable[[str], tuple[str, bytes] | None]
"""What a site has at a path: its media type and its bytes."""

# WebTransport on, and nothing that talks to anybody else.
FIREFOX_PREFERENCES: dict[str, bool | str] = {
    "network.http.http3.enable": True,
    "network.webtransport.enabled": True,
    "network.webtransport.datagrams.enabled": True,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.enabled": False,
    "app.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "extensions.update.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
}


def installed(*names: str) -> str | None:
    """The first of these programs that is here."""
    return next(filter(None, map(shutil.which, names)), None)


@contextlib.contextmanager
def browsing(program: str, url: str, *flags: str) -> Iterator[None]:
    """Has the browser show a page, with a profile of its own."""
    with tempfile.TemporaryDirectory(
        prefix="towline-browser-", ignore_cleanup_errors=True
    ) as profile:
        firefox = "firefox" in Path(program).name
        command = [program, *(_firefox(profile) if firefox else _chromium(profile)), *flags, url]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Its helper processes end with it.
            start_new_session=True,
            env={**os.environ, "HOME": profile},
        )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _chromium(profile: str) -> list[str]:
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu"]
    flags += ["--disable-dev-shm-usage", "--no-first-run"]
    return [*flags, f"--user-data-dir={profile}"]


def _firefox(profile: str) -> list[str]:
    lines = [
        f'user_pref("{name}", {json.dumps(value)});\n'
        for name, value in FIREFOX_PREFERENCES.items()
    ]
    Path(profile, "user.js").write_text("".join(lines))
    return ["--headless", "--no-remote", "--profile", profile]


class Site:
    """Pages over plain HTTP, and where they post what they found."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.origin = ""
        self._answering: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request; a browser that goes away in the middle of it is no fault of ours."""
        if task := asyncio.current_task():
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        with contextlib.suppress(OSError, EOFError, ValueError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split("\r\n")[0].split(" ")
            length = 0
            for line in head.lower().split("\r\n"):
                if line.startswith("content-length:"):
                    length = min(int(line.partition(":")[2]), LONGEST)
            body = await reader.readexactly(length)
            status, kind, content = self._answer_to(method, target.partition("?")[0], body)
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode()
                + content
            )
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def wait_idle(self) -> None:
        """Until the browser, which ended, has left its connections."""
        if self._answering:
            await asyncio.wait(self._answering, timeout=10)

    def _answer_to(self, method: str, path: str, body: bytes) -> tuple[str, str, bytes]:
        if (method, path) == ("POST", "/result"):
            if not self.result.done():
                self.result.set_result(json.loads(body))
            return "204 No Content", "text/plain", b""
        if found := self._content(path):
            return "200 OK", *found
        return "404 Not Found", "text/plain", b""


@contextlib.asynccontextmanager
async def site(content: Content) -> AsyncIterator[Site]:
    """A site on a free port of the loopback interface."""
    pages = Site(content)
    server = await asyncio.start_server(pages.serve, "127.0.0.1", 0)
    async with server:
        pages.origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield pages
        await pages.wait_idle()

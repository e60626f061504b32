"""A page in a browser and a client in Python talk through one server.

    python browser_chat.py           two clients in Python say ahoy to each other
    python browser_chat.py --page    the client waits for a page: open the address that is printed,
                                     and close the page to end the program

Everybody has one stream, on which lines go both ways; each line goes to all the others.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import towline

# Lines that may wait for a member who does not read; more are lost to that member.
BACKLOG = 64
LONGEST_LINE = 1024
# How long a page may take to come, seconds.
PATIENCE = 120

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Python and a browser</title>
<style>
  body { font: 18px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; }
  p { margin: 0.3rem 0; padding: 0.3rem 0.8rem; background: #8883; border-radius: 0.5rem; }
  .mine { margin-left: 6rem; background: #48f4; }
  input { font: inherit; width: 100%; margin-top: 1rem; }
</style>
<h1>Python and a browser</h1>
<div id="lines"></div>
<form><input placeholder="Say something" autofocus></form>
<script type="module">
  const { url, hash } = ABOUT;
  const value = Uint8Array.from(hash.match(/../g), (digits) => parseInt(digits, 16));
  const options = { serverCertificateHashes: [{ algorithm: "sha-256", value }] };
  const session = new WebTransport(url, options);
  await session.ready;
  addEventListener("pagehide", () => session.close());
  const stream = await session.createBidirectionalStream();
  const writer = stream.writable.getWriter();

  function show(line, mine) {
    const shown = document.createElement("p");
    shown.textContent = line;
    shown.className = mine ? "mine" : "";
    document.getElementById("lines").append(shown);
  }
  function say(words) {
    const line = `page: ${words}`;
    show(line, true);
    return writer.write(new TextEncoder().encode(line + "\\n"));
  }
  document.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    say(event.target[0].value);
    event.target.reset();
  };

  await say("ahoy");
  const met = new Set();
  let unread = "";
  try {
    for await (const text of stream.readable.pipeThrough(new TextDecoderStream())) {
      const lines = (unread + text).split("\\n");
      unread = lines.pop();
      for (const line of lines) {
        show(line, false);
        const name = line.split(": ")[0];
        if (!met.has(name)) {
          met.add(name);
          await say(`ahoy ${name}`);
        }
      }
    }
  } catch (error) {
    show(`The server is gone: ${error.message}`, false);
  }
</script>
"""


class Room:
    """Everybody who is there, each with the lines that wait for him."""

    def __init__(self) -> None:
        self.members: set[asyncio.Queue[bytes]] = set()
        self.empty = asyncio.Event()

    async def handle(self, session: towline.Session) -> None:
        stream = await anext(session.incoming_bidirectional_streams)
        mine: asyncio.Queue[bytes] = asyncio.Queue(BACKLOG)
        self.members.add(mine)
        self.empty.clear()
        writing = asyncio.create_task(self.write(stream, mine))
        try:
            async with stream:
                async for line in stream.lines(LONGEST_LINE):
                    print(line.decode(errors="replace").rstrip(), flush=True)
                    for member in self.members - {mine}:
                        with contextlib.suppress(asyncio.QueueFull):
                            member.put_nowait(line)
        finally:
            self.members.discard(mine)
            writing.cancel()
            if not self.members:
                self.empty.set()

    async def write(
        self, stream: towline.BidirectionalStream, lines: asyncio.Queue[bytes]
    ) -> None:
        with contextlib.suppress(towline.StreamError, towline.SessionClosed):
            while True:
                await stream.write(await lines.get())


async def talk(url: str, certificate: towline.Certificate, name: str) -> None:
    """Says ahoy, answers whoever does, and leaves when somebody has answered."""
    async with towline.connect(url, pins=[certificate]) as session:
        stream = await session.create_bidirectional_stream()
        await stream.write(f"{name}: ahoy\n".encode())
        met: set[str] = set()
        async for line in stream.lines(LONGEST_LINE):
            other, _, words = line.decode(errors="replace").rstrip().partition(": ")
            if other not in met:
                met.add(other)
                await stream.write(f"{name}: ahoy {other}\n".encode())
            if words == f"ahoy {name}":
                break
        stream.finish()


@contextlib.contextmanager
def page(url: str, certificate: towline.Certificate) -> Iterator[str]:
    """The page, over plain HTTP at a free port of this machine, and its address."""
    about = json.dumps({"url": url, "hash": certificate.sha256})
    body = PAGE.replace("ABOUT", about).encode()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{site.server_port}/"
        finally:
            site.shutdown()


async def main(with_page: bool) -> None:
    certificate = towline.generate_certificate("127.0.0.1")
    room = Room()
    async with towline.serve(room.handle, "127.0.0.1", certificate=certificate) as server:
        url = f"{server.url}/chat"
        with page(url, certificate) as address:
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as talks:
                talks.create_task(talk(url, certificate, "python"))
                if with_page:
                    print(f"the page is at {address}", flush=True)
                else:
                    talks.create_task(talk(url, certificate, "another python"))
            await room.empty.wait()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--page", action="store_true", help="wait for a page in a browser")
    try:
        asyncio.run(main(arguments.parse_args().page))
    except TimeoutError:
        sys.exit(f"nobody answered within {PATIENCE} s")

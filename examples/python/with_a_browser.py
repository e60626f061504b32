"""A page that talks with a Python server over WebTransport.

Without arguments it asks for its own page and talks as the page would, then ends. With `--stay` it prints
where the page is, for a browser on this machine: pages of http://127.0.0.1 are secure contexts.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys

import towline

PAGE = """<!doctype html>
<title>Towline</title>
<h1>Python says: <output>nothing yet</output></h1>
<script type="module">
const pin = "{pin}";
const transport = new WebTransport("{url}", {{
  serverCertificateHashes: [
    {{ algorithm: "sha-256", value: Uint8Array.from(pin.match(/../g), (two) => parseInt(two, 16)) }},
  ],
}});
const shown = document.querySelector("output");
try {{
  await transport.ready;
  const {{ readable, writable }} = await transport.createBidirectionalStream();
  const writer = writable.getWriter();
  await writer.write(new TextEncoder().encode("hello from the page\\n"));
  await writer.close();
  shown.value = await new Response(readable).text();
}} catch (error) {{
  shown.value = error;
}}
</script>
"""


async def greet(session: towline.Session) -> None:
    """Answers the page's streams; `session.origin` says which page it is."""
    async for stream in session.incoming_bidirectional_streams:
        async with stream:
            # To its end: a page whose stream is left before sees its writes fail.
            async for line in stream.lines(limit=1000):
                await stream.write(f"you said {line.decode().strip()!r}".encode())


async def send_page(writer: asyncio.StreamWriter, page: str) -> None:
    """The page, over plain HTTP/1.1: any web server does."""
    body = page.encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n"
    writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
    await writer.drain()


async def as_the_page_would(port: int) -> None:
    """What a browser does with the page."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    page = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    pin, url = re.findall(r'pin = "(.*?)"|WebTransport\("(.*?)"', page)
    origin = {"origin": f"http://127.0.0.1:{port}"}
    async with towline.connect(url[1], pins=[pin[0]], headers=origin) as session:
        async with await session.create_bidirectional_stream() as stream:
            await stream.write(b"hello from the page\n")
            stream.finish()
            print((await stream.read()).decode())


async def main(stays: bool) -> None:
    """The page's server and the sessions' server."""
    certificate = towline.generate_certificate("localhost")
    page = ""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Browsers also open connections that they do not use.
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await send_page(writer, page)
        writer.close()

    pages = await asyncio.start_server(answer, "127.0.0.1")
    port = pages.sockets[0].getsockname()[1]
    origins = [f"http://127.0.0.1:{port}"]
    async with (
        pages,
        towline.serve(greet, "localhost", certificate=certificate, origins=origins) as server,
    ):
        page = PAGE.format(url=server.url, pin=certificate.sha256)
        if stays:
            print(f"open {origins[0]}/ in a browser on this machine; Ctrl-C ends this", flush=True)
            await server.serve_forever()
        else:
            await as_the_page_would(port)


asyncio.run(main("--stay" in sys.argv[1:]))

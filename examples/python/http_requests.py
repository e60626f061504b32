"""HTTP/3: requests beside sessions on one port, with bodies that are streamed both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import towline
from towline import http


async def sessions(session: towline.Session) -> None:
    """This server has sessions, too; here they only wait for their end."""
    await session.closed


async def requests(request: http.Request) -> None:
    if request.method == "POST":
        total = 0
        async with request.start(200, {"content-type": "text/plain"}) as body:
            async for chunk in request:
                total += len(chunk)
                await body.write(b"got %d bytes\n" % total)
            await body.finish(trailers={"total": str(total)})
    else:
        await request.respond(200, b"you asked for " + request.path.encode())


async def positions() -> AsyncIterator[bytes]:
    for minute in range(3):
        yield b"60.1,24.%d\n" % minute
        await asyncio.sleep(0.01)


async def main() -> None:
    certificate = towline.generate_certificate("localhost")
    async with towline.serve(sessions, port=0, certificate=certificate, http=requests) as server:
        pins = [certificate]
        response = await http.get(f"{server.url}/log?day=1", pins=pins)
        print(response.status, (await response.read()).decode())
        # On the same connection: it is kept.
        async with http.request(
            "POST", f"{server.url}/log", body=positions(), pins=pins
        ) as response:
            async for line in response.lines():
                print(line.decode().strip())
            print(response.trailers)
        await http.aclose()


asyncio.run(main())

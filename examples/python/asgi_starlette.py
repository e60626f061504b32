"""Starlette over HTTP/3, and WebTransport sessions beside it on the same port."""

from __future__ import annotations

import asyncio
import sys

import towline
from towline import asgi, http

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route
except ImportError:
    print("SKIPPED: starlette is not installed: pip install starlette")
    sys.exit(0)


async def position(request: Request) -> JSONResponse:
    return JSONResponse({"boat": request.path_params["boat"], "latitude": 60.1})


async def chat(session: towline.Session) -> None:
    async for stream in session.incoming_bidirectional_streams:
        async with stream:
            await stream.write((await stream.read()).upper())


async def main() -> None:
    app = Starlette(routes=[Route("/boats/{boat}", position)])
    certificate = towline.generate_certificate("localhost")
    async with asgi.serve(
        app, port=0, certificate=certificate, webtransport=asgi.sessions(chat)
    ) as server:
        response = await http.get(f"{server.url}/boats/anna", pins=[certificate])
        print(response.status, (await response.read()).decode())
        async with towline.connect(f"{server.url}/chat", pins=[certificate]) as session:
            async with await session.create_bidirectional_stream() as stream:
                await stream.write(b"ahoy")
                stream.finish()
                print((await stream.read()).decode())
        await http.aclose()


asyncio.run(main())

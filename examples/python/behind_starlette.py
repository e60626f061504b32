"""A Starlette application over TCP, as before, and WebTransport sessions beside it in the same loop.

Sessions and requests share what the program knows: here a request is told to every session.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import towline

listeners: set[towline.Session] = set()


async def listen(session: towline.Session) -> None:
    """A session stays among the listeners until it ends."""
    listeners.add(session)
    try:
        await session.closed
    finally:
        listeners.discard(session)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Sessions are served as long as the application runs."""
    certificate = towline.generate_certificate("localhost")
    async with towline.serve(listen, "localhost", certificate=certificate) as server:
        app.state.where = {"url": server.url, "pin": certificate.sha256}
        yield


async def where(request: Request) -> JSONResponse:
    """What a page needs to connect."""
    return JSONResponse(request.app.state.where)


async def say(request: Request) -> JSONResponse:
    """Tells every session."""
    words = request.query_params["words"].encode()
    told = [session.datagrams.send(words, max_age=1) for session in listeners]
    return JSONResponse({"told": sum(told)})


app = Starlette(routes=[Route("/where", where), Route("/say", say)], lifespan=lifespan)


async def get(port: int, path: str) -> dict[str, str]:
    """A request over TCP, as any client makes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    body: dict[str, str] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return body


async def main() -> None:
    """The server, a page's request, and the session that it opens."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, ws="none", http="h11", lifespan="on", log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    port = listening.getsockname()[1]
    found = await get(port, "/where")
    async with towline.connect(found["url"], pins=[found["pin"]]) as session:
        while not listeners:
            await asyncio.sleep(0.01)
        print(await get(port, "/say?words=ahoy"))
        print(await session.datagrams.receive())
    server.should_exit = True
    await serving


asyncio.run(main())

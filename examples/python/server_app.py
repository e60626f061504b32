"""An app: routes with parameters, middleware that checks a token, and who is refused."""

from __future__ import annotations

import asyncio
import logging
import sys

import towline
from towline.app import RateLimit, Request, ServerApp, authenticate, log_sessions

USERS = {"s3cret": "ann"}

app = ServerApp()
app.use(log_sessions())
app.use(RateLimit(rate=10, burst=20))
app.use(authenticate(USERS.get, query="token"))


@app.route("/rooms/{room}")
async def room(session: towline.Session, request: Request) -> None:
    """Greets whoever comes."""
    user, name = request.state["user"], request.params["room"]
    async with await session.create_unidirectional_stream() as stream:
        await stream.write(f"{user} is in {name}".encode())
    await session.closed


@app.on_startup
async def prepare() -> None:
    """Where a database would be opened."""
    print("starting")


@app.on_shutdown
async def finish() -> None:
    """Where it would be closed."""
    print("stopped")


async def main() -> None:
    certificate = towline.generate_certificate("127.0.0.1")
    async with app.serve("127.0.0.1", 0, certificate=certificate) as server:
        url = f"{server.url}/rooms/galley?token=s3cret"
        async with towline.connect(url, pins=[certificate]) as session:
            stream = await anext(session.incoming_unidirectional_streams)
            print((await stream.read()).decode())
        for path in ("/rooms/galley", "/rooms/galley?token=wrong", "/cellar?token=s3cret"):
            try:
                async with towline.connect(server.url + path, pins=[certificate]):
                    print("let in?")
            except towline.HandshakeRefused as error:
                print(path, error.status)


logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
asyncio.run(main())

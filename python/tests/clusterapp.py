"""What the workers of `test_cluster.py` serve."""

from __future__ import annotations

import asyncio
import os
import time

import towline
from towline.app import Request, ServerApp

app = ServerApp()


async def who(session: towline.Session) -> None:
    """Says which process it is, then echoes lines; "die" ends the process at once."""
    async with asyncio.TaskGroup() as tasks:
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(answer(stream))


async def answer(stream: towline.BidirectionalStream) -> None:
    async with stream:
        async for line in stream.lines():
            if line == b"die\n":
                os._exit(9)
            if line == b"fork\n" and os.fork() == 0:
                # A child that outlives its parent, with all that the parent had open.
                time.sleep(5)
                os._exit(0)
            await stream.write(b"%d %s" % (os.getpid(), line))


@app.route("/")
async def route(session: towline.Session, request: Request) -> None:
    await who(session)


async def stubborn(session: towline.Session) -> None:
    """Goes on whatever happens."""
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass


not_served = 3

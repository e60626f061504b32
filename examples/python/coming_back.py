"""A client that comes back while its server restarts."""

from __future__ import annotations

import asyncio

import towline
from towline import reconnect
from towline.reconnect import Backoff, State


async def greet(session: towline.Session) -> None:
    async with await session.create_unidirectional_stream() as stream:
        await stream.write(b"ahoy")
    await session.closed


def told(state: State, detail: object) -> None:
    if state is not State.CONNECTED:
        print(state.value, f"{detail:.3f} s" if isinstance(detail, float) else detail)


async def main() -> None:
    certificate = towline.generate_certificate("127.0.0.1")
    server = await towline.serve(greet, "127.0.0.1", certificate=certificate)
    seen = 0
    client = reconnect.sessions(
        server.url,
        pins=[certificate],
        backoff=Backoff(initial=0.1, maximum=0.5, attempts=20),
        on_state=told,
    )
    async with client:
        async for session in client:
            stream = await anext(session.incoming_unidirectional_streams)
            print("session", client.connected, (await stream.read()).decode())
            seen += 1
            if seen == 2:
                break
            await server.close()
            port = server.port
            server = await towline.serve(greet, "127.0.0.1", port, certificate=certificate)
    await server.close()


asyncio.run(main())

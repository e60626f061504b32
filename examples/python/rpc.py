"""Calls in both directions, errors, and a call that is given up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import towline
from towline.messaging import Methods, Peer, RpcError, RpcTimeout


@dataclass
class Ship:
    name: str
    length: float


methods = Methods()
near = Methods()


@methods.method()
async def register(ship: Ship) -> str:
    """A parameter is read as its type says."""
    return f"{ship.name}, {ship.length} m"


@methods.method()
async def wait(seconds: float) -> None:
    """It is cancelled when the caller gives up."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        print("the caller gave up")
        raise


@methods.method()
async def ask(peer: Peer) -> str:
    """Calls the one who calls."""
    return f"{await peer.call('name', result=str)} asked"


@near.method()
def name() -> str:
    """What the client says of itself."""
    return "Beatrice"


async def handler(session: towline.Session) -> None:
    await Peer(session, methods).serve()


async def main() -> None:
    certificate = towline.generate_certificate("127.0.0.1")
    async with towline.serve(handler, "127.0.0.1", certificate=certificate) as server:
        async with towline.connect(server.url, pins=[certificate]) as session:
            async with Peer(session, near) as peer:
                print(await peer.call("register", [Ship("Beatrice", 9.5)], result=str))
                print(await peer.call("ask", result=str))
                try:
                    await peer.call("register", {"ship": {"name": 3, "length": 1}})
                except RpcError as error:
                    print(error.code, error)
                try:
                    await peer.call("wait", [60], timeout=0.2)
                except RpcTimeout as error:
                    print(error)
                await asyncio.sleep(0.1)


asyncio.run(main())

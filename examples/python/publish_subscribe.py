"""A broker, its subscribers, one of whom is slow, and a datagram for all."""

from __future__ import annotations

import asyncio

import towline
from towline.messaging import Broker, Peer, SlowSubscriber, broadcast


def permit(peer: Peer, action: str, topic: str) -> bool:
    """Anybody may listen; only the bridge may speak."""
    return action == "subscribe" or "bridge" in peer.session.path


async def main() -> None:
    broker = Broker(permit=permit)

    async def handler(session: towline.Session) -> None:
        await Peer(session, broker=broker).serve()

    certificate = towline.generate_certificate("127.0.0.1")
    async with towline.serve(handler, "127.0.0.1", certificate=certificate) as server:

        def connect(path: str) -> towline.Connecting:
            return towline.connect(server.url + path, pins=[certificate])

        async with connect("/bridge") as bridge, connect("/crew") as crew:
            speaker, listener = Peer(bridge), Peer(crew)
            async with speaker, listener.subscribe("wind/#", queue=8) as wind:
                for knots in (12, 15):
                    await speaker.publish("wind/true", knots)
                for _ in range(2):
                    message = await anext(wind)
                    print(message.topic, message.data)
            async with listener.subscribe("log", queue=2, policy="close") as slow:
                for line in range(5):
                    broker.publish("log", line)
                try:
                    async for message in slow:
                        print("log", message.data)
                except SlowSubscriber as error:
                    print(error)
            print(broadcast(server.sessions, b"all hands"))
            print(await crew.datagrams.receive())
    print(broker.stats())


asyncio.run(main())

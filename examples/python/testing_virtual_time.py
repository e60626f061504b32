"""A log book over a satellite that fails for a while, in virtual time: minutes pass in a moment.

    python examples/python/testing_virtual_time.py [SEED]

The same seed gives the same lines, to the last digit.
"""

from __future__ import annotations

import asyncio
import sys

import towline
from towline import testing

SATELLITE = testing.Link(delay=0.3, jitter=0.02, rate=1_000_000, loss=0.02)


async def log_book(session: towline.Session) -> None:
    """Acknowledges each line that comes."""
    async for stream in session.incoming_bidirectional_streams:
        async with stream:
            async for line in stream.lines():
                await stream.write(b"noted: " + line)


async def main(world: testing.World) -> None:
    loop = asyncio.get_running_loop()
    async with (
        towline.serve(log_book, "shore", 443, certificate=world.certificate) as server,
        towline.connect(server.url, pins=[world.certificate]) as session,
        await session.create_bidirectional_stream() as stream,
    ):
        print(f"{loop.time():9.4f} s  connected")

        async def report(position: str) -> None:
            began = loop.time()
            await stream.write(position.encode() + b"\n")
            answer = (await stream.readuntil()).decode().strip()
            print(f"{loop.time():9.4f} s  {answer!r} after {loop.time() - began:.3f} s")

        await report("60.1 N 24.9 E")
        await asyncio.sleep(15)
        with world.path().outage():
            print(f"{loop.time():9.4f} s  the satellite is gone")
            reporting = asyncio.create_task(report("60.0 N 24.7 E"))
            await asyncio.sleep(20)
        print(f"{loop.time():9.4f} s  it is back")
        await reporting
        for minute in range(10):
            await asyncio.sleep(10)
            await report(f"59.9 N 24.{minute} E")
        stream.finish()


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with testing.simulation(seed=seed, link=SATELLITE, hosts=["boat", "shore"]) as world:
        world.run(main(world))
        stats = world.path().stats
        print(
            f"{stats.datagrams_sent} datagrams: {stats.lost} lost, "
            f"{stats.dropped_in_outage} sent into the outage"
        )

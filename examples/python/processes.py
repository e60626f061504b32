"""A server of two processes on one port; one is killed, and only its clients notice."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import towline
from towline.cluster import Cluster, WorkerState


async def handler(session: towline.Session) -> None:
    """Says which process it is."""
    async for stream in session.incoming_bidirectional_streams:
        async with stream:
            async for _ in stream.lines():
                await stream.write(b"%d\n" % os.getpid())


async def main() -> None:
    certificate = towline.generate_certificate("127.0.0.1")
    cluster = Cluster(handler, "127.0.0.1", certificate=certificate, workers=2, grace=1)
    async with cluster:
        streams: dict[int, towline.BidirectionalStream] = {}
        sessions = []
        while len(streams) < 2:
            session = await towline.connect(cluster.url, pins=[certificate])
            stream = await session.create_bidirectional_stream()
            await stream.write(b"who?\n")
            pid = int(await stream.readuntil())
            if pid in streams:
                stream.finish()
                await session.aclose()
            else:
                streams[pid] = stream
                sessions.append(session)
        print("both processes have clients")
        victim, other = streams
        os.kill(victim, signal.SIGKILL)
        while not any(
            worker.restarts and worker.state is WorkerState.RUNNING for worker in cluster.workers
        ):
            await asyncio.sleep(0.02)
        await streams[other].write(b"who?\n")
        print("the other one still answers:", int(await streams[other].readuntil()) == other)
        try:
            await streams[victim].write(b"who?\n")
            await streams[victim].readuntil()
        except towline.ConnectionLost as error:
            print("the killed one's client:", error)
        streams[other].finish()
        for session in sessions:
            await session.aclose()
    print([worker.restarts for worker in cluster.workers].count(1), "was restarted")


# Workers import this file, and must not run it.
if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    asyncio.run(main())

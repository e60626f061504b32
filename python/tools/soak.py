"""Many sessions, and many reads that are cancelled: does memory grow?

    python python/tools/soak.py [SESSIONS [READS]]

Opens and closes sessions over the loopback interface, ten at a time, with a stream and a datagram in each,
then cancels reads on one stream, and prints the resident memory as it goes. Ends with 1 when it grows by more
than 5 % after the first 500 sessions, or after the first tenth of the reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time

import towline

__all__: list[str] = []

_SETTLED = 500
_MOST_GROWTH = 1.05
_AT_ONCE = 10


def _resident() -> int:
    """Kilobytes."""
    gc.collect()
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    sys.exit("no VmRSS in /proc/self/status")


async def _echo(session: towline.Session) -> None:
    async for stream in session.incoming_bidirectional_streams:
        with contextlib.suppress(towline.StreamError):
            async with stream:
                await stream.write(await stream.read())


async def _session(url: str, pin: towline.Certificate) -> None:
    async with towline.connect(url, pins=[pin]) as session:
        session.datagrams.send(b"lost or not")
        async with await session.create_bidirectional_stream() as stream:
            await stream.write(b"x" * 100)
            stream.finish()
            assert await stream.read() == b"x" * 100


def _report(what: str, count: int, before: int, begun: float) -> int:
    now = _resident()
    growth = f", {now / before - 1:+.2%}" if before else ""
    print(f"{what} {count}: {now} kB{growth}, {time.monotonic() - begun:.1f} s", flush=True)
    return now


async def _sessions(count: int) -> bool:
    certificate = towline.generate_certificate("localhost", "127.0.0.1")
    begun, before, now = time.monotonic(), 0, 0
    async with towline.serve(_echo, "127.0.0.1", certificate=certificate) as server:
        for done in range(_AT_ONCE, count + 1, _AT_ONCE):
            await asyncio.gather(*(_session(server.url, certificate) for _ in range(_AT_ONCE)))
            if done == _SETTLED or (done % (count // 10) == 0 and done > _SETTLED):
                # Connections that were closed drain for three PTOs.
                await asyncio.sleep(1)
                now = _report("sessions", done, before, begun)
                before = before or now
    return now <= before * _MOST_GROWTH


async def _cancelled_reads(count: int) -> bool:
    certificate = towline.generate_certificate("localhost", "127.0.0.1")
    begun, before, now = time.monotonic(), 0, 0
    async with (
        towline.serve(_echo, "127.0.0.1", certificate=certificate) as server,
        towline.connect(server.url, pins=[certificate]) as session,
    ):
        stream = await session.create_bidirectional_stream()
        for done in range(100, count + 1, 100):
            reads = [asyncio.ensure_future(stream.read(1)) for _ in range(100)]
            await asyncio.sleep(0)
            for read in reads:
                read.cancel()
            await asyncio.wait(reads)
            if done % max(count // 10, 100) == 0:
                now = _report("cancelled reads", done, before, begun)
                before = before or now
        stream.reset()
    return now <= before * _MOST_GROWTH


def main(arguments: list[str]) -> int:
    """Both, and the exit code."""
    sessions, reads = [int(text) for text in arguments] + [10_000, 100_000][len(arguments) :]
    flat = [asyncio.run(_sessions(sessions)), asyncio.run(_cancelled_reads(reads))]
    print("memory is flat" if all(flat) else "memory grows")
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Snapshots of a server, an alert with hysteresis, and Prometheus's text."""

from __future__ import annotations

import asyncio

import towline
from towline.monitor import Alert, AlertEvent, Monitor, process_values, server_values


async def handler(session: towline.Session) -> None:
    await session.closed


def told(event: AlertEvent) -> None:
    print(event.alert.name, "begins" if event.active else "ends", "at", event.value)


async def main() -> None:
    certificate = towline.generate_certificate("127.0.0.1")
    async with towline.serve(handler, "127.0.0.1", certificate=certificate) as server:
        monitor = Monitor(process_values, lambda: server_values(server), interval=0.02)
        monitor.alert(Alert("crowd", "towline_sessions", above=2, clear=1), told)
        async with monitor:
            sessions = [await towline.connect(server.url, pins=[certificate]) for _ in range(3)]
            while not monitor.active_alerts:
                await asyncio.sleep(0.01)
            for session in sessions:
                await session.aclose()
            while monitor.active_alerts:
                await asyncio.sleep(0.01)
        text = monitor.prometheus()
    print(*(line for line in text.splitlines() if "towline_sessions" in line), sep="\n")


asyncio.run(main())

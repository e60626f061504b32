"""Programs in virtual time: client, server and a lossy network in one process, from one seed.

    from towline import testing

    link = testing.Link(delay=0.3, rate=1_000_000, loss=0.02)
    with testing.simulation(seed=7, link=link) as world:
        world.run(main())

In `main` all of towline and asyncio works as ever; hosts have names (`client` and `server`, if
nothing else is said), and hours pass in a moment. `docs/python/testing.md` tells the rest.
"""

from __future__ import annotations

from ._link import BurstLoss, Link, LinkStats, Nat, NetworkStats
from ._loop import VirtualLoop
from ._stuck import Deadlock, SimulationError, TimeLimit
from ._world import Direction, Host, Path, Sent, World, simulation

__all__ = [
    "BurstLoss",
    "Deadlock",
    "Direction",
    "Host",
    "Link",
    "LinkStats",
    "Nat",
    "NetworkStats",
    "Path",
    "Sent",
    "SimulationError",
    "TimeLimit",
    "VirtualLoop",
    "World",
    "simulation",
]

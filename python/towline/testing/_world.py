"""`simulation`: a world of simulated hosts and links, and the loop on which programs run in it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import errno
import functools
import hashlib
import ipaddress
import itertools
import random
import re
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from .. import _native
from .._certificates import Certificate
from .._errors import UsageError
from ._link import Link, LinkStats, Nat, NetworkStats
from ._loop import _LAST, _NANOS, VirtualLoop
from ._stuck import SimulationError

__all__ = ["Direction", "Host", "Path", "Sent", "World", "simulation"]

_T = TypeVar("_T")

# Virtual seconds that a run may take unless it says otherwise.
_LIMIT = 86_400.0
# Virtual seconds that tasks which were cancelled have to end.
_GRACE = 3600.0
# Where ports begin that nobody asked for (RFC 6335 §6).
_FIRST_PORT = 49152
_LAST_PORT = 65535
_HOSTS_PER_NET = 250
_MAX_HOSTS = 250 * _HOSTS_PER_NET
_MAX_SEED = 2**64 - 1
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_ANYWHERE = ("::", "0.0.0.0")


class Sent(NamedTuple):
    """A datagram that a host sent."""

    time: float
    """When, seconds of virtual time."""
    source: str
    """By whom: `host:port`."""
    destination: str
    """To whom: `host:port`, the host being an address where it is none of the simulation's."""
    size: int
    """Bytes of UDP payload."""


class Host:
    """A simulated host. Its name is what `towline.connect` and `towline.serve` take."""

    __slots__ = ("__weakref__", "_world", "address", "name")

    def __init__(self, world: World, name: str, address: str) -> None:
        self._world = world
        self.name: str = name
        """Its name."""
        self.address: str = address
        """Its address."""

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.address}>"

    @property
    def network(self) -> _native.Network:
        """The network that it is on."""
        return self._world._network

    def rebind(self) -> None:
        """Has the others see all its sockets at other ports from now on, as when its NAT was
        rebooted. What is sent to the former ports is lost; the host itself notices nothing."""
        self.network.rebind(self.address)

    def set_nat(self, nat: Nat | None) -> None:
        """Puts the host behind a NAT, in place of any earlier one, or takes it away."""
        if nat is not None and not isinstance(nat, Nat):
            raise TypeError(f"argument 'nat': a Nat is required, not '{type(nat).__name__}'")
        self.network.set_nat(self.address, None if nat is None else nat._text())

    def claim(self, address: str, port: int) -> tuple[str, int]:
        """Where a socket for `address` and `port` is: any address is this host's, port 0 one that
        is free."""
        address = self.address if address in _ANYWHERE else address
        if all(host.address != address for host in self._world.hosts.values()):
            words = f"{address} is the address of no simulated host ({self._world._known()})"
            raise OSError(errno.EADDRNOTAVAIL, words)
        if port == 0:
            return address, self._world._free_port(address)
        if self.network.is_bound(address, port):
            raise OSError(errno.EADDRINUSE, f"port {port} of {address} is taken in the simulation")
        return address, port


class Direction:
    """One direction of a path."""

    __slots__ = ("_network", "_number", "_outages", "link")

    def __init__(self, network: _native.Network, number: int, link: Link) -> None:
        self._network = network
        self._number = number
        self._outages = 0
        self.link: Link = link
        """What it does to datagrams now."""

    @property
    def stats(self) -> LinkStats:
        """What it has counted until now."""
        return LinkStats(**self._network.link_stats(self._number))

    def change(self, link: Link | None = None, /, **settings: Any) -> None:
        """Has it be `link` from now on, or what it is with other `settings`, named as those of
        `Link`.

        What waits in its queue comes under the new settings, what is on its way arrives as it would
        have. Counters and chance go on.
        """
        changed = dataclasses.replace(_a_link("link", link or self.link), **settings)
        self._network.set_link(self._number, changed._text())
        self.link = changed

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Loses what leaves its queue while `with` lasts."""
        self._cut(1)
        try:
            yield
        finally:
            self._cut(-1)

    def _cut(self, more: int) -> None:
        self._outages += more
        self._network.set_cut(self._number, self._outages > 0)


class Path:
    """The way between two hosts: a link each way."""

    __slots__ = ("backward", "ends", "forward")

    def __init__(self, ends: tuple[str, str], forward: Direction, backward: Direction) -> None:
        self.ends: tuple[str, str] = ends
        """The two hosts."""
        self.forward: Direction = forward
        """From the first to the second."""
        self.backward: Direction = backward
        """From the second to the first."""

    def __repr__(self) -> str:
        return f"<Path {self.ends[0]} – {self.ends[1]}>"

    @property
    def stats(self) -> LinkStats:
        """What both directions have counted together."""
        return self.forward.stats + self.backward.stats

    def change(self, link: Link | None = None, /, **settings: Any) -> None:
        """Changes both directions as `Direction.change` does."""
        for direction in (self.forward, self.backward):
            direction.change(link, **settings)

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Loses what leaves the queues of both directions while `with` lasts."""
        with self.forward.outage(), self.backward.outage():
            yield


class World:
    """Simulated hosts, the paths between them, and a loop in virtual time. `simulation` makes
    it."""

    def __init__(
        self,
        seed: int = 0,
        link: Link | None = None,
        back: Link | None = None,
        hosts: Iterable[str] = ("client", "server"),
        trace: bool = False,
    ) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"argument 'seed': an int is required, not '{type(seed).__name__}'")
        if not 0 <= seed <= _MAX_SEED:
            raise ValueError(f"argument 'seed': 0 to {_MAX_SEED}, not {seed}")
        if isinstance(hosts, str):
            raise TypeError("argument 'hosts': a list is required, not a single value")
        self.seed: int = seed
        """What decides whatever is left to chance."""
        self.random: random.Random = random.Random(seed)
        """A source of chance for the program, from the same seed."""
        self._network = _native.Network(seed)
        self._network.trace_datagrams(trace)
        self._hosts: dict[str, Host] = {}
        self._paths: dict[frozenset[str], Path] = {}
        self._ports = itertools.count(_FIRST_PORT)
        names = list(hosts)
        if not names:
            raise ValueError("argument 'hosts': at least one host is required")
        for name in names:
            self.add_host(name)
        if link is not None:
            for a, b in itertools.combinations(names, 2):
                self.join(a, b, link, back)
        self.loop: VirtualLoop = VirtualLoop(self)
        """The loop."""
        self._runner = asyncio.Runner(loop_factory=lambda: self.loop)

    def __repr__(self) -> str:
        return f"<World of seed {self.seed} at {self.time:.6f} s>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, (KeyboardInterrupt, SystemExit)):
            words = f"towline.testing: seed {self.seed}, after {self.time:.6f} s of virtual time"
            error.add_note(words)
        try:
            self.close()
        except SimulationError:
            # That tasks do not end is the smaller matter then.
            if error is None:
                raise

    @property
    def time(self) -> float:
        """Virtual seconds since the world began; `asyncio`'s `loop.time()` says the same."""
        return self._network.now / _NANOS

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The hosts, by name."""
        return MappingProxyType(self._hosts)

    @property
    def here(self) -> Host:
        """The host that the running code is at: the first one, unless `at` says otherwise."""
        host = _here.get()
        if host is not None and host._world is self:
            return host
        return next(iter(self._hosts.values()))

    @property
    def stats(self) -> NetworkStats:
        """What the network has counted, besides its links."""
        return NetworkStats(**self._network.stats())

    @functools.cached_property
    def certificate(self) -> Certificate:
        """A certificate for the hosts, the same key for the same seed.

        Its signatures all have one length, which those of `towline.generate_certificate` have not:
        with it the sizes of datagrams depend on the seed and the program alone.
        """
        seed = hashlib.sha256(b"towline.testing %d" % self.seed).digest()
        return Certificate(_native.Certificate.from_seed(list(self._hosts), seed))

    def add_host(self, name: str) -> Host:
        """A new host, which is joined to none."""
        if not isinstance(name, str):
            raise TypeError(f"a host's name must be a str, not '{type(name).__name__}'")
        if not _NAME.fullmatch(name) or _is_address(name) or name == "localhost":
            words = f"'{name}' is no name for a host: small letters, digits, hyphens and dots"
            raise ValueError(words + ", and not 'localhost'")
        if name in self._hosts:
            raise ValueError(f"there is a host '{name}' already")
        number = len(self._hosts)
        if number >= _MAX_HOSTS:
            raise ValueError(f"a simulation has at most {_MAX_HOSTS} hosts")
        address = f"10.0.{number // _HOSTS_PER_NET}.{number % _HOSTS_PER_NET + 1}"
        host = self._hosts[name] = Host(self, name, address)
        # A host reaches itself at once.
        self._network.join(address, address, "local", "local")
        return host

    def join(self, a: str, b: str, link: Link, back: Link | None = None) -> Path:
        """Joins two hosts: by `link` from `a` to `b`, and by `back`, or a `link` again, the other
        way."""
        one, two = self._host("a", a), self._host("b", b)
        back = link if back is None else back
        there, again = _a_link("link", link), _a_link("back", back)
        if one is two:
            raise ValueError(f"'{a}' reaches itself already")
        if frozenset((a, b)) in self._paths:
            raise ValueError(f"'{a}' and '{b}' are joined already: change world.path('{a}', '{b}')")
        numbers = self._network.join(one.address, two.address, there._text(), again._text())
        path = Path(
            (a, b),
            Direction(self._network, numbers[0], there),
            Direction(self._network, numbers[1], again),
        )
        self._paths[frozenset((a, b))] = path
        return path

    def path(self, a: str | None = None, b: str | None = None) -> Path:
        """The path between two hosts; without names, the only one there is."""
        if a is None and b is None:
            if len(self._paths) != 1:
                words = f"the simulation has {len(self._paths)} paths: name the two hosts"
                raise ValueError(words)
            return next(iter(self._paths.values()))
        names = frozenset((self._host("a", a).name, self._host("b", b).name))
        if names not in self._paths:
            raise ValueError(f"'{a}' and '{b}' are not joined")
        return self._paths[names]

    @property
    def paths(self) -> tuple[Path, ...]:
        """All paths, in the order in which they were made."""
        return tuple(self._paths.values())

    @contextlib.contextmanager
    def at(self, host: str) -> Iterator[Host]:
        """Runs what is in `with` at a host: `towline.connect` connects from there, and
        `towline.serve(…, None)` serves there. Tasks that are made in it stay there."""
        chosen = self._host("host", host)
        token = _here.set(chosen)
        try:
            yield chosen
        finally:
            _here.reset(token)

    def run(
        self,
        main: Coroutine[Any, Any, _T],
        *,
        at: str | None = None,
        limit: float | None = _LIMIT,
    ) -> _T:
        """The result of `main`, which runs at the first host, or `at` another. May be called again.

        Time goes as fast as the machine can work. Raises `Deadlock` when nothing can happen any
        more and `TimeLimit` when `main` is not done within `limit` virtual seconds; both say which
        tasks wait where, and all tasks are cancelled before.
        """
        if not isinstance(main, Coroutine):
            kind = type(main).__name__
            raise TypeError(f"argument 'main': a coroutine is required, not '{kind}'")
        try:
            host = None if at is None else self._host("at", at)
            if asyncio._get_running_loop() is not None:
                raise UsageError("world.run cannot be called from within a loop: `await` it there")
            if self.loop.is_closed():
                raise UsageError("this simulation is over: run programs inside of its `with`")
            self._set_limit(limit)
        except BaseException:
            main.close()
            raise
        context = contextvars.copy_context()
        if host is not None:
            context.run(_here.set, host)
        try:
            return self._runner.run(main, context=context)
        except SimulationError:
            self._cancel_all()
            raise

    def trace(self) -> list[Sent]:
        """What hosts have sent, in order, if the world was made with `trace=True`: the same seed
        and the same program give the same."""
        names = {host.address: name for name, host in self._hosts.items()}

        def end(address: tuple[str, int]) -> str:
            return f"{names.get(address[0], address[0])}:{address[1]}"

        return [
            Sent(nanos / _NANOS, end(source), end(destination), size)
            for nanos, source, destination, size in self._network.trace()
        ]

    def close(self) -> None:
        """Cancels all tasks and closes the loop."""
        self._set_limit(_GRACE)
        try:
            # It makes its loop late, and closes only one that it has.
            self._runner.get_loop()
            self._runner.close()
        finally:
            if not self.loop.is_closed():
                self.loop.close()

    def _set_limit(self, seconds: float | None) -> None:
        if seconds is None:
            self.loop._limit, self.loop._limit_words = _LAST, ""
            return
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            kind = type(seconds).__name__
            raise TypeError(f"argument 'limit': a number is required, not '{kind}'")
        if not seconds >= 0:
            raise ValueError(f"argument 'limit': 0 or more seconds, not {seconds}")
        self.loop._limit = int(min(self._network.now + seconds * _NANOS, _LAST))
        limit = f"its limit is {seconds:g} virtual seconds"
        self.loop._limit_words = f"the program was not done: {limit}"

    def _cancel_all(self) -> None:
        """Ends what a run has left behind. Who does not end is left to `close`."""
        tasks = sorted(asyncio.all_tasks(self.loop), key=hash)
        for task in tasks:
            task.cancel("the simulation is stuck")
        self._set_limit(_GRACE)
        with contextlib.suppress(SimulationError):
            self.loop.run_until_complete(asyncio.wait(tasks) if tasks else asyncio.sleep(0))

    def _host(self, argument: str, name: object) -> Host:
        if isinstance(name, Host) and self._hosts.get(name.name) is name:
            return name
        if not isinstance(name, str):
            kind = type(name).__name__
            raise TypeError(f"argument '{argument}': the name of a host is required, not '{kind}'")
        if name not in self._hosts:
            raise ValueError(f"argument '{argument}': there is no host '{name}' ({self._known()})")
        return self._hosts[name]

    def _known(self) -> str:
        return "hosts: " + ", ".join(f"{host.name} {host.address}" for host in self._hosts.values())

    def _free_port(self, address: str) -> int:
        for port in self._ports:
            if port > _LAST_PORT:
                break
            if not self._network.is_bound(address, port):
                return port
        # All were given once: from the beginning, those that were given back.
        self._ports = itertools.count(_FIRST_PORT)
        for port in range(_FIRST_PORT, _LAST_PORT + 1):
            if not self._network.is_bound(address, port):
                return port
        raise OSError(errno.EADDRINUSE, f"all ports of {address} are taken in the simulation")


# The host that the running task is at.
_here: contextvars.ContextVar[Host | None] = contextvars.ContextVar("towline host", default=None)

_PERFECT = Link()


def simulation(
    seed: int = 0,
    *,
    link: Link | None = _PERFECT,
    back: Link | None = None,
    hosts: Iterable[str] = ("client", "server"),
    trace: bool = False,
) -> World:
    """A world in virtual time, for `with`: `world.run(main())` runs a program in it.

    Each two of `hosts` are joined by `link`, and by `back` the other way if that is another; with
    `None` they are not, and `world.join` does it. In the program `towline.connect`,
    `towline.serve`, timers and all of `asyncio` but sockets, pipes and processes work as ever,
    hosts' names being the addresses.

    The same `seed` and the same program give the same order of events, the same times and the same
    losses. An exception that leaves `with` carries the seed in a note.
    """
    return World(seed, link, back, hosts, trace)


def _a_link(argument: str, link: object) -> Link:
    if not isinstance(link, Link):
        raise TypeError(f"argument '{argument}': a Link is required, not '{type(link).__name__}'")
    return link


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

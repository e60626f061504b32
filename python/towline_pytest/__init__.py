"""The pytest plugin of towline: fixtures for servers and for programs in virtual time.

pytest imports this wherever towline is installed. Therefore it stands beside the package, and
imports nothing of it before a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from towline import Certificate
    from towline.testing import World
    from towline.testing.plugin import ServerThreads

__all__ = ["towline_certificate", "towline_server", "towline_world"]

_MARKER = (
    "towline(link=…, hosts=…, …): what the fixture towline_world is made with, as "
    "towline.testing.simulation"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--towline-seed`."""
    group = parser.getgroup("towline")
    group.addoption(
        "--towline-seed",
        type=int,
        metavar="SEED",
        help="seed of the fixture towline_world (default: from the test's name)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tells of the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def towline_certificate() -> Certificate:
    """A certificate for localhost, as browsers take it by its hash."""
    import towline

    return towline.generate_certificate("localhost", "127.0.0.1", "::1")


@pytest.fixture
def towline_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A world in virtual time, as `towline.testing.simulation` makes it with what the marker
    `towline` says: `towline_world.run(main())`. Its seed is that of `--towline-seed`, else the
    marker's, else one from the test's name; it stands in the report of a test that fails."""
    from towline.testing import plugin

    marker = request.node.get_closest_marker("towline")
    arguments, options = ((), {}) if marker is None else (marker.args, dict(marker.kwargs))
    options.setdefault("seed", plugin.seed_of(request.node.name))
    seed = request.config.getoption("--towline-seed")
    if seed is not None:
        options["seed"] = seed
    with plugin.world_of(arguments, options) as world:
        # pytest shows it if the test fails.
        request.node.add_report_section("setup", "towline", f"--towline-seed={world.seed}")
        yield world


@pytest.fixture
def towline_server(towline_certificate: Certificate) -> Iterator[ServerThreads]:
    """Starts servers on localhost, on a free port and in a thread of their own:
    `towline_server(handler)` has `url`, `port` and `certificate`, and is closed after the test."""
    from towline.testing import plugin

    servers = plugin.ServerThreads(towline_certificate)
    try:
        yield servers
    finally:
        servers.close()

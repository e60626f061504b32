"""The pytest plugin: its fixtures, and the seed in the report of a test that fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def tests(pytester: pytest.Pytester, request: pytest.FixtureRequest) -> pytest.Pytester:
    """Where the plugin is loaded, if pytest does not find it by itself."""
    if not request.config.pluginmanager.hasplugin("towline"):
        pytester.makeconftest('pytest_plugins = ["towline_pytest"]')
    return pytester


FAILING = """
import asyncio

def test_fails(towline_world):
    async def main():
        await asyncio.sleep(2.5)
        assert towline_world.seed == 0

    towline_world.run(main())
"""


def test_the_seed_of_a_failure_is_told_and_repeats_it(tests):
    tests.makepyfile(FAILING)
    result = tests.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Captured towline*", "--towline-seed=*"])
    told = next(line for line in result.stdout.lines if line.startswith("--towline-seed="))
    again = tests.runpytest(told)
    again.stdout.fnmatch_lines([told])
    passing = tests.runpytest("--towline-seed=0")
    passing.assert_outcomes(passed=1)
    assert "--towline-seed" not in passing.stdout.str()


def test_the_seed_comes_from_the_name_of_the_test(tests):
    tests.makepyfile(
        """
        seeds = []

        def test_one(towline_world):
            seeds.append(towline_world.seed)

        def test_two(towline_world):
            seeds.append(towline_world.seed)
            assert len(set(seeds)) == 2
            assert seeds[0] == 4101990423
        """
    )
    tests.runpytest().assert_outcomes(passed=2)


def test_a_marker_says_what_the_world_is_like(tests):
    tests.makepyfile(
        """
        import pytest
        import towline
        from towline.testing import Link

        @pytest.mark.towline(link=Link(delay=0.3), hosts=["boat", "shore"])
        def test_world(towline_world):
            async def echo(session):
                async for stream in session.incoming_bidirectional_streams:
                    async with stream:
                        await stream.write(await stream.read())

            async def main():
                certificate = towline_world.certificate
                async with (
                    towline.serve(echo, "shore", certificate=certificate) as server,
                    towline.connect(server.url, pins=[certificate]) as session,
                    await session.create_bidirectional_stream() as stream,
                ):
                    await stream.write(b"ahoy")
                    stream.finish()
                    assert await stream.read() == b"ahoy"

            towline_world.run(main())
            assert towline_world.time > 1

        @pytest.mark.towline(seed=5)
        def test_seed(towline_world, request):
            seed = request.config.getoption("--towline-seed")
            assert towline_world.seed == (5 if seed is None else seed)

        @pytest.mark.towline(Link())
        def test_by_place(towline_world):
            pass

        @pytest.mark.towline(speed=5)
        def test_unknown(towline_world):
            pass
        """
    )
    result = tests.runpytest("--strict-markers")
    result.assert_outcomes(passed=2, errors=2)
    tests.runpytest("--towline-seed=9").assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(["*arguments by name*", "*unexpected keyword argument 'speed'*"])


@pytest.mark.keeps_thread
def test_a_server_runs_beside_a_test_that_is_not_async(tests):
    tests.makepyfile(
        """
        import threading
        import pytest
        import towline
        from towline.sync import connect

        async def shout(session):
            async for stream in session.incoming_bidirectional_streams:
                async with stream:
                    await stream.write((await stream.read()).upper())

        def test_server(towline_server, towline_certificate):
            server = towline_server(shout)
            assert server.certificate is towline_certificate
            assert server.url == f"https://localhost:{server.port}"
            with connect(server.url, pins=[server.certificate]) as session:
                with session.create_bidirectional_stream() as stream:
                    stream.write(b"ahoy")
                    stream.finish()
                    assert stream.read(timeout=10) == b"AHOY"

        def test_other_options(towline_server):
            server = towline_server(shout, host="127.0.0.1", protocols=["chat"])
            with connect(server.url, pins=[server.certificate], protocols=["chat"]) as session:
                assert session.protocol == "chat"
            with pytest.raises(OSError):
                towline_server(shout, host="127.0.0.1", port=server.port)
            with pytest.raises(TypeError, match="argument 'handler'"):
                towline_server(5)

        def test_nothing_is_left():
            assert not [one for one in threading.enumerate() if one.name == "towline_server"]
        """
    )
    tests.runpytest("-W", "error").assert_outcomes(passed=3)


def test_a_deadlock_in_a_test_is_told(tests):
    tests.makepyfile(
        """
        import asyncio

        def test_stuck(towline_world):
            async def main():
                await asyncio.Event().wait()

            towline_world.run(main())
        """
    )
    result = tests.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*nothing can happen any more*", "*await asyncio.Event().wait()*"])


UNUSED = """
import sys
import towline_pytest
heavy = [name for name in ("towline", "asyncio", "ssl") if name in sys.modules]
assert not heavy, heavy
"""


def test_the_plugin_costs_nothing_where_it_is_not_used():
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

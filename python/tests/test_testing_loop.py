"""The loop in virtual time, alone: timers, threads, signals, and what it says when it is stuck."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time

import pytest

import towline
from towline import testing


def run(main, **options):
    with testing.simulation(**options) as world:
        return world.run(main)


def test_a_year_passes_in_a_moment():
    async def main() -> float:
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    with testing.simulation() as world:
        assert world.run(main(), limit=None) == world.time == 365 * 86_400
    assert time.monotonic() - began < 5


def test_timers_fire_in_order_and_at_their_time():
    fired: list[tuple[str, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def fire(name: str) -> None:
            fired.append((name, loop.time()))

        loop.call_later(2.5, fire, "late")
        loop.call_later(0.001, fire, "early")
        loop.call_at(1.0, fire, "one")
        loop.call_at(1.0, fire, "another of the same time")
        loop.call_later(1.5, fire, "cancelled").cancel()
        await asyncio.sleep(3)
        assert loop.time() == 3

    run(main())
    assert fired == [
        ("early", 0.001),
        ("one", 1.0),
        ("another of the same time", 1.0),
        ("late", 2.5),
    ]


def test_a_timer_fires_where_floats_are_coarse():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(100):
            before = loop.time()
            await asyncio.sleep(1e-7)
            assert loop.time() >= before
            await asyncio.sleep(86_400.000_000_1 * 365)

    with testing.simulation() as world:
        world.run(main(), limit=None)
        assert world.time > 3e9


def test_timeouts_and_cancellation_are_those_of_asyncio():
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        assert asyncio.get_running_loop().time() == 60
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 5)
        task = asyncio.create_task(asyncio.sleep(1000))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() == 66

    run(main())


def test_a_deadlock_is_an_error_that_says_who_waits_where():
    async def holder(lock: asyncio.Lock, other: asyncio.Lock) -> None:
        async with lock:
            await asyncio.sleep(1)
            await other.acquire()

    async def main() -> None:
        one, two = asyncio.Lock(), asyncio.Lock()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(holder(one, two), name="first")
            tasks.create_task(holder(two, one), name="second")

    with testing.simulation() as world:
        with pytest.raises(testing.Deadlock) as caught:
            world.run(main())
        words = str(caught.value)
        assert "at 1.000000 s nothing can happen any more" in words
        assert "'first'" in words and "'second'" in words
        assert "test_testing_loop.py" in words and "await other.acquire()" in words
        assert "locks.py" in words
        # Its tasks are over, and the world goes on.
        assert world.run(asyncio.sleep(1, "done")) == "done"


def test_a_task_that_will_not_end_does_not_hold_the_report():
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if asyncio.get_running_loop().is_closed():
                    raise

    async def main() -> None:
        await stubborn()

    world = testing.simulation()
    with pytest.raises(testing.Deadlock, match="stubborn"):
        world.run(main())
    with pytest.raises(testing.Deadlock):
        world.close()
    assert world.loop.is_closed()


def test_a_limit_of_virtual_time_is_an_error_too():
    async def main() -> None:
        while True:
            await asyncio.sleep(10)

    with testing.simulation() as world:
        words = "at 3600.0+ s the program was not done: its limit is 3600 virtual seconds"
        with pytest.raises(testing.TimeLimit, match=words):
            world.run(main(), limit=3600)
        # The limit is of the run, not of the world.
        world.run(asyncio.sleep(3000), limit=3600)
        with pytest.raises(testing.TimeLimit, match="sleep"):
            world.run(main())


def test_a_million_tasks_are_not_told():
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(1000):
                tasks.create_task(asyncio.Event().wait())

    with pytest.raises(testing.Deadlock, match="and 981 tasks more") as caught:
        run(main())
    assert len(str(caught.value)) < 10_000


def test_threads_are_waited_for_and_take_no_time():
    async def main() -> float:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(1)
                ticks += 1

        ticking = asyncio.create_task(tick())
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(0.5):
            # Longer than the limit, in real time.
            await asyncio.to_thread(time.sleep, 0.6)
        assert ticks == 0
        await loop.run_in_executor(None, time.sleep, 0.01)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        ticking.cancel()
        return loop.time()

    assert run(main()) == 0


def test_signals_come_as_ever():
    async def main() -> int:
        loop = asyncio.get_running_loop()
        called = loop.create_future()
        loop.add_signal_handler(signal.SIGUSR1, called.set_result, 5)
        loop.call_later(1, os.kill, os.getpid(), signal.SIGUSR1)
        loop.call_later(1e9, lambda: None)
        try:
            return await called
        finally:
            assert loop.remove_signal_handler(signal.SIGUSR1)
            assert not loop.remove_signal_handler(signal.SIGUSR1)

    assert run(main(), seed=1) == 5
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_what_is_the_machines_is_refused_in_words():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, two = socket.socketpair()
        with one, two:
            for watch in (loop.add_reader, loop.add_writer):
                with pytest.raises(towline.UsageError, match="a descriptor of the machine"):
                    watch(one, print)
                with pytest.raises(towline.UsageError, match="a descriptor of the machine"):
                    watch(one.fileno(), print)
            assert not loop.remove_reader(one)
            with pytest.raises(towline.UsageError, match="sock_recv"):
                await loop.sock_recv(one, 10)
        with pytest.raises(towline.UsageError, match="create_connection"):
            await asyncio.open_connection("server", 80)
        with pytest.raises(towline.UsageError, match="create_server"):
            await asyncio.start_server(print, "server", 80)
        with pytest.raises(towline.UsageError, match="subprocess_exec"):
            await asyncio.create_subprocess_exec("true")

    run(main())


def test_the_loop_serves_without_hosts():
    async def main() -> float:
        await asyncio.sleep(5)
        with pytest.raises(towline.UsageError, match="no simulated hosts"):
            await towline.connect("https://10.0.0.1/")
        with pytest.raises(towline.ConnectFailed, match="hosts: there are none"):
            await towline.connect("https://server/")
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=testing.VirtualLoop) as runner:
        assert runner.run(main()) == 5


def test_groups_cancel_in_the_order_in_which_tasks_were_made():
    ended: list[int] = []

    async def member(number: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(number)

    async def failing() -> None:
        await asyncio.sleep(1)
        raise ValueError

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(100):
                tasks.create_task(member(number))
            tasks.create_task(failing())

    def orders() -> list[int]:
        ended.clear()
        with pytest.raises(ExceptionGroup):
            run(main())
        return list(ended)

    first = orders()
    assert sorted(first) == list(range(100))
    assert orders() == first


def test_keyboard_interrupt_ends_a_run():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1, os.kill, os.getpid(), signal.SIGINT)
        while True:
            await asyncio.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        run(main())


def test_a_run_that_cannot_begin_leaves_no_coroutine():
    async def main() -> None:
        raise AssertionError

    with testing.simulation() as world:
        with pytest.raises(ValueError, match="there is no host 'moon'"):
            world.run(main(), at="moon")
        with pytest.raises(TypeError, match="argument 'limit': a number"):
            world.run(main(), limit="long")
        with pytest.raises(TypeError, match="argument 'main': a coroutine"):
            world.run(main)

        async def nested() -> None:
            with pytest.raises(towline.UsageError, match="from within a loop"):
                world.run(main())

        world.run(nested())
    with pytest.raises(towline.UsageError, match="this simulation is over"):
        world.run(main())

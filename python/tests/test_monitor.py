"""Monitors: what is measured, what is absent, and alerts."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from conftest import CERTIFICATE, idle

import towline
from towline.monitor import (
    Alert,
    AlertEvent,
    Monitor,
    process_values,
    series,
    server_values,
    session_values,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Gauge:
    """A source with one value, and the clock that it goes by."""

    def __init__(self, monitor_of: Callable[..., Monitor] = Monitor, **options: Any) -> None:
        self.clock = Clock()
        self.value: Any = 0
        self.events: list[AlertEvent] = []
        self.monitor = monitor_of(lambda: {"x": self.value}, clock=self.clock, **options)

    def step(self, value: Any, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.value = value
        self.monitor.sample()

    def told(self) -> list[tuple[bool, float]]:
        told = [(event.active, event.value) for event in self.events]
        self.events.clear()
        return told


def test_a_server_its_session_and_the_process_are_measured(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with towline.serve(idle, "127.0.0.1", certificate=CERTIFICATE) as server:
            assert "towline_smoothed_rtt_seconds" not in str(server_values(server))
            async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
                monitor = Monitor(
                    process_values,
                    lambda: server_values(server),
                    lambda: session_values(session, name="a"),
                )
                while not server.sessions:
                    await asyncio.sleep(0.01)
                values = monitor.sample().values
                assert values["towline_sessions"] == 1
                assert values["towline_connections"] == 1
                assert values["towline_sessions_accepted_total"] == 1
                assert 0 < values['towline_smoothed_rtt_seconds{quantile="0.5"}'] < 30
                assert values['towline_session_sent_bytes_total{name="a"}'] > 1000
                assert values["process_resident_memory_bytes"] > 1 << 20
                assert values["process_open_fds"] == len(os.listdir("/proc/self/fd")) - 1
                assert values["towline_tasks"] >= 2
            assert session_values(session) == {}
            connecting = towline.connect(
                server.url, pins=[CERTIFICATE], headers={"origin": "https://evil.example"}
            )
        served = towline.serve(
            idle, "127.0.0.1", server.port, certificate=CERTIFICATE, origins=["https://a.example"]
        )
        async with served as strict:
            with pytest.raises(towline.HandshakeRefused):
                await connecting
            assert server_values(strict)["towline_sessions_refused_total"] == 1
        assert "towline_connections" not in server_values(strict), "it is closed"

    run(main())


def test_what_is_not_measured_is_absent() -> None:
    values = {"a": 1, "b": None, "c": float("nan"), "d": float("inf"), "e": 0}
    monitor = Monitor(lambda: values)
    assert monitor.latest is None
    assert (monitor.prometheus(), monitor.to_json()) == ("", "null")
    monitor.sample()
    assert monitor.latest is not None and monitor.latest.values == {"a": 1, "e": 0}
    assert json.loads(monitor.to_json())["values"] == {"a": 1, "e": 0}
    assert "b" not in monitor.prometheus()
    assert "towline_tasks" not in process_values(), "there is no loop here"


def test_the_history_is_bounded() -> None:
    gauge = Gauge(history=3)
    for value in range(10):
        gauge.step(value)
    assert [snapshot.values["x"] for snapshot in gauge.monitor.history] == [7, 8, 9]
    kept = json.loads(gauge.monitor.to_json(history=True))
    assert [one["values"]["x"] for one in kept] == [7, 8, 9]


def test_the_text_is_that_of_prometheus() -> None:
    monitor = Monitor(
        lambda: {
            "towline_sessions": 2,
            series("towline_worker_sessions", worker=0): 1,
            series("towline_worker_sessions", worker=1): 1,
            series("own", path='/"a\\\n'): 0.5,
        }
    )
    monitor.sample()
    assert monitor.prometheus() == (
        "# HELP towline_sessions Sessions that are open.\n"
        "# TYPE towline_sessions gauge\n"
        "towline_sessions 2\n"
        "# HELP towline_worker_sessions Sessions of a worker, as it told last.\n"
        "# TYPE towline_worker_sessions gauge\n"
        'towline_worker_sessions{worker="0"} 1\n'
        'towline_worker_sessions{worker="1"} 1\n'
        "# TYPE own untyped\n"
        'own{path="/\\"a\\\\\\n"} 0.5\n'
    )


def test_an_alert_has_hysteresis() -> None:
    gauge = Gauge()
    gauge.monitor.alert(Alert("high", "x", above=10, clear=5), gauge.events.append)
    for value in (10, 11, 12, 9, 6, 11, 5, 6, 10):
        gauge.step(value)
    assert gauge.told() == [(True, 11), (False, 5)]
    gauge.step(11)
    assert [alert.name for alert in gauge.monitor.active_alerts] == ["high"]


def test_an_alert_below() -> None:
    gauge = Gauge()
    gauge.monitor.alert(Alert("low", "x", below=3, clear=5), gauge.events.append)
    for value in (3, 2, 4, 5, 1):
        gauge.step(value)
    assert gauge.told() == [(True, 2), (False, 5), (True, 1)]


def test_an_alert_waits_until_the_value_has_held() -> None:
    gauge = Gauge()
    gauge.monitor.alert(Alert("high", "x", above=10, hold=3), gauge.events.append)
    for value in (11, 11, 9, 11, 11, 11, 12):
        gauge.step(value)
    assert gauge.told() == [(True, 12)]


def test_an_alert_without_a_value_stays_as_it_is() -> None:
    gauge = Gauge()
    gauge.monitor.alert(Alert("high", "x", above=10), gauge.events.append)
    for value in (None, 11, None, None):
        gauge.step(value)
    assert gauge.told() == [(True, 11)]
    gauge.step(10)
    assert gauge.told() == [(False, 10)]


def test_rates_follow_a_counter_that_begins_anew() -> None:
    gauge = Gauge()
    gauge.monitor.alert(Alert("fast", "x", above=30, rate=2), gauge.events.append)
    assert gauge.monitor.rate("x", 10) is None
    gauge.step(10)
    assert gauge.monitor.rate("x", 10) is None, "one point has no growth"
    gauge.step(20, 2)
    assert gauge.monitor.rate("x", 10) == 5
    gauge.step(130)
    assert gauge.monitor.rate("x", 1) == 110
    gauge.step(3)
    assert gauge.monitor.rate("x", 10) is None
    gauge.step(5)
    assert gauge.monitor.rate("x", 10) == 2
    assert gauge.monitor.rate("y", 10) is None
    assert gauge.told() == [(True, 40), (False, 2)]


def test_a_source_that_fails_is_logged_once_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = True

    def fails() -> dict[str, float | None]:
        if broken:
            raise OSError("no sensor")
        return {"y": 2}

    monitor = Monitor(fails, lambda: {"x": 1}, lambda: {"no name": 1})
    for _ in range(3):
        assert monitor.sample().values == {"x": 1}
    assert caplog.text.count("a source of a monitor failed") == 2, "once for each"
    assert "no sensor" in caplog.text and "'no name' is no name" in caplog.text
    broken = False
    assert monitor.sample().values == {"x": 1, "y": 2}


def test_a_callback_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    gauge = Gauge()

    def fails(event: AlertEvent) -> None:
        raise LookupError("my bug")

    gauge.monitor.alert(Alert("a", "x", above=1), fails)
    gauge.monitor.alert(Alert("b", "x", above=1), gauge.events.append)
    gauge.step(2)
    assert "my bug" in caplog.text
    assert gauge.told() == [(True, 2)]


def test_it_samples_by_itself_and_tells_how_late_the_loop_is(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with Monitor(process_values, interval=0.01) as monitor:
            with pytest.raises(RuntimeError, match="runs already"):
                await monitor.__aenter__()
            assert "towline_loop_lag_seconds" not in monitor.history[0].values
            while len(monitor.history) < 3:
                await asyncio.sleep(0.01)
            assert monitor.history[1].values["towline_loop_lag_seconds"] >= 0
        count = len(monitor.history)
        await asyncio.sleep(0.05)
        assert len(monitor.history) == count

    run(main())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "'above'"),
        ({"above": 1, "below": 1}, "'above'"),
        ({"above": 1, "clear": 2}, "'clear'"),
        ({"below": 1, "clear": 0}, "'clear'"),
        ({"above": 1, "hold": -1}, "'hold'"),
        ({"above": 1, "rate": 0}, "'rate'"),
    ],
)
def test_alerts_that_make_no_sense(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Alert("a", "x", **options)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="'sources'"):
        Monitor(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'interval'"):
        Monitor(interval=0)
    with pytest.raises(ValueError, match="'history'"):
        Monitor(history=0)
    with pytest.raises(TypeError, match="'callback'"):
        Monitor().alert(Alert("a", "x", above=1), 3)  # type: ignore[arg-type]

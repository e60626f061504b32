"""A client that comes back: when it does, how long it waits, and how it stops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from conftest import CERTIFICATE, idle

import towline
from towline import reconnect
from towline.reconnect import Backoff, State

QUICK = Backoff(initial=0.01, maximum=0.02)


def serving(handler: Any, port: int = 0) -> towline.Server:
    return towline.serve(handler, "127.0.0.1", port, certificate=CERTIFICATE)


def sessions(server: towline.Server | str, **options: Any) -> reconnect.Sessions:
    url = server if isinstance(server, str) else server.url
    options.setdefault("backoff", QUICK)
    return reconnect.sessions(url, pins=[CERTIFICATE], **options)


def test_the_wait_doubles_up_to_its_maximum_and_jitters_fully() -> None:
    backoff = Backoff(initial=0.5, factor=2, maximum=3)
    assert [backoff.delay(n, 1.0) for n in range(1, 6)] == [0.5, 1, 2, 3, 3]
    assert [backoff.delay(n, 0.25) for n in (1, 3)] == [0.125, 0.5]
    assert backoff.delay(10**9, 1.0) == 3
    assert backoff.delay(3, 0.0) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"initial": -1}, "'initial'"),
        ({"factor": 0.5}, "'factor'"),
        ({"maximum": "a"}, "'maximum'"),
        ({"stable": float("nan")}, "'stable'"),
        ({"attempts": 0}, "'attempts'"),
    ],
)
def test_a_backoff_that_makes_no_sense(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Backoff(**options)


def test_which_errors_are_worth_another_attempt() -> None:
    worth = reconnect.worth_another
    for error in (
        towline.ConnectTimeout("nobody"),
        towline.ConnectFailed("no route"),
        towline.HandshakeRefused("busy", None, True),
        towline.HandshakeRefused("too many", 429),
        towline.HandshakeRefused("draining", 503),
        towline.ConnectionLost("gone"),
        towline.SessionClosed("closed", 3),
    ):
        assert worth(error), error
    for error in (
        towline.HandshakeRefused("the certificate has another name"),
        towline.HandshakeRefused("unauthorized", 401),
        towline.HandshakeRefused("nothing there", 404),
        towline.UsageError("another loop"),
        ValueError("url"),
    ):
        assert not worth(error), error


def test_a_server_that_shuts_down_says_that_it_takes_nobody_now(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with serving(idle) as server:
            async with towline.connect(server.url, pins=[CERTIFICATE]) as session:
                draining = asyncio.create_task(server.drain(10))
                await session.draining
                with pytest.raises(towline.HandshakeRefused) as refused:
                    await towline.connect(server.url, pins=[CERTIFICATE])
                assert refused.value.busy and refused.value.status is None
                assert reconnect.worth_another(refused.value)
                session.close()
                await draining

    run(main())


def test_a_session_that_ends_is_followed_by_another(run: Callable[..., Any]) -> None:
    states: list[State] = []

    async def short(session: towline.Session) -> None:
        await session.create_unidirectional_stream()

    async def main() -> None:
        seen: list[towline.Session] = []
        async with serving(short) as server:
            async with sessions(server, on_state=lambda s, _: states.append(s)) as client:
                async for session in client:
                    seen.append(session)
                    await session.closed
                    if len(seen) == 3:
                        break
                assert client.session is session
                assert (client.attempts, client.connected) == (3, 3)
        assert len({id(session) for session in seen}) == 3
        again = [State.WAITING, State.CONNECTING, State.CONNECTED]
        assert states == [*again[1:], *again, *again, State.STOPPED]

    run(main())


def test_the_session_before_is_closed_by_the_next(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with serving(idle) as server:
            async with sessions(server) as client:
                first = await anext(client)
                second = await anext(client)
                assert first.closed and not second.closed
            assert second.closed

    run(main())


def test_the_waits_are_the_jitters(run: Callable[..., Any]) -> None:
    waits: list[object] = []
    numbers = iter([0.5, 1.0, 0.25])

    def on_state(state: State, detail: object) -> None:
        if state is State.WAITING:
            waits.append(detail)

    async def main() -> None:
        async with serving(idle) as server:
            async with sessions(
                server,
                backoff=Backoff(initial=0.01, factor=2, attempts=4),
                on_state=on_state,
                jitter=lambda: next(numbers),
            ) as client:
                with pytest.raises(towline.ConnectFailed, match="4 sessions or attempts in a row"):
                    async for session in client:
                        session.close()
                assert client.state is State.STOPPED
        assert waits == [0.005, 0.02, 0.01]

    run(main())


def test_a_session_that_was_stable_begins_the_count_anew(run: Callable[..., Any]) -> None:
    waits = 0

    def on_state(state: State, detail: object) -> None:
        nonlocal waits
        waits += state is State.WAITING

    async def main() -> None:
        backoff = Backoff(initial=0.01, stable=0.0, attempts=1)
        async with serving(idle) as server:
            async with sessions(server, backoff=backoff, on_state=on_state) as client:
                for _ in range(3):
                    (await anext(client)).close()
        assert waits == 0

    run(main())


def test_a_certificate_that_does_not_fit_is_told_at_once(run: Callable[..., Any]) -> None:
    other = towline.generate_certificate("localhost")

    async def main() -> None:
        async with serving(idle) as server:
            async with reconnect.sessions(server.url, pins=[other], backoff=QUICK) as client:
                with pytest.raises(towline.HandshakeRefused):
                    await anext(client)
                assert client.attempts == 1
                assert isinstance(client.last_error, towline.HandshakeRefused)

    run(main())


def test_a_server_that_is_refused_for_now_is_tried_again(run: Callable[..., Any]) -> None:
    asked = 0

    async def gate(request: towline.SessionRequest) -> None:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise towline.Refused(503)
        await request.accept().closed

    async def main() -> None:
        server = towline.serve_requests(gate, "127.0.0.1", certificate=CERTIFICATE)
        async with server, sessions(server) as client:
            await anext(client)
            assert (client.attempts, client.connected) == (3, 1)

    run(main())


def test_a_server_that_comes_up_later_is_found(run: Callable[..., Any]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        errors: list[Exception] = []

        def retry(error: Exception) -> bool:
            errors.append(error)
            return isinstance(error, TimeoutError)

        async def main() -> None:
            def make() -> towline.Connecting:
                return towline.connect(f"https://127.0.0.1:{port}/", pins=[CERTIFICATE])

            async with reconnect.sessions(make, backoff=QUICK, retry=retry) as client:
                waiting = asyncio.ensure_future(anext(client))
                await asyncio.sleep(0.05)
                probe.close()
                async with serving(idle, port):
                    session = await waiting
                    assert not session.closed

        run(main())


def test_a_server_that_restarts_is_found_again(run: Callable[..., Any]) -> None:
    async def main() -> None:
        lasted = 0
        async with serving(idle) as first:
            port = first.port
            client = sessions(first, retry=lambda error: isinstance(error, ConnectionError))
            await client.__aenter__()
            session = await anext(client)
        assert (await session.closed).by_peer
        async with serving(idle, port):
            async with asyncio.timeout(20):
                await anext(client)
                lasted += 1
            await client.__aexit__(None, None, None)
        assert lasted == 1

    run(main())


def test_waits_and_attempts_are_cancelled_cleanly(run: Callable[..., Any]) -> None:
    async def main() -> None:
        slow = Backoff(initial=1000, maximum=1000)
        async with serving(idle) as server:
            async with sessions(server, backoff=slow, jitter=lambda: 1.0) as client:
                (await anext(client)).close()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await anext(client)
                assert client.state is State.WAITING
            assert client.state is State.STOPPED
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
            async with sessions(url) as client:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await anext(client)
                assert client.state is State.CONNECTING

    run(main())


def test_a_handler_is_called_with_each_session(run: Callable[..., Any]) -> None:
    calls: list[str] = []

    came: list[towline.Session] = []

    async def server_side(session: towline.Session) -> None:
        came.append(session)
        if len(came) < 3:
            session.close(towline.FAILED, "again")
        await session.closed

    async def handler(session: towline.Session) -> str:
        calls.append("called")
        if len(calls) == 3:
            await asyncio.sleep(0.05)
            return "done"
        try:
            if len(calls) == 1:
                await asyncio.Event().wait()
            await session.datagrams.receive()
        except asyncio.CancelledError:
            calls[-1] += ", cancelled"
            raise
        return "never"

    async def main() -> None:
        async with serving(server_side) as server, sessions(server) as client:
            await client.run(handler)
            assert len(calls) == 3
            assert calls[0] == "called, cancelled"
            assert calls[2] == "called"
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0

    run(main())


def test_a_handler_that_hides_its_cancellation_leaves_none_behind(
    run: Callable[..., Any],
) -> None:
    async def server_side(session: towline.Session) -> None:
        session.close(3, "enough")

    async def returns(session: towline.Session) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async def raises(session: towline.Session) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise LookupError("another word for it") from None

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with serving(server_side) as server:
            async with sessions(server) as client:
                await client.run(returns)
            assert task.cancelling() == 0
            async with sessions(server) as client:
                with pytest.raises(LookupError):
                    await client.run(raises)
            assert task.cancelling() == 0

    run(main())


def test_what_a_handler_raises_of_its_own_is_raised(run: Callable[..., Any]) -> None:
    async def fails(session: towline.Session) -> None:
        raise LookupError("a bug")

    async def forever(session: towline.Session) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(idle) as server:
            async with sessions(server) as client:
                with pytest.raises(LookupError, match="a bug"):
                    await client.run(fails)
            async with sessions(server) as client:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await client.run(forever)

    run(main())


def test_a_callback_that_raises_is_logged(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def on_state(state: State, detail: object) -> None:
        raise LookupError("my bug")

    async def main() -> None:
        async with serving(idle) as server, sessions(server, on_state=on_state) as client:
            await anext(client)

    run(main())
    assert "my bug" in caplog.text
    # Tracebacks keep what their frames have.
    caplog.clear()


def test_bad_arguments_are_told_at_once() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="'url'"):
            reconnect.sessions("http://x/")
        with pytest.raises(TypeError, match="'url'"):
            reconnect.sessions(3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="'pins'"):
            reconnect.sessions("https://x/", pins="abc")
        with pytest.raises(towline.UsageError, match="`async with`"):
            await anext(reconnect.sessions("https://localhost/", pins=[CERTIFICATE]))

    asyncio.run(main())

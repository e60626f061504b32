"""Applications: routes, middleware, hooks; what is refused, and what fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from conftest import CERTIFICATE, idle

import towline
from towline.app import (
    Next,
    RateLimit,
    Refused,
    Request,
    Router,
    ServerApp,
    allow_origins,
    authenticate,
    log_sessions,
)


async def tell(session: towline.Session, request: Request) -> None:
    """Writes down what the app made of the request, and waits for the end."""
    async with await session.create_unidirectional_stream() as stream:
        await stream.write(repr((request.params, request.state)).encode())
    await session.closed


@contextlib.asynccontextmanager
async def client(
    server: towline.Server, path: str, **options: Any
) -> AsyncIterator[towline.Session]:
    connecting = towline.connect(server.url + path, pins=[CERTIFICATE], **options)
    async with connecting as session:
        yield session


async def told(server: towline.Server, path: str, **options: Any) -> str:
    async with client(server, path, **options) as session:
        stream = await anext(session.incoming_unidirectional_streams)
        async with stream:
            return (await stream.read()).decode()


async def status(server: towline.Server, path: str, **options: Any) -> int | None:
    with pytest.raises(towline.HandshakeRefused) as refused:
        async with client(server, path, **options):
            pass
    return refused.value.status


def serving(
    app: ServerApp, **options: Any
) -> contextlib.AbstractAsyncContextManager[towline.Server]:
    return app.serve("127.0.0.1", certificate=CERTIFICATE, **options)


def test_routes_lead_to_handlers_with_typed_parameters(run: Callable[..., Any]) -> None:
    app = ServerApp()
    app.add_route("/exact", tell)
    app.add_route("/rooms/{room}", tell)
    app.add_route("/n/{n:int}/x/{x:float}", tell)
    app.add_route("/files/{rest:path}", tell)

    async def main() -> None:
        async with serving(app) as server:
            assert await told(server, "/exact?q=1") == "({}, {})"
            assert await told(server, "/rooms/caf%C3%A9%2F1") == "({'room': 'café/1'}, {})"
            assert await told(server, "/n/-12/x/0.5") == "({'n': -12, 'x': 0.5}, {})"
            assert await told(server, "/files/a/b") == "({'rest': 'a/b'}, {})"
            for path in ("/", "/exact/", "/rooms/", "/rooms/a/b", "/n/1e3/x/1", "/rooms/%ff"):
                assert await status(server, path) == 404, path
            assert server.sessions == ()

    run(main())


def test_a_default_handler_takes_what_has_no_route(run: Callable[..., Any]) -> None:
    app = ServerApp()
    app.default(tell)

    async def main() -> None:
        async with serving(app) as server:
            assert await told(server, "/anything") == "({}, {})"

    run(main())
    with pytest.raises(ValueError, match="has a default handler"):
        app.default(tell)


def test_the_router_prefers_exact_paths_then_the_order_of_addition() -> None:
    router: Router[str] = Router()
    router.add("/a/{x}", "pattern")
    router.add("/a/b", "exact")
    router.add("/a/{n:int}", "later")
    router.add("/u/{id:uuid}", "uuid")
    assert router.find("/a/b") == ("exact", {})
    assert router.find("/a/1") == ("pattern", {"x": "1"})
    one = uuid.uuid4()
    assert router.find(f"/u/{one}") == ("uuid", {"id": one})
    assert router.find(f"/u/{{{one}}}") is None
    assert router.find("/a//b") is None
    assert router.find("a/b") is None
    assert router.find("") is None


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("rooms", "does not begin with a slash"),
        ("/a?b", "more than a path"),
        ("/{a}/{a}", "twice"),
        ("/{a:path}/b", "not at the end"),
        ("/{a:nat}", "'nat' in"),
        ("/x{a}", "none of the form"),
        ("/{}", "none of the form"),
        ("/taken", "has a route"),
        ("/p/{other}", "has a route"),
    ],
)
def test_patterns_that_make_no_sense_are_refused_when_added(pattern: str, words: str) -> None:
    router: Router[int] = Router()
    router.add("/taken", 1)
    router.add("/p/{x}", 1)
    with pytest.raises(ValueError, match=words):
        router.add(pattern, 2)


def test_wrong_types_name_the_argument() -> None:
    app = ServerApp()
    with pytest.raises(TypeError, match="'handler'"):
        app.add_route("/", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'pattern'"):
        app.add_route(3, tell)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'middleware'"):
        app.use(3)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="'check'"):
        authenticate("secret")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'origins'"):
        allow_origins("https://a.example")
    with pytest.raises(ValueError, match="'origins'"):
        allow_origins(["a.example"])
    with pytest.raises(ValueError, match="'status': 300 to 599"):
        Refused(200)
    with pytest.raises(ValueError, match="'rate'"):
        RateLimit(0)
    with pytest.raises(ValueError, match="'pending'"):
        towline.serve_requests(idle, certificate=CERTIFICATE, pending=0)  # type: ignore[arg-type]


def test_middleware_goes_around_the_session(run: Callable[..., Any]) -> None:
    app = ServerApp()
    seen: list[str] = []

    def around(name: str) -> None:
        async def middleware(request: Request, call_next: Next) -> None:
            seen.append(f"{name} before {request.session}")
            try:
                await call_next()
            finally:
                seen.append(f"{name} after {request.session is not None}")

        app.use(middleware)

    around("outer")
    around("inner")
    app.add_route("/", tell)

    async def main() -> None:
        async with serving(app) as server:
            await told(server, "/")
            while len(seen) < 4:
                await asyncio.sleep(0.01)
            assert seen == [
                "outer before None",
                "inner before None",
                "inner after True",
                "outer after True",
            ]
            seen.clear()
            assert await status(server, "/nowhere") == 404
            assert seen[2:] == ["inner after False", "outer after False"]

    run(main())


def test_tokens_are_checked_before_there_is_a_session(run: Callable[..., Any]) -> None:
    app = ServerApp()

    async def check(token: str) -> str | None:
        if token == "boom":
            raise OSError("the database is gone")
        return "ann" if token == "secret" else None

    app.use(authenticate(check, query="token"))
    app.add_route("/", tell)

    async def main() -> None:
        async with serving(app) as server:
            bearer = {"authorization": "bearer secret"}
            assert await told(server, "/", headers=bearer) == "({}, {'user': 'ann'})"
            assert await told(server, "/?token=secret") == "({}, {'user': 'ann'})"
            assert await status(server, "/") == 401
            assert await status(server, "/", headers={"authorization": "Basic secret"}) == 401
            assert await status(server, "/", headers={"authorization": "Bearer"}) == 401
            assert await status(server, "/?token=wrong") == 403
            assert await status(server, "/?" + "&".join(["a=b"] * 101)) == 400
            assert await status(server, "/?token=" + "a" * 8193) == 401
            assert await status(server, "/?token=boom") == 500
            assert server.sessions == ()

    run(main())


def test_origins_are_exact_or_below_a_host(run: Callable[..., Any]) -> None:
    app = ServerApp()
    app.use(allow_origins(["https://app.example", "https://*.corp.example"], without=False))
    app.add_route("/", tell)

    async def main() -> None:
        async with serving(app) as server:
            for origin in ("https://app.example", "https://a.b.corp.example"):
                await told(server, "/", headers={"origin": origin})
            for origin in (
                "https://corp.example",
                "https://evilcorp.example",
                "https://app.example.evil",
                "http://a.corp.example",
                "https://a.corp.example:444",
                "https://x@a.corp.example",
                "https://[::",
                "null",
            ):
                assert await status(server, "/", headers={"origin": origin}) == 403, origin
            assert await status(server, "/") == 403, "no origin at all"

    run(main())


def test_a_client_that_comes_too_often_is_refused(run: Callable[..., Any]) -> None:
    now = 0.0
    limit = RateLimit(1, 2, clock=lambda: now)
    app = ServerApp()
    app.use(limit)
    app.add_route("/", tell)

    async def main() -> None:
        nonlocal now
        async with serving(app) as server:
            await told(server, "/")
            await told(server, "/")
            assert await status(server, "/") == 429
            now += 1
            await told(server, "/")
            assert (limit.allowed, limit.refused) == (3, 1)

    run(main())


def test_the_table_of_a_rate_limit_is_bounded() -> None:
    now = 0.0
    limit = RateLimit(1, 1, addresses=100, clock=lambda: now)
    for i in range(1000):
        assert limit.take(f"10.0.{i // 256}.{i % 256}")
    assert len(limit) == 100
    assert limit.forgotten == 900
    now = 10.0
    for i in range(60):
        limit.take(f"10.1.0.{i}")
    assert len(limit) == 60, "full buckets go"
    assert limit.take("2001:db8::1")
    assert not limit.take("2001:db8::ffff"), "the same network"
    assert limit.take("2001:db8:0:1::1")


def test_the_log_has_beginnings_ends_and_refusals_but_no_token(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    app = ServerApp()
    app.use(log_sessions(clock=lambda: 0.0))
    app.add_route("/", tell)
    caplog.set_level(logging.INFO, "towline.app")

    async def main() -> None:
        async with serving(app) as server:
            await told(server, "/?token=hush")
            assert await status(server, "/a%0Ab") == 404
            while len(caplog.records) < 2:
                await asyncio.sleep(0.01)

    run(main())
    assert "'/' ended after 0.000 s" in caplog.text
    assert "refused with status 404" in caplog.text
    assert "hush" not in caplog.text


def test_middleware_that_takes_too_long_refuses(run: Callable[..., Any]) -> None:
    app = ServerApp(admission_timeout=0.05)
    cancelled = 0

    async def stuck(request: Request, call_next: Next) -> None:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    app.use(stuck)
    app.add_route("/", tell)

    async def main() -> None:
        async with serving(app) as server:
            assert await status(server, "/") == 504
            assert cancelled == 1

    run(main())


def test_the_time_limit_ends_with_the_admission(run: Callable[..., Any]) -> None:
    app = ServerApp(admission_timeout=0.05)

    @app.route("/")
    async def long(session: towline.Session, request: Request) -> None:
        await asyncio.sleep(0.2)
        await tell(session, request)

    async def main() -> None:
        async with serving(app) as server:
            assert await told(server, "/") == "({}, {})"

    run(main())


def test_requests_that_wait_are_bounded(run: Callable[..., Any]) -> None:
    app = ServerApp(pending=2)
    gate = asyncio.Event()

    async def slow(request: Request, call_next: Next) -> None:
        await gate.wait()
        await call_next()

    app.use(slow)
    app.add_route("/", tell)

    async def main() -> None:
        async with serving(app) as server:
            waiting = [asyncio.create_task(told(server, "/")) for _ in range(2)]
            while len(server._asking) < 2:
                await asyncio.sleep(0.01)
            assert await status(server, "/") == 503
            gate.set()
            assert await asyncio.gather(*waiting) == ["({}, {})"] * 2

    run(main())


def test_a_client_that_leaves_during_the_admission_costs_a_line(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    app = ServerApp()
    gate = asyncio.Event()
    came = asyncio.Event()

    async def slow(request: Request, call_next: Next) -> None:
        came.set()
        await gate.wait()
        await call_next()

    app.use(slow)
    app.add_route("/", tell)

    async def main() -> None:
        async with serving(app) as server:
            task = asyncio.create_task(told(server, "/"))
            await came.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.1)
            gate.set()
            while server._asking or server.sessions:
                await asyncio.sleep(0.01)

    run(main())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_handler_that_raises_ends_its_session_alone(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    app = ServerApp()
    app.add_route("/", tell)

    @app.route("/bad")
    async def bad(session: towline.Session, request: Request) -> None:
        raise LookupError("nobody knows")

    @app.route("/late")
    async def late(session: towline.Session, request: Request) -> None:
        raise Refused(403, "too late")

    async def main() -> None:
        async with serving(app) as server:
            async with client(server, "/") as healthy:
                for path in ("/bad", "/late"):
                    async with client(server, path) as session:
                        info = await session.closed
                        assert (info.code, info.by_peer) == (towline.FAILED, True)
                assert not healthy.closed

    run(main())
    assert "nobody knows" in caplog.text


def test_middleware_that_forgets_or_repeats_the_rest(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def forgets(request: Request, call_next: Next) -> None:
        if request.path == "/twice":
            await call_next()
            await call_next()

    app = ServerApp()
    app.use(forgets)

    @app.route("/{x}")
    async def short(session: towline.Session, request: Request) -> None:
        return

    async def main() -> None:
        async with serving(app) as server:
            assert await status(server, "/never") == 500
            async with client(server, "/twice") as session:
                assert (await session.closed).by_peer

    run(main())
    assert "nobody answered" in caplog.text
    assert "called once" in caplog.text


def test_hooks_run_around_the_server(run: Callable[..., Any]) -> None:
    app = ServerApp()
    seen: list[str] = []

    @app.on_startup
    async def first() -> None:
        seen.append("up")

    @app.on_shutdown
    def last() -> None:
        seen.append("last down")

    @app.on_shutdown
    async def fails() -> None:
        seen.append("first down")
        raise OSError("no matter")

    async def main() -> None:
        with pytest.raises(OSError, match="no matter"):
            async with serving(app):
                seen.append("serving")
        assert seen == ["up", "serving", "first down", "last down"]

    run(main())


def test_a_startup_that_fails_starts_nothing(run: Callable[..., Any]) -> None:
    app = ServerApp()
    down: list[int] = []
    app.on_shutdown(lambda: down.append(1))

    @app.on_startup
    def fails() -> None:
        raise RuntimeError("no database")

    async def main() -> None:
        with pytest.raises(RuntimeError, match="no database"):
            async with serving(app):
                raise AssertionError("it started")

    run(main())
    assert down == [1]


def test_closing_refuses_who_waits_and_cancels_who_is_in(run: Callable[..., Any]) -> None:
    app = ServerApp()
    came = asyncio.Event()
    ended: list[str] = []

    async def slow(request: Request, call_next: Next) -> None:
        came.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    app.use(slow)

    async def main() -> None:
        async with serving(app) as server:
            task = asyncio.create_task(told(server, "/"))
            await came.wait()
        with pytest.raises(towline.TowlineError):
            await task
        assert ended == ["cancelled"]

    run(main())


def test_requests_are_answered_once(run: Callable[..., Any]) -> None:
    errors: list[BaseException] = []

    async def twice(request: towline.SessionRequest) -> None:
        assert request.remote_address[0] == "127.0.0.1"
        request.refuse(418)
        try:
            request.accept()
        except towline.UsageError as error:
            errors.append(error)

    async def main() -> None:
        serving = towline.serve_requests(twice, "127.0.0.1", certificate=CERTIFICATE)
        async with serving as server:
            assert await status(server, "/") == 418
        assert "answered before" in str(errors[0])

    run(main())


def test_a_handler_chooses_the_protocol(run: Callable[..., Any]) -> None:
    app = ServerApp()

    @app.use
    async def choose(request: Request, call_next: Next) -> None:
        request.protocol = request.protocols[-1]
        await call_next()

    app.add_route("/", tell)

    async def main() -> None:
        async with serving(app, protocols=["v2", "v1"]) as server:
            async with client(server, "/", protocols=["v2", "v1"]) as session:
                assert session.protocol == "v1"

    run(main())


@pytest.mark.parametrize("now", [0.0, 2e7, 1.7e9])
@pytest.mark.parametrize("rate", [1.5, 5, 6, 10])
def test_a_burst_of_one_lets_the_first_in_whatever_the_clock_says(now, rate):
    limit = RateLimit(rate, 1, clock=lambda: now)
    assert limit.take("192.0.2.1")
    assert not limit.take("192.0.2.1")


def test_who_asked_and_left_keeps_no_place():
    begun: list[str] = []

    async def slow(request: towline.SessionRequest) -> None:
        begun.append(request.path)
        if request.path != "/at-once":
            await asyncio.Event().wait()
        session = request.accept()
        await session.closed

    async def ask(url: str) -> None:
        async with towline.connect(url, pins=[CERTIFICATE]):
            pass

    async def main() -> None:
        server = towline.serve_requests(
            slow, "127.0.0.1", certificate=CERTIFICATE, pending=3
        )
        async with server:
            asking = [asyncio.ensure_future(ask(f"{server.url}/{n}")) for n in range(3)]
            while len(begun) < 3:
                await asyncio.sleep(0.01)
            with pytest.raises(towline.HandshakeRefused):
                await ask(f"{server.url}/at-once")
            for one in asking:
                one.cancel()
            async with asyncio.timeout(10):
                while server._asking:
                    await asyncio.sleep(0.01)
            await ask(f"{server.url}/at-once")

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/files/../../etc", "/files/a/%2e%2e/b", "/files/.", "/rooms/a%0ab"])
def test_parameters_lead_nowhere_else(path):
    router: Router[str] = Router()
    router.add("/files/{rest:path}", "files")
    router.add("/rooms/{room}", "room")
    assert router.find(path) is None

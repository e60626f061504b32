"""The ASGI server: scopes and messages, Starlette behind it, lifespan, and sessions as scopes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

import towline
from conftest import CERTIFICATE, echo as echo_session
from towline import asgi, http

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError:
    Starlette = None  # type: ignore[assignment, misc]

PINS = [CERTIFICATE]

needs_starlette = pytest.mark.skipif(
    Starlette is None, reason="SKIPPED: starlette is not installed: pip install '.[test]'"
)


@contextlib.asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncIterator[asgi.Server]:
    async with asgi.serve(app, "127.0.0.1", certificate=CERTIFICATE, **options) as server:
        try:
            yield server
        finally:
            await http.aclose()


def test_the_scope_says_what_is_so(run):
    scopes: list[asgi.Scope] = []
    messages: list[asgi.Message] = []

    async def app(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        if scope["type"] == "lifespan":
            assert (await receive())["type"] == "lifespan.startup"
            scope["state"]["made"] = "at the start"
            await send({"type": "lifespan.startup.complete"})
            assert (await receive())["type"] == "lifespan.shutdown"
            await send({"type": "lifespan.shutdown.complete"})
            scopes.append(scope)
            return
        scopes.append(scope)
        while True:
            messages.append(await receive())
            if not messages[-1]["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": [(b"X-A", b"1")]})
        await send({"type": "http.response.body", "body": b"one ", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})
        messages.append(await receive())
        with pytest.raises(RuntimeError, match=r"http\.response\.body.*no place"):
            await send({"type": "http.response.body", "body": b"three"})

    async def main() -> None:
        async with serving(app, root_path="/mounted") as server:
            url = f"{server.url}/a%20b/?q=%31"
            headers = [("Cookie", "a=1"), ("cookie", "b=2"), ("x-latin", "y")]
            response = await http.request(
                "POST", url, body=b"body", headers=headers, pins=PINS
            )
            assert response.headers == [("x-a", "1")]
            assert await response.read() == b"one two"
        scope, lifespan = scopes
        assert lifespan["type"] == "lifespan"
        client, server_address = scope.pop("client"), scope.pop("server")
        assert client[0] == "127.0.0.1" and isinstance(client[1], int)
        assert server_address == ("127.0.0.1", server.port)
        fields = scope.pop("headers")
        assert fields[0] == (b"host", f"127.0.0.1:{server.port}".encode())
        assert (b"cookie", b"a=1; b=2") in fields and (b"x-latin", b"y") in fields
        assert scope == {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.5"},
            "http_version": "3",
            "method": "POST",
            "scheme": "https",
            "path": "/mounted/a b/",
            "raw_path": b"/mounted/a%20b/",
            "query_string": b"q=%31",
            "root_path": "/mounted",
            "state": {"made": "at the start"},
            "extensions": {"http.response.trailers": {}, "http.response.early_hint": {}},
        }
        assert b"".join(message["body"] for message in messages[:-1]) == b"body"
        assert messages[-1] == {"type": "http.disconnect"}

    run(main())


def test_trailers_hints_and_fields_of_http_1(run):
    async def app(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        await send({"type": "http.response.early_hint", "links": [b"</a.css>"]})
        fields = [(b"connection", b"keep-alive"), (b"transfer-encoding", b"chunked")]
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": fields,
                "trailers": True,
            }
        )
        await send({"type": "http.response.body", "body": b"all", "more_body": False})
        await send(
            {"type": "http.response.trailers", "headers": [(b"a", b"1")], "more_trailers": True}
        )
        await send({"type": "http.response.trailers", "headers": [(b"b", b"2")]})

    async def main() -> None:
        async with serving(app, lifespan="off") as server:
            response = await http.get(server.url, pins=PINS)
            assert await response.read() == b"all"
            assert response.headers == []
            assert response.trailers == [("a", "1"), ("b", "2")]

    run(main())


def test_a_client_that_waits_for_a_word_gets_it(run, monkeypatch):
    words: list[int] = []
    interim = http.Request.interim

    def noted(request: http.Request, status: int, headers: http.Headers | None = None) -> None:
        words.append(status)
        interim(request, status, headers)

    monkeypatch.setattr(http.Request, "interim", noted)

    async def app(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body"})

    async def main() -> None:
        async with serving(app, lifespan="off") as server:
            headers = {"expect": "100-continue"}
            for _ in range(2):
                response = await http.request(
                    "POST", server.url, body=b"x", headers=headers, pins=PINS
                )
                assert response.status == 200

    run(main())
    assert words == [100, 100]


def test_a_client_that_leaves_is_a_disconnect(run):
    told: asyncio.Queue[object] = asyncio.Queue()

    async def app(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        assert (await receive())["type"] == "http.request"
        if scope["path"] == "/wait":
            told.put_nowait((await receive())["type"])
            return
        await send({"type": "http.response.start", "status": 200})
        try:
            while True:
                body = b"x" * 50_000
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except OSError as error:
            told.put_nowait(error)
            raise

    async def main() -> None:
        async with serving(app, lifespan="off") as server:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await http.get(server.url + "/wait", pins=PINS)
            assert await told.get() == "http.disconnect"
            async with http.get(server.url + "/write", pins=PINS) as response:
                await response.read(10)
            assert isinstance(await told.get(), BrokenPipeError)

    run(main())


def test_applications_that_fail(run, caplog):
    async def app(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        if scope["path"] == "/raise":
            raise ValueError("a mistake")
        if scope["path"] == "/silent":
            return
        if scope["path"] == "/order":
            await send({"type": "http.response.body", "body": b"first"})
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await go.wait()

    go = asyncio.Event()

    async def main() -> None:
        async with serving(app, lifespan="off") as server:
            for path in ("/raise", "/silent", "/order"):
                assert (await http.get(server.url + path, pins=PINS)).status == 500
            response = await http.get(server.url + "/half", pins=PINS)
            go.set()
            with pytest.raises(towline.StreamReset):
                await response.read()
        assert "a mistake" in caplog.text and "has no end" in caplog.text

    run(main())


async def refuses_to_start(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no database"})


async def knows_no_lifespan(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    if scope["type"] != "http":
        raise RuntimeError(f"unknown scope {scope['type']}")
    await send({"type": "http.response.start", "status": 204})
    await send({"type": "http.response.body"})


async def never_stops(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await asyncio.Event().wait()


def test_lifespans_of_all_kinds(run, caplog):
    async def main() -> None:
        with pytest.raises(RuntimeError, match="did not start: no database"):
            await asgi.serve(refuses_to_start, "127.0.0.1", certificate=CERTIFICATE)
        with pytest.raises(RuntimeError, match="unknown scope lifespan"):
            await asgi.serve(
                knows_no_lifespan, "127.0.0.1", certificate=CERTIFICATE, lifespan="on"
            )
        async with serving(knows_no_lifespan) as server:
            assert (await http.get(server.url, pins=PINS)).status == 204
        async with serving(never_stops, grace=0.1):
            pass
        assert "did not stop within" in caplog.text
        # The port is taken: the application stops again.
        async with serving(knows_no_lifespan) as server:
            with pytest.raises(OSError):
                await asgi.serve(
                    never_stops, "127.0.0.1", server.port, certificate=CERTIFICATE, grace=0.1
                )

    run(main())


@needs_starlette
def test_starlette_behind_it(run):
    events: list[str] = []

    async def read(request: Request) -> Response:
        body = await request.body()
        return PlainTextResponse(f"{request.method} {request.url.path} {len(body)}")

    async def stream(request: Request) -> Response:
        async def numbers() -> AsyncIterator[bytes]:
            async for chunk in request.stream():
                yield chunk.upper()

        return StreamingResponse(numbers(), media_type="application/octet-stream")

    async def endless(request: Request) -> Response:
        async def numbers() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 10_000
                    await asyncio.sleep(0)
            finally:
                events.append("ended")

        return StreamingResponse(numbers())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
        events.append("start")
        yield {"key": "value"}
        events.append("stop")

    async def state(request: Request) -> Response:
        client = request.client
        assert client is not None and client.host == "127.0.0.1"
        return PlainTextResponse(f"{request.state.key} {request.url.scheme}")

    app = Starlette(
        routes=[
            Route("/read", read, methods=["GET", "POST"]),
            Route("/stream", stream, methods=["POST"]),
            Route("/endless", endless),
            Route("/state", state),
        ],
        lifespan=lifespan,
    )

    async def main() -> None:
        async with serving(app) as server:
            response = await http.request(
                "POST", server.url + "/read", body=bytes(200_000), pins=PINS
            )
            assert await response.read() == b"POST /read 200000"
            assert response.header("content-type") == "text/plain; charset=utf-8"
            response = await http.request("HEAD", server.url + "/read", pins=PINS)
            assert (response.status, await response.read()) == (200, b"")
            response = await http.request(
                "POST", server.url + "/stream", body=b"abc" * 100_000, pins=PINS
            )
            assert await response.read() == b"ABC" * 100_000
            async with http.get(server.url + "/endless", pins=PINS) as response:
                assert await response.read(5) == b"xxxxx"
            while "ended" not in events:
                await asyncio.sleep(0.01)
            response = await http.get(server.url + "/state", pins=PINS)
            assert await response.read() == b"value https"
            assert (await http.get(server.url + "/nothing", pins=PINS)).status == 404
            # Starlette knows no sessions, and is not asked.
            with pytest.raises(towline.HandshakeRefused) as refused:
                await towline.connect(server.url, pins=PINS)
            assert refused.value.status == 404
        assert events == ["start", "ended", "stop"]

    run(main())


def test_sessions_go_to_their_own_application(run):
    seen: list[asgi.Message] = []

    async def webtransport(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        assert scope["type"] == "webtransport" and "method" not in scope
        assert scope["path"] == "/chat" and scope["query_string"] == b"room=1"
        assert scope["protocols"] == ["chat.v2", "chat.v1"]
        seen.append(await receive())
        with pytest.raises(RuntimeError, match=r"webtransport\.accept.*first"):
            await receive()
        with pytest.raises(RuntimeError, match="no place"):
            await send({"type": "http.response.start", "status": 200})
        await send(
            {"type": "webtransport.accept", "protocol": "chat.v1", "headers": [(b"x-a", b"1")]}
        )
        seen.append(await receive())
        session = seen[-1]["session"]
        async with await session.create_unidirectional_stream() as stream:
            await stream.write(b"hello")
        seen.append(await receive())

    async def main() -> None:
        async with serving(knows_no_lifespan, webtransport=webtransport) as server:
            url = server.url + "/chat?room=1"
            async with towline.connect(
                url, pins=PINS, protocols=["chat.v2", "chat.v1"]
            ) as session:
                assert session.protocol == "chat.v1"
                assert ("x-a", "1") in session.headers
                stream = await anext(session.incoming_unidirectional_streams)
                assert await stream.read() == b"hello"
                assert len(server.sessions) == 1
                await session.aclose(9, "enough")
            while len(seen) < 3:
                await asyncio.sleep(0.01)
            assert (await http.get(server.url, pins=PINS)).status == 204
        assert seen[0] == {"type": "webtransport.connect"}
        assert seen[2] == {"type": "webtransport.disconnect", "code": 9, "reason": "enough"}

    run(main())


def test_handlers_of_sessions_are_applications_too(run):
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def handler(session: towline.Session) -> None:
        try:
            await echo_session(session)
        finally:
            ended.put_nowait(session.path)

    async def main() -> None:
        application = asgi.sessions(handler)
        options = {"webtransport": application, "protocols": ["b", "a"]}
        async with serving(knows_no_lifespan, **options) as server:
            async with towline.connect(server.url + "/x", pins=PINS, protocols=["a", "b"]) as session:
                assert session.protocol == "b"
                async with await session.create_bidirectional_stream() as stream:
                    await stream.write(b"echo")
                    stream.finish()
                    assert await stream.read() == b"echo"
            assert await ended.get() == "/x"
            session = await towline.connect(server.url + "/y", pins=PINS)
            # The server's end is the session's end.
        assert (await session.closed).by_peer
        assert await ended.get() == "/y"
        await session.aclose()

    run(main())


def test_applications_that_refuse_fail_or_say_nothing(run, caplog):
    async def webtransport(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        await receive()
        match scope["path"]:
            case "/refuse":
                await send({"type": "webtransport.reject", "status": 401})
                assert (await receive())["type"] == "webtransport.disconnect"
            case "/raise":
                raise ValueError("a mistake")
            case "/later":
                await send({"type": "webtransport.accept"})
                raise ValueError("a mistake after")
            case "/close":
                await send({"type": "webtransport.accept"})
                await send({"type": "webtransport.close", "code": 5, "reason": "full"})

    async def main() -> None:
        options = {"webtransport": webtransport, "origins": ["https://good.example"]}
        async with serving(knows_no_lifespan, **options) as server:
            for path, status in (("/refuse", 401), ("/raise", 500), ("/silent", 500)):
                with pytest.raises(towline.HandshakeRefused) as refused:
                    await towline.connect(server.url + path, pins=PINS)
                assert refused.value.status == status
            with pytest.raises(towline.HandshakeRefused) as refused:
                headers = {"origin": "https://bad.example"}
                await towline.connect(server.url + "/close", pins=PINS, headers=headers)
            assert refused.value.status == 403
            session = await towline.connect(server.url + "/later", pins=PINS)
            assert (await session.closed).code == towline.FAILED
            await session.aclose()
            session = await towline.connect(server.url + "/close", pins=PINS)
            end = await session.closed
            assert (end.code, end.reason) == (5, "full")
            await session.aclose()
        assert "a mistake" in caplog.text and "did not answer" in caplog.text

    run(main())


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="argument 'app'"):
        asgi.serve(None, certificate=CERTIFICATE)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"asgi\.sessions\(handler\)"):
        asgi.serve(
            knows_no_lifespan,
            certificate=CERTIFICATE,
            webtransport=echo_session,  # type: ignore[arg-type]
        )
    with pytest.raises(ValueError, match="argument 'lifespan'"):
        asgi.serve(
            knows_no_lifespan,
            certificate=CERTIFICATE,
            lifespan="perhaps",  # type: ignore[arg-type]
        )


def test_applications_whose_clients_left_are_few(run):
    async def app(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(app, lifespan="off") as server:
            for _ in range(4):
                asking = [asyncio.ensure_future(ask(server.url)) for _ in range(50)]
                await asyncio.sleep(0.2)
                for one in asking:
                    one.cancel()
                await asyncio.gather(*asking, return_exceptions=True)
            async with asyncio.timeout(10):
                while len(server._requests) > 100:
                    await asyncio.sleep(0.02)

    async def ask(url: str) -> None:
        await http.get(url, pins=PINS)

    run(main())


def test_who_reads_on_after_the_answer_hears_of_the_end(run):
    types: list[str] = []

    async def app(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        reading = asyncio.ensure_future(read(receive))
        await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "trailers": True})
        await send({"type": "http.response.body", "body": b"all"})
        fields = [(b"a", b"caf\xc3\xa9"), (b"connection", b"close")]
        await send({"type": "http.response.trailers", "headers": fields})
        await asyncio.wait_for(reading, 10)

    async def read(receive: asgi.Receive) -> None:
        while not types or types[-1] != "http.disconnect":
            types.append((await receive())["type"])

    async def endless() -> AsyncIterator[bytes]:
        yield b"some"
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(app, lifespan="off") as server:
            async with http.request("POST", server.url, body=endless(), pins=PINS) as response:
                assert await response.read() == b"all"
                assert response.trailers == [("a", "café")]
            async with asyncio.timeout(10):
                while not types or types[-1] != "http.disconnect":
                    await asyncio.sleep(0.01)

    run(main())


def test_who_asked_for_a_session_and_left_keeps_no_place(run):
    begun: list[asyncio.Task[None] | None] = []

    async def app(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        begun.append(asyncio.current_task())
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(knows_no_lifespan, lifespan="off", webtransport=app) as server:
            asking = [asyncio.ensure_future(ask(server.url)) for _ in range(5)]
            while len(begun) < 5:
                await asyncio.sleep(0.01)
            for one in asking:
                one.cancel()
            async with asyncio.timeout(10):
                while server._wishes:
                    await asyncio.sleep(0.01)

    async def ask(url: str) -> None:
        async with towline.connect(url, pins=PINS):
            pass

    run(main())

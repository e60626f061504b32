"""Requests and answers: bodies both ways, trailers, interim answers, kept connections, and failures."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import towline
from conftest import CERTIFICATE, echo as echo_session
from towline import http

Handler = Callable[[http.Request], Awaitable[object]]
PINS = [CERTIFICATE]


@contextlib.asynccontextmanager
async def serving(handler: Handler, **options: object) -> AsyncIterator[towline.Server]:
    async with towline.serve(
        echo_session, "127.0.0.1", certificate=CERTIFICATE, http=handler, **options
    ) as server:
        try:
            yield server
        finally:
            await http.aclose()


async def hello(request: http.Request) -> None:
    await request.respond(200, b"hello", headers={"content-type": "text/plain"})


async def echo(request: http.Request) -> None:
    async with request.start(200, [("x-method", request.method)]) as body:
        async for chunk in request:
            await body.write(chunk)
        await body.finish(trailers=request.trailers)


def test_a_request_and_its_answer(run):
    seen: list[http.Request] = []

    async def handler(request: http.Request) -> None:
        seen.append(request)
        assert await request.read() == b""
        await hello(request)

    async def main() -> None:
        async with serving(handler) as server:
            url = f"{server.url}/path?x=1#fragment"
            response = await http.get(url, pins=PINS, headers={"X-One": "1"})
            assert response.status == 200
            assert response.header("Content-Type") == "text/plain"
            assert response.header("content-length") == "5"
            assert response.header("nothing") is None
            assert await response.read() == b"hello"
            assert await response.read() == b""
            assert response.at_eof() and response.trailers == []
        request = seen[0]
        assert (request.method, request.path, request.scheme) == ("GET", "/path?x=1", "https")
        assert request.authority == f"127.0.0.1:{server.port}"
        assert request.header("x-one") == "1"
        assert request.remote_address[0] == "127.0.0.1"
        assert request.is_answered

    run(main())


def test_bodies_go_both_ways_at_once_under_back_pressure(run):
    async def body() -> AsyncIterator[bytes]:
        for number in range(200):
            yield bytes([number]) * 20_000

    async def main() -> None:
        async with serving(echo) as server:
            async with http.request("POST", server.url + "/", body=body(), pins=PINS) as answer:
                assert answer.header("x-method") == "POST"
                total, last = 0, 0
                async for chunk in answer:
                    assert chunk[0] >= last
                    last = chunk[-1]
                    total += len(chunk)
                assert total == 200 * 20_000
            large = b"y" * 3_000_000
            response = await http.request("PUT", server.url + "/", body=large, pins=PINS)
            assert await response.read() == large

    run(main())


def test_what_is_longer_than_the_limit_is_read_piece_by_piece(run):
    async def handler(request: http.Request) -> None:
        await request.respond(200, b"x" * 100_000)

    async def main() -> None:
        async with serving(handler) as server:
            response = await http.get(server.url, pins=PINS)
            with pytest.raises(towline.LimitExceeded) as error:
                await response.read(limit=99_999)
            assert error.value.limit == 99_999
            assert len(await response.read(limit=100_000)) == 100_000

    run(main())


def test_lines_and_other_ways_to_read(run):
    async def handler(request: http.Request) -> None:
        async with request.start() as body:
            await body.write(b"data: 1\ndata: 2\n")
            await body.write(bytearray(b"rest"))

    async def main() -> None:
        async with serving(handler) as server:
            async with http.get(server.url, pins=PINS) as response:
                assert await response.readuntil() == b"data: 1\n"
                lines = [line async for line in response.lines()]
                assert lines == [b"data: 2\n", b"rest"]
            async with http.get(server.url, pins=PINS) as response:
                buffer = bytearray(6)
                assert await response.readinto(buffer) == 6
                assert await response.readexactly(2) == b"1\n"
                response.stop()
                with pytest.raises(towline.StreamFinished):
                    await response.read()

    run(main())


def test_trailers_and_interim_answers(run):
    async def handler(request: http.Request) -> None:
        request.interim(103, [("link", "</style.css>")])
        assert await request.read() == b"body"
        body = request.start(201)
        await body.write(b"made")
        with pytest.raises(ValueError):
            request.start()
        with pytest.raises(ValueError):
            request.interim(103)
        await body.finish({"checksum": "abc"})
        with pytest.raises(towline.StreamFinished):
            await body.write(b"more")
        with pytest.raises(towline.StreamFinished):
            await body.finish()

    async def main() -> None:
        async with serving(handler) as server:
            response = await http.request("POST", server.url, body=b"body", pins=PINS)
            assert response.status == 201
            assert response.trailers == []
            assert await response.read() == b"made"
            assert response.trailers == [("checksum", "abc")]
            assert response.trailers == [("checksum", "abc")]

    run(main())


def test_head_and_answers_without_a_body(run):
    async def handler(request: http.Request) -> None:
        if request.path == "/none":
            await request.respond(204)
        else:
            await request.respond(200, b"twelve bytes")

    async def main() -> None:
        async with serving(handler) as server:
            response = await http.request("HEAD", server.url, pins=PINS)
            assert response.header("content-length") == "12"
            assert await response.read() == b""
            response = await http.get(server.url + "/none", pins=PINS)
            assert response.status == 204
            assert response.header("content-length") is None
            assert await response.read() == b""

    run(main())


def test_connections_are_kept_for_who_believes_alike(run):
    def connections(server: towline.Server) -> int:
        return sum(driver.engine.connection_count for driver in server._drivers)

    async def main() -> None:
        async with serving(hello) as server:
            responses = await asyncio.gather(*(http.get(server.url, pins=PINS) for _ in range(20)))
            assert [await response.read() for response in responses] == [b"hello"] * 20
            assert connections(server) == 1
            config = towline.TransportConfig(keep_alive=5)
            await (await http.get(server.url, pins=PINS, config=config)).read()
            assert connections(server) == 2
            # All who share an attempt learn why it failed, and the next one tries anew.
            other = [towline.generate_certificate("localhost")]
            for _ in range(2):
                refused = await asyncio.gather(
                    *(http.get(server.url, pins=other)._open() for _ in range(3)),
                    return_exceptions=True,
                )
                assert [type(error) for error in refused] == [towline.HandshakeRefused] * 3
            await http.aclose()
            await (await http.get(server.url, pins=PINS)).read()

    run(main())


def test_a_connection_that_the_server_closed_is_replaced(run):
    async def main() -> None:
        async with serving(hello) as server:
            assert (await http.get(server.url, pins=PINS)).status == 200
            port = server.port
        async with towline.serve(
            echo_session, "127.0.0.1", port, certificate=CERTIFICATE, http=hello
        ) as again:
            response = await http.get(again.url, pins=PINS)
            assert await response.read() == b"hello"

    run(main())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_that_does_no_harm_twice_is_sent_again(run, method):
    async def main() -> None:
        async with serving(hello) as server:
            assert (await http.get(server.url, pins=PINS)).status == 200
            # The notice waits in the client's socket, and the server takes nobody any more.
            for driver in server._drivers:
                driver.engine.close_connections()
                driver.turn_now()
            expected = towline.HandshakeRefused if method == "GET" else towline.SessionClosed
            with pytest.raises(expected):
                await http.request(method, server.url, pins=PINS)

    run(main())


def test_cancelled_requests_share_an_attempt_and_give_it_up(run):
    async def main() -> None:
        # Nobody is there.
        waiting = [
            asyncio.create_task(http.get("https://127.0.0.1:9/", pins=PINS)._open()) for _ in range(3)
        ]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        done = await asyncio.gather(*waiting, return_exceptions=True)
        kinds = {type(error) for error in done}
        assert kinds <= {asyncio.CancelledError, towline.ConnectFailed}
        with pytest.raises((TimeoutError, towline.ConnectFailed)):
            async with asyncio.timeout(0.05):
                await http.get("https://127.0.0.1:9/", pins=PINS)

    run(main())


def test_a_client_that_leaves_has_its_handler_cancelled(run):
    cancelled: asyncio.Queue[str] = asyncio.Queue()

    async def handler(request: http.Request) -> None:
        try:
            if request.path == "/body":
                async with request.start() as body:
                    while True:
                        await body.write(b"x" * 10_000)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.put_nowait(request.path)
            raise
        except OSError:
            cancelled.put_nowait(request.path)

    async def main() -> None:
        async with serving(handler) as server:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await http.get(server.url + "/wait", pins=PINS)
            assert await cancelled.get() == "/wait"
            async with http.get(server.url + "/body", pins=PINS) as response:
                assert await response.read(10)
            assert await cancelled.get() == "/body"
            # Dropped is given up, too.
            response = await http.get(server.url + "/body", pins=PINS)
            del response
            gc.collect()
            assert await cancelled.get() == "/body"

    run(main())


def test_a_cancelled_write_has_taken_all_or_nothing(run):
    piece = bytes(4 << 20)
    go = asyncio.Event()

    async def handler(request: http.Request) -> None:
        async with request.start() as body:
            for _ in range(5):
                try:
                    async with asyncio.timeout(0.3):
                        await body.write(piece)
                except TimeoutError:
                    pass
            go.set()

    async def main() -> None:
        async with serving(handler) as server:
            response = await http.get(server.url, pins=PINS)
            await go.wait()
            total = len(await response.read(limit=100 << 20))
            # The first was taken, those that found it waiting were not.
            assert total % len(piece) == 0
            assert len(piece) <= total < 5 * len(piece)

    run(main())


def test_a_handler_that_fails_or_forgets(run, caplog):
    async def handler(request: http.Request) -> None:
        if request.path == "/raise":
            raise ValueError("a mistake")
        if request.path == "/half":
            async with request.start() as body:
                await body.write(b"half")
                await go.wait()
                raise ValueError("in the middle")
        if request.path == "/open":
            await request.start().write(b"not finished")

    go = asyncio.Event()

    async def main() -> None:
        async with serving(handler) as server:
            for path in ("/raise", "/forget"):
                response = await http.get(server.url + path, pins=PINS)
                assert (response.status, await response.read()) == (500, b"")
            response = await http.get(server.url + "/half", pins=PINS)
            go.set()
            with pytest.raises(towline.StreamReset, match="H3_INTERNAL_ERROR") as reset:
                await response.read()
            assert reset.value.code == 0x102
            response = await http.get(server.url + "/open", pins=PINS)
            assert await response.read() == b"not finished"
        assert "a mistake" in caplog.text and "did not answer" in caplog.text

    run(main())


def test_a_body_that_raises_raises_at_who_reads(run):
    async def body() -> AsyncIterator[bytes]:
        yield b"begin"
        raise KeyError("mine")

    async def main() -> None:
        async with serving(echo) as server:
            with pytest.raises(KeyError, match="mine"):
                async with http.request("POST", server.url, body=body(), pins=PINS) as response:
                    await response.read()

    run(main())


def test_an_early_answer_ends_a_long_body(run):
    async def handler(request: http.Request) -> None:
        await request.respond(413, b"too much")

    async def main() -> None:
        async with serving(handler) as server:
            response = await http.request(
                "POST", server.url, body=bytes(20 << 20), pins=PINS
            )
            assert response.status == 413
            assert await response.read() == b"too much"

    run(main())


def test_without_a_handler_requests_get_404_and_sessions_go_on(run):
    async def main() -> None:
        async with towline.serve(echo_session, "127.0.0.1", certificate=CERTIFICATE) as server:
            assert (await http.get(server.url, pins=PINS)).status == 404
            await http.aclose()
        async with serving(hello) as server:
            async with towline.connect(server.url, pins=PINS) as session:
                async with await session.create_bidirectional_stream() as stream:
                    await stream.write(b"beside")
                    assert await (await http.get(server.url, pins=PINS)).read() == b"hello"
                    stream.finish()
                    assert await stream.read() == b"beside"

    run(main())


def test_drain_lets_requests_end(run):
    async def handler(request: http.Request) -> None:
        async with request.start() as body:
            await body.write(b"begin ")
            await go.wait()
            await body.write(b"end")

    go = asyncio.Event()

    async def main() -> None:
        async with serving(handler) as server:
            response = await http.get(server.url, pins=PINS)
            assert await response.read(100) == b"begin "
            draining = asyncio.create_task(server.drain(10.0))
            await asyncio.sleep(0.05)
            assert not draining.done()
            # The connection takes no more requests, and the server no more connections.
            with pytest.raises(towline.HandshakeRefused):
                await http.get(server.url, pins=PINS)
            go.set()
            assert await response.read() == b"end"
            await draining

    run(main())


def test_a_server_that_closes_breaks_answers_off(run):
    async def handler(request: http.Request) -> None:
        async with request.start() as body:
            await body.write(b"begin")
            await asyncio.Event().wait()

    async def main() -> None:
        async with serving(handler) as server:
            response = await http.get(server.url, pins=PINS)
            assert await response.read(100) == b"begin"
            await server.close()
            with pytest.raises((towline.StreamReset, towline.SessionClosed)):
                await response.read()

    run(main())


def test_the_end_of_the_loop_closes_kept_connections():
    port: list[int] = []
    left: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await towline.serve(
            echo_session, "127.0.0.1", certificate=CERTIFICATE, http=hello
        )
        port.append(server.port)
        await (await http.get(server.url, pins=PINS)).read()
        await loop.shutdown_asyncgens()
        session = server._drivers[0]
        while session.engine.connection_count:
            # A closing connection is gone after three probe timeouts.
            await asyncio.sleep(0.05)
        left.append(0)
        await server.close()

    asyncio.run(asyncio.wait_for(main(), 20))
    assert left == [0]


def test_a_loop_that_is_closed_with_kept_connections():
    loop = asyncio.new_event_loop()

    async def main() -> http.Response:
        server = await towline.serve(
            echo_session, "127.0.0.1", certificate=CERTIFICATE, http=hello
        )
        response = await http.get(server.url, pins=PINS)
        # The connection is kept, and nobody says that the loop ends.
        await server.close()
        return response

    response = loop.run_until_complete(main())
    loop.close()
    assert response.status == 200
    del response
    gc.collect()


def test_two_loops_have_connections_of_their_own(url):
    async def main() -> int:
        response = await http.get(url, pins=PINS)
        await http.aclose()
        return response.status

    assert [asyncio.run(main()) for _ in range(2)] == [404, 404]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: http.get(5), TypeError, "argument 'url'"),  # type: ignore[arg-type]
        (lambda: http.get("http://localhost/"), ValueError, "https://host"),
        (lambda: http.get("https://user@localhost/"), ValueError, "argument 'url'"),
        (lambda: http.request(5, "https://x/"), TypeError, "argument 'method'"),
        (lambda: http.request("POST", "https://x/", body="text"), TypeError, "argument 'body'"),
        (lambda: http.get("https://x/", headers={"a": 1}), TypeError, "argument 'headers'"),
        (lambda: http.get("https://x/", headers=["ab"]), TypeError, "argument 'headers'"),
    ],
)
def test_wrong_arguments_are_named(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_wrong_messages_are_refused_in_words(run):
    async def handler(request: http.Request) -> None:
        with pytest.raises(ValueError, match="argument 'status'"):
            request.start(5)
        with pytest.raises(ValueError, match="argument 'headers': 'bad name'"):
            request.start(200, {"bad name": "x"})
        with pytest.raises(TypeError, match="argument 'body'"):
            await request.respond(200, "text")
        with pytest.raises(ValueError):
            request.interim(200)
        with pytest.raises(ValueError, match="argument 'headers': 'Connection'"):
            request.start(200, {"Connection": "close"})
        await request.respond()

    async def main() -> None:
        async with serving(handler) as server:
            assert (await http.get(server.url, pins=PINS)).status == 200
            with pytest.raises(ValueError, match="argument 'url'"):
                await http.get(server.url + "/sp ace", pins=PINS)
            with pytest.raises(ValueError, match="argument 'headers'"):
                await http.get(server.url, pins=PINS, headers={"a": "b\r\nc: d"})
            with pytest.raises(ValueError):
                await http.request("CONNECT", server.url, pins=PINS)

    run(main())


def test_a_response_that_is_dropped_ends_the_sending_of_its_request(run):
    async def answer(request: http.Request) -> None:
        await request.respond(200, b"enough")

    async def endless() -> AsyncIterator[bytes]:
        yield b"some"
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(answer) as server:
            response = await http.request("POST", server.url, body=endless(), pins=PINS)
            assert await response.read() == b"enough"
            sending = response._sending
            assert sending is not None
            del response
            gc.collect()
            async with asyncio.timeout(10):
                while not sending.done():
                    await asyncio.sleep(0.01)

    run(main())

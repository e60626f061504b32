"""Calls, subscriptions and publishers: what fails, what is given up, what is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import connected, idle

import towline
from towline.messaging import (
    Broker,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    Methods,
    NotPermitted,
    ParseError,
    Peer,
    RpcError,
    RpcTimeout,
    SlowSubscriber,
    broadcast,
)
from towline.structured import BadMessage, StructuredStream


@dataclass
class User:
    name: str
    age: int = 0


class Far:
    """A far side with methods, and what happened there."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.started = asyncio.Event()
        self.running = 0
        self.most = 0
        self.peers: list[Peer] = []
        methods = self.methods = Methods()
        for function in (
            self.add,
            self.greet,
            self.fail,
            self.refuse,
            self.forever,
            self.slow,
            self.note,
            self.whoami,
            self.ask_back,
            self.unsendable,
            self.data,
        ):
            methods.add(function.__name__, function)

    def add(self, a: int, b: int = 1) -> int:
        return a + b

    async def greet(self, user: User, *, loud: bool = False) -> User:
        return User(user.name.upper() if loud else user.name, user.age + 1)

    async def fail(self) -> None:
        raise LookupError("a secret of the database")

    async def refuse(self) -> None:
        raise RpcError("not today", 1234, {"try": "tomorrow"})

    async def forever(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise

    async def slow(self, seconds: float) -> float:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(seconds)
            return seconds
        finally:
            self.running -= 1

    def note(self, text: str) -> None:
        self.seen.append(text)

    def whoami(self, prefix: str, peer: Peer) -> str:
        return prefix + peer.session.path

    async def ask_back(self, peer: Peer, n: int) -> Any:
        return await peer.call("double", [n])

    def unsendable(self) -> object:
        return object()

    def data(self, n: int) -> str:
        return "x" * n


@contextlib.asynccontextmanager
async def peers(
    far: Far, near: Methods | None = None, broker: Broker | None = None, **options: Any
) -> AsyncIterator[Peer]:
    async def handler(session: towline.Session) -> None:
        peer = Peer(session, far.methods, broker, **options)
        far.peers.append(peer)
        await peer.serve()

    async with connected(handler) as session:
        codec = {"codec": options["codec"]} if "codec" in options else {}
        async with Peer(session, near, **codec) as peer:
            yield peer


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_calls_with_typed_parameters_and_results(run: Callable[..., Any], codec: str) -> None:
    async def main() -> None:
        far = Far()
        async with peers(far, codec=codec) as peer:
            assert await peer.call("add", [1, 2]) == 3
            assert await peer.call("add", {"a": 5}) == 6
            user = await peer.call("greet", {"user": User("ann", 3), "loud": True}, result=User)
            assert user == User("ANN", 4)
            assert await peer.call("whoami", ["at "]) == "at /test?x=1"
            assert await peer.call("whoami", {"prefix": ""}) == "/test?x=1"
            assert peer.stats.calls_made == 5
            assert far.peers[0].stats.calls_answered == 5

    run(main())


def test_errors_are_typed_and_keep_secrets(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with peers(Far()) as peer:
            for method, params, kind, words in (
                ("nothing", None, MethodNotFound, "no method 'nothing'"),
                ("add", [], InvalidParams, "missing a required argument: 'a'"),
                ("add", [1, 2, 3], InvalidParams, "too many positional"),
                ("add", ["1"], InvalidParams, "field 'a': an integer is required, not '1'"),
                ("add", {"a": 1, "c": 2}, InvalidParams, "'c'"),
                ("greet", [{"name": 1}], InvalidParams, "field 'user.name': a text"),
                ("whoami", {"prefix": "", "peer": 1}, InvalidParams, "'peer'"),
                ("fail", None, InternalError, "^the method failed$"),
                ("unsendable", None, InternalError, "cannot be sent"),
                ("data", [300_000], InternalError, "cannot be sent"),
            ):
                with pytest.raises(kind, match=words) as caught:
                    await peer.call(method, params)
                assert "secret" not in str(caught.value)
            with pytest.raises(RpcError) as refused:
                await peer.call("refuse")
            assert (refused.value.code, refused.value.data) == (1234, {"try": "tomorrow"})
            assert await peer.call("add", [1]) == 2, "the session goes on"
            with pytest.raises(BadMessage, match="the result of 'add': a text is required"):
                await peer.call("add", [1], result=str)

    run(main())
    assert "a secret of the database" in caplog.text


def test_a_cancelled_call_is_cancelled_at_the_far_side(run: Callable[..., Any]) -> None:
    async def main() -> None:
        far = Far()
        async with peers(far) as peer:
            call = asyncio.create_task(peer.call("forever"))
            await far.started.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: far.seen)
            assert far.seen == ["cancelled"]
            await until(lambda: far.peers[0].stats.calls_cancelled == 1)
            assert await peer.call("add", [1]) == 2

    run(main())


def test_a_call_that_takes_too_long_is_cancelled_at_the_far_side(run: Callable[..., Any]) -> None:
    async def main() -> None:
        far = Far()
        async with peers(far) as peer:
            with pytest.raises(
                RpcTimeout, match="'forever' gave no answer in 0.05 seconds"
            ) as late:
                await peer.call("forever", timeout=0.05)
            assert isinstance(late.value, TimeoutError)
            if far.started.is_set():
                await until(lambda: far.seen)

    run(main())


def test_a_far_side_that_does_not_serve_is_a_timeout(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(idle) as session:
            async with Peer(session) as peer:
                with pytest.raises(RpcTimeout):
                    await peer.call("add", [1], timeout=0.05)
                with pytest.raises(RpcTimeout):
                    async with peer.subscribe("a", timeout=0.05):
                        pass

    run(main())


def test_calls_beyond_the_limit_wait(run: Callable[..., Any]) -> None:
    async def main() -> None:
        far = Far()
        async with peers(far, concurrency=3) as peer:
            calls = [peer.call("slow", [0.02]) for _ in range(12)]
            assert await asyncio.gather(*calls) == [0.02] * 12
            assert far.most == 3

    run(main())


def test_notifications_have_no_answer(run: Callable[..., Any]) -> None:
    async def main() -> None:
        far = Far()
        async with peers(far) as peer:
            await peer.notify("note", ["a"])
            await peer.notify("nothing")
            await peer.notify("fail")
            await peer.notify("note", ["b"])
            await until(lambda: len(far.seen) == 2)
            assert sorted(far.seen) == ["a", "b"]
            await until(lambda: far.peers[0].stats.notifications == 4)

    run(main())


def test_both_ends_call(run: Callable[..., Any]) -> None:
    near = Methods()

    @near.method("double")
    def double(n: int) -> int:
        return 2 * n

    async def main() -> None:
        async with peers(Far(), near) as peer:
            assert await peer.call("ask_back", [21]) == 42

    run(main())


def test_a_session_that_ends_cancels_what_runs_at_both_ends(run: Callable[..., Any]) -> None:
    near, seen = Methods(), []

    @near.method("double")
    async def double(n: int) -> None:
        seen.append("called")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    async def main() -> None:
        far = Far()
        async with peers(far, near) as peer:
            call = asyncio.create_task(peer.call("ask_back", [1]))
            await until(lambda: seen)
            far.peers[0].session.close(9, "enough")
            with pytest.raises(towline.SessionClosed) as closed:
                await call
            assert closed.value.code == 9
            await until(lambda: len(seen) == 2)
            with pytest.raises(towline.SessionClosed):
                await peer.call("add", [1])

    run(main())


BAD_REQUESTS: list[tuple[bytes, type[RpcError], str]] = [
    (b"{", ParseError, "no JSON"),
    (b"3", InvalidRequest, "an object with"),
    (b"{}", InvalidRequest, "an object with"),
    (b"[]", InvalidRequest, "batches"),
    (b'{"jsonrpc":"1.0","method":"add","id":1}', InvalidRequest, "'2.0'"),
    (b'{"jsonrpc":"2.0","method":3,"id":1}', InvalidRequest, "an object with"),
    (b'{"jsonrpc":"2.0","method":"add","id":[]}', InvalidRequest, "'id'"),
    (b'{"jsonrpc":"2.0","method":"add","params":3,"id":1}', InvalidParams, "neither"),
    (b'{"subscribe":3}', InvalidRequest, "'pattern': a str"),
    (b'{"subscribe":"a//b"}', InvalidRequest, "levels"),
    (b'{"subscribe":"#/b"}', InvalidRequest, "at the end alone"),
    (b'{"subscribe":"a","queue":0}', InvalidRequest, "'queue'"),
    (b'{"subscribe":"a","queue":true}', InvalidRequest, "'queue'"),
    (b'{"subscribe":"a","policy":[]}', InvalidRequest, "'policy'"),
    (b'{"publish":"a/+"}', InvalidRequest, "for patterns"),
    (b'{"publish":7}', InvalidRequest, "with a topic"),
]


def test_bad_requests_are_answered_and_cost_one_stream(run: Callable[..., Any]) -> None:
    async def main() -> None:
        far, broker = Far(), Broker()
        async with peers(far, broker=broker, streams=2, concurrency=2) as peer:
            for data, kind, words in BAD_REQUESTS:
                stream = await peer.session.create_bidirectional_stream()
                async with stream, StructuredStream(stream) as messages:
                    await messages.send_bytes(data)
                    answer = await messages.receive()
                    assert answer["error"]["code"] == kind.CODE, data
                    assert words in answer["error"]["message"], answer
            # Ends, resets, a request cut short: nothing is answered, and nothing is kept.
            for data in (b"", b"\x00\x00", b"\x00\x00\x00\x05ab"):
                async with await peer.session.create_bidirectional_stream() as stream:
                    await stream.write(data)
                stream = await peer.session.create_bidirectional_stream()
                await stream.write(data)
                stream.reset(3)
                stream.stop()
            assert await peer.call("add", [1]) == 2
            assert broker.stats().subscriptions == 0

    run(main())


def test_a_request_that_never_comes_frees_its_place(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with peers(Far(), concurrency=1, request_timeout=0.05) as peer:
            stream = await peer.session.create_bidirectional_stream()
            await stream.write(b"\x00")
            assert await peer.call("add", [1]) == 2
            with pytest.raises(towline.StreamReset):
                await stream.read()

    run(main())


@pytest.mark.parametrize(
    "answer",
    [
        b"3",
        b"{",
        b'{"jsonrpc":"2.0","id":99,"result":1}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":1}}',
        b'{"jsonrpc":"2.0","id":1,"result":1,"error":3}',
    ],
)
def test_answers_that_are_none(answer: bytes) -> None:
    async def handler(session: towline.Session) -> None:
        async for stream in session.incoming_bidirectional_streams:
            async with stream, StructuredStream(stream) as messages:
                await messages.receive()
                await messages.send_bytes(answer)

    async def main() -> None:
        async with connected(handler) as session, Peer(session) as peer:
            with pytest.raises(BadMessage):
                await peer.call("x", timeout=5)
            with pytest.raises(BadMessage):
                async with peer.subscribe("a"):
                    pass

    asyncio.run(main())


def test_a_far_side_that_ends_or_resets_without_an_answer(run: Callable[..., Any]) -> None:
    async def handler(session: towline.Session) -> None:
        async for stream in session.incoming_bidirectional_streams:
            data = await stream.read(100)
            if b"reset" in data:
                stream.reset(5)
            else:
                stream.finish()

    async def main() -> None:
        async with connected(handler) as session, Peer(session) as peer:
            with pytest.raises(RpcError, match="without an answer"):
                await peer.call("end")
            with pytest.raises(towline.StreamReset):
                await peer.call("reset")
            with pytest.raises(RpcError, match="without an answer"):
                async with peer.subscribe("a"):
                    pass

    run(main())


def test_topics_match_patterns() -> None:
    broker = Broker()
    patterns = ("a/b", "a/+", "+/b", "a/#", "#", "a/b/#", "a/b/c", "+")
    subscriptions = {pattern: broker.subscribe(pattern) for pattern in patterns}
    twice = broker.subscribe("a/b")
    assert broker.publish("a/b", 1) == 7
    assert broker.publish("a") == 3
    assert broker.publish("x/y/z") == 1
    got = {pattern: len(one) for pattern, one in subscriptions.items()}
    assert got == {
        "a/b": 1,
        "a/+": 1,
        "+/b": 1,
        "a/#": 2,
        "#": 3,
        "a/b/#": 1,
        "a/b/c": 0,
        "+": 1,
    }
    assert len(twice) == 1
    for one in (*subscriptions.values(), twice):
        one.close()
        one.close()
    assert broker.publish("a/b") == 0
    assert broker.stats().subscriptions == 0
    assert broker._root.below == {}, "nothing is left of patterns"


@pytest.mark.parametrize(
    "topic", ["", "/", "a/", "/a", "a//b", "x" * 257, "a/" * 16 + "a", "a/+", "#"]
)
def test_what_is_no_topic(topic: str) -> None:
    with pytest.raises(ValueError, match="'topic'"):
        Broker().publish(topic)


def test_full_queues_drop_by_their_policy() -> None:
    async def main() -> None:
        broker = Broker()
        oldest = broker.subscribe("t", queue=2)
        newest = broker.subscribe("t", queue=2, policy="newest")
        close = broker.subscribe("t", queue=2, policy="close")
        for n in range(5):
            broker.publish("t", n)
        assert [(await anext(oldest)).data, (await anext(oldest)).data] == [3, 4]
        assert [(await anext(newest)).data, (await anext(newest)).data] == [0, 1]
        assert [(await anext(close)).data, (await anext(close)).data] == [0, 1]
        with pytest.raises(SlowSubscriber, match="queue of 2 messages"):
            await anext(close)
        assert (oldest.dropped, newest.dropped, close.dropped) == (3, 3, 1)
        stats = broker.stats()
        assert (stats.published, stats.queued, stats.dropped) == (5, 9, 7)
        assert (stats.subscriptions, stats.closed_slow) == (2, 1)

    asyncio.run(main())


def test_a_local_subscription_waits_and_is_woken() -> None:
    async def main() -> None:
        broker = Broker()
        async with broker.subscribe("a") as subscription:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(subscription)
            waiting = asyncio.create_task(anext(subscription))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task waits"):
                await anext(subscription)
            broker.publish("a", {"x": 1})
            message = await waiting
            assert (message.topic, message.data) == ("a", {"x": 1})
            rest = asyncio.create_task(anext(subscription, None))
            await asyncio.sleep(0)
        assert await rest is None
        with pytest.raises(TypeError, match="'object' has no form"):
            broker.publish("a", object())

    asyncio.run(main())


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_messages_go_through_a_broker_between_sessions(run: Callable[..., Any], codec: str) -> None:
    broker = Broker()

    async def handler(session: towline.Session) -> None:
        await Peer(session, broker=broker, codec=codec).serve()

    async def main() -> None:
        async with connected(handler) as session, Peer(session, codec=codec) as peer:
            wide = peer.subscribe("news/#", queue=200)
            async with wide as news, peer.subscribe("news/+", queue=200) as flat:
                for n in range(100):
                    await peer.publish("news/sport", {"n": n, "by": User("ann")})
                await until(lambda: broker.stats().published == 100)
                broker.publish("news/a/b", None)
                got = [(await anext(news)).data["n"] for _ in range(100)]
                assert got == list(range(100)), "a publisher's messages keep their order"
                message = await anext(news)
                assert (message.topic, message.data) == ("news/a/b", None)
                assert (await anext(flat)).data == {"n": 0, "by": {"name": "ann", "age": 0}}
                assert broker.stats().subscriptions == 2
            await until(lambda: broker.stats().subscriptions == 0)

    run(main())


def test_a_subscriber_that_does_not_read_costs_a_bounded_queue(run: Callable[..., Any]) -> None:
    broker = Broker(max_queue=4)

    async def handler(session: towline.Session) -> None:
        await Peer(session, broker=broker).serve()

    async def main() -> None:
        async with connected(handler) as session, Peer(session) as peer:
            async with peer.subscribe("t", queue=1 << 30) as slow:
                for n in range(200):
                    broker.publish("t", [n, "x" * 100_000])
                    await asyncio.sleep(0)
                [subscription] = broker._root.below["t"].subscriptions
                assert len(subscription) <= 4
                assert broker.stats().dropped > 0
                assert (await anext(slow)).data[0] == 0
                last = -1
                while last != 199:
                    last = (await anext(slow)).data[0]
                assert slow.received + broker.stats().dropped == 200

    run(main())


def test_a_slow_subscriber_is_closed_and_told(run: Callable[..., Any]) -> None:
    broker = Broker()

    async def handler(session: towline.Session) -> None:
        await Peer(session, broker=broker).serve()

    async def main() -> None:
        async with connected(handler) as session, Peer(session) as peer:
            async with peer.subscribe("t", queue=2, policy="close") as slow:
                for n in range(3):
                    broker.publish("t", n)
                with pytest.raises(SlowSubscriber):
                    async for _ in slow:
                        pass
            assert broker.stats().subscriptions == 0

    run(main())


def test_subscribers_that_vanish_are_forgotten(run: Callable[..., Any]) -> None:
    broker = Broker()

    async def handler(session: towline.Session) -> None:
        await Peer(session, broker=broker).serve()

    async def main() -> None:
        async with connected(handler) as session, Peer(session) as peer:
            async with peer.subscribe("t"):
                pass
            with pytest.raises(LookupError):
                async with peer.subscribe("t"):
                    raise LookupError
            task = asyncio.create_task(peer.subscribe("t").__aenter__())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: broker.stats().subscriptions == 0)
            held = await peer.subscribe("t").__aenter__()
            assert broker.stats().subscriptions == 1
            session.close()
            with pytest.raises(towline.SessionClosed):
                await anext(held)
        await until(lambda: broker.stats().subscriptions == 0)

    run(main())


def test_permits_are_asked_and_may_fail(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[str, str]] = []

    async def permit(peer: Peer, action: str, topic: str) -> bool:
        asked.append((action, topic))
        if "boom" in topic:
            raise OSError("no database")
        return topic.startswith("public")

    broker = Broker(permit=permit)

    async def main() -> None:
        async with peers(Far(), broker=broker) as peer:
            with pytest.raises(NotPermitted, match="to subscribe 'private/#'"):
                async with peer.subscribe("private/#"):
                    pass
            with pytest.raises(InternalError, match="could not be found out"):
                async with peer.subscribe("boom"):
                    pass
            async with peer.subscribe("public/#") as subscription:
                await peer.publish("public/a", 1)
                await peer.publish("public/a", 2)
                assert (await anext(subscription)).data == 1
                assert (await anext(subscription)).data == 2
                assert asked.count(("publish", "public/a")) == 1
                with pytest.raises(NotPermitted, match="to publish 'private'"):
                    for _ in range(1000):
                        await peer.publish("private", 3)
                        await asyncio.sleep(0.005)
                await peer.publish("public/b", 4)
                assert (await anext(subscription)).data == 4

    run(main())
    assert "`permit` of a broker failed" in caplog.text


def test_subscriptions_of_one_peer_are_bounded(run: Callable[..., Any]) -> None:
    broker = Broker()

    async def main() -> None:
        async with peers(Far(), broker=broker, streams=2, concurrency=1) as peer:
            async with peer.subscribe("a"), peer.subscribe("b"):
                with pytest.raises(NotPermitted, match="2 subscriptions and publishers"):
                    async with peer.subscribe("c"):
                        pass
                assert await peer.call("add", [1]) == 2, "they take no place of calls"
            await until(lambda: broker.stats().subscriptions == 0)
            async with peer.subscribe("c"):
                pass

    run(main())


def test_without_a_broker_or_methods_it_says_so(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with peers(Far()) as peer:
            with pytest.raises(MethodNotFound, match="no broker"):
                async with peer.subscribe("a"):
                    pass
            with pytest.raises(MethodNotFound, match="no broker"):
                for _ in range(1000):
                    await peer.publish("a", 1)
                    await asyncio.sleep(0.005)

    run(main())


def test_a_message_that_cannot_be_sent_is_dropped_and_told(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()

    async def handler(session: towline.Session) -> None:
        await Peer(session, broker=broker, limit=100).serve()

    async def main() -> None:
        async with connected(handler) as session, Peer(session) as peer:
            async with peer.subscribe("t") as subscription:
                for data in ("x" * 200, float("nan"), "fine"):
                    broker.publish("t", data)
                assert (await anext(subscription)).data == "fine"

    run(main())
    assert caplog.text.count("cannot be sent") == 1, "once for a subscription"


def test_methods_are_checked_when_they_are_added() -> None:
    methods = Methods()
    with pytest.raises(TypeError, match="'function'"):
        methods.add("a", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'name'"):
        methods.add(3, print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="parentheses"):
        methods.method(len)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 to 256"):
        methods.add("", lambda: None)

    def strange(x: complex) -> None: ...

    with pytest.raises(TypeError, match="method 'strange', 'x': the type 'complex'"):
        methods.add("strange", strange)

    class Local: ...

    def local(x: Local) -> None: ...

    with pytest.raises(TypeError, match="not known at the module's level"):
        methods.add("local", local)
    methods.add("once", lambda: None)
    with pytest.raises(ValueError, match="there is a method 'once'"):
        methods.add("once", lambda: None)


def test_wrong_types_name_the_argument(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(idle) as session:
            with pytest.raises(TypeError, match="'session'"):
                Peer(3)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="'concurrency'"):
                Peer(session, concurrency=0)
            peer = Peer(session)
            with pytest.raises(TypeError, match="'params'"):
                await peer.call("a", 3)
            with pytest.raises(TypeError, match="'method'"):
                await peer.call(3)  # type: ignore[call-overload]
            with pytest.raises(ValueError, match="'topic'"):
                await peer.publish("a/#")
            with pytest.raises(ValueError, match="'pattern'"):
                peer.subscribe("")
            with pytest.raises(TypeError, match="has no form"):
                await peer.call("a", [object()])

    run(main())
    with pytest.raises(ValueError, match="'max_queue'"):
        Broker(max_queue=0)
    with pytest.raises(ValueError, match="'policy'"):
        Broker().subscribe("a", policy="rarest")  # type: ignore[arg-type]


def test_a_datagram_for_many_sessions(run: Callable[..., Any]) -> None:
    came: list[towline.Session] = []

    async def handler(session: towline.Session) -> None:
        came.append(session)
        await session.closed

    async def main() -> None:
        async with connected(handler) as session:
            await until(lambda: came)
            assert broadcast(came, b"all") == (1, 0, 0)
            assert await session.datagrams.receive() == b"all"
            assert broadcast(came, b"x" * 100_000) == (0, 1, 0)
            session.close()
            await came[0].closed
            assert broadcast(came, b"all") == (0, 0, 1)

    run(main())


def test_what_travels_is_json_rpc(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with peers(Far()) as peer:
            async with await peer.session.create_bidirectional_stream() as stream:
                request = json.dumps(
                    {"jsonrpc": "2.0", "method": "add", "params": [2, 3], "id": "seven"}
                ).encode()
                await stream.write(len(request).to_bytes(4) + request)
                stream.finish()
                answer = json.loads((await stream.read())[4:])
                assert answer == {"jsonrpc": "2.0", "id": "seven", "result": 5}

    run(main())


def test_serving_ends_quietly_with_the_session(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        far = Far()
        async with peers(far) as peer:
            call = asyncio.create_task(peer.call("forever"))
            await far.started.wait()
            peer.session.close(3, "away")
            with pytest.raises(towline.SessionClosed):
                await call
        await until(lambda: far.seen)

    run(main())
    assert caplog.records == []


def test_queues_are_bounded_in_bytes_too() -> None:
    broker = Broker(max_queue_bytes=100_000)
    subscription = broker.subscribe("a", queue=1024)
    for _ in range(50):
        broker.publish("a", [[] for _ in range(100)])
    assert 1 < len(subscription) < 10
    assert subscription.dropped == 50 - len(subscription)
    whole = len(subscription)
    broker.publish("a", [[] for _ in range(100_000)])
    assert len(subscription) == whole
    slow = broker.subscribe("b", queue=1024, policy="close")
    for _ in range(50):
        broker.publish("b", [[] for _ in range(100)])
    assert slow.closed


def test_a_topic_of_a_clients_words_is_no_pattern() -> None:
    broker = Broker()
    for room in ("+", "#"):
        with pytest.raises(ValueError, match="for patterns"):
            broker.subscribe(f"rooms/{room}", exact=True)
    subscription = broker.subscribe("rooms/galley", exact=True)
    assert broker.publish("rooms/galley") == 1 and len(subscription) == 1

"""Structured streams and datagrams: messages whole or not at all, and what is wrong with bad
ones."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import json
import struct
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from conftest import connected, echo, idle

import towline
from towline.structured import (
    BadMessage,
    EndOfStream,
    MessageTooLarge,
    Misfit,
    StructuredDatagrams,
    StructuredStream,
    TruncatedMessage,
    from_plain,
    to_plain,
)


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Move:
    who: str
    to: Point
    path: list[Point] = field(default_factory=list)
    colour: Colour | None = None
    blob: bytes = b""
    when: datetime.datetime | None = None
    id: uuid.UUID | None = None
    tags: dict[str, float] = field(default_factory=dict)
    kind: Literal["walk", "jump"] = "walk"


@dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("n is odd")


MOVE = Move(
    who="Zoë",
    to=Point(1, 2),
    path=[Point(3)],
    colour=Colour.GREEN,
    blob=b"\x00\xff",
    when=datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC),
    id=uuid.UUID(int=7),
    tags={"a": 1.5},
    kind="jump",
)


def sends(*pieces: bytes, finish: bool = True) -> Any:
    """A handler that writes these bytes on a stream of its own."""

    async def handler(session: towline.Session) -> None:
        stream = await session.create_unidirectional_stream()
        for piece in pieces:
            await stream.write(piece)
            await asyncio.sleep(0.01)
        if finish:
            stream.finish()
        await session.closed

    return handler


def framed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


async def arrives(session: towline.Session, *args: Any, **options: Any) -> StructuredStream[Any]:
    stream = await anext(session.incoming_unidirectional_streams)
    return StructuredStream(stream, *args, **options)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_dataclasses_come_back_as_they_went(run: Callable[..., Any], codec: str) -> None:
    async def main() -> None:
        async with connected(echo) as session:
            stream = StructuredStream(
                await session.create_bidirectional_stream(), Move, codec=codec
            )
            async with stream:
                plain = Move("Al", Point(0))
                await stream.send(MOVE)
                await stream.send(plain)
                stream.finish()
                assert [message async for message in stream] == [MOVE, plain]
                with pytest.raises(EndOfStream):
                    await stream.receive()
            assert (stream.sent, stream.received) == (2, 2)

    run(main())


def test_several_types_travel_under_their_names(run: Callable[..., Any]) -> None:
    schema: dict[str, type[Any]] = {"move": Move, "point": Point, "text": str}

    async def main() -> None:
        async with connected(echo) as session:
            inner = await session.create_bidirectional_stream()
            async with StructuredStream(inner, schema) as stream:
                await stream.send(Point(1, 2))
                await stream.send("hello")
                assert await stream.receive() == Point(1, 2)
                assert await stream.receive() == "hello"
                with pytest.raises(TypeError, match="'Even' is no type of"):
                    await stream.send(Even(2))

    run(main())


def test_plain_values_need_no_schema(run: Callable[..., Any]) -> None:
    values = [None, True, 1, -1.5, "x", [1, [2]], {"a": {"b": []}}]

    async def main() -> None:
        async with connected(echo) as session:
            inner = await session.create_bidirectional_stream()
            async with StructuredStream(inner) as stream:
                for value in values:
                    await stream.send(value)
                    assert await stream.receive() == value

    run(main())


def test_other_formats_go_as_bytes(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(echo) as session:
            inner = await session.create_bidirectional_stream()
            async with StructuredStream(inner, limit=3) as stream:
                await stream.send_bytes(b"\x08\x96\x01")
                assert await stream.receive_bytes() == b"\x08\x96\x01"
                await stream.send_bytes(b"")
                assert await stream.receive_bytes() == b""
                with pytest.raises(MessageTooLarge):
                    await stream.send_bytes(b"1234")
                assert (stream.sent, stream.received) == (2, 2)

    run(main())


def test_large_messages_come_whole(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(echo) as session:
            inner = await session.create_bidirectional_stream()
            async with StructuredStream(inner, bytes, limit=8 << 20) as stream:
                data = bytes(range(256)) * 16384
                sending = asyncio.create_task(stream.send(data))
                assert await stream.receive() == data
                await sending

    run(main())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"who": "a"}, "field 'to': it is missing"),
        ({"who": 1, "to": {"x": 1}}, "field 'who': a text is required, not 1"),
        ({"who": "a", "to": {"x": True}}, "field 'to.x': an integer is required, not True"),
        ({"who": "a", "to": {"x": 1, "z": 1}}, "field 'to.z': Point has no such field"),
        ({"who": "a", "to": 7}, r"field 'to': an object \(Point\) is required, not 7"),
        (
            {"who": "a", "to": {"x": 1}, "path": [{"x": 1}, {}]},
            r"field 'path\[1\].x': it is missing",
        ),
        ({"who": "a", "to": {"x": 1}, "path": {}}, "field 'path': a list is required"),
        ({"who": "a", "to": {"x": 1}, "colour": "blue"}, "field 'colour': one of 'red', 'green'"),
        ({"who": "a", "to": {"x": 1}, "blob": "%"}, "field 'blob': the text is no base64"),
        ({"who": "a", "to": {"x": 1}, "when": "now"}, "field 'when': 'now' is not a date"),
        ({"who": "a", "to": {"x": 1}, "id": "7"}, "field 'id': '7' is not a UUID"),
        ({"who": "a", "to": {"x": 1}, "tags": {"k": "v"}}, "field 'tags.k': a number is required"),
        ({"who": "a", "to": {"x": 1}, "kind": "swim"}, "field 'kind': one of 'walk', 'jump'"),
        ({"who": "a", "to": {"x": 1}, "w" * 99: 1}, "field 'w{40}…': Move has no such field"),
        ([], "an object .Move. is required, not a list"),
        (None, "an object .Move. is required, not None"),
    ],
)
def test_a_bad_field_is_named(value: Any, words: str) -> None:
    with pytest.raises(Misfit, match=words):
        from_plain(Move, value)


def test_a_class_refuses_by_rules_of_its_own() -> None:
    assert from_plain(Even, {"n": 2}) == Even(2)
    with pytest.raises(Misfit, match="Even: n is odd"):
        from_plain(Even, {"n": 3})


def test_other_types_convert_or_are_refused_by_name() -> None:
    assert from_plain(tuple[int, str], [1, "a"]) == (1, "a")
    assert from_plain(tuple[int, ...], [1, 2]) == (1, 2)
    assert from_plain(set[str], ["a"]) == {"a"}
    assert from_plain(int | float, 1) == 1
    assert from_plain(float, 1) == 1.0
    assert from_plain(dict[str, Any], {"a": [1]}) == {"a": [1]}
    assert from_plain(datetime.date, "2026-01-02") == datetime.date(2026, 1, 2)
    with pytest.raises(Misfit, match="a list of 2"):
        from_plain(tuple[int, str], [1])
    with pytest.raises(Misfit, match="cannot be those of a set"):
        from_plain(set[Any], [[]])
    with pytest.raises(Misfit, match="finite"):
        from_plain(float, float("inf"))
    with pytest.raises(Misfit, match="too large"):
        from_plain(float, 10**400)
    with pytest.raises(TypeError, match="keys that are no str"):
        from_plain(dict[int, int], {})
    with pytest.raises(TypeError, match="'complex' has no form"):
        from_plain(complex, 1)
    with pytest.raises(TypeError, match="'object' has no form"):
        to_plain(object(), text_only=True)
    with pytest.raises(TypeError, match="the key 1 of a dict"):
        to_plain({1: 2}, text_only=True)


BAD_JSON = [
    (b"", "no JSON"),
    (b"{", "no JSON: .* at character 1"),
    (b"1 2", "no JSON: Extra data"),
    (b"\xff", "no UTF-8 at byte 0"),
    (b"NaN", "NaN is no number"),
    (b"-Infinity", "no number"),
    (b"[" * 33 + b"]" * 33, "nested deeper than 32"),
    (b"[" * 100_000, "no JSON|nested deeper"),
    (b"1" * 5000, "integer string conversion"),
    (b'{"x":"1"}', "field 'x': an integer is required"),
]


def test_a_bad_message_is_told_and_the_next_one_is_read(run: Callable[..., Any]) -> None:
    good = framed(b'{"x":1}')

    async def main() -> None:
        async with connected(sends(*(framed(data) + good for data, _ in BAD_JSON))) as session:
            async with await arrives(session, Point) as stream:
                for index, (_, words) in enumerate(BAD_JSON):
                    with pytest.raises(BadMessage, match=words) as bad:
                        await stream.receive()
                    assert bad.value.position == 2 * index
                    assert bad.value.reason in str(bad.value)
                    assert isinstance(bad.value, ValueError)
                    assert await stream.receive() == Point(1)
                with pytest.raises(EndOfStream):
                    await stream.receive()
            assert not session.closed

    run(main())


BAD_MSGPACK = [
    b"",
    b"\xc1",
    b"\x91",
    b"\x01\x01",
    b"\xd9\x02\xff\xfe",
    b"\xc7\x01\x05\x00",
    b"\xdd\xff\xff\xff\xff",
    b"\x81\x01\x02",
    b"\x91" * 40 + b"\x90",
    b"\x91" * 5000 + b"\x90",
]


def test_bad_messagepack_is_told(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(
            sends(*(framed(data) + framed(b"\x01") for data in BAD_MSGPACK))
        ) as session:
            async with await arrives(session, codec="msgpack") as stream:
                for _ in BAD_MSGPACK:
                    with pytest.raises(BadMessage, match="MessagePack|nested deeper"):
                        await stream.receive()
                    assert await stream.receive() == 1

    run(main())


def test_messagepack_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(ImportError, match=r"pip install 'towline\[msgpack\]'"):
        towline.structured.MessagePack()


def test_a_message_beyond_the_limit_ends_the_stream_and_nothing_else(
    run: Callable[..., Any],
) -> None:
    async def main() -> None:
        async with connected(
            sends(struct.pack(">I", 2**32 - 1), b"x" * 1000, finish=False)
        ) as session:
            async with await arrives(session, limit=1000) as stream:
                for _ in range(2):
                    with pytest.raises(MessageTooLarge, match="the limit is 1000") as bad:
                        await stream.receive()
                assert (bad.value.length, bad.value.limit) == (2**32 - 1, 1000)
            assert not session.closed

    run(main())


def test_our_own_message_beyond_the_limit_is_not_sent(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(echo) as session:
            inner = await session.create_bidirectional_stream()
            async with StructuredStream(inner, limit=10) as stream:
                with pytest.raises(MessageTooLarge, match="was not sent: it has 13 bytes"):
                    await stream.send("x" * 11)
                await stream.send("x" * 8)
                assert await stream.receive() == "x" * 8

    run(main())


def test_an_end_within_a_message_is_no_clean_end(run: Callable[..., Any]) -> None:
    ends = {
        b"\x00": "after 1 of 4",
        framed(b"123")[:4]: "after 0 of 3",
        framed(b"123")[:5]: "after 1 of 3",
    }

    async def handler(session: towline.Session) -> None:
        for data in ends:
            async with await session.create_unidirectional_stream() as stream:
                await stream.write(framed(b"1") + data)
        await session.closed

    async def main() -> None:
        async with connected(handler) as session:
            for words in ends.values():
                async with await arrives(session) as stream:
                    assert await stream.receive() == 1
                    for _ in range(2):
                        with pytest.raises(TruncatedMessage, match=words) as bad:
                            await stream.receive()
                    assert bad.value.position == 1
                    assert isinstance(bad.value, EOFError)

    run(main())


def test_a_message_that_comes_byte_by_byte_survives_cancelled_reads(
    run: Callable[..., Any],
) -> None:
    pieces = [bytes([byte]) for byte in framed(b'"abc"')]

    async def main() -> None:
        async with connected(sends(*pieces)) as session:
            async with await arrives(session) as stream:
                while True:
                    try:
                        async with asyncio.timeout(0.004):
                            assert await stream.receive() == "abc"
                        break
                    except TimeoutError:
                        pass

    run(main())


def test_a_reset_is_the_streams_own_error(run: Callable[..., Any]) -> None:
    async def handler(session: towline.Session) -> None:
        stream = await session.create_unidirectional_stream()
        await stream.write(framed(b"12")[:5])
        await asyncio.sleep(0.05)
        stream.reset(9)
        await session.closed

    async def main() -> None:
        async with connected(handler) as session:
            async with await arrives(session) as stream:
                with pytest.raises(towline.StreamReset) as reset:
                    await stream.receive()
                assert reset.value.code == 9

    run(main())


def test_a_cancelled_send_is_whole_or_nothing(run: Callable[..., Any]) -> None:
    got: list[Any] = []
    go = asyncio.Event()

    async def handler(session: towline.Session) -> None:
        inner = await anext(session.incoming_bidirectional_streams)
        await go.wait()
        async with StructuredStream(inner, str, limit=64 << 20) as stream:
            async for message in stream:
                got.append(message)

    async def main() -> None:
        async with connected(handler) as session:
            inner = await session.create_bidirectional_stream()
            async with StructuredStream(inner, str, limit=64 << 20) as stream:
                big = "b" * (20 << 20)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await stream.send(big)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await stream.send("never")
                with pytest.raises(towline.UsageError, match="`flush"):
                    stream.finish()
                go.set()
                await stream.send("after")
            while len(got) < 2:
                await asyncio.sleep(0.01)
            assert got == [big, "after"]

    run(main())


def test_several_tasks_send_without_mixing(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(echo) as session:
            inner = await session.create_bidirectional_stream()
            async with StructuredStream(inner, limit=1 << 20) as stream:
                texts = [chr(97 + i) * 500_000 for i in range(10)]

                async def receive() -> list[str]:
                    return [await stream.receive() for _ in texts]

                receiving = asyncio.create_task(receive())
                await asyncio.gather(*(stream.send(text) for text in texts))
                assert sorted(await receiving) == texts

    run(main())


def test_a_session_that_ends_is_told_to_both_directions(run: Callable[..., Any]) -> None:
    kept: list[Any] = []

    async def handler(session: towline.Session) -> None:
        kept.append(await anext(session.incoming_bidirectional_streams))
        session.close(7, "enough")

    async def main() -> None:
        async with connected(handler) as session:
            inner = await session.create_bidirectional_stream()
            async with StructuredStream(inner) as stream:
                await stream.send(1)
                with pytest.raises(towline.SessionClosed) as closed:
                    await stream.receive()
                assert closed.value.code == 7
                with pytest.raises(towline.SessionClosed):
                    await stream.send(2)

    run(main())


def test_each_direction_needs_its_half(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(sends(framed(b"1"))) as session:
            async with await arrives(session) as stream:
                with pytest.raises(towline.UsageError, match="only the peer sends"):
                    await stream.send(1)
            sender = StructuredStream(await session.create_unidirectional_stream())
            async with sender:
                with pytest.raises(towline.UsageError, match="only this end sends"):
                    await sender.receive()

    run(main())


def test_wrong_types_name_the_argument(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(idle) as session:
            inner = await session.create_bidirectional_stream()
            async with inner:
                with pytest.raises(TypeError, match="'stream'"):
                    StructuredStream(session)  # type: ignore[arg-type]
                with pytest.raises(TypeError, match="'datagrams'"):
                    StructuredDatagrams(session)  # type: ignore[arg-type]
                with pytest.raises(ValueError, match="'codec'"):
                    StructuredStream(inner, codec="xml")
                with pytest.raises(TypeError, match="'codec'"):
                    StructuredStream(inner, codec=3)  # type: ignore[arg-type]
                with pytest.raises(TypeError, match="'limit'"):
                    StructuredStream(inner, limit="a")  # type: ignore[arg-type]
                with pytest.raises(ValueError, match="'depth'"):
                    StructuredStream(inner, depth=0)
                with pytest.raises(ValueError, match="stands there twice"):
                    StructuredStream(inner, {"a": Point, "b": Point})
                with pytest.raises(TypeError, match="'message': 'Point' is required, not 'dict'"):
                    await StructuredStream(inner, Point).send({"x": 1})  # type: ignore[arg-type]
                with pytest.raises(ValueError, match="JSON"):
                    await StructuredStream(inner).send(float("nan"))

    run(main())


async def reflect(session: towline.Session) -> None:
    async for datagram in session.datagrams:
        session.datagrams.send(datagram)


def test_datagrams_are_messages(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(reflect) as session:
            datagrams = StructuredDatagrams(session.datagrams, Point, codec="msgpack")
            assert datagrams.send(Point(1, 2), max_age=5)
            assert await datagrams.receive() == Point(1, 2)
            await datagrams.send_wait(Point(3))
            async for point in datagrams:
                assert point == Point(3)
                break
            texts = StructuredDatagrams(session.datagrams, str)
            with pytest.raises(towline.DatagramTooLarge):
                texts.send("x" * 100_000)

    run(main())


def test_a_bad_datagram_is_told_or_skipped(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(reflect) as session:
            datagrams = StructuredDatagrams(session.datagrams, Point)
            session.datagrams.send(b"{")
            with pytest.raises(BadMessage) as bad:
                await datagrams.receive()
            assert bad.value.position == 0
            skipped: list[BadMessage] = []
            lenient = StructuredDatagrams(session.datagrams, Point, limit=20, on_bad=skipped.append)
            for data in (b"{", b'"' + b"x" * 30 + b'"', b'{"x":1}'):
                session.datagrams.send(data)
            assert await anext(lenient) == Point(1)
            assert (lenient.received, lenient.bad) == (3, 2)
            assert isinstance(skipped[1], MessageTooLarge)

    run(main())


def test_what_is_written_is_plain_json(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with connected(echo) as session:
            inner = await session.create_bidirectional_stream()
            async with inner:
                await StructuredStream(inner, Move).send(MOVE)
                length = int.from_bytes(await inner.readexactly(4))
                value = json.loads(await inner.readexactly(length))
                assert value["to"] == {"x": 1, "y": 2}
                assert value["blob"] == "AP8="
                assert set(value) == {f.name for f in dataclasses.fields(Move)}

    run(main())


@dataclass
class Left:
    child: "Left | Right | None"


@dataclass
class Right:
    child: "Left | Right | None"


@dataclass
class Every:
    child: "Every | Some | None"
    kind: Literal["every"]


@dataclass
class Some:
    child: "Every | Some | None"
    kind: Literal["some"]


def test_unions_in_one_another_are_tried_once_each():
    nested: object = None
    for _ in range(30):
        nested = {"child": nested, "kind": "some"}
    assert isinstance(from_plain(Some, nested), Some)
    value: object = 1
    for _ in range(30):
        value = {"child": value}
    with pytest.raises(ValueError, match="child"):
        from_plain(Left, value)
    whole: object = None
    for _ in range(30):
        whole = {"child": whole}
    assert isinstance(from_plain(Left, whole), Left)


@pytest.mark.parametrize("text", ['"\\ud800"', '{"a": ["\\uDC00x"]}', "1e999", "[-1E400]"])
def test_what_cannot_be_written_again_is_refused(text):
    from towline.structured._codecs import JSON

    with pytest.raises(ValueError, match="surrogate|larger"):
        JSON.decode(text.encode(), 8)
    assert JSON.decode(b'"\\ud83d\\ude00 1e3"', 8) == "\U0001f600 1e3"

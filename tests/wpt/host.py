"""Hosts the handlers of web-platform-tests on `towline`.

A handler is a script of theirs with functions that are called as things happen
(`session_established`, `stream_data_received`, …). They call back at once, without `await`; what has
to wait here waits in a queue of its stream. Their `tools/webtransport/h3/handler.py` says what each
function is given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import towline

logger = logging.getLogger("wpt")

# Codes of sessions' streams among those of HTTP/3 (draft-ietf-webtrans-http3 §4.4): each 31st is
# reserved.
_FIRST = 0x52E4A40FA8DB
_RUN = 0x1E

# Streams that the handler makes are numbered here, before they exist; the low bits are QUIC's.
_SERVER_BIDIRECTIONAL = 1
_SERVER_UNIDIRECTIONAL = 3

Stream = towline.BidirectionalStream | towline.SendStream | towline.ReceiveStream


def to_http(code: int) -> int:
    return _FIRST + code + code // _RUN


def from_http(code: int) -> int:
    shifted = code - _FIRST
    return shifted - shifted // (_RUN + 1)


class Stash:
    """What handlers keep across sessions."""

    def __init__(self) -> None:
        self._values: dict[object, object] = {}

    def put(self, key: object, value: object) -> None:
        self._values[key] = value

    def take(self, key: object) -> object:
        return self._values.pop(key, None)


class Handler:
    """The functions of a script; those that it lacks do nothing."""

    def __init__(self, file: Path) -> None:
        self._names: dict[str, Any] = {"__file__": str(file)}
        exec(compile(file.read_text(), str(file), "exec"), self._names)

    def call(self, name: str, *arguments: object, **named: object) -> None:
        function = self._names.get(name)
        if function is None:
            return
        try:
            function(*arguments, **named)
        except Exception:
            logger.exception("%s of %s failed", name, self._names["__file__"])


class Session:
    """A session as handlers know it."""

    def __init__(
        self,
        session: towline.Session,
        handler: Handler,
        headers: list[tuple[bytes, bytes]],
        stash: Stash,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.request_headers = headers
        self.session_id = id(self)
        self.stash = stash
        self.dict_for_handlers: dict[str, Any] = {}
        self._session = session
        self._handler = handler
        self._tasks = tasks
        self._streams: dict[int, Stream] = {}
        self._queues: dict[int, asyncio.Queue[tuple[bytes, bool]]] = {}
        self._made = 0
        self.closes = False
        # One handler closes the connection by a path of aioquic's.
        self._http = self._quic = _Connection(session)

    def stream_is_unidirectional(self, stream_id: int) -> bool:
        return bool(stream_id & 2)

    def create_bidirectional_stream(self) -> int:
        return self._create(_SERVER_BIDIRECTIONAL, self._session.create_bidirectional_stream())

    def create_unidirectional_stream(self) -> int:
        return self._create(_SERVER_UNIDIRECTIONAL, self._session.create_unidirectional_stream())

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        self._queues[stream_id].put_nowait((data, end_stream))

    def stop_stream(self, stream_id: int, code: int) -> None:
        stream = self._streams[stream_id]
        assert not isinstance(stream, towline.SendStream)
        stream.stop(from_http(code))

    def reset_stream(self, stream_id: int, code: int) -> None:
        stream = self._streams[stream_id]
        assert not isinstance(stream, towline.ReceiveStream)
        stream.reset(from_http(code))

    def send_datagram(self, data: bytes) -> None:
        self._session.datagrams.send(data)

    def close(self, close_info: tuple[int, bytes] | None) -> None:
        code, reason = close_info or (0, b"")
        self.closes = True
        self._session.close(code, reason.decode())

    def begin(self, stream: Stream) -> None:
        """Reads a stream of the client's, and writes it if it has two directions."""
        self._streams[stream.id] = stream
        if not isinstance(stream, towline.SendStream):
            self._tasks.create_task(self._read(stream.id, stream))
        if not isinstance(stream, towline.ReceiveStream):
            self._queues[stream.id] = asyncio.Queue()
            self._tasks.create_task(self._write(stream.id, stream))

    def _create(
        self, kind: int, making: Awaitable[towline.BidirectionalStream | towline.SendStream]
    ) -> int:
        self._made += 1
        stream_id = 4 * self._made + kind
        self._queues[stream_id] = asyncio.Queue()
        self._tasks.create_task(self._write_when_made(stream_id, making))
        return stream_id

    async def _write_when_made(
        self,
        stream_id: int,
        making: Awaitable[towline.BidirectionalStream | towline.SendStream],
    ) -> None:
        try:
            stream = self._streams[stream_id] = await making
        except towline.SessionClosed:
            return
        if isinstance(stream, towline.BidirectionalStream):
            self._tasks.create_task(self._read(stream_id, stream))
        await self._write(stream_id, stream)

    async def _read(
        self, stream_id: int, stream: towline.BidirectionalStream | towline.ReceiveStream
    ) -> None:
        received = "stream_data_received"
        try:
            async for data in stream.chunks():
                self._call(received, stream_id=stream_id, data=data, stream_ended=False)
            self._call(received, stream_id=stream_id, data=b"", stream_ended=True)
        except towline.StreamReset as error:
            code = to_http(error.code or 0)
            self._call("stream_reset", stream_id=stream_id, error_code=code)
        except (towline.StreamFinished, towline.SessionClosed):
            pass

    async def _write(
        self, stream_id: int, stream: towline.BidirectionalStream | towline.SendStream
    ) -> None:
        queue = self._queues[stream_id]
        ended = False
        try:
            while not ended:
                data, ended = await queue.get()
                await stream.write(data)
            stream.finish()
        except (towline.StreamError, towline.SessionClosed) as error:
            logger.debug("a stream was not written to its end: %s", error)

    def _call(self, name: str, **named: object) -> None:
        self._handler.call(name, self, **named)


class _Connection:
    """As much of aioquic's connection as a handler uses."""

    def __init__(self, session: towline.Session) -> None:
        self._session = session

    @property
    def _quic(self) -> _Connection:
        return self

    def close(self) -> None:
        driver = self._session._core.driver
        driver.engine.close_connections()
        driver.nudge()


class Host:
    """Sessions that scripts handle, found by the path below `root`: `run` is for `serve_requests`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stash = Stash()

    async def run(self, request: towline.SessionRequest) -> None:
        fields = {
            ":method": "CONNECT",
            ":scheme": "https",
            ":authority": request.authority,
            ":path": request.path,
            ":protocol": "webtransport",
            **({"origin": request.origin} if request.origin else {}),
            **dict(request.headers),
        }
        headers = [(name.encode(), value.encode()) for name, value in fields.items()]
        try:
            handler = Handler(self._root / urlsplit(request.path).path.lstrip("/"))
        except OSError:
            raise towline.Refused(404) from None
        answer: list[tuple[bytes, bytes]] = []
        handler.call("connect_received", request_headers=headers, response_headers=answer)
        answered = {name.decode(): value.decode() for name, value in answer}
        status = int(answered.get(":status", "200"))
        if not 200 <= status < 300:
            raise towline.Refused(status)
        # What names none of the protocols that were offered, this server cannot be made to send.
        wanted = answered.get("wt-protocol", "").partition(";")[0]
        offered = request.protocols
        protocol = next((name for name in offered if f'"{name}"' == wanted), None)
        session = request.accept(protocol)
        async with asyncio.TaskGroup() as tasks:
            hosted = Session(session, handler, headers, self._stash, tasks)
            try:
                handler.call("session_established", hosted)
                tasks.create_task(_accept(hosted, session.incoming_bidirectional_streams))
                tasks.create_task(_accept(hosted, session.incoming_unidirectional_streams))
                async for datagram in session.datagrams:
                    handler.call("datagram_received", hosted, data=datagram)
                await asyncio.Event().wait()
            finally:
                # The handler of a session is cancelled when the session ends.
                if session.closed and not hosted.closes:
                    await _tell_the_end(hosted, session, handler)


async def _accept(hosted: Session, streams: Any) -> None:
    async for stream in streams:
        hosted.begin(stream)


async def _tell_the_end(hosted: Session, session: towline.Session, handler: Handler) -> None:
    try:
        closed = await session.closed
        info, abruptly = (closed.code, closed.reason.encode()), False
    except towline.ConnectionLost:
        info, abruptly = None, True
    handler.call("session_closed", hosted, close_info=info, abruptly=abruptly)

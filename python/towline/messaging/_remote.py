"""`RemoteSubscription`: messages of the peer's broker."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..structured import EndOfStream, StructuredStream
from ._broker import Message
from ._errors import RpcError, RpcTimeout
from ._wire import refusal_of

if TYPE_CHECKING:
    from ._peer import Peer

__all__ = ["RemoteSubscription"]


class RemoteSubscription:
    """Messages of the peer's broker: `async with` it, then `async for`.

    It ends when the peer ends it, and raises `SlowSubscriber` when the peer closed it because its
    queue was full.
    """

    def __init__(
        self, peer: Peer, pattern: str, request: dict[str, Any], timeout: float | None
    ) -> None:
        self._peer = peer
        self._request = request
        self._timeout = timeout
        self._stream: StructuredStream[Any] | None = None
        self.pattern: str = pattern
        """What it is for."""
        self.received: int = 0
        """Messages that came."""

    async def __aenter__(self) -> Self:
        stream = self._peer._structured(await self._peer.session.create_bidirectional_stream())
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                await stream.send(self._request)
                match await stream.receive():
                    case {"subscribed": _}:
                        pass
                    case answer:
                        raise refusal_of(answer)
        except BaseException as error:
            await stream.__aexit__(type(error), error, None)
            if isinstance(error, EndOfStream):
                raise RpcError("the peer ended the stream without an answer") from None
            if isinstance(error, TimeoutError) and limit.expired():
                words = f"'{self.pattern}': no answer in {self._timeout} seconds"
                raise RpcTimeout(words) from None
            raise
        self._stream = stream
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.__aexit__(kind, error, traceback)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._stream is None:
            raise RuntimeError("a subscription begins with `async with`")
        match await anext(self._stream):
            case {"topic": str() as topic, "data": data}:
                self.received += 1
                return Message(topic, data)
            case answer:
                raise refusal_of(answer)

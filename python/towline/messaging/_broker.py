"""`Broker`: who publishes, who subscribes, and a bounded queue between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ..structured import to_plain
from ..structured._codecs import Codec
from ._errors import SlowSubscriber

if TYPE_CHECKING:
    from ._peer import Peer

__all__ = ["Broker", "BrokerStats", "Message", "Permit", "Policy", "Subscription"]

Policy = Literal["oldest", "newest", "close"]
"""What a full queue does with one message more: it drops its oldest, drops the new one, or
closes."""

Permit = Callable[["Peer", str, str], bool | Awaitable[bool]]
"""Whether a peer may "subscribe" to a pattern, or "publish" to a topic."""

_POLICIES = ("oldest", "newest", "close")
_QUEUE = 64
_QUEUE_BYTES = 4 << 20
# What a value takes beside its letters, bytes.
_VALUE = 64
_LONGEST_TOPIC = 256
_MOST_LEVELS = 16


class Message:
    """What was published: `topic` and `data`."""

    __slots__ = ("_encoded", "_plain", "_weight", "data", "topic")

    def __init__(self, topic: str, data: Any, plain: Any = None) -> None:
        self.topic: str = topic
        self.data: Any = data
        self._plain = plain
        # It is held as it was given and as it is sent.
        self._weight = 2 * _weight(plain)
        # Written once for all subscribers.
        self._encoded: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {self.data!r})"

    def encoded(self, codec: Codec) -> bytes:
        """As it travels."""
        data = self._encoded.get(codec.name)
        if data is None:
            plain = to_plain(self._plain, text_only=codec.text_only)
            data = codec.encode({"topic": self.topic, "data": plain})
            self._encoded[codec.name] = data
        return data


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """Counts since the broker was made, but for the first."""

    subscriptions: int
    """Subscriptions now."""
    published: int
    """Messages that were published."""
    queued: int
    """Messages that were put into a queue, counted for each subscription."""
    dropped: int
    """Messages that a full queue dropped."""
    closed_slow: int
    """Subscriptions that were closed because their queue was full."""


class Subscription:
    """Messages for `async for`. Leaving `async with`, or `close`, ends it.

    One that was closed because its queue was full gives what was in it, then raises
    `SlowSubscriber`.
    """

    def __init__(self, broker: Broker, pattern: str, queue: int, policy: Policy) -> None:
        self._broker = broker
        self._queue: deque[Message] = deque()
        self._limit = queue
        self._bytes = 0
        self._policy = policy
        self._waiter: asyncio.Future[None] | None = None
        self._error: SlowSubscriber | None = None
        self.pattern: str = pattern
        """What it is for."""
        self.closed: bool = False
        """Whether no more messages come."""
        self.received: int = 0
        """Messages that were taken from it."""
        self.dropped: int = 0
        """Messages that its full queue dropped."""

    def __len__(self) -> int:
        """Messages that wait in the queue."""
        return len(self._queue)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it. Messages in its queue can be read, then `async for` ends."""
        if not self.closed:
            self.closed = True
            self._broker._remove(self)
            self._wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._queue:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self.closed:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("another task waits for this subscription")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self.received += 1
        return self._next()

    def _next(self) -> Message:
        message = self._queue.popleft()
        self._bytes -= message._weight
        return message

    def _is_full_for(self, message: Message) -> bool:
        too_large = self._bytes + message._weight > self._broker.max_queue_bytes
        return len(self._queue) >= self._limit or too_large

    def _put(self, message: Message) -> None:
        stats = self._broker
        if self._is_full_for(message):
            self.dropped += 1
            stats._dropped += 1
            match self._policy:
                case "newest":
                    return
                case "close":
                    self._error = SlowSubscriber(
                        f"the queue of {self._limit} messages for '{self.pattern}' was full"
                    )
                    stats._closed_slow += 1
                    self.close()
                    return
            if message._weight > stats.max_queue_bytes:
                # No room for it could be made.
                return
            self._next()
            while self._is_full_for(message):
                self.dropped += 1
                stats._dropped += 1
                self._next()
        self._queue.append(message)
        self._bytes += message._weight
        stats._queued += 1
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Node:
    """A level of the tree of patterns."""

    __slots__ = ("below", "subscriptions")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        # In the order in which they came.
        self.subscriptions: dict[Subscription, None] = {}


class Broker:
    """Gives each message to all subscriptions whose pattern its topic matches.

    Topics are levels between slashes, `news/sport`. In a pattern `+` is any one level, and `#`, at
    the end, all further ones, none too. `permit(peer, action, topic)` says whether a peer may
    "subscribe" or "publish"; programs of this process always may. Peers get queues of at most
    `max_queue` messages, and every queue holds about `max_queue_bytes` of memory at most: a message
    that has no room counts as one too many, whatever its number.

    It belongs to one event loop. `publish` never waits: a subscription that is slower than its
    publishers has a full queue, and its policy says what happens.
    """

    def __init__(
        self,
        *,
        permit: Permit | None = None,
        max_queue: int = 1024,
        max_queue_bytes: int = _QUEUE_BYTES,
    ) -> None:
        if max_queue < 1:
            raise ValueError(f"argument 'max_queue': at least 1, not {max_queue!r}")
        self.permit: Permit | None = permit
        if max_queue_bytes < 1:
            raise ValueError(f"argument 'max_queue_bytes': at least 1, not {max_queue_bytes!r}")
        self.max_queue: int = max_queue
        self.max_queue_bytes: int = max_queue_bytes
        self._root = _Node()
        self._count = 0
        self._published = 0
        self._queued = 0
        self._dropped = 0
        self._closed_slow = 0

    def subscribe(
        self,
        pattern: str,
        *,
        queue: int = _QUEUE,
        policy: Policy = "oldest",
        exact: bool = False,
    ) -> Subscription:
        """Messages whose topic matches `pattern`, from now on.

        `exact` takes it for one topic, and raises `ValueError` where it has wildcards: for what has a
        client's words in it, as `f"rooms/{room}"`.

        `queue` is how many may wait, and `policy` what a full queue does: "oldest" drops the oldest
        of them, "newest" the new one, "close" ends the subscription. Drops are counted.
        """
        levels = levels_of_topic(pattern) if exact else levels_of_pattern(pattern)
        if not isinstance(queue, int) or queue < 1:
            raise ValueError(f"argument 'queue': at least 1, not {queue!r}")
        if policy not in _POLICIES:
            raise ValueError(f"argument 'policy': one of {', '.join(_POLICIES)}, not {policy!r}")
        node = self._root
        for level in levels:
            node = node.below.setdefault(level, _Node())
        subscription = Subscription(self, pattern, queue, policy)
        node.subscriptions[subscription] = None
        self._count += 1
        return subscription

    def publish(self, topic: str, data: Any = None) -> int:
        """Publishes `data`, and says to how many subscriptions.

        Raises `ValueError` for what is no topic, `TypeError` for data that has no form as a
        message.
        """
        levels = levels_of_topic(topic)
        message = Message(topic, data, to_plain(data, text_only=False))
        self._published += 1
        matched = list(_matching(self._root, levels, 0))
        for subscription in matched:
            subscription._put(message)
        return len(matched)

    def stats(self) -> BrokerStats:
        """Counts as of now."""
        return BrokerStats(
            self._count, self._published, self._queued, self._dropped, self._closed_slow
        )

    def _remove(self, subscription: Subscription) -> None:
        way = [self._root]
        levels = subscription.pattern.split("/")
        for level in levels:
            way.append(way[-1].below[level])
        del way[-1].subscriptions[subscription]
        self._count -= 1
        for above, level in zip(reversed(way[:-1]), reversed(levels), strict=True):
            node = above.below[level]
            if node.below or node.subscriptions:
                break
            del above.below[level]


def _weight(plain: Any) -> int:
    """About the memory of a value, bytes."""
    match plain:
        case str() | bytes():
            return _VALUE + len(plain)
        case list():
            return _VALUE + sum(map(_weight, plain))
        case dict():
            return _VALUE + sum(_weight(key) + _weight(value) for key, value in plain.items())
        case _:
            return _VALUE


def _matching(node: _Node, levels: list[str], at: int) -> Iterator[Subscription]:
    rest = node.below.get("#")
    if rest is not None:
        yield from rest.subscriptions
    if at == len(levels):
        yield from node.subscriptions
        return
    for level in (levels[at], "+"):
        below = node.below.get(level)
        if below is not None:
            yield from _matching(below, levels, at + 1)


def levels_of_topic(topic: str) -> list[str]:
    """The levels of a topic. Raises `ValueError` for what is none."""
    levels = _levels("topic", topic)
    if "+" in levels or "#" in levels:
        raise ValueError(f"argument 'topic': '+' and '#' are for patterns, as in {topic!r}")
    return levels


def levels_of_pattern(pattern: str) -> list[str]:
    """The levels of a pattern. Raises `ValueError` for what is none."""
    levels = _levels("pattern", pattern)
    if "#" in levels[:-1]:
        raise ValueError(f"argument 'pattern': '#' stands at the end alone, not as in {pattern!r}")
    return levels


def _levels(argument: str, text: str) -> list[str]:
    if not isinstance(text, str):
        raise TypeError(f"argument '{argument}': a str is required, not '{type(text).__name__}'")
    if not 0 < len(text) <= _LONGEST_TOPIC:
        raise ValueError(f"argument '{argument}': 1 to {_LONGEST_TOPIC} characters")
    levels = text.split("/")
    if len(levels) > _MOST_LEVELS or "" in levels:
        raise ValueError(
            f"argument '{argument}': 1 to {_MOST_LEVELS} levels, none of them empty, not {text!r}"
        )
    return levels

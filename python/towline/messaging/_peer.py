"""`Peer`: calls, notifications, subscriptions and publications over one session, in both
directions."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from .._errors import SessionClosed, StreamError, TowlineError
from .._session import Session
from .._streams import BidirectionalStream
from ..structured import (
    JSON,
    BadMessage,
    Codec,
    EndOfStream,
    MessageTooLarge,
    Misfit,
    StructuredStream,
    from_plain,
)
from ..structured._codecs import codec_of
from ..structured._messages import DEPTH, LIMIT
from ._broker import Broker, Policy, Subscription, levels_of_pattern, levels_of_topic
from ._errors import (
    InternalError,
    InvalidRequest,
    MethodNotFound,
    NotPermitted,
    ParseError,
    RpcError,
    RpcTimeout,
    error_of,
)
from ._methods import Methods
from ._remote import RemoteSubscription
from ._watch import Watch
from ._wire import VERSION, make_request, read_request, read_result

__all__ = ["Peer", "PeerStats"]

logger = logging.getLogger("towline.messaging")

T = TypeVar("T")

_QUEUE = 64
# Publications of one peer that are taken before others have a turn of the loop.
_AT_ONCE = 32
# How long the error of a stream that the peer stopped is waited for, seconds.
_LAST_WORDS = 1.0


@dataclass(slots=True)
class PeerStats:
    """Counts of one peer."""

    calls_made: int = 0
    """Calls that this end made."""
    calls_answered: int = 0
    """Calls of the peer's that were answered with a result."""
    calls_failed: int = 0
    """Calls of the peer's that were answered with an error."""
    calls_cancelled: int = 0
    """Calls of the peer's that it gave up."""
    notifications: int = 0
    """Notifications of the peer's."""
    bad: int = 0
    """Streams of the peer's that began with no request."""


class Peer:
    """The far side of a session, for calls and messages.

    Either end calls what the other has in `methods`, and subscribes and publishes where the other
    has a `broker`. Every call has a stream of its own: a lost packet or a large answer holds up no
    other call, and a call that is given up is a stream that is reset, by which the far side cancels
    its method.

    A server's handler awaits `serve()`. A client uses `async with Peer(session) as peer`; with
    methods or a broker that serves in the background. All bidirectional streams that the peer opens
    are taken.

    `codec`, `limit` and `depth` are those of `towline.structured`, and the same at both ends. At
    most `concurrency` calls of the peer's run at once: further ones wait. It may have `streams`
    subscriptions and publishers. A stream whose request does not come within `request_timeout`
    seconds is given up.
    """

    def __init__(
        self,
        session: Session,
        methods: Methods | None = None,
        broker: Broker | None = None,
        *,
        codec: Codec | str = JSON,
        limit: int = LIMIT,
        depth: int = DEPTH,
        concurrency: int = 64,
        streams: int = 64,
        request_timeout: float = 10.0,
    ) -> None:
        if not isinstance(session, Session):
            kind = type(session).__name__
            raise TypeError(f"argument 'session': a Session is required, not '{kind}'")
        for name, value in (("concurrency", concurrency), ("streams", streams)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"argument '{name}': at least 1, not {value!r}")
        self.session: Session = session
        """The session."""
        self.stats: PeerStats = PeerStats()
        """Counts."""
        self._methods = methods or Methods()
        self._broker = broker
        self._serves = methods is not None or broker is not None
        self._codec = codec_of(codec)
        self._limit = limit
        self._depth = depth
        self._slots = asyncio.Semaphore(concurrency)
        self._streams = streams
        self._long_lived = 0
        self._request_timeout = request_timeout
        self._ids = itertools.count(1)
        self._publisher: StructuredStream[Any] | None = None
        self._publishing = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._serves:
            loop = asyncio.get_running_loop()
            self._serving = loop.create_task(self.serve(), name="towline: serving a peer")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.__aexit__(kind, error, traceback)
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    # What this end asks.

    @overload
    async def call(
        self, method: str, params: Any = None, *, timeout: float | None = 30.0
    ) -> Any: ...

    @overload
    async def call(
        self, method: str, params: Any = None, *, result: type[T], timeout: float | None = 30.0
    ) -> T: ...

    async def call(
        self,
        method: str,
        params: Any = None,
        *,
        result: type[Any] | None = None,
        timeout: float | None = 30.0,
    ) -> Any:
        """Calls a method of the peer's with `params`, a list or a dict, and gives its result, as a
        `result` if that type is given.

        Raises the `RpcError` that the peer answers with; `RpcTimeout` when no answer comes in
        `timeout` seconds (`None`: it waits for ever); `BadMessage` for an answer that is none. The
        peer cancels the method when this is cancelled, and when it times out.
        """
        if params is not None and not isinstance(params, (list, tuple, dict)):
            kind = type(params).__name__
            raise TypeError(f"argument 'params': a list or a dict is required, not '{kind}'")
        number = next(self._ids)
        self.stats.calls_made += 1
        limit = asyncio.timeout(timeout)
        try:
            async with limit, self._open() as stream:
                await stream.send(make_request(method, params, number))
                try:
                    answer = await stream.receive()
                except EndOfStream:
                    raise RpcError("the peer ended the stream without an answer") from None
        except TimeoutError:
            if not limit.expired():
                raise
            raise RpcTimeout(f"'{method}' gave no answer in {timeout} seconds") from None
        value = read_result(answer, number)
        if result is None:
            return value
        try:
            return from_plain(result, value)
        except Misfit as misfit:
            raise BadMessage(f"the result of '{method}': {misfit}", 0) from None

    async def notify(self, method: str, params: Any = None) -> None:
        """Calls a method of the peer's without an answer: whether it succeeded is not told."""
        async with self._open() as stream:
            await stream.send(make_request(method, params, None))

    def subscribe(
        self,
        pattern: str,
        *,
        queue: int = _QUEUE,
        policy: Policy = "oldest",
        timeout: float | None = 30.0,
    ) -> RemoteSubscription:
        """Messages of the peer's broker, for `async with` and `async for`; `queue` and `policy` are
        as in `Broker.subscribe`, and the queue is at the peer.

        Entering raises `NotPermitted` where the peer does not permit it, `MethodNotFound` where it
        has no broker, and `RpcTimeout` when it does not answer.
        """
        levels_of_pattern(pattern)
        request = {"subscribe": pattern, "queue": queue, "policy": policy}
        return RemoteSubscription(self, pattern, request, timeout)

    async def publish(self, topic: str, data: Any = None) -> None:
        """Publishes at the peer's broker. Messages of this end arrive in their order; nothing is
        answered.

        Raises what the peer refused an earlier one with, as `NotPermitted`: then the next one
        begins anew.
        """
        levels_of_topic(topic)
        async with self._publishing:
            if self._publisher is None:
                stream = await self.session.create_bidirectional_stream()
                self._publisher = self._structured(stream)
            publisher = self._publisher
            try:
                await publisher.send({"publish": topic, "data": data})
            except StreamError as error:
                self._publisher = None
                raise await _last_words(publisher) or error from None

    # What the far side asks.

    async def serve(self) -> None:
        """Answers what the peer asks, until the session ends. Then what still runs is cancelled."""
        running: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as tasks:
            try:
                incoming = self.session.incoming_bidirectional_streams
                while True:
                    await self._slots.acquire()
                    slot = _Slot(self._slots)
                    try:
                        stream = await anext(incoming, None)
                    except BaseException:
                        slot.free()
                        raise
                    if stream is None:
                        slot.free()
                        break
                    task = tasks.create_task(self._serve_stream(stream, slot))
                    running.add(task)
                    task.add_done_callback(running.discard)
            except SessionClosed as error:
                logger.debug("the session of a peer was lost: %s", error)
            for task in running:
                task.cancel("the session ended")

    async def _serve_stream(self, inner: BidirectionalStream, slot: _Slot) -> None:
        try:
            async with self._structured(inner) as stream:
                try:
                    async with asyncio.timeout(self._request_timeout):
                        request = await stream.receive()
                except EndOfStream:
                    return
                except BadMessage as error:
                    self.stats.bad += 1
                    await self._refuse(stream, None, ParseError(error.reason))
                    return
                match request:
                    case {"subscribe": _}:
                        await self._serve_subscription(inner, stream, request, slot)
                    case {"publish": _}:
                        await self._serve_publisher(stream, request, slot)
                    case _:
                        await self._serve_call(inner, stream, request)
        except (StreamError, SessionClosed, BadMessage, TimeoutError) as error:
            logger.debug("a stream of a peer ended: %r", error)
        except Exception:
            logger.exception("a stream of a peer failed")
        finally:
            slot.free()

    async def _serve_call(
        self, inner: BidirectionalStream, stream: StructuredStream[Any], request: Any
    ) -> None:
        name, number, problem = read_request(request)
        if problem is not None:
            self.stats.bad += 1
            await self._refuse(stream, number, problem)
            return
        answers = "id" in request
        self.stats.notifications += not answers
        task = asyncio.current_task()
        assert task is not None, "it is called in a task"
        given_up = False

        def on_over(clean: bool) -> None:
            nonlocal given_up
            # A caller that ended its half has said all, and waits.
            if not clean:
                given_up = True
                task.cancel("the caller gave the call up")

        watch = Watch(inner, on_over)
        try:
            try:
                result = await self._run(name, request.get("params"))
            finally:
                watch.stop()
        except asyncio.CancelledError:
            if given_up and task.uncancel() == 0:
                self.stats.calls_cancelled += 1
                inner.reset()
                return
            raise
        except RpcError as error:
            self.stats.calls_failed += 1
            if answers:
                await self._refuse(stream, number, error)
            return
        if not answers:
            return
        answer = {"jsonrpc": VERSION, "id": number, "result": result}
        try:
            await stream.send(answer)
            self.stats.calls_answered += 1
        except (MessageTooLarge, TypeError, ValueError) as error:
            if isinstance(error, StreamError):
                raise
            self.stats.calls_failed += 1
            logger.error("the result of '%s' cannot be sent: %s", name, error)
            await self._refuse(stream, number, InternalError("the result cannot be sent"))

    async def _run(self, name: str, params: Any) -> Any:
        method = self._methods.find(name)
        if method is None:
            raise MethodNotFound(f"there is no method '{name[:80]}'")
        try:
            result = method.call(self, params)
            return await result if inspect.isawaitable(result) else result
        except RpcError:
            raise
        except Exception as error:
            if self.session.closed:
                logger.debug("the method '%s' ended with its session: %r", name, error)
            else:
                logger.error("the method '%s' failed", name, exc_info=error)
            raise InternalError("the method failed") from None

    async def _serve_subscription(
        self,
        inner: BidirectionalStream,
        stream: StructuredStream[Any],
        request: dict[str, Any],
        slot: _Slot,
    ) -> None:
        try:
            with self._long_life(slot):
                async with await self._subscribed(request) as subscription:
                    await stream.send({"subscribed": subscription.pattern})
                    watch = Watch(inner, lambda clean: subscription.close())
                    try:
                        await self._deliver(stream, subscription)
                    finally:
                        watch.stop()
        except RpcError as error:
            await self._refuse(stream, None, error)

    async def _subscribed(self, request: dict[str, Any]) -> Subscription:
        broker = self._broker
        if broker is None:
            raise MethodNotFound("there is no broker")
        pattern, queue = request["subscribe"], request.get("queue", _QUEUE)
        if not isinstance(queue, int) or isinstance(queue, bool):
            raise InvalidRequest("'queue' is no integer")
        try:
            levels_of_pattern(pattern)
            await self._permitted(broker, "subscribe", pattern)
            queue = min(queue, broker.max_queue)
            return broker.subscribe(pattern, queue=queue, policy=request.get("policy", "oldest"))
        except (ValueError, TypeError) as error:
            raise InvalidRequest(str(error)) from None

    async def _deliver(self, stream: StructuredStream[Any], subscription: Subscription) -> None:
        told = False
        async for message in subscription:
            try:
                await stream.send_bytes(message.encoded(self._codec))
            except (MessageTooLarge, TypeError, ValueError) as error:
                if isinstance(error, StreamError):
                    raise
                subscription.dropped += 1
                subscription._broker._dropped += 1
                if not told:
                    # Once, because those who publish must not fill the log.
                    told = True
                    logger.error("a message of %r cannot be sent: %s", message.topic, error)

    async def _serve_publisher(
        self, stream: StructuredStream[Any], request: Any, slot: _Slot
    ) -> None:
        broker = self._broker
        permitted: set[str] = set()
        try:
            with self._long_life(slot):
                if broker is None:
                    raise MethodNotFound("there is no broker")
                while True:
                    await self._publish_one(broker, request, permitted)
                    if stream.received % _AT_ONCE == 0:
                        # What has come can be read without a wait: others have a turn.
                        await asyncio.sleep(0)
                    request = await stream.receive()
        except EndOfStream:
            pass
        except BadMessage as error:
            self.stats.bad += 1
            await self._refuse(stream, None, ParseError(error.reason))
        except RpcError as error:
            await self._refuse(stream, None, error)

    async def _publish_one(self, broker: Broker, request: Any, permitted: set[str]) -> None:
        match request:
            case {"publish": str() as topic}:
                try:
                    levels_of_topic(topic)
                except ValueError as error:
                    raise InvalidRequest(str(error)) from None
                if topic not in permitted:
                    await self._permitted(broker, "publish", topic)
                    # Asked once for a topic in a row, and not remembered for all of them.
                    permitted.clear()
                    permitted.add(topic)
                try:
                    broker.publish(topic, request.get("data"))
                except (TypeError, ValueError) as error:
                    raise InvalidRequest(str(error)) from None
            case _:
                raise InvalidRequest("'publish' with a topic is required")

    async def _permitted(self, broker: Broker, action: str, topic: str) -> None:
        if broker.permit is None:
            return
        try:
            permitted = broker.permit(self, action, topic)
            if inspect.isawaitable(permitted):
                permitted = await permitted
        except Exception:
            logger.exception("`permit` of a broker failed")
            raise InternalError("whether it is permitted could not be found out") from None
        if not permitted:
            raise NotPermitted(f"to {action} '{topic}' is not permitted")

    @contextlib.contextmanager
    def _long_life(self, slot: _Slot) -> Iterator[None]:
        """What is not a call, and has a count of its own."""
        if self._long_lived >= self._streams:
            raise NotPermitted(f"there are {self._streams} subscriptions and publishers already")
        self._long_lived += 1
        slot.free()
        try:
            yield
        finally:
            self._long_lived -= 1

    async def _refuse(self, stream: StructuredStream[Any], number: Any, error: RpcError) -> None:
        plain = error.to_plain()
        try:
            await stream.send({"jsonrpc": VERSION, "id": number, "error": plain})
        except (MessageTooLarge, TypeError, ValueError) as problem:
            if isinstance(problem, StreamError):
                raise
            logger.error("the data of an error cannot be sent: %s", problem)
            plain.pop("data", None)
            await stream.send({"jsonrpc": VERSION, "id": number, "error": plain})

    def _structured(self, stream: BidirectionalStream) -> StructuredStream[Any]:
        return StructuredStream(stream, codec=self._codec, limit=self._limit, depth=self._depth)

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[StructuredStream[Any]]:
        async with await self.session.create_bidirectional_stream() as stream:
            yield self._structured(stream)
            with contextlib.suppress(StreamError, SessionClosed):
                # The end comes with the answer: once it is taken, the peer need not be asked to
                # stop.
                stream._recv.read(1)


class _Slot:
    """One of the calls that may run at once; it is given back once."""

    __slots__ = ("_semaphore",)

    def __init__(self, semaphore: asyncio.Semaphore) -> None:
        self._semaphore: asyncio.Semaphore | None = semaphore

    def free(self) -> None:
        semaphore, self._semaphore = self._semaphore, None
        if semaphore is not None:
            semaphore.release()


async def _last_words(stream: StructuredStream[Any]) -> RpcError | None:
    """What the peer said before it stopped the stream."""
    try:
        async with asyncio.timeout(_LAST_WORDS):
            answer = await stream.receive()
        return error_of(answer.get("error")) if isinstance(answer, dict) else None
    except (TowlineError, TimeoutError):
        return None
    finally:
        stream.stream._leave(True)

"""Calls and messages between the two ends of a session: JSON-RPC 2.0, and publish and subscribe.

    methods = Methods()

    @methods.method()
    async def add(a: int, b: int) -> int:
        return a + b

    async def handler(session):                     # the server's
        await Peer(session, methods, broker).serve()

    async with Peer(session) as peer:               # the client's
        print(await peer.call("add", [1, 2]))
        async with peer.subscribe("news/#") as news:
            async for message in news:
                print(message.topic, message.data)

Each call has a bidirectional stream of its own: one request of JSON-RPC 2.0 and its answer, as
`towline.structured` writes them. A subscription is a stream that begins with `{"subscribe":
pattern}`, answered by `{"subscribed": pattern}` and messages of `topic` and `data`; a publisher's
has messages of `publish` and `data`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from .._errors import DatagramTooLarge, SessionClosed
from .._session import Session
from ._broker import Broker, BrokerStats, Message, Permit, Policy, Subscription
from ._errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotPermitted,
    ParseError,
    RpcError,
    RpcTimeout,
    SlowSubscriber,
)
from ._methods import Methods
from ._peer import Peer, PeerStats
from ._remote import RemoteSubscription

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "Broadcast",
    "Broker",
    "BrokerStats",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "Message",
    "MethodNotFound",
    "Methods",
    "NotPermitted",
    "ParseError",
    "Peer",
    "PeerStats",
    "Permit",
    "Policy",
    "RemoteSubscription",
    "RpcError",
    "RpcTimeout",
    "SlowSubscriber",
    "Subscription",
    "broadcast",
]


class Broadcast(NamedTuple):
    """What became of a datagram for many."""

    sent: int
    """Sessions that it was queued for."""
    dropped: int
    """Sessions that had no room for it, or whose path it does not fit."""
    closed: int
    """Sessions that are over."""


def broadcast(
    sessions: Iterable[Session], data: ReadableBuffer, max_age: float | None = None
) -> Broadcast:
    """Sends one datagram to many sessions, as those of a server. It never waits."""
    sent = dropped = closed = 0
    for session in sessions:
        try:
            if session.datagrams.send(data, max_age):
                sent += 1
            else:
                dropped += 1
        except SessionClosed:
            closed += 1
        except DatagramTooLarge:
            dropped += 1
    return Broadcast(sent, dropped, closed)

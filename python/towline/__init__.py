"""WebTransport for asyncio: `connect`, `serve`, and the sessions that they give.

QUIC for other protocols is `towline.quic`, HTTP/3 `towline.http`, an ASGI server `towline.asgi`.
"""

from __future__ import annotations

from . import asgi, http, quic
from ._certificates import Certificate, generate_certificate
from ._client import Connecting, connect
from ._errors import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimeout,
    DatagramTooLarge,
    HandshakeRefused,
    IdleTimeout,
    IncompleteRead,
    LimitExceeded,
    SessionClosed,
    StreamError,
    StreamFinished,
    StreamReset,
    StreamStopped,
    TowlineError,
    UsageError,
)
from ._native import __version__
from ._request import Refused, SessionRequest
from ._server import ServeOptions, Server, serve, serve_requests
from ._session import FAILED, CloseInfo, Datagrams, Incoming, Moment, Session
from ._stats import SessionStats
from ._streams import BidirectionalStream, ReceiveStream, SendGroup, SendStream
from ._transport import TransportConfig

__all__ = [
    "FAILED",
    "BidirectionalStream",
    "Certificate",
    "CloseInfo",
    "ConnectFailed",
    "ConnectTimeout",
    "Connecting",
    "ConnectionLost",
    "DatagramTooLarge",
    "Datagrams",
    "HandshakeRefused",
    "IdleTimeout",
    "Incoming",
    "IncompleteRead",
    "LimitExceeded",
    "Moment",
    "ReceiveStream",
    "Refused",
    "SendGroup",
    "SendStream",
    "ServeOptions",
    "Server",
    "Session",
    "SessionClosed",
    "SessionRequest",
    "SessionStats",
    "StreamError",
    "StreamFinished",
    "StreamReset",
    "StreamStopped",
    "TowlineError",
    "TransportConfig",
    "UsageError",
    "__version__",
    "asgi",
    "connect",
    "generate_certificate",
    "http",
    "quic",
    "serve",
    "serve_requests",
]

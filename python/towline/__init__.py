"""WebTransport for asyncio: `connect`, `serve`, and the sessions that they give."""

from __future__ import annotations

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
from ._server import Server, serve, serve_requests
from ._session import FAILED, CloseInfo, Datagrams, Incoming, Moment, Session, SessionStats
from ._streams import BidirectionalStream, ReceiveStream, SendStream

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
    "SendStream",
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
    "UsageError",
    "__version__",
    "connect",
    "generate_certificate",
    "serve",
    "serve_requests",
]

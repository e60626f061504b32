//! What can go wrong, and whose fault it is.
//!
//! `ConnectionError` says why a connection ended. Inside the engine a
//! component reports a peer's fault as a [`Violation`], which `connection::close` turns
//! into a CONNECTION_CLOSE and a `ConnectionError` once, at the edge.

use std::fmt;

use towline_wire::{FrameError, FrameType, TransportErrorCode, TransportParameterError};

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer broke the protocol; it was told `code` in a CONNECTION_CLOSE.
    #[error("the peer broke the QUIC protocol: {what} ({code})")]
    PeerMisbehaved {
        /// The RFC 9000 §20.1 error code sent to the peer.
        code: TransportErrorCode,
        /// The type of the offending frame, where one was identified.
        frame: Option<FrameType>,
        /// What was wrong.
        what: &'static str,
    },
    /// The TLS handshake failed on our side: the peer's credentials or offers were refused.
    #[error("TLS handshake refused by us: {what} ({code})")]
    Tls {
        /// The crypto error code sent to the peer (0x0100 + TLS alert).
        code: TransportErrorCode,
        /// rustls's words.
        what: String,
    },
    /// The peer closed the connection; its words. A server that takes no connection says so with
    /// `CONNECTION_REFUSED`; with `INVALID_TOKEN` it wants the client to begin anew.
    #[error("{}", closed_by_peer(.0))]
    ClosedByPeer(Close),
    /// This side closed the connection.
    #[error("closed by this side")]
    ClosedLocally,
    /// Nothing arrived for too long.
    #[error("timed out: {0}")]
    TimedOut(TimeoutReason),
    /// The peer has no record of this connection (RFC 9000 §10.3), most often because it restarted.
    #[error("the peer lost this connection's state (stateless reset); connect again")]
    StatelessReset,
    /// The peer speaks no QUIC version that this engine speaks.
    #[error("the peer does not speak QUIC version 1")]
    VersionMismatch,
    /// The server answered with a Retry token of so many bytes, and this client would have to repeat it
    /// in each first packet. No packet was sent for it.
    #[error(
        "the server's Retry token of {0} bytes leaves no room for the handshake in a datagram of \
         1200 bytes; it is the server that must send a shorter one"
    )]
    RetryTokenTooLong(usize),
    /// The endpoint reached [`EndpointConfig::memory_limit`](crate::EndpointConfig::memory_limit),
    /// and this connection held much that did not move. The peer sees INTERNAL_ERROR.
    #[error(
        "ended by this endpoint, which reached its memory limit: \
         this connection held data that nobody read or acknowledged"
    )]
    Shed,
    /// An AEAD limit was reached (RFC 9001 §6.6).
    #[error("AEAD limit reached; connect again for fresh keys")]
    AeadLimitReached,
    /// This engine failed; please report it.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

/// The contents of a CONNECTION_CLOSE frame received from the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// The peer's transport closed (frame type 0x1c).
    Transport {
        /// Its error code.
        code: TransportErrorCode,
        /// The frame type it blames, if any.
        frame: Option<FrameType>,
        /// Its reason, at most 512 bytes of it.
        reason: String,
    },
    /// The peer's application closed (frame type 0x1d).
    Application {
        /// The application's error code.
        code: u64,
        /// Its reason, at most 512 bytes of it.
        reason: Vec<u8>,
    },
}

/// The two codes that a server answers a client's first packets with have words of their own.
fn closed_by_peer(close: &Close) -> String {
    let (what, reason) = match close {
        Close::Transport {
            code: TransportErrorCode::CONNECTION_REFUSED,
            reason,
            ..
        } => ("the server refuses the connection", reason),
        Close::Transport {
            code: TransportErrorCode::INVALID_TOKEN,
            reason,
            ..
        } => {
            let what = "the server does not take the address token it gave us; connect again";
            (what, reason)
        }
        _ => return format!("closed by the peer: {close}"),
    };
    if reason.is_empty() {
        return what.to_owned();
    }
    format!("{what}: {}", reason.escape_debug())
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport {
                code,
                frame,
                reason,
            } => {
                write!(f, "transport error {code}")?;
                if let Some(frame) = frame {
                    write!(f, " in {frame}")?;
                }
                if !reason.is_empty() {
                    write!(f, ": {}", reason.escape_debug())?;
                }
                Ok(())
            }
            Self::Application { code, reason } => {
                write!(f, "application code {code}")?;
                if !reason.is_empty() {
                    write!(f, ": {}", String::from_utf8_lossy(reason).escape_debug())?;
                }
                Ok(())
            }
        }
    }
}

/// Which deadline ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutReason {
    /// The idle timeout (RFC 9000 §10.1): nothing arrived for that long.
    Idle,
    /// The handshake did not finish in time.
    Handshake,
}

impl fmt::Display for TimeoutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "nothing arrived within the idle timeout",
            Self::Handshake => "the handshake did not finish in time",
        })
    }
}

/// A peer's fault as a component reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) code: TransportErrorCode,
    pub(crate) frame: Option<FrameType>,
    pub(crate) what: &'static str,
}

impl Violation {
    pub(crate) const fn new(code: TransportErrorCode, what: &'static str) -> Self {
        Self {
            code,
            frame: None,
            what,
        }
    }

    pub(crate) const fn protocol(what: &'static str) -> Self {
        Self::new(TransportErrorCode::PROTOCOL_VIOLATION, what)
    }

    pub(crate) fn in_frame(mut self, frame: FrameType) -> Self {
        self.frame.get_or_insert(frame);
        self
    }
}

impl From<FrameError> for Violation {
    fn from(error: FrameError) -> Self {
        Self {
            code: error.code,
            frame: error.frame_type.map(FrameType::from_u64),
            what: error.what,
        }
    }
}

impl From<TransportParameterError> for Violation {
    fn from(error: TransportParameterError) -> Self {
        Self::new(TransportErrorCode::TRANSPORT_PARAMETER_ERROR, error.what)
    }
}

/// A frame could not be taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The peer broke a rule.
    Violation(Violation),
    /// Memory limits, in a 1-RTT packet: its other frames are not taken, and it must look lost.
    Overflow,
}

impl From<Violation> for Refused {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// Why `Endpoint::connect` refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name is neither a DNS name nor an IP address.
    #[error("`{0}` is neither a DNS name nor an IP address; correct the server name")]
    InvalidServerName(String),
    /// The remote address cannot be sent to.
    #[error("{0} is not an address that can be connected to")]
    InvalidRemote(std::net::SocketAddr),
    /// The transport settings make no sense.
    #[error(transparent)]
    Transport(#[from] crate::config::InvalidTransport),
    /// rustls refused the configuration.
    #[error("the TLS configuration is unusable for QUIC: {0}")]
    Tls(String),
    /// The endpoint has no connection IDs ([`NoCids`](crate::NoCids)), and a connection with this
    /// server already: packets of two could not be told apart.
    #[error(
        "this endpoint has no connection IDs and a connection with {0} already; close that one, or \
         use another endpoint"
    )]
    AlreadyConnected(std::net::SocketAddr),
    /// The endpoint holds as many connections as it may, or as its connection IDs can name.
    #[error("this endpoint already holds its maximum of connections")]
    TooManyConnections,
}

/// Why a client that asked for a connection was not given one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// It waits no longer: the decision took more than
    /// [`MAX_INCOMING_WAIT`](crate::MAX_INCOMING_WAIT), memory was short, or the server takes no
    /// connections any more.
    #[error(
        "the client waits no longer: {} s passed, memory was short, or the server takes nobody any more",
        crate::MAX_INCOMING_WAIT.as_secs()
    )]
    Gone,
    /// The server holds as many connections or as much memory as it may; the client was told.
    #[error("the server is full; the client was refused")]
    Full,
    /// The transport settings make no sense; the client was refused.
    #[error(transparent)]
    Transport(#[from] crate::config::InvalidTransport),
    /// rustls refused the configuration; the client was told nothing.
    #[error("the TLS configuration is unusable for QUIC: {0}")]
    Tls(String),
    /// The endpoint's generator makes too few connection IDs for so many connections; the client was
    /// told nothing.
    #[error("no connection ID is free; have the endpoint's generator make longer ones")]
    NoConnectionIds,
}

/// Why a connection does not move to another address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// It is a server's: only clients move (RFC 9000 §9).
    #[error("only a client can move a connection; this end is the server")]
    Server,
    /// Too early: the handshake is to be confirmed first (RFC 9000 §9).
    #[error("the handshake is not confirmed yet; try again after it")]
    HandshakeNotConfirmed,
    /// The server forbids it (`disable_active_migration`).
    #[error("the server forbids its clients to move")]
    Forbidden,
    /// The server has given no connection ID that was not used before; it may send one any time.
    #[error("the server has given no spare connection ID; try again later")]
    NoConnectionId,
    /// The connection is over.
    #[error("the connection is over: {0}")]
    ConnectionLost(ConnectionError),
}

/// Why a write took nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// No room now; `Event::Writable` follows.
    #[error("the send buffer is full")]
    Blocked,
    /// The peer asked to stop (STOP_SENDING) with this code.
    #[error("the peer stopped reading this stream with code {0}")]
    Stopped(u64),
    /// The stream was finished or reset by this side, or never existed.
    #[error("the stream is already finished or reset")]
    ClosedStream,
    /// The stream cannot be finished: a write went past bytes that were never written.
    #[error("bytes before the end of the stream were never written; write them, or reset it")]
    MissingBytes,
    /// The connection is over.
    #[error("connection lost: {0}")]
    ConnectionLost(ConnectionError),
}

/// Why a stream was not reset beyond its first bytes. It goes on as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResetAtError {
    /// The peer knows no RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset-07 §3): finish the
    /// stream, or reset it with nothing sure to arrive.
    #[error("the peer does not understand RESET_STREAM_AT; finish the stream, or reset all of it")]
    Unsupported,
    /// Some of the bytes that are to arrive were never written.
    #[error("the reliable size reaches beyond what was written; write it first")]
    MissingBytes,
    /// The stream was delivered, reset with fewer bytes to arrive, or stopped by the peer, or never
    /// existed.
    #[error("the stream is already over")]
    ClosedStream,
    /// The connection is over.
    #[error("connection lost: {0}")]
    ConnectionLost(ConnectionError),
}

/// Why a read returned nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Nothing to read now; `Event::Readable` follows.
    #[error("no data yet")]
    Blocked,
    /// The peer reset the stream with this code.
    #[error("the peer reset this stream with code {0}")]
    Reset(u64),
    /// The stream was read to its end, stopped by this side, or never existed.
    #[error("the stream is already finished or stopped")]
    ClosedStream,
    /// This side has read the stream out of order, after which it cannot be read in order.
    #[error("the stream was read out of order before; go on with unordered reads")]
    IllegalOrderedRead,
    /// The connection is over.
    #[error("connection lost: {0}")]
    ConnectionLost(ConnectionError),
}

/// Why a datagram was not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendDatagramError {
    /// The peer accepts no datagrams (RFC 9221 §3).
    #[error("the peer does not accept datagrams")]
    Unsupported,
    /// It does not fit into a packet or the peer's limit.
    #[error("the datagram is too large; at most {max} bytes fit")]
    TooLarge {
        /// The largest payload that fits now.
        max: usize,
    },
    /// The queue is full; `Event::DatagramSendable` follows.
    #[error("the datagram queue is full")]
    Full,
    /// The connection is over.
    #[error("connection lost: {0}")]
    ConnectionLost(ConnectionError),
}

//! Small error enums, one per operation, and how they look as `io::Error`.
//!
//! The engine's `Blocked` never surfaces here: an `async fn` waits instead.

use std::io;
use std::net::SocketAddr;

use towline_quic::{self as engine, Close, ConnectionError, TransportErrorCode};

/// Why a connection could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The engine refused the configuration, the name or the address.
    #[error(transparent)]
    Refused(#[from] engine::ConnectError),
    /// The socket's address family cannot reach this address.
    #[error("a socket bound to {local} cannot send to {remote}; bind to an address of its family")]
    AddressFamily {
        /// What the socket is bound to.
        local: SocketAddr,
        /// Where it was to connect to.
        remote: SocketAddr,
    },
    /// There is no address to connect to.
    #[error("the host has no address")]
    NoAddress,
    /// The host's name was not found.
    #[error("{host} was not found: {why}; check the name and the network")]
    Lookup {
        /// The name.
        host: String,
        /// What the system says.
        why: String,
    },
    /// The endpoint was closed, or its runtime has shut down.
    #[error("the endpoint is closed")]
    EndpointClosed,
    /// A client that asked for a connection could not be given one.
    #[error(transparent)]
    NotAccepted(#[from] engine::AcceptError),
    /// The attempt failed.
    #[error(transparent)]
    Failed(#[from] ConnectionError),
}

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The peer asked to stop (STOP_SENDING) with this code.
    #[error("the peer stopped reading this stream with code {0}")]
    Stopped(u64),
    /// The stream was finished or reset by this side.
    #[error("the stream is already finished or reset")]
    ClosedStream,
    /// The stream cannot be finished: a write went past bytes that were never written.
    #[error("bytes before the end of the stream were never written; write them, or reset it")]
    MissingBytes,
    /// The connection is over.
    #[error("connection lost: {0}")]
    ConnectionLost(#[from] ConnectionError),
}

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The peer reset the stream with this code.
    #[error("the peer reset this stream with code {0}")]
    Reset(u64),
    /// The stream was stopped by this side.
    #[error("the stream was stopped")]
    ClosedStream,
    /// This side has read the stream out of order, after which it cannot be read in order.
    #[error("the stream was read out of order before; go on with unordered reads")]
    IllegalOrderedRead,
    /// The connection is over.
    #[error("connection lost: {0}")]
    ConnectionLost(#[from] ConnectionError),
}

/// Why [`RecvStream::read_exact`](super::RecvStream::read_exact) failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadExactError {
    /// The stream ended after this many bytes.
    #[error("the stream ended after {0} bytes")]
    FinishedEarly(usize),
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why [`RecvStream::read_to_end`](super::RecvStream::read_to_end) failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadToEndError {
    /// The stream is longer than the limit.
    #[error("the stream is longer than {0} bytes")]
    TooLong(usize),
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = match &error {
            WriteError::Stopped(_) => io::ErrorKind::BrokenPipe,
            WriteError::ClosedStream => io::ErrorKind::NotConnected,
            WriteError::MissingBytes => io::ErrorKind::InvalidInput,
            WriteError::ConnectionLost(lost) => kind_of(lost),
        };
        Self::new(kind, error)
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Reset(_) => io::ErrorKind::ConnectionReset,
            ReadError::ClosedStream => io::ErrorKind::NotConnected,
            ReadError::IllegalOrderedRead => io::ErrorKind::InvalidInput,
            ReadError::ConnectionLost(lost) => kind_of(lost),
        };
        Self::new(kind, error)
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        let kind = match &error {
            ConnectError::Refused(_) | ConnectError::AddressFamily { .. } => {
                io::ErrorKind::InvalidInput
            }
            ConnectError::NoAddress | ConnectError::Lookup { .. } => io::ErrorKind::NotFound,
            ConnectError::EndpointClosed => io::ErrorKind::NotConnected,
            ConnectError::NotAccepted(engine::AcceptError::Gone) => io::ErrorKind::TimedOut,
            ConnectError::NotAccepted(
                engine::AcceptError::Full | engine::AcceptError::NoConnectionIds,
            ) => io::ErrorKind::ConnectionRefused,
            ConnectError::NotAccepted(_) => io::ErrorKind::InvalidInput,
            ConnectError::Failed(lost) => kind_of(lost),
        };
        Self::new(kind, error)
    }
}

pub(crate) fn kind_of(error: &ConnectionError) -> io::ErrorKind {
    match error {
        ConnectionError::TimedOut(_) => io::ErrorKind::TimedOut,
        ConnectionError::ClosedByPeer(Close::Transport {
            code: TransportErrorCode::CONNECTION_REFUSED | TransportErrorCode::INVALID_TOKEN,
            ..
        }) => io::ErrorKind::ConnectionRefused,
        ConnectionError::ClosedByPeer(_) => io::ErrorKind::ConnectionAborted,
        ConnectionError::StatelessReset => io::ErrorKind::ConnectionReset,
        ConnectionError::ClosedLocally => io::ErrorKind::NotConnected,
        ConnectionError::PeerMisbehaved { .. } => io::ErrorKind::InvalidData,
        ConnectionError::Tls { .. } => io::ErrorKind::PermissionDenied,
        ConnectionError::Shed => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::Other,
    }
}

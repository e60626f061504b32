//! Why a connection did not come about.

use std::io;
use std::time::Duration;

use towline_stcp::SessionError;

/// Why there is no stream. As an [`io::Error`] it has the kind that TCP's would have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// TCP did not come about, or broke during the handshake.
    #[error("TCP: {0}")]
    Tcp(#[from] io::Error),
    /// The name is neither a DNS name nor an address.
    #[error("`{0}` is no name of a server")]
    Name(String),
    /// TLS did not come about.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The peer said nothing more before the handshake was over.
    #[error("the peer did not finish the handshake within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

impl ConnectError {
    /// The kind of `io::Error` a TCP socket would answer with.
    pub fn io_kind(&self) -> io::ErrorKind {
        match self {
            Self::Tcp(error) => error.kind(),
            Self::Name(_) => io::ErrorKind::InvalidInput,
            Self::Session(error) => error.io_kind(),
            Self::TimedOut(_) => io::ErrorKind::TimedOut,
        }
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Tcp(error) => error,
            error => Self::new(error.io_kind(), error),
        }
    }
}

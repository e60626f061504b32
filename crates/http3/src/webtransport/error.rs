//! Why a session or one of its streams could not be opened.

use core::fmt;

use crate::error::SendError;

/// Why a session could not be asked for. Nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// The server speaks no WebTransport that this end speaks; the words say what it lacks.
    Unsupported(&'static str),
    /// The server takes no further session while the others are open.
    TooManySessions,
    /// The request could not be sent.
    Send(SendError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(what) => f.write_str(what),
            Self::TooManySessions => {
                f.write_str("the server takes no further session on this connection")
            }
            Self::Send(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ConnectError {}

impl From<SendError> for ConnectError {
    fn from(error: SendError) -> Self {
        Self::Send(error)
    }
}

/// Why a stream of a session could not be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// A limit of the session or of the connection is reached.
    /// [`SessionEvent::MayOpen`](super::SessionEvent::MayOpen) follows.
    Blocked,
    /// There is no such session, or it is not established.
    Closed,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocked => "the peer permits no more streams now",
            Self::Closed => "the session is not open",
        })
    }
}

impl core::error::Error for OpenError {}

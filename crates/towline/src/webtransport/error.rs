//! Why there is no session, or no longer.

use http::StatusCode;
use towline_http3::webtransport::{ConnectError as Refusal, SessionEnd};

use crate::http3;
use crate::http3::sessions::Over;

/// Why something of a session failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The session was closed, by the peer or by this end, with a code and words of the application's.
    #[error("{} closed the session with code {code}: {reason}", if *.by_peer { "the peer" } else { "this end" })]
    Closed {
        /// The code; 0 where none was given.
        code: u32,
        /// The words.
        reason: String,
        /// Whether it was the peer.
        by_peer: bool,
    },
    /// The session ended in another way.
    #[error("{0}")]
    Ended(SessionEnd),
    /// The server's answer to the request was another than 2xx.
    #[error("the server refused the session with status {0}")]
    Refused(StatusCode),
    /// The request could not be sent, or the server speaks no WebTransport of ours.
    #[error(transparent)]
    NotAsked(#[from] Refusal),
    /// HTTP/3 below failed, or the connection is over.
    #[error(transparent)]
    Http3(#[from] http3::Error),
}

impl From<Over> for Error {
    fn from(over: Over) -> Self {
        match over {
            Over::Refused(status) => Self::Refused(status),
            Over::Ended(SessionEnd::Closed {
                code,
                message,
                by_peer,
            }) => Self::Closed {
                code,
                reason: message,
                by_peer,
            },
            Over::Ended(end) => Self::Ended(end),
        }
    }
}

/// Why a client has no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no connection that speaks HTTP/3.
    #[error(transparent)]
    Http3(#[from] http3::ConnectError),
    /// The session was not had.
    #[error(transparent)]
    Session(#[from] Error),
    /// The URL is none of `https` with a host.
    #[error("`{0}` is no URL of the form https://host:port/path")]
    Url(String),
}

//! [`SessionEvent`]: what a connection tells of its WebTransport sessions.

use core::fmt;

use towline_wire::{Direction, StreamId};

use super::dialect::Dialect;
use super::session::SessionId;
use crate::error::StreamError;

/// What happened to a session. Its datagrams come as [`Event::Datagram`](crate::Event::Datagram).
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionEvent {
    /// At a server: a client asks for a session, in place of
    /// [`Event::Request`](crate::Event::Request).
    Requested {
        /// The session.
        session: SessionId,
        /// Target and fields of the CONNECT request.
        head: Box<http::request::Parts>,
        /// The application protocols the client offers, its favourite first.
        protocols: Vec<String>,
        /// The version that is spoken.
        dialect: Dialect,
    },
    /// At a client: the server accepted, in place of [`Event::Response`](crate::Event::Response).
    Established {
        /// The session.
        session: SessionId,
        /// Status and fields.
        head: Box<http::response::Parts>,
        /// The application protocol the server chose.
        protocol: Option<String>,
        /// What both ends speak.
        dialect: Dialect,
    },
    /// At a client: the server answered with another status than 2xx. The session is over.
    Refused {
        /// The session.
        session: SessionId,
        /// Status and fields.
        head: Box<http::response::Parts>,
    },
    /// The peer opened a stream. Its prefix has been read; what follows is the application's.
    StreamOpened {
        /// The session.
        session: SessionId,
        /// The stream.
        id: StreamId,
        /// Whether this end can send on it too.
        direction: Direction,
    },
    /// Somebody waited for the session's limit on bytes, and it grew.
    Credit(SessionId),
    /// A stream can perhaps be opened where that was blocked.
    MayOpen {
        /// The session.
        session: SessionId,
        /// Of which kind.
        direction: Direction,
    },
    /// The peer wants the session to end soon (draft-ietf-webtrans-http3-16 §4.7). Once.
    Draining(SessionId),
    /// The session is over, and its streams are. Once.
    Closed {
        /// The session.
        session: SessionId,
        /// Why.
        reason: SessionEnd,
    },
}

/// Why a session is over.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SessionEnd {
    /// One end closed it (draft-ietf-webtrans-http3-16 §6).
    Closed {
        /// The application's code; 0 where there was none.
        code: u32,
        /// The application's words.
        message: String,
        /// Whether it was the peer.
        by_peer: bool,
    },
    /// The peer gave up the CONNECT stream, with this code of HTTP/3.
    Reset {
        /// The code.
        code: u64,
    },
    /// The peer broke a rule, and this end gave up the CONNECT stream.
    Failed(StreamError),
    /// This end gave up the request before there was an answer.
    Cancelled,
    /// The server goes away and will not look at the request (RFC 9114 §5.2).
    Rejected,
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed {
                code,
                message,
                by_peer,
            } => {
                let who = if *by_peer { "the peer" } else { "this end" };
                write!(f, "{who} closed the session with code {code}: {message}")
            }
            Self::Reset { code } => write!(f, "the peer gave the session up with code {code:#x}"),
            Self::Failed(error) => error.fmt(f),
            Self::Cancelled => f.write_str("this end gave up the request"),
            Self::Rejected => f.write_str("the server goes away and takes no further session"),
        }
    }
}

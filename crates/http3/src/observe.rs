//! [`Event`]: what an observer is told of HTTP/3 and WebTransport, named as qlog names it.
//!
//! A connection tells its [`Transport`](crate::Transport), which knows whether anybody observes: each place
//! that would tell something then costs a branch, and no event is made. Lengths are told and payload never is, nor
//! what the fields of a message say. Names and meanings are those of draft-ietf-quic-qlog-h3-events; those of
//! sessions and capsules are our own.

use http::StatusCode;
use towline_wire::http3::{CapsuleType, FrameType, Settings, StreamType};
use towline_wire::{Direction, StreamId};

use crate::webtransport::{Dialect, SessionEnd, SessionId};

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// One end's SETTINGS are known (RFC 9114 §7.2.4).
    ParametersSet {
        /// Whether they are the peer's.
        by_peer: bool,
        /// The settings.
        settings: Settings,
    },
    /// What a stream is for is known.
    StreamTypeSet {
        /// Whether the peer opened it.
        by_peer: bool,
        /// The stream.
        id: StreamId,
        /// What it is for.
        purpose: Purpose,
    },
    /// A frame is about to be sent.
    FrameCreated {
        /// On this stream.
        id: StreamId,
        /// The frame.
        frame: Frame,
    },
    /// A frame came: DATA and HEADERS when they begin, others when they are whole.
    FrameParsed {
        /// On this stream.
        id: StreamId,
        /// The frame.
        frame: Frame,
    },
    /// An HTTP datagram is about to be sent (RFC 9297).
    DatagramCreated {
        /// The stream of its request or session.
        id: StreamId,
        /// Bytes of its payload.
        len: u64,
    },
    /// An HTTP datagram came.
    DatagramParsed {
        /// The stream of its request or session.
        id: StreamId,
        /// Bytes of its payload.
        len: u64,
    },
    /// A client asks for a session.
    SessionRequested {
        /// The session.
        session: SessionId,
        /// The version.
        dialect: Dialect,
    },
    /// The server accepts it.
    SessionAccepted {
        /// The session.
        session: SessionId,
        /// The version.
        dialect: Dialect,
        /// The application protocol that was chosen.
        protocol: Option<String>,
    },
    /// The server refuses it.
    SessionRefused {
        /// The session.
        session: SessionId,
        /// By this status, or without an answer.
        status: Option<StatusCode>,
        /// Why, where it was not the application.
        reason: Option<&'static str>,
    },
    /// A session is over that was asked for or accepted.
    SessionClosed {
        /// The session.
        session: SessionId,
        /// Why.
        end: SessionEnd,
    },
    /// A stream joins a session.
    SessionStreamOpened {
        /// The session.
        session: SessionId,
        /// The stream.
        id: StreamId,
        /// Whether the peer opened it.
        by_peer: bool,
    },
    /// A capsule is about to be sent (RFC 9297 §3).
    CapsuleCreated {
        /// The session.
        session: SessionId,
        /// The capsule.
        capsule: Capsule,
    },
    /// A capsule that means something came.
    CapsuleParsed {
        /// The session.
        session: SessionId,
        /// The capsule.
        capsule: Capsule,
    },
}

/// What a stream is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A request and its answer.
    Request,
    /// A unidirectional stream of this type.
    Typed(StreamType),
}

/// A frame (RFC 9114 §7.2).
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its type.
    pub kind: FrameType,
    /// Bytes of its payload.
    pub len: u64,
    /// What it says, where that is told.
    pub content: Content,
}

/// What a frame says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Content {
    /// Payload and fields are not told.
    Untold,
    /// SETTINGS.
    Settings(Settings),
    /// The stream of GOAWAY, or the push of MAX_PUSH_ID.
    Id(u64),
    /// A PRIORITY_UPDATE.
    Priority {
        /// The request.
        id: u64,
        /// The value of the `priority` field that it stands for (RFC 9218 §4).
        value: String,
    },
}

impl Frame {
    /// One of which nothing but type and length is told.
    pub(crate) const fn new(kind: FrameType, len: u64) -> Self {
        let content = Content::Untold;
        Self { kind, len, content }
    }

    pub(crate) const fn saying(kind: FrameType, len: u64, content: Content) -> Self {
        Self { kind, len, content }
    }
}

/// A capsule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capsule {
    /// Its type.
    pub kind: CapsuleType,
    /// A limit, where it stood when somebody was blocked, or the code of a close.
    pub value: Option<u64>,
    /// The direction of the streams that it limits.
    pub direction: Option<Direction>,
}

impl From<&towline_wire::http3::Capsule<'_>> for Capsule {
    fn from(capsule: &towline_wire::http3::Capsule<'_>) -> Self {
        use towline_wire::http3::Capsule as Wire;
        let (value, direction) = match capsule {
            Wire::MaxData(value) | Wire::DataBlocked(value) => (Some(*value), None),
            Wire::MaxStreams(direction, value) | Wire::StreamsBlocked(direction, value) => {
                (Some(*value), Some(*direction))
            }
            Wire::CloseSession { code, .. } => (Some((*code).into()), None),
            Wire::DrainSession | Wire::Datagram(_) => (None, None),
        };
        Self {
            kind: capsule.kind(),
            value,
            direction,
        }
    }
}

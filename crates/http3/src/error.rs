//! What a peer did wrong, and what an application asked that cannot be (RFC 9114 §8).

use core::fmt;

use towline_wire::http3::ErrorCode;

use crate::compression;

/// Why a connection was closed: the code the peer sees, and what was wrong (RFC 9114 §8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error {
    /// The code in CONNECTION_CLOSE.
    pub code: ErrorCode,
    /// What was wrong, for people.
    pub reason: &'static str,
}

/// Why one request or response was given up, while the connection lives on (RFC 9114 §4.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamError {
    /// The code in RESET_STREAM and STOP_SENDING.
    pub code: ErrorCode,
    /// What was wrong, for people.
    pub reason: &'static str,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl core::error::Error for Error {}
impl core::error::Error for StreamError {}

/// A breach, and how far it reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Connection(Error),
    Stream(StreamError),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Connection(error)
    }
}

impl From<StreamError> for Fault {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl From<compression::Error> for Error {
    fn from(error: compression::Error) -> Self {
        Self::new(error.code, error.reason)
    }
}

impl From<compression::Error> for Fault {
    fn from(error: compression::Error) -> Self {
        Self::Connection(error.into())
    }
}

impl Error {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

impl StreamError {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    /// A malformed request or response (RFC 9114 §4.1.2).
    pub(crate) const fn malformed(reason: &'static str) -> Self {
        Self::new(ErrorCode::H3_MESSAGE_ERROR, reason)
    }
}

/// Why a request, a response or trailers could not be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The connection is closed.
    Closed,
    /// The peer permits no more streams now. Try again when it does.
    NoStream,
    /// The peer takes no new requests (RFC 9114 §5.2).
    GoingAway,
    /// The peer has not sent its SETTINGS yet, and the request needs to know them.
    NotReady,
    /// The peer does not understand extended CONNECT (RFC 9220 §3).
    NoExtendedConnect,
    /// CONNECT without a protocol is not offered.
    PlainConnect,
    /// The peer takes no field section of this size (RFC 9114 §4.2.2).
    TooLarge,
    /// HTTP/3 has no place for this message, as the words say (RFC 9114 §4.2, §4.3).
    Malformed(&'static str),
    /// There is no such stream, or this part of it was sent already.
    WrongState,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the connection is closed",
            Self::NoStream => "the peer permits no more streams now",
            Self::GoingAway => "the peer takes no new requests",
            Self::NotReady => "the peer's settings have not arrived yet",
            Self::NoExtendedConnect => "the peer does not understand extended CONNECT",
            Self::PlainConnect => "CONNECT needs a protocol",
            Self::TooLarge => "the peer takes no field section of this size",
            Self::Malformed(what) => what,
            Self::WrongState => "this stream takes no such message now",
        })
    }
}

impl core::error::Error for SendError {}

/// Why no body could be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyError {
    /// Not now: an event of the stream will tell.
    Blocked,
    /// The peer gave up its half with this code, or wants no more of ours.
    Reset(u64),
    /// There is no such stream, or this half of it is over.
    Closed,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked => f.write_str("not now"),
            Self::Reset(code) => write!(f, "the peer gave the stream up with code {code:#x}"),
            Self::Closed => f.write_str("this half of the stream is over"),
        }
    }
}

impl core::error::Error for BodyError {}

/// Why an HTTP datagram could not be sent (RFC 9297 §2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramError {
    /// One of the two ends has not said that it takes HTTP datagrams.
    NotNegotiated,
    /// It is longer than the path or the peer takes.
    TooLong,
    /// There is no such request.
    Closed,
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotNegotiated => "the two ends have not agreed on HTTP datagrams",
            Self::TooLong => "the datagram is too long",
            Self::Closed => "there is no such request",
        })
    }
}

impl core::error::Error for DatagramError {}

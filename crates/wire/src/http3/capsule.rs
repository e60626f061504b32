//! Capsules (RFC 9297 §3.2): what the data stream of a CONNECT request is made of.
//!
//! Owns their header and the values of those that WebTransport needs
//! (draft-ietf-webtrans-http3-16 §4.7, §5.6, §6). A reader skips those it does not know
//! (RFC 9297 §3.2) without keeping them, and knows from
//! [`max_value_len`](CapsuleType::max_value_len) how much of the others it may have to keep.

use core::fmt;

use super::error_code::ErrorCode;
use super::frame::parse_id;
use super::registered::registered;
use crate::cursor::{Reader, UnexpectedEnd, Writer, emit_varint, varint_len};
use crate::ids::{Direction, MAX_STREAMS};

/// Bytes of the longest header of a capsule: two variable-length integers.
pub const MAX_CAPSULE_HEADER_LEN: usize = 16;

/// The longest message of a WT_CLOSE_SESSION capsule, in bytes
/// (draft-ietf-webtrans-http3-16 §6).
pub const MAX_CLOSE_MESSAGE_LEN: usize = 1024;

/// The type of a capsule (RFC 9297 §3.2). Unknown types are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapsuleType(u64);

impl CapsuleType {
    /// An HTTP datagram (RFC 9297 §3.5).
    pub const DATAGRAM: Self = Self(0x00);
    /// The session ends, with a code and a message.
    pub const WT_CLOSE_SESSION: Self = Self(0x2843);
    /// The session should come to an end soon.
    pub const WT_DRAIN_SESSION: Self = Self(0x78ae);
    /// How many bytes may be sent.
    pub const WT_MAX_DATA: Self = Self(0x190b_4d3d);
    /// How many bidirectional streams may be opened.
    pub const WT_MAX_STREAMS_BIDI: Self = Self(0x190b_4d3f);
    /// How many unidirectional streams may be opened.
    pub const WT_MAX_STREAMS_UNI: Self = Self(0x190b_4d40);
    /// The sender would send more than WT_MAX_DATA allows.
    pub const WT_DATA_BLOCKED: Self = Self(0x190b_4d41);
    /// The sender would open more bidirectional streams than it may.
    pub const WT_STREAMS_BLOCKED_BIDI: Self = Self(0x190b_4d43);
    /// The sender would open more unidirectional streams than it may.
    pub const WT_STREAMS_BLOCKED_UNI: Self = Self(0x190b_4d44);

    /// The longest value, in bytes, that a capsule of this type can have and that must be whole
    /// to be read. `None`: the type is unknown and is skipped, or it is DATAGRAM, whose value is
    /// as long as its reader accepts.
    pub const fn max_value_len(self) -> Option<usize> {
        match self {
            Self::WT_CLOSE_SESSION => Some(4 + MAX_CLOSE_MESSAGE_LEN),
            Self::WT_DRAIN_SESSION => Some(0),
            Self::WT_MAX_DATA
            | Self::WT_MAX_STREAMS_BIDI
            | Self::WT_MAX_STREAMS_UNI
            | Self::WT_DATA_BLOCKED
            | Self::WT_STREAMS_BLOCKED_BIDI
            | Self::WT_STREAMS_BLOCKED_UNI => Some(8),
            _ => None,
        }
    }

    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::DATAGRAM => "DATAGRAM",
            Self::WT_CLOSE_SESSION => "WT_CLOSE_SESSION",
            Self::WT_DRAIN_SESSION => "WT_DRAIN_SESSION",
            Self::WT_MAX_DATA => "WT_MAX_DATA",
            Self::WT_MAX_STREAMS_BIDI | Self::WT_MAX_STREAMS_UNI => "WT_MAX_STREAMS",
            Self::WT_DATA_BLOCKED => "WT_DATA_BLOCKED",
            Self::WT_STREAMS_BLOCKED_BIDI | Self::WT_STREAMS_BLOCKED_UNI => "WT_STREAMS_BLOCKED",
            _ => return None,
        })
    }
}

registered!(CapsuleType, "capsule");

/// What stands before a capsule's value (RFC 9297 §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapsuleHeader {
    /// The capsule's type.
    pub kind: CapsuleType,
    /// Bytes of its value.
    pub len: u64,
}

impl CapsuleHeader {
    /// Reads a header. `UnexpectedEnd` means that more bytes are needed; the position then stays.
    #[inline]
    pub fn parse(r: &mut Reader<'_>) -> Result<Self, UnexpectedEnd> {
        let mut ahead = r.clone();
        let kind = CapsuleType(ahead.varint()?);
        let len = ahead.varint()?;
        *r = ahead;
        Ok(Self { kind, len })
    }

    /// Whether a value of this length can be right; asked before any of it is kept.
    pub fn check_len(self) -> Result<(), CapsuleError> {
        match self.kind.max_value_len() {
            Some(max) if self.len > max as u64 => Err(match self.kind {
                CapsuleType::WT_CLOSE_SESSION => CapsuleError::CloseMessage,
                kind => CapsuleError::Malformed(kind),
            }),
            _ => Ok(()),
        }
    }

    /// Writes the header, at most [`MAX_CAPSULE_HEADER_LEN`] bytes.
    #[inline]
    pub fn emit(self, w: &mut Writer<'_>) {
        w.varint(self.kind.0);
        w.varint(self.len);
    }
}

/// A capsule that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capsule<'a> {
    /// The payload of an HTTP datagram.
    Datagram(&'a [u8]),
    /// The session ends.
    CloseSession {
        /// The application's error code.
        code: u32,
        /// The application's message, at most [`MAX_CLOSE_MESSAGE_LEN`] bytes.
        message: &'a str,
    },
    /// The session should come to an end soon.
    DrainSession,
    /// Bytes that the receiver of this may send in the whole session.
    MaxData(u64),
    /// Streams that the receiver of this may open in the whole session, ≤ 2^60.
    MaxStreams(Direction, u64),
    /// The limit of bytes at which the sender of this waits.
    DataBlocked(u64),
    /// The limit of streams at which the sender of this waits, ≤ 2^60.
    StreamsBlocked(Direction, u64),
}

impl<'a> Capsule<'a> {
    /// Reads the whole value of a capsule; `None` if its type is unknown.
    pub fn parse(kind: CapsuleType, value: &'a [u8]) -> Result<Option<Self>, CapsuleError> {
        use Direction::{Bidirectional, Unidirectional};
        Ok(Some(match kind {
            CapsuleType::DATAGRAM => Self::Datagram(value),
            CapsuleType::WT_CLOSE_SESSION => parse_close(value)?,
            CapsuleType::WT_DRAIN_SESSION if value.is_empty() => Self::DrainSession,
            CapsuleType::WT_DRAIN_SESSION => return Err(CapsuleError::Malformed(kind)),
            CapsuleType::WT_MAX_DATA => Self::MaxData(integer(kind, value)?),
            CapsuleType::WT_DATA_BLOCKED => Self::DataBlocked(integer(kind, value)?),
            CapsuleType::WT_MAX_STREAMS_BIDI => {
                Self::MaxStreams(Bidirectional, stream_count(kind, value)?)
            }
            CapsuleType::WT_MAX_STREAMS_UNI => {
                Self::MaxStreams(Unidirectional, stream_count(kind, value)?)
            }
            CapsuleType::WT_STREAMS_BLOCKED_BIDI => {
                Self::StreamsBlocked(Bidirectional, stream_count(kind, value)?)
            }
            CapsuleType::WT_STREAMS_BLOCKED_UNI => {
                Self::StreamsBlocked(Unidirectional, stream_count(kind, value)?)
            }
            _ => return Ok(None),
        }))
    }

    /// The type.
    pub const fn kind(&self) -> CapsuleType {
        use Direction::{Bidirectional, Unidirectional};
        match self {
            Self::Datagram(_) => CapsuleType::DATAGRAM,
            Self::CloseSession { .. } => CapsuleType::WT_CLOSE_SESSION,
            Self::DrainSession => CapsuleType::WT_DRAIN_SESSION,
            Self::MaxData(_) => CapsuleType::WT_MAX_DATA,
            Self::MaxStreams(Bidirectional, _) => CapsuleType::WT_MAX_STREAMS_BIDI,
            Self::MaxStreams(Unidirectional, _) => CapsuleType::WT_MAX_STREAMS_UNI,
            Self::DataBlocked(_) => CapsuleType::WT_DATA_BLOCKED,
            Self::StreamsBlocked(Bidirectional, _) => CapsuleType::WT_STREAMS_BLOCKED_BIDI,
            Self::StreamsBlocked(Unidirectional, _) => CapsuleType::WT_STREAMS_BLOCKED_UNI,
        }
    }

    /// Appends header and value.
    ///
    /// A message longer than [`MAX_CLOSE_MESSAGE_LEN`] is cut before the character that does not
    /// fit (draft-ietf-webtrans-http3-16 §6). A number above 2^62 - 1 is a caller's mistake and is
    /// clamped.
    pub fn emit(&self, out: &mut Vec<u8>) {
        emit_varint(out, self.kind().0);
        match *self {
            Self::Datagram(payload) => {
                emit_varint(out, payload.len() as u64);
                out.extend_from_slice(payload);
            }
            Self::CloseSession { code, message } => {
                let message = cut(message);
                emit_varint(out, 4 + message.len() as u64);
                out.extend_from_slice(&code.to_be_bytes());
                out.extend_from_slice(message.as_bytes());
            }
            Self::DrainSession => emit_varint(out, 0),
            Self::MaxData(value)
            | Self::DataBlocked(value)
            | Self::MaxStreams(_, value)
            | Self::StreamsBlocked(_, value) => {
                emit_varint(out, varint_len(value) as u64);
                emit_varint(out, value);
            }
        }
    }
}

/// As many whole characters of a message as fit.
fn cut(message: &str) -> &str {
    (0..=MAX_CLOSE_MESSAGE_LEN)
        .rev()
        .find_map(|len| message.get(..len))
        .filter(|_| message.len() > MAX_CLOSE_MESSAGE_LEN)
        .unwrap_or(message)
}

fn parse_close(value: &[u8]) -> Result<Capsule<'_>, CapsuleError> {
    let mut r = Reader::new(value);
    let malformed = CapsuleError::Malformed(CapsuleType::WT_CLOSE_SESSION);
    let code = r.u32().map_err(|_| malformed)?;
    let message = r.rest();
    if message.len() > MAX_CLOSE_MESSAGE_LEN {
        return Err(CapsuleError::CloseMessage);
    }
    let message = core::str::from_utf8(message).map_err(|_| CapsuleError::CloseMessage)?;
    Ok(Capsule::CloseSession { code, message })
}

/// The variable-length integer that is the whole value.
fn integer(kind: CapsuleType, value: &[u8]) -> Result<u64, CapsuleError> {
    parse_id(value).ok_or(CapsuleError::Malformed(kind))
}

fn stream_count(kind: CapsuleType, value: &[u8]) -> Result<u64, CapsuleError> {
    match integer(kind, value)? {
        count if count <= MAX_STREAMS => Ok(count),
        _ => Err(CapsuleError::TooManyStreams),
    }
}

/// Why a capsule can't be accepted. It ends the session, not the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CapsuleError {
    /// The value does not have the capsule's layout.
    Malformed(CapsuleType),
    /// The message of WT_CLOSE_SESSION is too long or not UTF-8.
    CloseMessage,
    /// A count of streams above 2^60.
    TooManyStreams,
}

impl CapsuleError {
    /// What the CONNECT stream is reset with (RFC 9297 §3.3, draft-ietf-webtrans-http3-16 §5.6.2,
    /// §6).
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Malformed(_) => ErrorCode::H3_DATAGRAM_ERROR,
            Self::CloseMessage => ErrorCode::H3_MESSAGE_ERROR,
            Self::TooManyStreams => ErrorCode::WT_FLOW_CONTROL_ERROR,
        }
    }
}

impl fmt::Display for CapsuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(kind) => write!(f, "{kind} has the wrong layout"),
            Self::CloseMessage => {
                f.write_str("the message of WT_CLOSE_SESSION is too long or not UTF-8")
            }
            Self::TooManyStreams => f.write_str("a count of streams above 2^60"),
        }
    }
}

impl core::error::Error for CapsuleError {}

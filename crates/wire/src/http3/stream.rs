//! What the first bytes of a stream or a datagram say: to whom the rest belongs.
//!
//! Owns stream types (RFC 9114 §6.2), the header of a WebTransport stream
//! (draft-ietf-webtrans-http3-16 §4.2, §4.3) and the quarter stream ID of an HTTP datagram
//! (RFC 9297 §2.1).

use core::fmt;

use super::error_code::{ErrorCode, is_grease};
use super::frame::FrameType;
use super::registered::registered;
use crate::cursor::{Reader, UnexpectedEnd, Writer, varint_len};
use crate::ids::{Direction, Side, StreamId};

/// Bytes of the longest header of a WebTransport stream: its type and a session ID.
pub const MAX_WEBTRANSPORT_HEADER_LEN: usize = 2 + 8;

/// The greatest quarter stream ID, that of the last stream (RFC 9297 §2.1).
const MAX_QUARTER_STREAM_ID: u64 = (1 << 60) - 1;

/// The number a unidirectional stream begins with (RFC 9114 §6.2). Unknown types are kept as they
/// are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamType(u64);

impl StreamType {
    /// The control stream (RFC 9114 §6.2.1).
    pub const CONTROL: Self = Self(0x00);
    /// A push stream (RFC 9114 §6.2.2).
    pub const PUSH: Self = Self(0x01);
    /// Instructions of a QPACK encoder (RFC 9204 §4.2).
    pub const QPACK_ENCODER: Self = Self(0x02);
    /// Instructions of a QPACK decoder (RFC 9204 §4.2).
    pub const QPACK_DECODER: Self = Self(0x03);
    /// A unidirectional WebTransport stream; a session ID follows
    /// (draft-ietf-webtrans-http3-16 §4.2).
    pub const WEBTRANSPORT: Self = Self(0x54);

    /// Reads the type. `UnexpectedEnd` means that more bytes are needed; the position then stays.
    #[inline]
    pub fn parse(r: &mut Reader<'_>) -> Result<Self, UnexpectedEnd> {
        r.varint().map(Self)
    }

    /// Writes the type.
    #[inline]
    pub fn emit(self, w: &mut Writer<'_>) {
        w.varint(self.0);
    }

    /// Whether closing a stream of this type is H3_CLOSED_CRITICAL_STREAM (RFC 9114 §6.2.1,
    /// RFC 9204 §4.2).
    #[inline]
    pub const fn is_critical(self) -> bool {
        matches!(
            self,
            Self::CONTROL | Self::QPACK_ENCODER | Self::QPACK_DECODER
        )
    }

    /// Whether the type is one that means nothing, `0x1f * N + 0x21` (RFC 9114 §6.2.3).
    #[inline]
    pub const fn is_reserved(self) -> bool {
        is_grease(self.0)
    }

    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::CONTROL => "control stream",
            Self::PUSH => "push stream",
            Self::QPACK_ENCODER => "QPACK encoder stream",
            Self::QPACK_DECODER => "QPACK decoder stream",
            Self::WEBTRANSPORT => "WebTransport stream",
            _ => return None,
        })
    }
}

registered!(StreamType, "stream of type");

/// The session that a session ID names: its CONNECT stream, which a client opened and both ends
/// send on. `None` for every other ID: H3_ID_ERROR (draft-ietf-webtrans-http3-16 §4).
#[inline]
pub fn session_id(id: u64) -> Option<StreamId> {
    let id = StreamId::from_u64(id);
    (id.initiator() == Side::Client && id.direction() == Direction::Bidirectional).then_some(id)
}

/// What a WebTransport stream begins with.
///
/// There is no parser: the type is read as a [`StreamType`] or as a frame header's type, and the
/// session ID after it goes through [`session_id`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WebTransportHeader {
    /// Whether both ends send on the stream.
    pub direction: Direction,
    /// The stream of the session's CONNECT request.
    pub session: StreamId,
}

impl WebTransportHeader {
    /// Writes the header, at most [`MAX_WEBTRANSPORT_HEADER_LEN`] bytes.
    #[inline]
    pub fn emit(self, w: &mut Writer<'_>) {
        w.varint(self.signal());
        w.varint(self.session.as_u64());
    }

    /// Bytes of the header: what a reset must deliver reliably
    /// (draft-ietf-webtrans-http3-16 §4.4).
    #[inline]
    pub const fn encoded_len(self) -> usize {
        varint_len(self.signal()) + varint_len(self.session.as_u64())
    }

    const fn signal(self) -> u64 {
        match self.direction {
            Direction::Bidirectional => FrameType::WEBTRANSPORT_STREAM.as_u64(),
            Direction::Unidirectional => StreamType::WEBTRANSPORT.as_u64(),
        }
    }
}

/// An HTTP datagram names no stream that can exist, or ends too early. It ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramError;

impl DatagramError {
    /// What the connection is closed with (RFC 9297 §2.1).
    pub const fn code(self) -> ErrorCode {
        ErrorCode::H3_DATAGRAM_ERROR
    }
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a datagram has no valid quarter stream ID")
    }
}

impl core::error::Error for DatagramError {}

/// The request stream a QUIC datagram belongs to, and the bytes of its header; what follows them
/// is the HTTP datagram's payload (RFC 9297 §2.1).
#[inline]
pub fn parse_datagram(datagram: &[u8]) -> Result<(StreamId, usize), DatagramError> {
    let mut r = Reader::new(datagram);
    let quarter = r.varint().map_err(|_| DatagramError)?;
    if quarter > MAX_QUARTER_STREAM_ID {
        return Err(DatagramError);
    }
    let id = StreamId::new(Side::Client, Direction::Bidirectional, quarter);
    Ok((id, r.position()))
}

/// Writes what stands before an HTTP datagram's payload: a quarter of the ID of its request
/// stream, which a client opened and both ends send on (RFC 9297 §2.1).
#[inline]
pub fn emit_datagram_header(request: StreamId, w: &mut Writer<'_>) {
    w.varint(request.index());
}

/// Bytes of that header.
#[inline]
pub const fn datagram_header_len(request: StreamId) -> usize {
    varint_len(request.index())
}

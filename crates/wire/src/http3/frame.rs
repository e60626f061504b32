//! Frames of HTTP/3 (RFC 9114 §7): their header, and the payloads that are one number or a few.
//!
//! A header is read before the payload is there. DATA and HEADERS belong to the message and to
//! QPACK; SETTINGS is in `settings`.

use super::error_code::is_grease;
use super::registered::registered;
use crate::cursor::{Reader, UnexpectedEnd, Writer, varint_len};

/// Bytes of the longest frame header: two variable-length integers.
pub const MAX_FRAME_HEADER_LEN: usize = 16;

/// The type of a frame (RFC 9114 §7.2). Unknown types are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameType(u64);

impl FrameType {
    /// Payload of a message (RFC 9114 §7.2.1).
    pub const DATA: Self = Self(0x00);
    /// A field section (RFC 9114 §7.2.2).
    pub const HEADERS: Self = Self(0x01);
    /// A promise is no longer wanted, or no longer kept (RFC 9114 §7.2.3).
    pub const CANCEL_PUSH: Self = Self(0x03);
    /// The sender's settings (RFC 9114 §7.2.4).
    pub const SETTINGS: Self = Self(0x04);
    /// A request that the server answers unasked (RFC 9114 §7.2.5).
    pub const PUSH_PROMISE: Self = Self(0x05);
    /// The sender shuts down (RFC 9114 §7.2.6).
    pub const GOAWAY: Self = Self(0x07);
    /// How many promises a server may make (RFC 9114 §7.2.7).
    pub const MAX_PUSH_ID: Self = Self(0x0d);
    /// The first bytes of a bidirectional WebTransport stream look like a frame of this type. What
    /// stands where a length would is the session ID, and no frame follows on that stream
    /// (draft-ietf-webtrans-http3-16 §4.3).
    pub const WEBTRANSPORT_STREAM: Self = Self(0x41);
    /// A new priority of a request (RFC 9218 §7.2).
    pub const PRIORITY_UPDATE_REQUEST: Self = Self(0x0f_0700);
    /// A new priority of a push (RFC 9218 §7.2).
    pub const PRIORITY_UPDATE_PUSH: Self = Self(0x0f_0701);

    /// Whether HTTP/2 used the type for what HTTP/3 has no frame for; receiving one is
    /// H3_FRAME_UNEXPECTED (RFC 9114 §7.2.8).
    #[inline]
    pub const fn is_http2(self) -> bool {
        matches!(self.0, 0x02 | 0x06 | 0x08 | 0x09)
    }

    /// Whether the type is one that means nothing, `0x1f * N + 0x21` (RFC 9114 §7.2.8).
    #[inline]
    pub const fn is_reserved(self) -> bool {
        is_grease(self.0)
    }

    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::DATA => "DATA",
            Self::HEADERS => "HEADERS",
            Self::CANCEL_PUSH => "CANCEL_PUSH",
            Self::SETTINGS => "SETTINGS",
            Self::PUSH_PROMISE => "PUSH_PROMISE",
            Self::GOAWAY => "GOAWAY",
            Self::MAX_PUSH_ID => "MAX_PUSH_ID",
            Self::WEBTRANSPORT_STREAM => "WEBTRANSPORT_STREAM",
            Self::PRIORITY_UPDATE_REQUEST | Self::PRIORITY_UPDATE_PUSH => "PRIORITY_UPDATE",
            _ => return None,
        })
    }
}

registered!(FrameType, "frame");

/// What stands before a frame's payload (RFC 9114 §7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// The frame's type.
    pub kind: FrameType,
    /// Bytes of payload; of [`FrameType::WEBTRANSPORT_STREAM`] it is the session ID.
    pub len: u64,
}

impl FrameHeader {
    /// Reads a header. `UnexpectedEnd` means that more bytes are needed; the position then stays.
    #[inline]
    pub fn parse(r: &mut Reader<'_>) -> Result<Self, UnexpectedEnd> {
        let mut ahead = r.clone();
        let kind = FrameType(ahead.varint()?);
        let len = ahead.varint()?;
        *r = ahead;
        Ok(Self { kind, len })
    }

    /// Writes the header, at most [`MAX_FRAME_HEADER_LEN`] bytes.
    #[inline]
    pub fn emit(self, w: &mut Writer<'_>) {
        w.varint(self.kind.0);
        w.varint(self.len);
    }

    /// Bytes of the header.
    #[inline]
    pub const fn encoded_len(self) -> usize {
        varint_len(self.kind.0) + varint_len(self.len)
    }
}

/// The number that is the whole payload of GOAWAY, MAX_PUSH_ID and CANCEL_PUSH.
///
/// `None` if the payload is anything else: H3_FRAME_ERROR (RFC 9114 §7.1). To be called with the
/// whole payload, which is at most 8 bytes.
#[inline]
pub fn parse_id(payload: &[u8]) -> Option<u64> {
    let mut r = Reader::new(payload);
    let id = r.varint().ok()?;
    r.is_empty().then_some(id)
}

/// The payload of a PRIORITY_UPDATE frame (RFC 9218 §7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PriorityUpdate<'a> {
    /// The stream ID of the request, or the push ID.
    pub element: u64,
    /// The new value of the field `Priority`, in ASCII.
    pub value: &'a [u8],
}

impl<'a> PriorityUpdate<'a> {
    /// Reads the whole payload; `UnexpectedEnd` is H3_FRAME_ERROR.
    pub fn parse(payload: &'a [u8]) -> Result<Self, UnexpectedEnd> {
        let mut r = Reader::new(payload);
        Ok(Self {
            element: r.varint()?,
            value: r.rest(),
        })
    }

    /// Writes the payload.
    pub fn emit(&self, w: &mut Writer<'_>) {
        w.varint(self.element);
        w.bytes(self.value);
    }

    /// Bytes of the payload.
    pub const fn encoded_len(&self) -> usize {
        varint_len(self.element) + self.value.len()
    }
}

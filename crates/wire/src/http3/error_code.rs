//! Error codes of HTTP/3: what RESET_STREAM, STOP_SENDING and CONNECTION_CLOSE carry.
//!
//! Owns their numbers and names. Codes of a WebTransport application lie in a range of their own:
//! see `application_error`.

use super::registered::registered;

/// An error code of HTTP/3 (RFC 9114 §8.1). Unknown codes are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(u64);

impl ErrorCode {
    /// A datagram or a capsule that can't be read (RFC 9297 §5.2).
    pub const H3_DATAGRAM_ERROR: Self = Self(0x33);
    /// A close without an error.
    pub const H3_NO_ERROR: Self = Self(0x100);
    /// A breach that has no code of its own.
    pub const H3_GENERAL_PROTOCOL_ERROR: Self = Self(0x101);
    /// An end can't go on for a reason of its own.
    pub const H3_INTERNAL_ERROR: Self = Self(0x102);
    /// The peer opened a stream that isn't accepted.
    pub const H3_STREAM_CREATION_ERROR: Self = Self(0x103);
    /// A stream that must stay open was closed.
    pub const H3_CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    /// A frame where it isn't permitted.
    pub const H3_FRAME_UNEXPECTED: Self = Self(0x105);
    /// A frame whose layout or size is wrong.
    pub const H3_FRAME_ERROR: Self = Self(0x106);
    /// The peer causes more work than is sensible.
    pub const H3_EXCESSIVE_LOAD: Self = Self(0x107);
    /// A stream ID or push ID used wrongly.
    pub const H3_ID_ERROR: Self = Self(0x108);
    /// An error in SETTINGS.
    pub const H3_SETTINGS_ERROR: Self = Self(0x109);
    /// The control stream doesn't begin with SETTINGS.
    pub const H3_MISSING_SETTINGS: Self = Self(0x10a);
    /// The server refused a request without having worked on it.
    pub const H3_REQUEST_REJECTED: Self = Self(0x10b);
    /// The request or its response is no longer wanted.
    pub const H3_REQUEST_CANCELLED: Self = Self(0x10c);
    /// The client's stream ended before the request was whole.
    pub const H3_REQUEST_INCOMPLETE: Self = Self(0x10d);
    /// A malformed message.
    pub const H3_MESSAGE_ERROR: Self = Self(0x10e);
    /// The connection made by CONNECT was reset or closed abnormally.
    pub const H3_CONNECT_ERROR: Self = Self(0x10f);
    /// The request can't be served over HTTP/3.
    pub const H3_VERSION_FALLBACK: Self = Self(0x110);
    /// A field section that can't be decoded (RFC 9204 §6).
    pub const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    /// An instruction on the encoder stream that can't be understood (RFC 9204 §6).
    pub const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    /// An instruction on the decoder stream that can't be understood (RFC 9204 §6).
    pub const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);
    /// A WebTransport stream arrived before its session and there was no place to keep it
    /// (draft-ietf-webtrans-http3-16 §4.6).
    pub const WT_BUFFERED_STREAM_REJECTED: Self = Self(0x3994_bd84);
    /// The WebTransport session of a stream is over (draft-ietf-webtrans-http3-16 §6).
    pub const WT_SESSION_GONE: Self = Self(0x170d_7b68);
    /// The flow control of a WebTransport session was breached (draft-ietf-webtrans-http3-16 §5).
    pub const WT_FLOW_CONTROL_ERROR: Self = Self(0x045d_4487);
    /// The ends of a WebTransport session agree on no application protocol
    /// (draft-ietf-webtrans-http3-16 §3.3).
    pub const WT_ALPN_ERROR: Self = Self(0x0817_b3dd);
    /// The peer lacks a setting or transport parameter that WebTransport needs
    /// (draft-ietf-webtrans-http3-16 §3.1).
    pub const WT_REQUIREMENTS_NOT_MET: Self = Self(0x212c_0d48);

    /// Whether the code is one of those that mean nothing, `0x1f * N + 0x21` (RFC 9114 §8.1).
    #[inline]
    pub const fn is_reserved(self) -> bool {
        is_grease(self.0)
    }

    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::H3_DATAGRAM_ERROR => "H3_DATAGRAM_ERROR",
            Self::H3_NO_ERROR => "H3_NO_ERROR",
            Self::H3_GENERAL_PROTOCOL_ERROR => "H3_GENERAL_PROTOCOL_ERROR",
            Self::H3_INTERNAL_ERROR => "H3_INTERNAL_ERROR",
            Self::H3_STREAM_CREATION_ERROR => "H3_STREAM_CREATION_ERROR",
            Self::H3_CLOSED_CRITICAL_STREAM => "H3_CLOSED_CRITICAL_STREAM",
            Self::H3_FRAME_UNEXPECTED => "H3_FRAME_UNEXPECTED",
            Self::H3_FRAME_ERROR => "H3_FRAME_ERROR",
            Self::H3_EXCESSIVE_LOAD => "H3_EXCESSIVE_LOAD",
            Self::H3_ID_ERROR => "H3_ID_ERROR",
            Self::H3_SETTINGS_ERROR => "H3_SETTINGS_ERROR",
            Self::H3_MISSING_SETTINGS => "H3_MISSING_SETTINGS",
            Self::H3_REQUEST_REJECTED => "H3_REQUEST_REJECTED",
            Self::H3_REQUEST_CANCELLED => "H3_REQUEST_CANCELLED",
            Self::H3_REQUEST_INCOMPLETE => "H3_REQUEST_INCOMPLETE",
            Self::H3_MESSAGE_ERROR => "H3_MESSAGE_ERROR",
            Self::H3_CONNECT_ERROR => "H3_CONNECT_ERROR",
            Self::H3_VERSION_FALLBACK => "H3_VERSION_FALLBACK",
            Self::QPACK_DECOMPRESSION_FAILED => "QPACK_DECOMPRESSION_FAILED",
            Self::QPACK_ENCODER_STREAM_ERROR => "QPACK_ENCODER_STREAM_ERROR",
            Self::QPACK_DECODER_STREAM_ERROR => "QPACK_DECODER_STREAM_ERROR",
            Self::WT_BUFFERED_STREAM_REJECTED => "WT_BUFFERED_STREAM_REJECTED",
            Self::WT_SESSION_GONE => "WT_SESSION_GONE",
            Self::WT_FLOW_CONTROL_ERROR => "WT_FLOW_CONTROL_ERROR",
            Self::WT_ALPN_ERROR => "WT_ALPN_ERROR",
            Self::WT_REQUIREMENTS_NOT_MET => "WT_REQUIREMENTS_NOT_MET",
            _ => return None,
        })
    }
}

/// Whether `value` is one of `0x1f * N + 0x21`, which HTTP/3 keeps free so that peers meet unknown
/// values (RFC 9114 §7.2.8).
pub(super) const fn is_grease(value: u64) -> bool {
    value >= 0x21 && (value - 0x21).is_multiple_of(0x1f)
}

registered!(ErrorCode, "error");

impl From<ErrorCode> for u64 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

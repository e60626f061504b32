//! The byte formats of HTTP/3 and of WebTransport over it.
//!
//! Owns frame headers and the payloads of the small frames (RFC 9114 §7), SETTINGS, stream types,
//! error codes, the header of an HTTP datagram and capsules (RFC 9297), and what WebTransport adds
//! to each of them (draft-ietf-webtrans-http3, versions 02 to 16). Called by `http3`.
//!
//! Never does: field sections (see QPACK), payload, or a decision whether
//! something is legal now. Parsing borrows; nothing is allocated by a length that the peer named.

mod application_error;
mod capsule;
mod error_code;
mod frame;
mod registered;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub use application_error::ApplicationErrorRange;
pub use capsule::{
    Capsule, CapsuleError, CapsuleHeader, CapsuleType, MAX_CAPSULE_HEADER_LEN,
    MAX_CLOSE_MESSAGE_LEN,
};
pub use error_code::ErrorCode;
pub use frame::{FrameHeader, FrameType, MAX_FRAME_HEADER_LEN, PriorityUpdate, parse_id};
pub use settings::{SettingId, Settings, SettingsError};
pub use stream::{
    DatagramError, MAX_WEBTRANSPORT_HEADER_LEN, StreamType, WebTransportHeader,
    datagram_header_len, emit_datagram_header, parse_datagram, session_id,
};

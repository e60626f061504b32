//! Frame types, their names, and which packets may carry them (RFC 9000 §12.4, table 3).
//!
//! The engine asks [`FrameType::permitted`] for every frame it parses, and prints a type in
//! errors and logs.

use core::fmt;

use crate::ids::Direction;
use crate::packet::PacketKind;

/// A frame type (RFC 9000 §12.4, table 3). Unknown types are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameType(u64);

impl FrameType {
    /// PADDING.
    pub const PADDING: Self = Self(0x00);
    /// PING.
    pub const PING: Self = Self(0x01);
    /// ACK without ECN counts.
    pub const ACK: Self = Self(0x02);
    /// ACK with ECN counts.
    pub const ACK_ECN: Self = Self(0x03);
    /// RESET_STREAM.
    pub const RESET_STREAM: Self = Self(0x04);
    /// STOP_SENDING.
    pub const STOP_SENDING: Self = Self(0x05);
    /// CRYPTO.
    pub const CRYPTO: Self = Self(0x06);
    /// NEW_TOKEN.
    pub const NEW_TOKEN: Self = Self(0x07);
    /// STREAM with no flag set; the types up to 0x0f are STREAM too.
    pub const STREAM: Self = Self(0x08);
    /// MAX_DATA.
    pub const MAX_DATA: Self = Self(0x10);
    /// MAX_STREAM_DATA.
    pub const MAX_STREAM_DATA: Self = Self(0x11);
    /// MAX_STREAMS, bidirectional.
    pub const MAX_STREAMS_BIDI: Self = Self(0x12);
    /// MAX_STREAMS, unidirectional.
    pub const MAX_STREAMS_UNI: Self = Self(0x13);
    /// DATA_BLOCKED.
    pub const DATA_BLOCKED: Self = Self(0x14);
    /// STREAM_DATA_BLOCKED.
    pub const STREAM_DATA_BLOCKED: Self = Self(0x15);
    /// STREAMS_BLOCKED, bidirectional.
    pub const STREAMS_BLOCKED_BIDI: Self = Self(0x16);
    /// STREAMS_BLOCKED, unidirectional.
    pub const STREAMS_BLOCKED_UNI: Self = Self(0x17);
    /// NEW_CONNECTION_ID.
    pub const NEW_CONNECTION_ID: Self = Self(0x18);
    /// RETIRE_CONNECTION_ID.
    pub const RETIRE_CONNECTION_ID: Self = Self(0x19);
    /// PATH_CHALLENGE.
    pub const PATH_CHALLENGE: Self = Self(0x1a);
    /// PATH_RESPONSE.
    pub const PATH_RESPONSE: Self = Self(0x1b);
    /// CONNECTION_CLOSE of the transport.
    pub const CONNECTION_CLOSE: Self = Self(0x1c);
    /// CONNECTION_CLOSE of the application.
    pub const CONNECTION_CLOSE_APPLICATION: Self = Self(0x1d);
    /// HANDSHAKE_DONE.
    pub const HANDSHAKE_DONE: Self = Self(0x1e);
    /// IMMEDIATE_ACK (draft-ietf-quic-ack-frequency-14).
    pub const IMMEDIATE_ACK: Self = Self(0x1f);
    /// RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset-07).
    pub const RESET_STREAM_AT: Self = Self(0x24);
    /// DATAGRAM to the end of the packet (RFC 9221).
    pub const DATAGRAM: Self = Self(0x30);
    /// DATAGRAM with a length (RFC 9221).
    pub const DATAGRAM_LEN: Self = Self(0x31);
    /// ACK_FREQUENCY (draft-ietf-quic-ack-frequency-14).
    pub const ACK_FREQUENCY: Self = Self(0xaf);

    /// The type as it came off the wire.
    #[inline]
    pub const fn from_u64(ty: u64) -> Self {
        Self(ty)
    }

    /// The number on the wire.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Whether this is one of the eight STREAM types.
    #[inline]
    pub const fn is_stream(self) -> bool {
        self.0 & !7 == Self::STREAM.0
    }

    pub(super) const fn max_streams(direction: Direction) -> Self {
        match direction {
            Direction::Bidirectional => Self::MAX_STREAMS_BIDI,
            Direction::Unidirectional => Self::MAX_STREAMS_UNI,
        }
    }

    pub(super) const fn streams_blocked(direction: Direction) -> Self {
        match direction {
            Direction::Bidirectional => Self::STREAMS_BLOCKED_BIDI,
            Direction::Unidirectional => Self::STREAMS_BLOCKED_UNI,
        }
    }

    /// Whether a packet of this kind may carry the frame; if not: PROTOCOL_VIOLATION
    /// (RFC 9000 §12.4, table 3). Unknown types are permitted nowhere.
    ///
    /// RETIRE_CONNECTION_ID is refused in 0-RTT although the table admits it: no client can have
    /// a connection ID to retire by then, and §12.5 lets a server say so.
    /// The same table says what a Handshake packet may carry (RFC 9000 §12.5, §17.2.4).
    #[inline]
    pub const fn permitted(self, packet: PacketKind) -> bool {
        const IN_INITIAL: u8 = 1 << PacketKind::Initial as u8;
        const IN_0RTT: u8 = 1 << PacketKind::ZeroRtt as u8;
        const IN_HANDSHAKE: u8 = 1 << PacketKind::Handshake as u8;
        const IN_1RTT: u8 = 1 << PacketKind::OneRtt as u8;
        let packets = match self.0 {
            // PADDING, PING, CONNECTION_CLOSE of the transport
            0x00 | 0x01 | 0x1c => IN_INITIAL | IN_HANDSHAKE | IN_0RTT | IN_1RTT,
            // ACK, CRYPTO
            0x02 | 0x03 | 0x06 => IN_INITIAL | IN_HANDSHAKE | IN_1RTT,
            // NEW_TOKEN, RETIRE_CONNECTION_ID, PATH_RESPONSE, HANDSHAKE_DONE; IMMEDIATE_ACK and
            // ACK_FREQUENCY, since nobody remembers the parameter that permits them
            0x07 | 0x19 | 0x1b | 0x1e | 0x1f | 0xaf => IN_1RTT,
            0x04..=0x1d | 0x24 | 0x30 | 0x31 => IN_0RTT | IN_1RTT,
            _ => 0,
        };
        packets & 1 << packet as u8 != 0
    }

    /// Whether a packet with this frame must be acknowledged (RFC 9002 §2).
    #[inline]
    pub const fn ack_eliciting(self) -> bool {
        !matches!(self.0, 0x00 | 0x02 | 0x03 | 0x1c | 0x1d)
    }

    /// Whether this is a probing frame: a packet of nothing else isn't a migration
    /// (RFC 9000 §9.1).
    #[inline]
    pub const fn is_probing(self) -> bool {
        matches!(self.0, 0x00 | 0x18 | 0x1a | 0x1b)
    }

    const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x00 => "PADDING",
            0x01 => "PING",
            0x02 | 0x03 => "ACK",
            0x04 => "RESET_STREAM",
            0x05 => "STOP_SENDING",
            0x06 => "CRYPTO",
            0x07 => "NEW_TOKEN",
            0x08..=0x0f => "STREAM",
            0x10 => "MAX_DATA",
            0x11 => "MAX_STREAM_DATA",
            0x12 | 0x13 => "MAX_STREAMS",
            0x14 => "DATA_BLOCKED",
            0x15 => "STREAM_DATA_BLOCKED",
            0x16 | 0x17 => "STREAMS_BLOCKED",
            0x18 => "NEW_CONNECTION_ID",
            0x19 => "RETIRE_CONNECTION_ID",
            0x1a => "PATH_CHALLENGE",
            0x1b => "PATH_RESPONSE",
            0x1c | 0x1d => "CONNECTION_CLOSE",
            0x1e => "HANDSHAKE_DONE",
            0x1f => "IMMEDIATE_ACK",
            0x24 => "RESET_STREAM_AT",
            0x30 | 0x31 => "DATAGRAM",
            0xaf => "ACK_FREQUENCY",
            _ => return None,
        })
    }
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "frame type {:#x}", self.0),
        }
    }
}

impl fmt::Debug for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

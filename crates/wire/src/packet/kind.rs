//! The kinds of packet, with a long header and in all (RFC 9000 §12.4, §17.2).
//!
//! Headers name the first, the table of permitted frames the second; each knows the space its
//! packet numbers count in.

use crate::ids::PacketNumberSpace;

/// The kinds of long-header packet that carry frames (RFC 9000 §17.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LongType {
    /// Initial (§17.2.2).
    Initial,
    /// 0-RTT (§17.2.3).
    ZeroRtt,
    /// Handshake (§17.2.4).
    Handshake,
}

impl LongType {
    /// The space its packet numbers count in.
    #[inline]
    pub const fn space(self) -> PacketNumberSpace {
        PacketKind::from_long(self).space()
    }

    pub(super) const fn bits(self) -> u8 {
        (self as u8) << 4
    }
}

/// The kinds of packet that carry frames (RFC 9000 §12.4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PacketKind {
    /// Initial.
    Initial,
    /// 0-RTT.
    ZeroRtt,
    /// Handshake.
    Handshake,
    /// 1-RTT: the short header.
    OneRtt,
}

impl PacketKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Initial, Self::ZeroRtt, Self::Handshake, Self::OneRtt];

    /// The kind of a long-header packet.
    #[inline]
    pub const fn from_long(kind: LongType) -> Self {
        match kind {
            LongType::Initial => Self::Initial,
            LongType::ZeroRtt => Self::ZeroRtt,
            LongType::Handshake => Self::Handshake,
        }
    }

    /// The space its packet numbers count in.
    #[inline]
    pub const fn space(self) -> PacketNumberSpace {
        match self {
            Self::Initial => PacketNumberSpace::Initial,
            Self::Handshake => PacketNumberSpace::Handshake,
            Self::ZeroRtt | Self::OneRtt => PacketNumberSpace::Application,
        }
    }
}

impl From<LongType> for PacketKind {
    fn from(kind: LongType) -> Self {
        Self::from_long(kind)
    }
}

//! Packet headers of QUIC v1 and the version-independent ones (RFC 8999, RFC 9000 §17).
//!
//! Owns the view of a packet *before* header protection is removed ([`parse_header`]), packet
//! number truncation and recovery ([`number`]), and the emission of headers ([`emit`]). The
//! engine calls `parse_header` once a packet, removes header protection at `pn_offset` itself,
//! then uses [`decode_packet_number`]. Nothing here decrypts, routes or answers.

use core::fmt;

use crate::cursor::{Reader, UnexpectedEnd};
use crate::ids::{ConnectionId, MAX_CID_LEN};

mod emit;
mod kind;
mod number;
#[cfg(test)]
mod tests;

pub use emit::{
    LengthSlot, emit_retry, emit_version_negotiation, long_header_len, retry_pseudo_packet,
    short_header_len, write_long_header, write_short_header,
};
pub use kind::{LongType, PacketKind};
pub use number::{decode_packet_number, packet_number_len, truncated_packet_number};

/// QUIC version 1 (RFC 9000 §15).
pub const QUIC_V1: u32 = 1;
/// First byte: long header (RFC 8999 §5.1).
pub const LONG_HEADER_BIT: u8 = 0x80;
/// First byte: the bit that is 1 in every QUIC v1 packet (RFC 9000 §17.2, §17.3).
pub const FIXED_BIT: u8 = 0x40;
/// First byte of a long header, unprotected: must be 0 (RFC 9000 §17.2).
pub const LONG_RESERVED_BITS: u8 = 0x0c;
/// First byte of a short header, unprotected: must be 0 (RFC 9000 §17.3.1).
pub const SHORT_RESERVED_BITS: u8 = 0x18;
/// First byte of a short header: latency spin bit (RFC 9000 §17.4).
pub const SHORT_SPIN_BIT: u8 = 0x20;
/// First byte of a short header, unprotected: key phase (RFC 9001 §6).
pub const SHORT_KEY_PHASE_BIT: u8 = 0x04;
/// First byte, unprotected: packet number length minus one (RFC 9000 §17.2).
pub const PACKET_NUMBER_LEN_BITS: u8 = 0x03;
/// Bytes of the Retry Integrity Tag (RFC 9001 §5.8).
pub const RETRY_TAG_LEN: usize = 16;
/// Bytes needed from the start of the packet number on: the longest packet number and the
/// header protection sample (RFC 9001 §5.4.2).
pub const MIN_PROTECTED_LEN: usize = 4 + 16;

/// The first packet of a datagram as far as it can be read without keys.
///
/// Offsets count from the start of the bytes given to [`parse_header`]; `first` and everything
/// from `pn_offset` on are still under header protection. `bytes[pn_offset..end]` is at least
/// [`MIN_PROTECTED_LEN`] long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header<'a> {
    /// 1-RTT (RFC 9000 §17.3.1); always the last packet of its datagram.
    Short {
        /// Destination connection ID, one of ours.
        dcid: ConnectionId,
        /// The first byte, protected.
        first: u8,
        /// Where the packet number starts.
        pn_offset: usize,
        /// Where the packet ends.
        end: usize,
    },
    /// Initial, 0-RTT or Handshake of QUIC v1.
    Long {
        /// Which of the three.
        kind: LongType,
        /// Always [`QUIC_V1`] today.
        version: u32,
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID.
        scid: ConnectionId,
        /// Token of an Initial; empty for the others and for an Initial without one.
        token: &'a [u8],
        /// The first byte, protected.
        first: u8,
        /// Where the packet number starts.
        pn_offset: usize,
        /// Where the packet ends: `pn_offset` + Length. A coalesced packet may follow.
        end: usize,
    },
    /// Retry (RFC 9000 §17.2.5); fills its datagram.
    Retry {
        /// Always [`QUIC_V1`] today.
        version: u32,
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID, which the client must use from now on.
        scid: ConnectionId,
        /// Retry token, never empty.
        token: &'a [u8],
        /// Retry Integrity Tag (RFC 9001 §5.8), not checked.
        integrity_tag: [u8; RETRY_TAG_LEN],
        /// The packet without its tag, as [`retry_pseudo_packet`] wants it.
        whole: &'a [u8],
    },
    /// Version Negotiation (RFC 8999 §6); fills its datagram.
    VersionNegotiation {
        /// Destination connection ID, up to 255 bytes.
        dcid: &'a [u8],
        /// Source connection ID, up to 255 bytes.
        scid: &'a [u8],
        /// The versions offered, at least one.
        versions: VersionList<'a>,
    },
    /// A long header of a version we don't speak, by the invariants alone (RFC 8999 §5.1).
    UnknownVersion {
        /// The version.
        version: u32,
        /// Destination connection ID, up to 255 bytes.
        dcid: &'a [u8],
        /// Source connection ID, up to 255 bytes.
        scid: &'a [u8],
    },
}

impl Header<'_> {
    /// The destination connection ID, whatever the packet.
    #[inline]
    pub fn dcid(&self) -> &[u8] {
        match self {
            Self::Short { dcid, .. } | Self::Long { dcid, .. } | Self::Retry { dcid, .. } => dcid,
            Self::VersionNegotiation { dcid, .. } | Self::UnknownVersion { dcid, .. } => dcid,
        }
    }

    /// What kind of packet its frames are in; `None` if it carries no frames we can read.
    #[inline]
    pub fn kind(&self) -> Option<PacketKind> {
        match self {
            Self::Short { .. } => Some(PacketKind::OneRtt),
            Self::Long { kind, .. } => Some(PacketKind::from_long(*kind)),
            _ => None,
        }
    }
}

/// The versions in a Version Negotiation packet, in the server's order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VersionList<'a>(&'a [[u8; 4]]);

impl<'a> VersionList<'a> {
    /// The versions.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.0.iter().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// Whether `version` is among them.
    pub fn contains(&self, version: u32) -> bool {
        self.0.contains(&version.to_be_bytes())
    }
}

impl fmt::Debug for VersionList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Why a header can't be read. The right answer to all of them is to drop the packet silently.
///
/// A stateless reset may look like any of these (RFC 9000 §10.3): test for one before dropping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// The datagram ends inside the header, or before the end the Length field gives.
    UnexpectedEnd,
    /// The fixed bit is 0 (RFC 9000 §17.2, §17.3.1).
    FixedBitZero,
    /// A connection ID of more than 20 bytes in QUIC v1 (RFC 9000 §17.2).
    ConnectionIdTooLong,
    /// Too short to sample for header protection (RFC 9001 §5.4.2). Packets coalesced behind it
    /// start at `end`.
    SampleTooShort {
        /// Where the packet ends.
        end: usize,
    },
    /// A Retry packet without a token (RFC 9000 §17.2.5.2).
    EmptyRetryToken,
    /// A Version Negotiation packet whose list is empty or not made of whole versions.
    MalformedVersionList,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnexpectedEnd => "packet ends early",
            Self::FixedBitZero => "fixed bit is 0",
            Self::ConnectionIdTooLong => "connection ID longer than 20 bytes",
            Self::SampleTooShort { .. } => "too short for a header protection sample",
            Self::EmptyRetryToken => "Retry without a token",
            Self::MalformedVersionList => "malformed version list",
        })
    }
}

impl core::error::Error for HeaderError {}

impl From<UnexpectedEnd> for HeaderError {
    fn from(_: UnexpectedEnd) -> Self {
        Self::UnexpectedEnd
    }
}

/// Reads the header of the first packet in `bytes` (a datagram, or what is left of one).
///
/// `local_cid_len` is the length of the connection IDs we issue, which a short header doesn't
/// carry.
#[inline]
pub fn parse_header(bytes: &[u8], local_cid_len: usize) -> Result<Header<'_>, HeaderError> {
    let mut r = Reader::new(bytes);
    let first = r.u8()?;
    if first & LONG_HEADER_BIT != 0 {
        return parse_long(bytes, r, first);
    }
    if first & FIXED_BIT == 0 {
        return Err(HeaderError::FixedBitZero);
    }
    let dcid = v1_cid(r.bytes(local_cid_len)?)?;
    let (pn_offset, end) = (r.position(), bytes.len());
    check_sample(pn_offset, end)?;
    Ok(Header::Short {
        dcid,
        first,
        pn_offset,
        end,
    })
}

/// The destination connection ID of the first packet in `bytes`, for routing; up to 255 bytes.
#[inline]
pub fn peek_dcid(bytes: &[u8], local_cid_len: usize) -> Result<&[u8], HeaderError> {
    let mut r = Reader::new(bytes);
    let first = r.u8()?;
    if first & LONG_HEADER_BIT != 0 {
        r.u32()?;
        let len = r.u8()?;
        return Ok(r.bytes(usize::from(len))?);
    }
    if first & FIXED_BIT == 0 {
        return Err(HeaderError::FixedBitZero);
    }
    Ok(r.bytes(local_cid_len)?)
}

fn parse_long<'a>(
    bytes: &'a [u8],
    mut r: Reader<'a>,
    first: u8,
) -> Result<Header<'a>, HeaderError> {
    let version = r.u32()?;
    let dcid_len = r.u8()?;
    // RFC 9000 §17.2: a server must be able to read longer IDs only to answer with a VN.
    if version == QUIC_V1 && usize::from(dcid_len) > MAX_CID_LEN {
        return Err(HeaderError::ConnectionIdTooLong);
    }
    let dcid = r.bytes(usize::from(dcid_len))?;
    let scid_len = r.u8()?;
    if version == QUIC_V1 && usize::from(scid_len) > MAX_CID_LEN {
        return Err(HeaderError::ConnectionIdTooLong);
    }
    let scid = r.bytes(usize::from(scid_len))?;
    if version == 0 {
        let (versions, partial) = r.rest().as_chunks::<4>();
        if versions.is_empty() || !partial.is_empty() {
            return Err(HeaderError::MalformedVersionList);
        }
        return Ok(Header::VersionNegotiation {
            dcid,
            scid,
            versions: VersionList(versions),
        });
    }
    if version != QUIC_V1 {
        return Ok(Header::UnknownVersion {
            version,
            dcid,
            scid,
        });
    }
    if first & FIXED_BIT == 0 {
        return Err(HeaderError::FixedBitZero);
    }
    let (dcid, scid) = (v1_cid(dcid)?, v1_cid(scid)?);
    let kind = match first >> 4 & 3 {
        0 => LongType::Initial,
        1 => LongType::ZeroRtt,
        2 => LongType::Handshake,
        _ => return parse_retry(bytes, r, version, dcid, scid),
    };
    let token = if kind == LongType::Initial {
        r.varint_bytes()?
    } else {
        &[]
    };
    let length = r.varint()?;
    let pn_offset = r.position();
    let end = usize::try_from(length)
        .ok()
        .and_then(|length| pn_offset.checked_add(length))
        .filter(|end| *end <= bytes.len())
        .ok_or(HeaderError::UnexpectedEnd)?;
    check_sample(pn_offset, end)?;
    Ok(Header::Long {
        kind,
        version,
        dcid,
        scid,
        token,
        first,
        pn_offset,
        end,
    })
}

fn parse_retry<'a>(
    bytes: &'a [u8],
    mut r: Reader<'a>,
    version: u32,
    dcid: ConnectionId,
    scid: ConnectionId,
) -> Result<Header<'a>, HeaderError> {
    let (token, tag) = r
        .rest()
        .split_last_chunk::<RETRY_TAG_LEN>()
        .ok_or(HeaderError::UnexpectedEnd)?;
    if token.is_empty() {
        return Err(HeaderError::EmptyRetryToken);
    }
    let whole = &bytes[..bytes.len() - RETRY_TAG_LEN];
    Ok(Header::Retry {
        version,
        dcid,
        scid,
        token,
        integrity_tag: *tag,
        whole,
    })
}

#[inline]
fn v1_cid(bytes: &[u8]) -> Result<ConnectionId, HeaderError> {
    ConnectionId::new(bytes).ok_or(HeaderError::ConnectionIdTooLong)
}

#[inline]
fn check_sample(pn_offset: usize, end: usize) -> Result<(), HeaderError> {
    if end - pn_offset < MIN_PROTECTED_LEN {
        return Err(HeaderError::SampleTooShort { end });
    }
    Ok(())
}

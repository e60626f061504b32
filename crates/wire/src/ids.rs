//! Identifiers and small enumerations of QUIC.
//!
//! Owns stream IDs (RFC 9000 §2.1), connection IDs (§5.1), stateless reset tokens (§10.3),
//! packet number spaces (§12.3) and the two words "side" and "direction". Used by every crate
//! above; never allocates.

use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

use crate::cursor::MAX_VARINT;

#[cfg(test)]
mod tests;

/// The longest connection ID of QUIC v1, in bytes (RFC 9000 §17.2).
pub const MAX_CID_LEN: usize = 20;

/// The most streams of one kind a connection can ever have, 2^60 (RFC 9000 §4.6).
pub const MAX_STREAMS: u64 = 1 << 60;

/// Where packet numbers count separately (RFC 9000 §12.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PacketNumberSpace {
    /// Initial packets.
    Initial,
    /// Handshake packets.
    Handshake,
    /// 0-RTT and 1-RTT packets.
    Application,
}

impl PacketNumberSpace {
    /// All spaces, in the order of the handshake.
    pub const ALL: [Self; 3] = [Self::Initial, Self::Handshake, Self::Application];

    /// 0, 1 or 2, for arrays with one entry a space.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Which end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The end that sent the first Initial.
    Client,
    /// The end that answered it.
    Server,
}

impl Side {
    /// The other end.
    #[inline]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// Whether this is the client.
    #[inline]
    pub const fn is_client(self) -> bool {
        matches!(self, Self::Client)
    }

    /// Whether this is the server.
    #[inline]
    pub const fn is_server(self) -> bool {
        matches!(self, Self::Server)
    }
}

/// Whether data flows both ways on a stream (RFC 9000 §2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Both ends send.
    Bidirectional,
    /// Only the initiator sends.
    Unidirectional,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::Bidirectional, Self::Unidirectional];

    /// 0 or 1, for arrays with one entry a direction.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A stream ID: initiator, direction and a count, in one number (RFC 9000 §2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

impl StreamId {
    /// The `index`-th stream (from 0) of this initiator and direction.
    ///
    /// `index` must be below 2^60 ([`MAX_STREAMS`]); higher bits are dropped.
    #[inline]
    pub const fn new(initiator: Side, direction: Direction, index: u64) -> Self {
        debug_assert!(index < MAX_STREAMS);
        Self((index & (MAX_STREAMS - 1)) << 2 | (direction as u64) << 1 | initiator as u64)
    }

    /// The ID as it stands on the wire; bits above 2^62 - 1 are dropped.
    #[inline]
    pub const fn from_u64(value: u64) -> Self {
        debug_assert!(value <= MAX_VARINT);
        Self(value & MAX_VARINT)
    }

    /// The number on the wire.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Which end opens this stream.
    #[inline]
    pub const fn initiator(self) -> Side {
        if self.0 & 1 == 0 {
            Side::Client
        } else {
            Side::Server
        }
    }

    /// Whether both ends send.
    #[inline]
    pub const fn direction(self) -> Direction {
        if self.0 & 2 == 0 {
            Direction::Bidirectional
        } else {
            Direction::Unidirectional
        }
    }

    /// The count among streams of the same initiator and direction, from 0.
    #[inline]
    pub const fn index(self) -> u64 {
        self.0 >> 2
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({})", self.0)
    }
}

/// A connection ID of QUIC v1: 0 to 20 bytes, held inline (RFC 9000 §5.1).
///
/// Equality, order and hash are those of the bytes, so a map keyed by it can be asked with a
/// slice (see [`peek_dcid`](crate::peek_dcid)).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConnectionId {
    len: u8,
    /// Unused bytes are zero, so that derived equality is equality of the used ones.
    bytes: [u8; MAX_CID_LEN],
}

impl ConnectionId {
    /// The connection ID of zero length.
    pub const EMPTY: Self = Self {
        len: 0,
        bytes: [0; MAX_CID_LEN],
    };

    /// A connection ID of these bytes, or `None` if there are more than 20.
    #[inline]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut cid = Self::EMPTY;
        cid.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        cid.len = bytes.len() as u8;
        Some(cid)
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The number of bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the length is zero.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Deref for ConnectionId {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for ConnectionId {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Borrow<[u8]> for ConnectionId {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Hash for ConnectionId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl Ord for ConnectionId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl PartialOrd for ConnectionId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({self})")
    }
}

/// The 16 bytes by which a peer that lost its state ends a connection (RFC 9000 §10.3).
///
/// Comparison takes the same time whatever the bytes (§10.3.1); `Debug` hides them.
#[derive(Clone, Copy)]
pub struct StatelessResetToken([u8; Self::LEN]);

impl StatelessResetToken {
    /// Bytes in a token.
    pub const LEN: usize = 16;

    /// A token of these bytes.
    #[inline]
    pub const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes; don't compare them directly.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl From<[u8; Self::LEN]> for StatelessResetToken {
    fn from(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }
}

impl PartialEq for StatelessResetToken {
    fn eq(&self, other: &Self) -> bool {
        let difference = self
            .0
            .iter()
            .zip(&other.0)
            .fold(0, |all, (a, b)| all | (a ^ b));
        core::hint::black_box(difference) == 0
    }
}

impl Eq for StatelessResetToken {}

impl fmt::Debug for StatelessResetToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatelessResetToken(..)")
    }
}

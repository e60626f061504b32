//! What an endpoint's own connection IDs look like.

use towline_wire::{ConnectionId, MAX_CID_LEN};

use super::invalid::InvalidTransport;

/// Makes the connection IDs that peers put into packets sent to us.
///
/// All IDs of one generator have the same length, so that short headers can be parsed. Nobody may be
/// able to have one made that another connection has: its reset token follows from it (RFC 9000
/// §10.3.2).
pub trait CidGenerator: Send {
    /// Length of every ID, 0 to 20 bytes. An endpoint with IDs of no length takes no clients. A
    /// connection has four IDs; where nearly all that can be made are in use, there is no further
    /// connection.
    fn cid_len(&self) -> usize;
    /// Fills a new ID from the random bytes given, which are as many as [`Self::cid_len`].
    fn generate(&mut self, random: &[u8]) -> ConnectionId;
    /// A generator of the same kind for shard `shard` of several, whose IDs begin with that byte or
    /// have no length. Default: there is none, and several shards have a [`ShardedCid`] each.
    fn for_shard(&self, _shard: u8) -> Option<Box<dyn CidGenerator>> {
        None
    }
}

/// Connection IDs whose first byte is the shard that owns the connection; the others are random.
#[derive(Clone, Debug)]
pub struct ShardedCid {
    shard: u8,
    len: usize,
}

impl ShardedCid {
    /// Least length of an ID, bytes: three random ones tell the most connections that an endpoint holds
    /// apart.
    pub const MIN_LEN: usize = 4;

    /// Eight-byte IDs of shard number `shard`.
    pub fn new(shard: u8) -> Self {
        Self { shard, len: 8 }
    }

    /// IDs of `len` bytes, [`MIN_LEN`](Self::MIN_LEN) to 20. Shorter ones save their bytes in every
    /// packet that the peer sends. They are easier to hit by chance: a packet with a random ID of four
    /// bytes finds a connection of n with a chance of n / 2^24, and fails authentication there.
    ///
    /// # Errors
    /// For other lengths.
    pub fn with_len(shard: u8, len: usize) -> Result<Self, InvalidTransport> {
        let possible = Self::MIN_LEN..=MAX_CID_LEN;
        InvalidTransport::check("cid_len", len, possible, |len| format!("{len} bytes"))?;
        Ok(Self { shard, len })
    }

    /// The shard that made `cid`, if it is long enough to be one of ours.
    pub fn shard_of(cid: &[u8]) -> Option<u8> {
        (cid.len() >= Self::MIN_LEN).then(|| cid[0])
    }
}

impl CidGenerator for ShardedCid {
    fn cid_len(&self) -> usize {
        self.len
    }

    fn generate(&mut self, random: &[u8]) -> ConnectionId {
        let mut bytes = [0; MAX_CID_LEN];
        let bytes = &mut bytes[..self.len];
        bytes.copy_from_slice(&random[..self.len]);
        bytes[0] = self.shard;
        ConnectionId::new(bytes).unwrap_or(ConnectionId::EMPTY)
    }

    fn for_shard(&self, shard: u8) -> Option<Box<dyn CidGenerator>> {
        let len = self.len;
        Some(Box::new(Self { shard, len }))
    }
}

/// Connection IDs of no length, for endpoints that only connect: servers need not send any in their
/// packets. A connection is known by its server's address, so there can be one with each at a time, and
/// it does not outlive a change of that address.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCids;

impl CidGenerator for NoCids {
    fn cid_len(&self) -> usize {
        0
    }

    fn generate(&mut self, _random: &[u8]) -> ConnectionId {
        ConnectionId::EMPTY
    }

    fn for_shard(&self, _shard: u8) -> Option<Box<dyn CidGenerator>> {
        Some(Box::new(Self))
    }
}

//! [`Neighbours`]: the shards of an endpoint as one of them sees them, and handing over what is theirs.
//!
//! Made with a group of shards, and asked by each for every train that it receives.

use towline_quic::{DatagramMeta, Endpoint};

use super::handle::{Change, Delivery, Handle};
use super::stats::SocketStats;
use super::steer::shard_of;

/// The shards of an endpoint as one of them sees them.
pub(super) struct Neighbours<D> {
    index: usize,
    /// How many there are.
    count: usize,
    /// All of them, in order, this one included; empty if it is alone in this process.
    shards: Vec<Handle<D>>,
}

impl<D> Neighbours<D> {
    pub(super) fn none() -> Self {
        Self::of(0, Vec::new())
    }

    /// Of the shard at `index` among `shards`.
    pub(super) fn of(index: usize, shards: Vec<Handle<D>>) -> Self {
        let count = shards.len();
        Self {
            index,
            count,
            shards,
        }
    }

    /// Of the shard at `index` among `count`, where the others are in other processes.
    pub(super) fn elsewhere(index: usize, count: usize) -> Self {
        Self {
            index,
            count,
            shards: Vec::new(),
        }
    }

    /// How many bytes at the front of a train go to one shard, and which if it is another one.
    pub(super) fn run(&self, train: &[u8], stride: usize) -> (usize, Option<usize>) {
        let count = self.count;
        if count < 2 {
            return (train.len(), None);
        }
        let mut datagrams = train.chunks(stride.max(1));
        let owner = datagrams.next().map_or(0, |first| shard_of(first, count));
        let more = datagrams
            .take_while(|datagram| shard_of(datagram, count) == owner)
            .count();
        let len = train.len().min((1 + more) * stride.max(1));
        (len, (owner != self.index).then_some(owner))
    }

    /// Hands `train` to its shard; false if that one has ended, so that the train stays here. What is
    /// another process's is dropped, as if the network had lost it: the peer sends it again.
    /// No shard answers for another: that would make it an oracle for resets (RFC 9000 §5.2.3).
    pub(super) fn hand_over(
        &self,
        owner: usize,
        meta: DatagramMeta,
        train: &[u8],
        stats: &mut SocketStats,
    ) -> bool {
        let datagrams = train.len().div_ceil(meta.stride.max(1)) as u64;
        let Some(shard) = self.shards.get(owner) else {
            stats.hand_over_drops += datagrams;
            return true;
        };
        match shard.deliver(meta, train) {
            Delivery::Taken => stats.datagrams_handed_over += datagrams,
            Delivery::Full => stats.hand_over_drops += datagrams,
            Delivery::Gone => return false,
        }
        true
    }

    /// Lets `f` act on the engines of the others, one after another, until it says that it found what it
    /// looked for: which shard's socket hears of a datagram is the system's choice.
    pub(super) fn ask(&self, f: impl Fn(&mut Endpoint) -> bool) {
        let others = self.shards.iter().enumerate();
        for (_, shard) in others.filter(|(index, _)| *index != self.index) {
            let found = shard.with(|endpoint, _| match f(endpoint) {
                true => (true, Change::Made),
                false => (false, Change::None),
            });
            if found {
                return;
            }
        }
    }
}

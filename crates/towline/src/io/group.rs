//! Several shards that are one endpoint: one port, shared keys, connection IDs that tell
//! the shard, and handing over what reached the wrong one.
//!
//! [`shard_group`] makes them; [`Neighbours`] is what each keeps of the others. A shard
//! looks at the others only when a datagram is theirs.

use std::sync::Arc;

use aws_lc_rs::digest;
use towline_quic::{DatagramMeta, EndpointConfig, ServerConfig, ShardedCid};

use super::clock::Clock;
use super::handle::{Delivery, Dispatch, Handle};
use super::shard::Shard;
use super::socket::Socket;
use super::stats::SocketStats;
use super::steer::{MAX_SHARDS, shard_of};

/// One shard for each of `sockets`, which are in the order of [`bind_shards`](super::bind_shards).
///
/// All share the keys of `config`; its memory limit and the limits of `server` (connections,
/// handshakes) are divided among them, those of `server` rounded up. With more than one shard, connection IDs are those of
/// [`ShardedCid`], whatever generator `config` has. All go by `clock`; `dispatch` makes each shard's
/// dispatcher.
///
/// A stateless reset carries no connection ID: one that reaches another shard than its
/// connection's is not recognised, and the connection ends by its idle timeout.
///
/// # Panics
/// When there are more sockets than [`MAX_SHARDS`].
pub fn shard_group<S: Socket, D: Dispatch>(
    sockets: Vec<S>,
    config: EndpointConfig,
    server: Option<ServerConfig>,
    clock: &Clock,
    mut dispatch: impl FnMut(usize) -> D,
) -> Vec<Shard<S, D>> {
    let count = sockets.len();
    assert!(
        count <= MAX_SHARDS,
        "an endpoint has at most {MAX_SHARDS} shards"
    );
    let server = server.map(|server| Arc::new(share_limits(server, count)));
    // All is the same for each, but its seed, its connection IDs and its part of the memory.
    let EndpointConfig {
        seed,
        reset_key,
        token_key,
        cid_generator,
        memory_limit,
        hold_incoming,
        ..
    } = config;
    let mut given = Some(cid_generator).filter(|_| count == 1);
    let mut shards: Vec<_> = sockets
        .into_iter()
        .enumerate()
        .map(|(index, socket)| {
            let cids = given
                .take()
                .unwrap_or_else(|| Box::new(ShardedCid::new(index as u8)));
            let seed = seed_of(&seed, index);
            let config = EndpointConfig::from_seed(seed)
                .seed(seed)
                .reset_key(reset_key)
                .token_key(token_key)
                .cid_generator(cids)
                .memory_limit(memory_limit / count as u64)
                .hold_incoming(hold_incoming);
            let (server, dispatch) = (server.clone(), dispatch(index));
            Shard::with_clock(socket, config, server, dispatch, clock.clone())
        })
        .collect();
    if count > 1 {
        let handles: Vec<_> = shards.iter().map(|shard| shard.handle().clone()).collect();
        for (index, shard) in shards.iter_mut().enumerate() {
            shard.join(Neighbours {
                index,
                shards: handles.clone(),
            });
        }
    }
    shards
}

/// Each shard's own randomness; the first shard's is the seed itself.
fn seed_of(seed: &[u8; 32], index: usize) -> [u8; 32] {
    if index == 0 {
        return *seed;
    }
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"towline shard");
    context.update(seed);
    context.update(&(index as u64).to_be_bytes());
    let mut derived = [0; 32];
    derived.copy_from_slice(context.finish().as_ref());
    derived
}

/// What each of so many shards has of a server's limits.
pub(crate) fn share_limits(mut server: ServerConfig, shards: usize) -> ServerConfig {
    let share = |limit: &mut usize| *limit = limit.div_ceil(shards.max(1));
    share(&mut server.max_connections);
    share(&mut server.max_handshakes);
    share(&mut server.retry_threshold);
    server
}

/// The shards of an endpoint as one of them sees them.
pub(super) struct Neighbours<D> {
    index: usize,
    /// All of them, in order, this one included; empty if it is alone.
    shards: Vec<Handle<D>>,
}

impl<D> Neighbours<D> {
    pub(super) fn none() -> Self {
        Self {
            index: 0,
            shards: Vec::new(),
        }
    }

    /// How many bytes at the front of a train go to one shard, and which if it is another one.
    pub(super) fn run(&self, train: &[u8], stride: usize) -> (usize, Option<usize>) {
        let count = self.shards.len();
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

    /// Hands `train` to its shard; false if that one has ended, so that the train stays here.
    /// No shard answers for another: that would make it an oracle for resets (RFC 9000 §5.2.3).
    pub(super) fn hand_over(
        &self,
        owner: usize,
        meta: DatagramMeta,
        train: &[u8],
        stats: &mut SocketStats,
    ) -> bool {
        let datagrams = train.len().div_ceil(meta.stride.max(1)) as u64;
        match self.shards[owner].deliver(meta, train) {
            Delivery::Taken => stats.datagrams_handed_over += datagrams,
            Delivery::Full => stats.hand_over_drops += datagrams,
            Delivery::Gone => return false,
        }
        true
    }
}

//! Several shards that are one endpoint: one port, shared keys, connection IDs that tell
//! the shard.
//!
//! [`bind_shards`] makes their sockets and [`shard_group`] the shards on them, each of which knows its
//! [`Neighbours`]. What came to the wrong shard is theirs to hand over.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::digest;
use towline_quic::{EndpointConfig, ServerConfig, ShardedCid};

use super::clock::Clock;
use super::handle::Dispatch;
use super::neighbours::Neighbours;
use super::shard::Shard;
use super::socket::{Socket, SocketOptions};
use super::steer::MAX_SHARDS;
use super::udp::UdpSocket;

/// Binds `shards` sockets to one address, in shard order, and steers datagrams to them.
///
/// The port must be free: the first socket takes it alone before the others may join.
/// Without steering (another system than Linux, or a filter in the way), every socket's
/// [`SocketInfo::steering_refused`](super::SocketInfo) says so; see [`shard_group`].
///
/// # Errors
/// `InvalidInput` for no or too many shards; otherwise as [`UdpSocket::bind`].
pub fn bind_shards(
    address: SocketAddr,
    shards: usize,
    options: &SocketOptions,
) -> io::Result<Vec<UdpSocket>> {
    if !(1..=MAX_SHARDS).contains(&shards) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("an endpoint has 1 to {MAX_SHARDS} shards"),
        ));
    }
    if shards == 1 {
        return Ok(vec![UdpSocket::bind(address, options)?]);
    }
    let mut options = options.clone();
    options.reuse_port = false;
    let mut sockets = vec![UdpSocket::bind(address, &options)?];
    let address = sockets[0].share_port()?;
    options.reuse_port = true;
    for _ in 1..shards {
        sockets.push(UdpSocket::bind(address, &options)?);
    }
    if options.steer
        && let Err(error) = sockets[0].steer(shards)
    {
        tracing::info!(%error, "no steering by connection ID");
        for socket in &mut sockets {
            socket.set_steering_refused();
        }
    }
    Ok(sockets)
}

/// Binds `shards` sockets to one address, each to a port of its own, for shards whose packets have no
/// connection ID to go by.
///
/// # Errors
/// `InvalidInput` for no or too many shards, and for one port that several should have; otherwise as
/// [`UdpSocket::bind`].
pub fn bind_separately(
    address: SocketAddr,
    shards: usize,
    options: &SocketOptions,
) -> io::Result<Vec<UdpSocket>> {
    let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if !(1..=MAX_SHARDS).contains(&shards) {
        return invalid(format!("an endpoint has 1 to {MAX_SHARDS} shards"));
    }
    if shards > 1 && address.port() != 0 {
        return invalid("shards without connection IDs need a port each: bind port 0".to_owned());
    }
    (0..shards)
        .map(|_| UdpSocket::bind(address, options))
        .collect()
}

/// One shard for each of `sockets`, which are in the order of [`bind_shards`].
///
/// All share the keys of `config`; its memory limit and the limits of `server` (connections,
/// handshakes) are divided among them, those of `server` rounded up. With more than one shard, connection
/// IDs are those that the generator of `config` has for each
/// ([`for_shard`](towline_quic::CidGenerator::for_shard)), or of a [`ShardedCid`]. All go by `clock`;
/// `dispatch` makes each shard's dispatcher.
///
/// Shards without connection IDs ([`NoCids`](towline_quic::NoCids)) need a port each
/// ([`bind_separately`]): what comes to a socket is its shard's.
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
        keep_unread,
        ..
    } = config;
    let named = cid_generator.cid_len() > 0;
    let mut given = None;
    let mut of_each: Vec<_> = match count {
        0 | 1 => {
            given = Some(cid_generator);
            Vec::new()
        }
        _ => (0..count)
            .map(|index| cid_generator.for_shard(index as u8))
            .collect(),
    };
    let mut shards: Vec<_> = sockets
        .into_iter()
        .enumerate()
        .map(|(index, socket)| {
            let own = of_each.get_mut(index).and_then(Option::take);
            let cids = given
                .take()
                .or(own)
                .unwrap_or_else(|| Box::new(ShardedCid::new(index as u8)));
            let seed = seed_of(&seed, index);
            let config = EndpointConfig::from_seed(seed)
                .seed(seed)
                .reset_key(reset_key)
                .token_key(token_key)
                .cid_generator(cids)
                .memory_limit(memory_limit / count as u64)
                .hold_incoming(hold_incoming)
                .keep_unread(keep_unread);
            let (server, dispatch) = (server.clone(), dispatch(index));
            Shard::with_clock(socket, config, server, dispatch, clock.clone())
        })
        .collect();
    if count > 1 && named {
        let handles: Vec<_> = shards.iter().map(|shard| shard.handle().clone()).collect();
        for (index, shard) in shards.iter_mut().enumerate() {
            shard.join(Neighbours::of(index, handles.clone()));
        }
    }
    shards
}

/// The shard at `index` of `count` on one port, the others of which are in other processes. `socket` is that
/// of this index in the order of [`bind_shards`].
///
/// The processes have to share the keys of `config`, but not its seed. Its connection IDs are those of a
/// [`ShardedCid`], and its limits are divided as those of a [`shard_group`]. A datagram of another shard, as
/// GRO may bring one, is dropped.
///
/// # Panics
/// When there are more than [`MAX_SHARDS`], or `index` is none of them.
pub(crate) fn shard_apart<S: Socket, D: Dispatch>(
    socket: S,
    config: EndpointConfig,
    server: Option<ServerConfig>,
    clock: &Clock,
    dispatch: D,
    (index, count): (usize, usize),
) -> Shard<S, D> {
    assert!(
        index < count && count <= MAX_SHARDS,
        "an endpoint has at most {MAX_SHARDS} shards"
    );
    let memory_limit = config.memory_limit / count as u64;
    let cids = config.cid_generator.for_shard(index as u8);
    let cids = cids.unwrap_or_else(|| Box::new(ShardedCid::new(index as u8)));
    let config = config.cid_generator(cids).memory_limit(memory_limit);
    let server = server.map(|server| Arc::new(share_limits(server, count)));
    let mut shard = Shard::with_clock(socket, config, server, dispatch, clock.clone());
    shard.join(Neighbours::elsewhere(index, count));
    shard
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

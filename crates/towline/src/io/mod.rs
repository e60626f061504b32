//! Sockets, the clock and endpoint shards, with no async runtime.
//!
//! A [`Shard`] is one UDP socket, its buffers and one engine endpoint. Whoever owns a
//! loop (tokio, asyncio, a plain thread) waits for [`Shard::fd`], for
//! [`Shard::next_timeout`] and for its [waker](Shard::set_waker), then calls
//! [`Shard::drive`]. Everyone else talks to the same engine through a [`Handle`].
//! System calls happen outside the lock that the two share. Nothing here spawns,
//! sleeps or knows what an application wants.
//!
//! An endpoint may be several shards on one port, each with its own socket, engine and
//! lock, to use several cores: [`bind_shards`] binds and steers, [`shard_group`] makes
//! them. The connection ID says which shard a datagram belongs to ([`shard_of`]).
//!
//! ```no_run
//! # use towline::io::{Shard, SocketOptions, UdpSocket};
//! # fn main() -> std::io::Result<()> {
//! let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &SocketOptions::default())?;
//! let seed = towline::io::random_seed()?;
//! let mut shard = Shard::new(socket, towline::engine::EndpointConfig::from_seed(seed), None, ());
//! let clock = shard.clock().clone();
//! let turn = shard.drive(clock.now())?;
//! while let Some((connection, event)) = shard.poll_event() {
//!     println!("{connection:?}: {event:?}");
//! }
//! // Drive again at once if `turn.again`; otherwise poll(2) on `shard.fd()`, for writing
//! // too if `turn.want_write`, until `shard.next_timeout()`.
//! # let _ = turn;
//! # Ok(())
//! # }
//! ```

mod addresses;
mod backlog;
mod clock;
#[cfg(target_os = "linux")]
mod error_queue;
mod fallback;
mod group;
mod handle;
mod memory;
mod neighbours;
mod outbox;
#[cfg(target_os = "linux")]
mod sendmsg;
mod shard;
mod socket;
mod stats;
mod steer;
pub(crate) mod timer;
mod udp;
mod waited;

pub use clock::{Clock, ManualClock};
pub use fallback::Fallback;
pub use group::{bind_separately, bind_shards, shard_group};
pub(crate) use group::{shard_apart, share_limits};
pub use handle::{Change, Dispatch, Handle};
pub(crate) use memory::machine_memory;
pub use shard::{DATAGRAMS_PER_TURN, Shard, TIME_PER_TURN, Turn};
pub use socket::{
    BufferGrant, Incoming, MAX_SEND_BATCH, MAX_TRAIN_BYTES, MAX_TRAIN_SEGMENTS, Notice, Outgoing,
    RECEIVE_BATCH, RECEIVE_BUFFER_BYTES, ReceiveBatch, Socket, SocketInfo, SocketOptions, TooBig,
};
pub use stats::SocketStats;
pub use steer::{MAX_SHARDS, shard_of};
pub use timer::FineTimer;
pub use udp::UdpSocket;

/// Thirty-two random bytes from the system, the seed of a shard's secrets.
///
/// # Errors
/// When the system has no randomness to give.
pub fn random_seed() -> std::io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| std::io::Error::other("the system gave no random bytes"))?;
    Ok(seed)
}

#[cfg(test)]
mod tests;

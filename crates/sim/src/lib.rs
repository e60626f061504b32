//! Deterministic network simulator: seeded links, a network of them, a virtual clock.
//!
//! Owns what happens to a datagram between two hosts: rate, delay, jitter, queue, loss,
//! reordering, duplication, corruption, blackouts, address translation. Knows datagrams only.
//! Called by the lab (virtual time) and by `towline::relay` (real time, mapped to [`Time`]).
//! Never reads a clock, opens a socket or iterates a hash table: one seed is one trace.
#![forbid(unsafe_code)]

mod clock;
mod config;
mod datagram;
mod link;
mod network;
mod profile;
mod rng;
mod stats;
mod text;

pub use clock::VirtualClock;
pub use config::{
    DEFAULT_REORDER_DELAY, LinkConfig, LinkConfigError, LossModel, MIN_DEFAULT_QUEUE_BYTES,
};
pub use datagram::Datagram;
pub use link::{HELD_DATAGRAM_OVERHEAD, Link, MAX_HELD_BYTES};
pub use network::{LinkId, Network, NetworkStats, RouteError};
pub use profile::Profile;
pub use stats::{DropStats, LinkStats};
pub use towline_wire::Time;

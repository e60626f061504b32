//! Deterministic network simulator: seeded links, a network of them, a virtual clock, and worlds of
//! hosts on it.
//!
//! Owns what happens to a datagram between two hosts: rate, delay, jitter, queue (drop-tail, CoDel,
//! RED, a marking step), policing, MTU, loss, reordering, duplication, corruption, blackouts, ECN bits rewritten, address translation.
//! Knows datagrams only.
//! Called by the lab (virtual time) and by `towline-relay` (real time, mapped to [`Time`]).
//! Never reads a clock, opens a socket or iterates a hash table: one seed is one trace.
#![forbid(unsafe_code)]

mod aqm;
mod bottleneck;
mod clock;
mod config;
mod datagram;
mod error;
mod faults;
mod link;
mod nat;
mod network;
mod profile;
mod rng;
mod schedule;
mod stats;
mod text;
mod world;

pub use aqm::{Aqm, DEFAULT_CODEL_INTERVAL, DEFAULT_CODEL_TARGET, DEFAULT_RED_WEIGHT};
pub use clock::VirtualClock;
pub use config::{
    DEFAULT_REORDER_DELAY, EcnRewrite, LinkConfig, LossModel, MIN_DEFAULT_QUEUE_BYTES, Policer,
};
pub use datagram::{Datagram, MAX_QUOTED_BYTES, TooBig};
pub use error::LinkConfigError;
pub use link::{HELD_DATAGRAM_OVERHEAD, Link, MAX_HELD_BYTES};
pub use nat::{NatConfig, Remap};
pub use network::{LinkId, MAX_NOTICES, Network, NetworkStats, RouteError};
pub use profile::Profile;
pub use schedule::RateSchedule;
pub use stats::{DelayHistogram, DropStats, LinkStats, QueueMeasure};
pub use towline_wire::Time;
pub use world::{Direct, Host, Outgoing, START, Train, Watch, Wire, World};

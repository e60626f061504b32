//! Loss recovery, congestion control and pacing (RFC 9002, 9438, 9406; BBRv3).
//!
//! The connection owns one [`Recovery`], with its packet number spaces, and one [`PathState`] per
//! path. It asks three questions before it sends ([`Recovery::permit`], [`Recovery::probes_owed`],
//! [`Recovery::next_packet_number`]), reports every packet it sent and every ACK frame it received,
//! and runs the one timer of [`Recovery::next_timeout`]. Frames of acknowledged and lost packets go back to their owner
//! through [`FrameOwner`]; what a frame is, this crate never learns.
//!
//! Two things are shared by the connections of a host: a [`Pool`] of bandwidth, and a
//! [`HostController`] for what runs in the background.
//!
//! No socket, no clock, no randomness: time is an argument, and nothing here allocates per packet
//! once the rings have grown to the size of the window.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as towline_recovery;

mod bandwidth;
pub mod congestion;
mod ecn;
mod loss;
mod mtu_search;
mod pacing;
mod path;
mod persistent_congestion;
mod pool;
mod pto;
mod rate_limit;
mod recovery;
mod reordering;
mod rtt;
mod sent;
mod skipped;
mod stats;
mod throttle;

pub use congestion::{
    AckSample, Algorithm, Bbr, CongestionController, Controller, ControllerFactory, FixedRate,
    HOST_TARGET, Handover, HostController, HostMember, LEAST_FIXED_RATE, LEDBAT_TARGET,
    LeastAckRate, Ledbat, LossSample, LostPacket, SendSample, UnknownAlgorithm,
};
pub use ecn::EcnState;
pub use mtu_search::{DatagramSizes, TooBig};
pub use path::{PathId, PathState};
pub use pool::{Pool, PoolMember, TrafficClass};
pub use pto::LossTimer;
pub use recovery::{
    AckError, AckSummary, Config, Expired, FrameOwner, Loss, LossTrigger, MAX_TRACKED_PACKETS,
    PacketKind, Permit, Recovery,
};
pub use rtt::{GRANULARITY, INITIAL_RTT, RttEstimator};
pub use sent::MAX_LOST_REMEMBERED;
pub use stats::{CongestionPhase, Stats};

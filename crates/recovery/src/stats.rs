//! What a path tells the people who watch it: the names used in Rust, `--json` and metrics alike.
//!
//! Filled by `Recovery::stats` on request; nothing reads it back.

use core::time::Duration;

use crate::ecn::EcnState;

/// A snapshot of one path's recovery state. Counters only ever grow.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// smoothed_rtt (RFC 9002 §5.3); the initial estimate before the first sample.
    pub smoothed_rtt: Duration,
    /// rttvar.
    pub rttvar: Duration,
    /// min_rtt, or `None` before the first sample.
    pub min_rtt: Option<Duration>,
    /// The newest sample; zero before the first.
    pub latest_rtt: Duration,
    /// The current probe timeout of the application space, without backoff.
    pub pto: Duration,
    /// Probe timeouts in a row without an acknowledgement.
    pub pto_count: u32,
    /// Probe timeouts that expired, ever.
    pub probe_timeouts: u64,
    /// Packets sent, acknowledgement-only ones included.
    pub packets_sent: u64,
    /// Bytes of those packets (headers and AEAD tag included, IP and UDP not).
    pub bytes_sent: u64,
    /// Packets in flight declared lost.
    pub packets_lost: u64,
    /// Bytes of those packets.
    pub bytes_lost: u64,
    /// Packets declared lost whose acknowledgement came after all.
    pub packets_spuriously_lost: u64,
    /// Bytes sent, neither acknowledged nor lost (RFC 9002 §2).
    pub bytes_in_flight: u64,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Slow-start threshold in bytes, or `None` before the first congestion event.
    pub ssthresh: Option<u64>,
    /// Pacing rate in bytes per second, or `None` when pacing is off or the rate unbounded.
    pub pacing_rate: Option<u64>,
    /// Newest delivery rate in bytes per second that was not held down by the application.
    pub delivery_rate: Option<u64>,
    /// Reductions of the window for loss or CE marks.
    pub congestion_events: u64,
    /// Reductions found spurious and undone.
    pub spurious_congestion_events: u64,
    /// Times persistent congestion was established (RFC 9002 §7.6).
    pub persistent_congestion: u64,
    /// Whether the controller is in slow start.
    pub in_slow_start: bool,
    /// Where the controller is.
    pub congestion: CongestionPhase,
    /// Whether the path proved to carry ECN marks (RFC 9000 §13.4.2).
    pub ecn_capable: bool,
    /// What is known of ECN on the path.
    pub ecn: EcnState,
    /// Packets the peer reported as marked "congestion experienced".
    pub ce_marks: u64,
    /// Bytes of UDP payload per datagram.
    pub mtu: u16,
    /// Probes for larger datagrams that were sent.
    pub mtu_probes_sent: u64,
    /// Those that were lost; they are not among `packets_lost`.
    pub mtu_probes_lost: u64,
    /// Times the path stopped carrying datagrams of the size in use.
    pub black_holes_detected: u64,
    /// Routers' notices that a packet was too big which were believed.
    pub too_big_believed: u64,
}

/// Where the controller is, in words that all controllers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CongestionPhase {
    /// The window grows with every acknowledgement.
    #[default]
    SlowStart,
    /// It looks for more carefully.
    CongestionAvoidance,
    /// It was reduced, and nothing sent since has been acknowledged.
    Recovery,
}

/// What `Recovery` counts of a path; they only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) packets_sent: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) packets_lost: u64,
    pub(crate) bytes_lost: u64,
    pub(crate) packets_spuriously_lost: u64,
    pub(crate) congestion_events: u64,
    pub(crate) spurious_congestion_events: u64,
    pub(crate) persistent_congestion: u64,
    pub(crate) probe_timeouts: u64,
    pub(crate) ce_marks: u64,
    pub(crate) mtu_probes_sent: u64,
    pub(crate) mtu_probes_lost: u64,
    pub(crate) black_holes_detected: u64,
    pub(crate) too_big_believed: u64,
}

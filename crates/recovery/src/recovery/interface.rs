//! What `Recovery` is told and what it answers: plain types without behaviour.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use towline_wire::{PacketNumberSpace, Side, Time};

use crate::congestion::Algorithm;
use crate::mtu_search::DatagramSizes;
use crate::rtt::INITIAL_RTT;

/// How a path's recovery is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The congestion controller.
    pub algorithm: Algorithm,
    /// Bytes of UDP payload per datagram, and which are looked for.
    pub datagram_sizes: DatagramSizes,
    /// Round trip assumed before the first sample.
    pub initial_rtt: Duration,
    /// Which end we are.
    pub side: Side,
    /// Whether slow start ends on growing delay (HyStart++, RFC 9406).
    pub hystart: bool,
    /// Whether sending is spread over the round trip.
    pub pacing: bool,
    /// Whether packets are marked ECN-capable where the path proves to carry marks.
    pub ecn: bool,
    /// What a controller that needs random choices (BBR's probing times) draws them from.
    pub seed: u64,
    /// Strict limit in bytes per second over every packet: `Recovery::set_rate_limit`.
    pub rate_limit: Option<NonZeroU64>,
    /// Key of the schedule by which one of 256 application packet numbers is left out, so that a
    /// peer acknowledging what it did not receive gives itself away (RFC 9000 §21.4); nobody else
    /// may know it. `None` leaves out none.
    pub skip_key: Option<u64>,
}

impl Config {
    /// CUBIC with HyStart++, pacing and ECN, 1200-byte datagrams, an initial round trip of 100 ms.
    pub fn new(side: Side) -> Self {
        Self {
            algorithm: Algorithm::default(),
            datagram_sizes: DatagramSizes::fixed(1200),
            initial_rtt: INITIAL_RTT,
            side,
            hystart: true,
            pacing: true,
            ecn: true,
            seed: 0,
            rate_limit: None,
            skip_key: None,
        }
    }
}

/// What a packet is to recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketKind {
    /// It holds a frame other than ACK, PADDING and CONNECTION_CLOSE (RFC 9002 §2).
    pub ack_eliciting: bool,
    /// It is ack-eliciting or holds PADDING: it counts towards bytes in flight.
    pub in_flight: bool,
    /// All that makes it ack-eliciting is a PING beside an acknowledgement that was due anyway
    /// ([`PathState::may_ask`](crate::PathState::may_ask)): it moves no probe timeout.
    pub asks: bool,
    /// It asks whether the path carries datagrams of its size: PADDING and a PING, whose loss is no
    /// sign of congestion (RFC 9000 §14.4).
    pub mtu_probe: bool,
}

impl PacketKind {
    /// Has frames to be acknowledged.
    pub const ACK_ELICITING: Self = Self {
        ack_eliciting: true,
        in_flight: true,
        asks: false,
        mtu_probe: false,
    };
    /// Looks for a larger datagram.
    pub const MTU_PROBE: Self = Self {
        ack_eliciting: true,
        in_flight: true,
        asks: false,
        mtu_probe: true,
    };
    /// A probe of a path: whoever asks there asks again, so that its fate is nobody's business, and
    /// it belongs to no window.
    pub const PROBE: Self = Self::ACK_ONLY;
    /// Acknowledgements and padding.
    pub const PADDED_ACK: Self = Self {
        ack_eliciting: false,
        in_flight: true,
        asks: false,
        mtu_probe: false,
    };
    /// Acknowledgements or CONNECTION_CLOSE only.
    pub const ACK_ONLY: Self = Self {
        ack_eliciting: false,
        in_flight: false,
        asks: false,
        mtu_probe: false,
    };
}

/// The answer to "may I send?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Yes, up to so many bytes in packets in flight; at least one datagram.
    Send {
        /// The limit.
        bytes: u64,
    },
    /// The pacer says: not before this time.
    Wait(Time),
    /// The congestion window is full; an ACK or a timeout opens it.
    Blocked,
}

/// Where frames go when the fate of their packet is known.
pub trait FrameOwner<F> {
    /// The packet with this frame was acknowledged. May follow `on_lost` for the same frame, if
    /// the loss turns out spurious.
    fn on_acked(&mut self, packet_number: u64, frame: F);
    /// The packet with this frame was lost, or abandoned.
    fn on_lost(&mut self, packet_number: u64, frame: F);
    /// A probe is due and could carry this frame, whose packet is still in flight.
    fn on_probe(&mut self, frame: F);
}

/// What an ACK frame brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AckSummary {
    /// Packets acknowledged for the first time, those already declared lost excepted.
    pub newly_acked_packets: u64,
    /// Bytes of those among them that were in flight.
    pub newly_acked_bytes: u64,
    /// Whether one of them was ack-eliciting.
    pub includes_ack_eliciting: bool,
    /// The largest of them.
    pub largest_newly_acked: Option<u64>,
    /// When that one was sent.
    pub largest_sent_time: Option<Time>,
    /// Whether the ACK gave a round-trip sample.
    pub rtt_sampled: bool,
    /// Packets in flight that it showed to be lost.
    pub lost_packets: u32,
    /// Packets that had been declared lost and are acknowledged now.
    pub spurious: u32,
    /// By how much the CE count rose, if the ACK raised the largest acknowledged.
    pub ce_marks: u64,
    /// Whether the window was reduced.
    pub congestion_event: bool,
    /// Whether persistent congestion was established.
    pub persistent_congestion: bool,
    /// What the frame cost: ranges, and records of packets sent or lost that were looked at.
    pub work: u32,
    /// The part of it that settled nothing: ranges, and packets that were acknowledged before. The
    /// rest was paid for by sending what it settled.
    pub work_in_vain: u32,
}

/// The peer sent an acknowledgement it cannot have meant: PROTOCOL_VIOLATION (RFC 9000 §13.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckError {
    /// It acknowledges a number that was skipped or not yet used.
    NeverSent {
        /// That number.
        packet_number: u64,
    },
}

impl fmt::Display for AckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverSent { packet_number } => {
                write!(
                    f,
                    "acknowledges packet {packet_number}, which was never sent"
                )
            }
        }
    }
}

impl core::error::Error for AckError {}

/// What the loss timer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The time threshold passed for so many packets in flight.
    Loss {
        /// Packets declared lost.
        packets: u32,
    },
    /// A probe timeout: `probes_owed` tells which spaces owe probes now.
    Pto {
        /// The space it expired in.
        space: PacketNumberSpace,
        /// Probes that space owes.
        probes: u8,
    },
}

/// Why a packet counts as lost (RFC 9002 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossTrigger {
    /// So many later packets were acknowledged.
    Reordering,
    /// Too long ago, and a later packet was acknowledged.
    Time,
}

/// A packet that was declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Whose number it is.
    pub space: PacketNumberSpace,
    /// Its number.
    pub packet_number: u64,
    /// Bytes of UDP payload.
    pub size: u16,
    /// Why.
    pub trigger: LossTrigger,
}

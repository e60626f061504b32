//! `Recovery`: the one object a connection talks to about loss, congestion and pacing.
//!
//! It owns the three packet number spaces, the round-trip estimator, the probe timer, the
//! controller and the pacer, and keeps the sum of bytes in flight. The order of an ACK:
//! 1. walk the ranges, give frames of newly acknowledged packets back;
//! 2. take the round-trip sample, if there is one;
//! 3. detect losses, give their frames back;
//! 4. tell the controller: spurious losses, losses, then the ACK, each at most once.
//!
//! It never decides what a packet carries and never reads a clock.

use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

use towline_wire::{EcnCounts, PacketNumberSpace, Side, Time};

use crate::bandwidth::RateSampler;
use crate::congestion::{
    AckSample, Algorithm, CongestionController, Controller, LeastAckRate, LossSample, SendSample,
    initial_window,
};
use crate::loss::{LossBatch, Space};
use crate::pacing::{self, Pacer};
use crate::persistent_congestion;
use crate::pto::{LossTimer, ProbeTimer};
use crate::rtt::{INITIAL_RTT, RttEstimator};
use crate::sent::{Sent, SentEntry};
use crate::stats::Stats;

/// Packets tracked per connection before `permit` answers `Blocked` whatever the window says.
pub const MAX_TRACKED_PACKETS: usize = 131_072;

/// The max_ack_delay of a peer that did not say (RFC 9000 §18.2).
const DEFAULT_MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Probes per expired PTO when there is data in flight (RFC 9002 §6.2.4 allows one or two).
const PROBES_PER_PTO: u8 = 2;

/// PTOs for which a lost packet is remembered.
const LOST_MEMORY_PTOS: u32 = 3;

/// Pacing gains as fractions (RFC 9002 §7.7 names 1.25 as an example).
const PACING_GAIN: (u64, u64) = (5, 4);
const PACING_GAIN_SLOW_START: (u64, u64) = (2, 1);

/// How a path's recovery is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The congestion controller.
    pub algorithm: Algorithm,
    /// Bytes of UDP payload per datagram; at least 1200.
    pub max_datagram_size: u16,
    /// Round trip assumed before the first sample.
    pub initial_rtt: Duration,
    /// Which end we are.
    pub side: Side,
    /// Whether slow start ends on growing delay (HyStart++, RFC 9406).
    pub hystart: bool,
    /// Whether sending is spread over the round trip.
    pub pacing: bool,
}

impl Config {
    /// CUBIC with HyStart++ and pacing, 1200-byte datagrams, an initial round trip of 333 ms.
    pub fn new(side: Side) -> Self {
        Self {
            algorithm: Algorithm::default(),
            max_datagram_size: 1200,
            initial_rtt: INITIAL_RTT,
            side,
            hystart: true,
            pacing: true,
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
}

impl PacketKind {
    /// Has frames to be acknowledged.
    pub const ACK_ELICITING: Self = Self {
        ack_eliciting: true,
        in_flight: true,
    };
    /// Acknowledgements and padding.
    pub const PADDED_ACK: Self = Self {
        ack_eliciting: false,
        in_flight: true,
    };
    /// Acknowledgements or CONNECTION_CLOSE only.
    pub const ACK_ONLY: Self = Self {
        ack_eliciting: false,
        in_flight: false,
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

/// Loss recovery, congestion control and pacing of one path. `F` is the caller's record of a sent
/// frame, small and cheap to clone.
#[derive(Debug)]
pub struct Recovery<F> {
    config: Config,
    spaces: [Space<F>; 3],
    rtt: RttEstimator,
    pto: ProbeTimer,
    controller: Controller,
    pacer: Pacer,
    sampler: RateSampler,
    bytes_in_flight: u64,
    /// Bytes that ever left flight: acknowledged, lost or discarded.
    settled: u64,
    /// Bytes up to which flights filled the window: growth counts while `settled` is below.
    utilised_until: u64,
    /// On entering recovery one datagram may leave regardless (RFC 9002 §7.3.2).
    recovery_datagram: bool,
    episode: Episode,
    batch: LossBatch,
    /// Packets sent before it went another path: no samples from them.
    path_start: Time,
    now: Time,
    counters: Counters,
}

/// The losses behind the latest reduction: if all turn out spurious, so was it.
#[derive(Clone, Copy, Debug, Default)]
struct Episode {
    number: u64,
    outstanding: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    packets_sent: u64,
    bytes_sent: u64,
    packets_lost: u64,
    bytes_lost: u64,
    packets_spuriously_lost: u64,
    congestion_events: u64,
    spurious_congestion_events: u64,
    persistent_congestion: u64,
}

/// Totals of the packets an ACK newly acknowledges.
#[derive(Default)]
struct Acked {
    packets: u64,
    in_flight_packets: u64,
    bytes: u64,
    bytes_after_recovery: u64,
    ack_eliciting: u64,
    /// The largest number of all, and of those in flight.
    newest: Option<(u64, SentEntry)>,
    newest_in_flight: Option<(u64, SentEntry)>,
    late_packets: u32,
    late_bytes: u64,
    late_in_episode: u64,
}

impl Acked {
    fn add(&mut self, packet_number: u64, entry: SentEntry, recovery_start: Option<Time>) {
        self.packets += 1;
        self.ack_eliciting += u64::from(entry.ack_eliciting);
        if entry.in_flight {
            self.in_flight_packets += 1;
            self.bytes += u64::from(entry.size);
            if recovery_start.is_none_or(|start| entry.sent_time > start) {
                self.bytes_after_recovery += u64::from(entry.size);
            }
            if self
                .newest_in_flight
                .is_none_or(|(newest, _)| packet_number > newest)
            {
                self.newest_in_flight = Some((packet_number, entry));
            }
        }
        if self.newest.is_none_or(|(newest, _)| packet_number > newest) {
            self.newest = Some((packet_number, entry));
        }
    }
}

impl<F: Clone> Recovery<F> {
    /// Recovery for a new path, with a controller by name.
    pub fn new(config: Config) -> Self {
        let controller = Controller::new(
            config.algorithm,
            config.max_datagram_size,
            config.hystart,
            config.pacing,
        );
        Self::with_controller(config, controller)
    }

    /// Recovery with a controller of the caller's; `config.algorithm` and `hystart` are unused.
    pub fn with_controller(config: Config, controller: Controller) -> Self {
        Self {
            spaces: [Space::new(), Space::new(), Space::new()],
            rtt: RttEstimator::new(config.initial_rtt),
            pto: ProbeTimer::new(config.side, DEFAULT_MAX_ACK_DELAY),
            pacer: Pacer::new(initial_window(config.max_datagram_size)),
            controller,
            config,
            sampler: RateSampler::default(),
            bytes_in_flight: 0,
            settled: 0,
            utilised_until: 0,
            recovery_datagram: false,
            episode: Episode::default(),
            batch: LossBatch::default(),
            path_start: Time::ZERO,
            now: Time::ZERO,
            counters: Counters::default(),
        }
    }

    // Facts the connection tells.

    /// The peer's max_ack_delay; 25 ms until told.
    pub fn set_peer_max_ack_delay(&mut self, max_ack_delay: Duration) {
        self.pto.max_ack_delay = max_ack_delay;
    }

    /// Handshake keys are there: anti-deadlock probes use them (RFC 9002 §6.2.2.1).
    pub fn set_handshake_keys_available(&mut self) {
        self.pto.handshake_keys = true;
    }

    /// The handshake is confirmed: the application space gets a PTO, ack delays are limited.
    pub fn set_handshake_confirmed(&mut self) {
        self.pto.handshake_confirmed = true;
        self.pto.peer_validated = true;
    }

    /// Client: a Handshake packet was acknowledged, so the server has validated our address.
    /// True from the start for a server.
    pub fn set_peer_completed_address_validation(&mut self) {
        self.pto.peer_validated = true;
    }

    /// Server: whether the three-fold anti-amplification limit forbids sending. While it does
    /// there is no PTO; afterwards a PTO that lies in the past is due at once (RFC 9002 §6.2.2.1).
    pub fn set_amplification_blocked(&mut self, now: Time, blocked: bool) {
        self.touch(now);
        self.pto.amplification_blocked = blocked;
    }

    /// The path's datagram size changed. The window in bytes stays, unless the size was lowered to
    /// get the handshake through (RFC 9002 §7.2, RFC 8899 §3).
    pub fn set_max_datagram_size(&mut self, max_datagram_size: u16) {
        if max_datagram_size != self.config.max_datagram_size {
            self.config.max_datagram_size = max_datagram_size;
            let during_handshake = !self.pto.handshake_confirmed;
            self.controller
                .on_max_datagram_size(max_datagram_size, during_handshake);
        }
    }

    /// Bytes of UDP payload per datagram.
    pub fn max_datagram_size(&self) -> u16 {
        self.config.max_datagram_size
    }

    /// The round trip of a Retry or Version Negotiation, as the initial estimate (RFC 9002 §6.2.2).
    pub fn seed_rtt(&mut self, rtt: Duration) {
        self.rtt.seed(rtt);
    }

    /// The connection moved to another path: estimator, window and pacer start afresh; packets
    /// sent before count in neither (RFC 9000 §9.4).
    pub fn on_path_change(&mut self, now: Time) {
        self.touch(now);
        self.path_start = now;
        self.rtt = RttEstimator::new(self.config.initial_rtt);
        self.controller
            .on_path_change(now, self.config.max_datagram_size);
        self.pacer = Pacer::new(initial_window(self.config.max_datagram_size));
        self.episode = Episode {
            number: self.episode.number + 1,
            outstanding: 0,
        };
        self.pto.reset();
    }

    // Sending.

    /// Whether, when and how much may be sent in packets in flight. Probes need no permit.
    pub fn permit(&mut self, now: Time) -> Permit {
        self.touch(now);
        let datagram = u64::from(self.config.max_datagram_size);
        let room = self
            .controller
            .window()
            .saturating_sub(self.bytes_in_flight);
        if room < datagram || self.tracked() >= MAX_TRACKED_PACKETS {
            if self.recovery_datagram {
                return Permit::Send { bytes: datagram };
            }
            self.on_utilised();
            return Permit::Blocked;
        }
        let Some(rate) = self.pacing_rate() else {
            return Permit::Send { bytes: room };
        };
        let initial_window = initial_window(self.config.max_datagram_size);
        match self.pacer.permit(now, rate, datagram, initial_window) {
            Ok(bytes) => Permit::Send {
                bytes: bytes.min(room),
            },
            Err(at) => {
                self.on_utilised();
                Permit::Wait(at)
            }
        }
    }

    /// All that is in flight was sent as fast as window and pacer allow: its ACKs may grow the
    /// window. Kept as a byte count, so that neither several ACKs handled before the next send
    /// nor an application that stops after a full flight looks like an unused window.
    fn on_utilised(&mut self) {
        self.utilised_until = self.settled.saturating_add(self.bytes_in_flight);
    }

    /// PTO probes this space still owes; they bypass window and pacer. Each ack-eliciting packet
    /// sent in the space pays one off, and so does any progress by acknowledgement.
    pub fn probes_owed(&self, space: PacketNumberSpace) -> u8 {
        self.spaces[space.index()].probes_owed
    }

    /// The number the next packet of the space gets.
    pub fn next_packet_number(&self, space: PacketNumberSpace) -> u64 {
        self.spaces[space.index()].ring.next()
    }

    /// Leaves a number out, so that a peer acknowledging what it did not receive gives itself
    /// away (RFC 9000 §21.4).
    pub fn skip_packet_number(&mut self, space: PacketNumberSpace) {
        self.spaces[space.index()].ring.skip(self.now);
    }

    /// The largest number acknowledged in the space.
    pub fn largest_acked(&self, space: PacketNumberSpace) -> Option<u64> {
        self.spaces[space.index()].largest_acked
    }

    /// Records a packet of `size` bytes (UDP payload) and drains `frames` into the ring. Returns
    /// its number, which is what `next_packet_number` said.
    pub fn on_packet_sent(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        size: u16,
        kind: PacketKind,
        frames: &mut Vec<F>,
    ) -> u64 {
        self.touch(now);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += u64::from(size);
        let PacketKind {
            ack_eliciting,
            in_flight,
        } = kind;
        let bytes = u64::from(size);
        let snapshot = match in_flight {
            true => self.sampler.on_sent(now, bytes, self.bytes_in_flight),
            false => self.sampler.snapshot(now, self.bytes_in_flight),
        };
        if in_flight {
            let bytes_in_flight = self.bytes_in_flight;
            self.controller.on_sent(&SendSample {
                now,
                bytes,
                bytes_in_flight,
            });
            self.bytes_in_flight += bytes;
            self.pacer.on_sent(bytes);
            self.recovery_datagram = false;
            self.pto.base = now;
        }
        let space = &mut self.spaces[space.index()];
        if ack_eliciting {
            debug_assert!(in_flight, "an ack-eliciting packet is in flight");
            space.ack_eliciting_in_flight += 1;
            space.last_ack_eliciting_sent = Some(now);
            space.probes_owed = space.probes_owed.saturating_sub(1);
        } else if !in_flight {
            space.forget_unanswered_acks();
        }
        space.ring.push(
            Sent {
                now,
                size,
                ack_eliciting,
                in_flight,
            },
            snapshot,
            frames,
        )
    }

    /// There is nothing more to send although `permit` allowed it.
    pub fn on_app_limited(&mut self) {
        self.sampler.on_app_limited(self.bytes_in_flight);
        self.controller
            .on_app_limited(self.now, self.bytes_in_flight);
    }

    // Feedback.

    /// Takes an ACK frame: `ack_delay` scaled to time, `ranges` highest first.
    ///
    /// # Errors
    /// [`AckError::NeverSent`], after which the connection must close; part of the frame may have
    /// been taken.
    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of an ACK frame, kept apart by type"
    )]
    pub fn on_ack_received(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        largest: u64,
        ack_delay: Duration,
        ecn: Option<EcnCounts>,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        owner: &mut impl FrameOwner<F>,
    ) -> Result<AckSummary, AckError> {
        self.touch(now);
        let acked = self.walk_ranges(space, largest, ranges, owner)?;
        let mut summary = AckSummary {
            newly_acked_packets: acked.packets,
            newly_acked_bytes: acked.bytes,
            includes_ack_eliciting: acked.ack_eliciting > 0,
            largest_newly_acked: acked.newest.map(|(packet_number, _)| packet_number),
            largest_sent_time: acked.newest.map(|(_, entry)| entry.sent_time),
            spurious: acked.late_packets,
            ..AckSummary::default()
        };
        let bytes_in_flight_before = self.bytes_in_flight;
        let cwnd_limited = self.settled < self.utilised_until;
        self.settle(acked.bytes);

        let state = &mut self.spaces[space.index()];
        let raised = state.largest_acked.is_none_or(|old| largest > old);
        if raised {
            state.largest_acked = Some(largest);
        }
        let newest_sent = summary.largest_sent_time;
        state.newest_acked_sent = state.newest_acked_sent.max(newest_sent);
        // Rates are measured on packets in flight only: the others leave no trace in the sampler.
        let measured = acked.newest_in_flight.or(acked.newest);
        let measured = measured.map(|(_, entry)| (entry.sent_time, state.ring.snapshot(&entry)));
        let newest_is_largest = summary.largest_newly_acked == Some(largest);
        if let Some(counts) = ecn
            && raised
        {
            // A count in an ACK that raises nothing is old news (RFC 9000 §13.4.2.1); one whose
            // largest packet we no longer know has no send time to judge by.
            if newest_is_largest {
                summary.ce_marks = counts.ce.saturating_sub(state.ce_count);
            }
            state.ce_count = state.ce_count.max(counts.ce);
        }

        // Karn's rule: only the largest, acknowledged for the first time, tells when this ACK was
        // provoked, and only an ack-eliciting packet provoked it (RFC 9002 §5.1).
        let sample = newest_sent
            .filter(|sent| newest_is_largest && acked.ack_eliciting > 0 && *sent >= self.path_start)
            .map(|sent| self.sample_rtt(now, space, sent, ack_delay));
        summary.rtt_sampled = sample.is_some();

        if acked.packets > 0 || acked.late_packets > 0 {
            self.pto.on_progress(now);
            self.spaces[space.index()].probes_owed = 0;
        }
        self.on_late_acks(now, &acked);
        self.lose(
            now,
            space,
            bytes_in_flight_before,
            cwnd_limited,
            &mut summary,
            owner,
        );

        if let Some((sent_time, snapshot)) = measured
            && (acked.bytes > 0 || summary.ce_marks > 0)
        {
            let min_rtt = self.rtt.min().map_or(0, crate::rtt::nanos);
            let rate = self
                .sampler
                .on_ack(now, acked.bytes, sent_time, &snapshot, min_rtt);
            let reduced = self.controller.on_ack(&AckSample {
                now,
                acked_bytes: acked.bytes,
                acked_bytes_after_recovery: acked.bytes_after_recovery,
                acked_packets: acked.in_flight_packets,
                newest_sent_time: sent_time,
                bytes_in_flight_before,
                bytes_in_flight: self.bytes_in_flight,
                rtt: sample.map(|(raw, _)| raw),
                adjusted_rtt: sample.map(|(_, adjusted)| adjusted),
                smoothed_rtt: self.rtt.smoothed(),
                min_rtt: self.rtt.min(),
                delivered: self.sampler.delivered,
                prior_delivered: rate.prior_delivered,
                round: self.sampler.round,
                round_start: rate.round_start,
                delivery_rate: rate.rate,
                tx_in_flight: rate.tx_in_flight,
                lost_since_sent: rate.lost,
                app_limited: rate.app_limited,
                cwnd_limited,
                ce_marks: summary.ce_marks,
                one_way_delay: None,
            });
            if reduced {
                self.on_reduced(0);
                summary.congestion_event = true;
            }
        }
        self.expire_lost(now, space);
        Ok(summary)
    }

    fn walk_ranges(
        &mut self,
        space: PacketNumberSpace,
        largest: u64,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        owner: &mut impl FrameOwner<F>,
    ) -> Result<Acked, AckError> {
        let recovery_start = self.controller.recovery_start();
        let episode = self.episode.number;
        let Space {
            ring,
            lost,
            run,
            ack_eliciting_in_flight,
            ..
        } = &mut self.spaces[space.index()];
        let next = ring.next();
        if largest >= next {
            return Err(AckError::NeverSent {
                packet_number: largest,
            });
        }
        let mut acked = Acked::default();
        for range in ranges {
            let (low, high) = range.into_inner();
            if high >= next {
                return Err(AckError::NeverSent {
                    packet_number: high,
                });
            }
            let base = ring.base();
            for packet_number in low.max(base)..=high {
                let entry = ring
                    .acknowledge(packet_number, |frame| owner.on_acked(packet_number, frame))
                    .map_err(|_| AckError::NeverSent { packet_number })?;
                if let Some(entry) = entry {
                    acked.add(packet_number, entry, recovery_start);
                }
            }
            // Below the ring only a loss that was none is news.
            let Some(first_lost) = lost.first() else {
                if low <= base {
                    break;
                }
                continue;
            };
            if low < base && high >= first_lost {
                lost.acknowledge(
                    low,
                    high.min(base - 1),
                    |entry| {
                        acked.late_packets += 1;
                        acked.late_bytes += u64::from(entry.size);
                        acked.late_in_episode += u64::from(entry.episode == episode);
                        run.on_late_ack(entry.packet_number);
                    },
                    |packet_number, frame| owner.on_acked(packet_number, frame),
                );
            }
            if low <= first_lost.min(base) {
                break;
            }
        }
        *ack_eliciting_in_flight -= acked.ack_eliciting;
        Ok(acked)
    }

    /// Returns the sample raw and less the ack delay.
    fn sample_rtt(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        sent_time: Time,
        ack_delay: Duration,
    ) -> (Duration, Duration) {
        let latest = now.saturating_duration_since(sent_time);
        // RFC 9002 §5.3: not for Initial; limited only once the handshake is confirmed.
        let ack_delay = match space {
            PacketNumberSpace::Initial => Duration::ZERO,
            _ if self.pto.handshake_confirmed => ack_delay.min(self.pto.max_ack_delay),
            _ => ack_delay,
        };
        self.rtt.update(now, latest, ack_delay);
        (latest, Duration::from_nanos(self.rtt.adjusted(ack_delay)))
    }

    fn on_late_acks(&mut self, now: Time, acked: &Acked) {
        if acked.late_packets == 0 {
            return;
        }
        self.counters.packets_spuriously_lost += u64::from(acked.late_packets);
        self.sampler.on_spurious(acked.late_bytes);
        if acked.late_in_episode == 0 {
            return;
        }
        self.episode.outstanding = self
            .episode
            .outstanding
            .saturating_sub(acked.late_in_episode);
        if self.episode.outstanding == 0 && self.controller.on_spurious_loss(now) {
            self.counters.spurious_congestion_events += 1;
            self.recovery_datagram = false;
        }
    }

    /// Detects losses in a space and settles them.
    fn lose(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        bytes_in_flight_before: u64,
        cwnd_limited: bool,
        summary: &mut AckSummary,
        owner: &mut impl FrameOwner<F>,
    ) {
        let mut batch = core::mem::take(&mut self.batch);
        batch.clear();
        let first_sample = self.rtt.first_sample();
        let state = &mut self.spaces[space.index()];
        state.detect_lost(now, self.rtt.loss_delay(), first_sample, &mut batch, owner);
        if let Some(last) = batch.packets.last() {
            let packets = batch.packets.len();
            self.counters.packets_lost += packets as u64;
            self.counters.bytes_lost += batch.bytes;
            self.settle(batch.bytes);
            self.sampler.on_lost(batch.bytes);
            let reduced = self.controller.on_lost(&LossSample {
                now,
                bytes: batch.bytes,
                ranges: batch.ranges,
                largest_sent_time: last.sent_time,
                bytes_in_flight_before,
                cwnd_limited,
                packets: &batch.packets,
            });
            if reduced {
                self.on_reduced(packets as u64);
                self.recovery_datagram = true;
            } else {
                self.episode.outstanding += packets as u64;
            }
            self.spaces[space.index()]
                .lost
                .assign_episode(packets, self.episode.number);
            summary.lost_packets = u32::try_from(packets).unwrap_or(u32::MAX);
            summary.congestion_event = reduced;
            summary.persistent_congestion =
                self.check_persistent_congestion(now, space, batch.longest_run);
        }
        self.batch = batch;
    }

    /// A new congestion episode, for so many lost packets.
    fn on_reduced(&mut self, lost: u64) {
        self.counters.congestion_events += 1;
        self.episode = Episode {
            number: self.episode.number + 1,
            outstanding: lost,
        };
    }

    fn check_persistent_congestion(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        longest_run: Option<(Time, Duration)>,
    ) -> bool {
        let Some((since, span)) = longest_run else {
            return false;
        };
        // No backoff here, and max_ack_delay whatever the space (RFC 9002 §7.6.1).
        let pto = self.rtt.pto_base().saturating_add(self.pto.max_ack_delay);
        if span <= pto.saturating_mul(persistent_congestion::THRESHOLD) {
            return false;
        }
        // Nothing sent in between may have been acknowledged in any space. For the other spaces
        // the newest acknowledged packet is all that is known: err towards no collapse.
        let acknowledged_elsewhere = PacketNumberSpace::ALL.into_iter().any(|other| {
            let newest = self.spaces[other.index()].newest_acked_sent;
            other != space && newest.is_some_and(|sent| sent >= since)
        });
        if acknowledged_elsewhere {
            return false;
        }
        self.spaces[space.index()].run.cut();
        self.counters.persistent_congestion += 1;
        self.controller.on_persistent_congestion(now);
        self.rtt.restart_min();
        // What was lost for so long is not undone by one late ACK.
        self.episode = Episode {
            number: self.episode.number + 1,
            outstanding: 0,
        };
        true
    }

    fn expire_lost(&mut self, now: Time, space: PacketNumberSpace) {
        let state = &mut self.spaces[space.index()];
        if !state.lost.is_empty() {
            let memory = self
                .pto
                .period(&self.rtt, space)
                .saturating_mul(LOST_MEMORY_PTOS);
            state.lost.expire(|lost_time| lost_time + memory <= now);
        }
    }

    /// Runs the loss timer; `None` if it is not due.
    pub fn on_timeout(&mut self, now: Time, owner: &mut impl FrameOwner<F>) -> Option<Expired> {
        self.touch(now);
        if self.controller.next_timeout().is_some_and(|at| at <= now) {
            self.controller.on_timeout(now);
        }
        if let Some((at, space)) = self.loss_time() {
            if at > now {
                return None;
            }
            let mut summary = AckSummary::default();
            let cwnd_limited = self.settled < self.utilised_until;
            self.lose(
                now,
                space,
                self.bytes_in_flight,
                cwnd_limited,
                &mut summary,
                owner,
            );
            return Some(Expired::Loss {
                packets: summary.lost_packets,
            });
        }
        let (at, expired) = self.pto.deadline(&self.rtt, self.last_sent())?;
        if at > now {
            return None;
        }
        self.pto.on_expired(now);
        let mut probes = 0;
        for space in PacketNumberSpace::ALL {
            let confirmed = self.pto.handshake_confirmed;
            let state = &mut self.spaces[space.index()];
            let has_data = state.ack_eliciting_in_flight > 0;
            let owed = match (space == expired, has_data) {
                (true, true) => PROBES_PER_PTO,
                (true, false) => 1,
                // Other spaces with data in flight join the datagram (RFC 9002 §6.2.4).
                (false, true) if space != PacketNumberSpace::Application || confirmed => 1,
                (false, _) => 0,
            };
            state.probes_owed = state.probes_owed.max(owed);
            if space == expired {
                probes = owed;
            }
            let oldest = state
                .ring
                .iter()
                .filter(|(_, e)| e.is_outstanding() && e.ack_eliciting);
            for (_, entry) in oldest.take(usize::from(owed)) {
                for frame in state.ring.frames(entry) {
                    owner.on_probe(frame.clone());
                }
            }
        }
        Some(Expired::Pto {
            space: expired,
            probes,
        })
    }

    /// When `on_timeout` is due, and what for.
    pub fn next_timeout(&self) -> Option<(Time, LossTimer)> {
        let loss = self.loss_time().map(|(at, _)| (at, LossTimer::LossTime));
        // No PTO is armed while a loss time is (RFC 9002 §6.2.1).
        let recovery = loss.or_else(|| {
            let (at, _) = self.pto.deadline(&self.rtt, self.last_sent())?;
            Some((at, LossTimer::Pto))
        });
        let controller = self
            .controller
            .next_timeout()
            .map(|at| (at, LossTimer::Controller));
        recovery
            .into_iter()
            .chain(controller)
            .min_by_key(|(at, _)| *at)
    }

    fn loss_time(&self) -> Option<(Time, PacketNumberSpace)> {
        let (sent, space) = PacketNumberSpace::ALL
            .into_iter()
            .filter_map(|space| Some((self.spaces[space.index()].loss_candidate?, space)))
            .min_by_key(|(sent, _)| *sent)?;
        Some((sent + self.rtt.loss_delay(), space))
    }

    /// Per space, when its last ack-eliciting packet was sent, if one is in flight.
    fn last_sent(&self) -> [Option<Time>; 3] {
        PacketNumberSpace::ALL.map(|space| {
            let state = &self.spaces[space.index()];
            state
                .last_ack_eliciting_sent
                .filter(|_| state.ack_eliciting_in_flight > 0)
        })
    }

    /// The keys of a space were dropped: its packets leave flight, frames and all, and the PTO
    /// backoff restarts (RFC 9002 §6.2.2, §6.4).
    pub fn discard_space(&mut self, now: Time, space: PacketNumberSpace) {
        self.touch(now);
        let bytes = self.spaces[space.index()].clear(|_, _| ());
        self.settle(bytes);
        self.pto.reset();
        self.pto.base = now;
    }

    /// After a Retry, or when 0-RTT was refused: all frames in flight come back as lost, without
    /// any effect on the window. Packet numbers go on (RFC 9002 §6.3, RFC 9000 §17.2.5.3).
    pub fn abandon_space(&mut self, space: PacketNumberSpace, owner: &mut impl FrameOwner<F>) {
        let bytes = self.spaces[space.index()].clear(|packet_number, frame| {
            owner.on_lost(packet_number, frame);
        });
        self.settle(bytes);
        self.pto.reset();
    }

    // Questions.

    /// A snapshot of everything worth watching.
    pub fn stats(&self) -> Stats {
        Stats {
            smoothed_rtt: self.rtt.smoothed(),
            rttvar: self.rtt.rttvar(),
            min_rtt: self.rtt.min(),
            latest_rtt: self.rtt.latest(),
            pto: self.pto(PacketNumberSpace::Application),
            pto_count: self.pto.count,
            packets_sent: self.counters.packets_sent,
            bytes_sent: self.counters.bytes_sent,
            packets_lost: self.counters.packets_lost,
            bytes_lost: self.counters.bytes_lost,
            packets_spuriously_lost: self.counters.packets_spuriously_lost,
            bytes_in_flight: self.bytes_in_flight,
            cwnd: self.controller.window(),
            ssthresh: self.controller.ssthresh(),
            pacing_rate: self.pacing_rate(),
            delivery_rate: self.sampler.latest(),
            congestion_events: self.counters.congestion_events,
            spurious_congestion_events: self.counters.spurious_congestion_events,
            persistent_congestion: self.counters.persistent_congestion,
            in_slow_start: self.controller.in_slow_start(),
            mtu: self.config.max_datagram_size,
        }
    }

    /// The round-trip estimator.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The PTO of a space, without backoff; max_ack_delay included in the application space only.
    pub fn pto(&self, space: PacketNumberSpace) -> Duration {
        self.pto.period(&self.rtt, space)
    }

    /// Bytes sent in packets in flight that are neither acknowledged nor lost.
    pub fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// The congestion window in bytes.
    pub fn congestion_window(&self) -> u64 {
        self.controller.window()
    }

    /// The fewest ACKs the controller's present phase needs from the peer.
    pub fn least_ack_rate(&self) -> LeastAckRate {
        self.controller.least_ack_rate()
    }

    /// Bytes per second; `None` when pacing is off or the round trip zero.
    fn pacing_rate(&self) -> Option<u64> {
        if !self.config.pacing {
            return None;
        }
        let gain = match self.controller.in_slow_start() {
            true => PACING_GAIN_SLOW_START,
            false => PACING_GAIN,
        };
        let window = self.controller.window();
        self.controller
            .pacing_rate()
            .or_else(|| pacing::rate(window, gain, self.rtt.smoothed()))
    }

    fn tracked(&self) -> usize {
        self.spaces.iter().map(|space| space.ring.len()).sum()
    }

    fn settle(&mut self, bytes: u64) {
        debug_assert!(
            bytes <= self.bytes_in_flight,
            "only bytes in flight can leave it"
        );
        self.bytes_in_flight = self.bytes_in_flight.saturating_sub(bytes);
        self.settled += bytes;
    }

    fn touch(&mut self, now: Time) {
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests;

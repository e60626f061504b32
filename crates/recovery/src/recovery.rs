//! `Recovery`: the one object a connection talks to about loss, congestion and pacing.
//!
//! It owns the three packet number spaces, the round-trip estimator, the probe timer, the
//! controller and the pacer, and keeps the sum of bytes in flight. This file sends and answers;
//! `feedback` takes what comes back. It never decides what a packet carries and never reads a clock.

mod acked;
mod episode;
mod feedback;
mod flight;
mod interface;

use core::num::NonZeroU64;
use core::time::Duration;

use towline_wire::{PacketNumberSpace, PerSpace, Time};

pub use interface::{
    AckError, AckSummary, Config, Expired, FrameOwner, Loss, LossTrigger, PacketKind, Permit,
};

use crate::bandwidth::{RateSampler, Snapshot};
use crate::congestion::{
    Algorithm, CongestionController, Controller, Handover, LeastAckRate, LostPacket, SendSample,
    initial_window,
};
use crate::ecn;
use crate::loss::{LossBatch, Space};
use crate::pacing::{self, Pacer};
use crate::pool::PoolMember;
use crate::pto::ProbeTimer;
use crate::reordering::Reordering;
use crate::rtt::RttEstimator;
use crate::sent::Sent;
use crate::stats::{CongestionPhase, Counters, Stats};
use crate::throttle::Throttle;
use episode::Episode;
use flight::Flight;

/// Cap: packets tracked per connection before `permit` answers `Blocked` whatever the window says.
pub const MAX_TRACKED_PACKETS: usize = 131_072;

/// The max_ack_delay of a peer that did not say (RFC 9000 §18.2).
const DEFAULT_MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Loss recovery, congestion control and pacing of one path. `F` is the caller's record of a sent
/// frame, small and cheap to clone.
#[derive(Debug)]
pub struct Recovery<F> {
    config: Config,
    spaces: PerSpace<Space<F>>,
    rtt: RttEstimator,
    pto: ProbeTimer,
    controller: Controller,
    pacer: Pacer,
    throttle: Throttle,
    sampler: RateSampler,
    ecn: ecn::Validation,
    /// The train being built is marked ECT(0).
    marking: bool,
    flight: Flight,
    /// On entering recovery one datagram may leave regardless (RFC 9002 §7.3.2).
    recovery_datagram: bool,
    episode: Episode,
    reordering: Reordering,
    batch: LossBatch,
    /// Packets sent before it went another path: no samples from them.
    path_start: Time,
    now: Time,
    counters: Counters,
}

impl<F: Clone> Recovery<F> {
    /// Most bytes held for packets that carried nothing but acknowledgements, one frame each.
    pub const MOST_UNANSWERED: usize = crate::loss::MAX_UNANSWERED_ACKS
        * 2
        * (size_of::<crate::sent::SentEntry>() + size_of::<Option<F>>() + size_of::<Snapshot>());

    /// Bytes held besides for Initial and Handshake while the handshake lasts.
    pub const HANDSHAKE_BYTES: usize = PerSpace::<Space<F>>::HANDSHAKE_BYTES;

    /// Recovery for a new path, with a controller by name.
    pub fn new(config: Config) -> Self {
        let controller = Controller::new(
            config.algorithm,
            config.max_datagram_size,
            config.hystart,
            config.pacing,
        )
        .with_seed(config.seed);
        Self::with_controller(config, controller)
    }

    /// Recovery with a controller of the caller's; `config.algorithm` and `hystart` are unused.
    pub fn with_controller(config: Config, controller: Controller) -> Self {
        Self {
            spaces: PerSpace::new(
                Space::new(),
                Space::new(),
                config.skip_key.map_or_else(Space::new, Space::skipping),
            ),
            rtt: RttEstimator::new(config.initial_rtt),
            pto: ProbeTimer::new(config.side, DEFAULT_MAX_ACK_DELAY),
            pacer: Pacer::new(initial_window(config.max_datagram_size)),
            throttle: Throttle::new(config.rate_limit),
            controller,
            ecn: ecn::Validation::new(config.ecn),
            marking: false,
            config,
            sampler: RateSampler::default(),
            flight: Flight::default(),
            recovery_datagram: false,
            episode: Episode::default(),
            reordering: Reordering::default(),
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
            self.episode.forget_checkpoint();
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
        self.ecn.on_path_change();
        self.marking = false;
        self.rtt = RttEstimator::new(self.config.initial_rtt);
        self.controller
            .on_path_change(now, self.config.max_datagram_size);
        self.pacer = Pacer::new(initial_window(self.config.max_datagram_size));
        self.reordering = Reordering::default();
        self.episode.forget();
        self.pto.reset();
    }

    /// Goes on with another controller, from the present window; packets in flight stay what they
    /// are, and the round trip stays known.
    pub fn set_algorithm(&mut self, now: Time, algorithm: Algorithm) {
        self.config.algorithm = algorithm;
        let controller = Controller::new(
            algorithm,
            self.config.max_datagram_size,
            self.config.hystart,
            self.config.pacing,
        )
        .with_seed(self.config.seed);
        self.set_controller(now, controller);
    }

    /// As [`Self::set_algorithm`], with a controller of the caller's.
    pub fn set_controller(&mut self, now: Time, mut controller: Controller) {
        self.touch(now);
        controller.take_over(&Handover {
            now: self.now,
            window: self.controller.window(),
            in_slow_start: self.controller.in_slow_start(),
            smoothed_rtt: self.rtt.smoothed(),
            min_rtt: self.rtt.min(),
            delivery_rate: self.sampler.latest(),
        });
        self.controller = controller;
        // Losses of the time before are not this controller's to undo.
        self.episode.forget();
    }

    /// The controller in use, by name; of a caller's own one, what was configured.
    pub fn algorithm(&self) -> Algorithm {
        self.config.algorithm
    }

    /// Gives back memory that busier times left behind; worth it when little is in flight.
    pub fn trim(&mut self) {
        self.spaces.iter_mut().for_each(Space::trim);
        self.batch = LossBatch::default();
    }

    /// Bytes of memory held for packets sent and not yet forgotten.
    pub fn held(&self) -> usize {
        let spaces: usize = self.spaces.iter().map(Space::held).sum();
        spaces + self.spaces.held() + self.batch.packets.capacity() * size_of::<LostPacket>()
    }

    /// Forgets every packet, without telling anybody, and gives its memory back: the connection is
    /// over.
    pub fn clear(&mut self) {
        let bytes = self.spaces.iter_mut().map(|space| space.clear(|_, _| ()));
        let bytes = bytes.sum();
        self.flight.settle(bytes);
        self.trim();
    }

    /// As [`Self::clear`], for a connection that is over and stays to be read: it leaves the host's pool
    /// and the host's background controller, whose other members would wait for it.
    pub fn retire(&mut self) {
        self.clear();
        self.throttle.set_pool(None);
        let size = self.config.max_datagram_size;
        self.controller = Controller::new(Algorithm::NewReno, size, false, false);
        self.episode.forget();
    }

    /// A strict limit in bytes per second over every packet, those that need no permit included;
    /// `None` lifts it. Any window of 100 ms or more carries at most rate x window + what the rate
    /// earns in 1 ms, or two datagrams if that is more; a CONNECTION_CLOSE is charged but never waits.
    pub fn set_rate_limit(&mut self, limit: Option<NonZeroU64>) {
        self.config.rate_limit = limit;
        self.throttle.set_limit(limit);
    }

    /// The limit in force.
    pub fn rate_limit(&self) -> Option<NonZeroU64> {
        self.config.rate_limit
    }

    /// Takes part in the host's bandwidth pool, or leaves it.
    pub fn set_pool_member(&mut self, member: Option<PoolMember>) {
        self.throttle.set_pool(member);
    }

    /// Its place in the pool, whose class and weight can be changed.
    pub fn pool_member(&self) -> Option<&PoolMember> {
        self.throttle.pool()
    }

    // Sending.

    /// Whether, when and how much may be sent in packets in flight. Probes need no permit.
    pub fn permit(&mut self, now: Time) -> Permit {
        self.touch(now);
        let datagram = u64::from(self.config.max_datagram_size);
        let mut room = self.controller.window().saturating_sub(self.flight.bytes());
        let closed = room < datagram || self.is_full();
        if closed && !self.recovery_datagram {
            self.flight.on_utilised();
            return Permit::Blocked;
        }
        let strict_rate = self.controller.strict_rate();
        match self.throttle.permit(now, datagram, strict_rate) {
            Ok(bytes) => room = room.min(bytes),
            Err(at) => {
                // The limit holds the sender back and not the path, so its rate says nothing of
                // the path and its window is no larger than it needs.
                self.on_rate_below_path();
                return Permit::Wait(at);
            }
        }
        if closed {
            return Permit::Send { bytes: datagram };
        }
        if strict_rate.is_some() {
            return Permit::Send { bytes: room };
        }
        let paced = match self.controller.turn(now, self.flight.bytes()) {
            Some(turn) => turn.map(|bytes| bytes.max(datagram)),
            None => match self.pacing_rate() {
                Some(rate) => {
                    let burst = self
                        .controller
                        .send_quantum()
                        .unwrap_or_else(|| initial_window(self.config.max_datagram_size));
                    self.pacer.permit(now, rate, datagram, burst)
                }
                None => Ok(room),
            },
        };
        match paced {
            Ok(bytes) => {
                self.flight.on_wanted();
                Permit::Send {
                    bytes: bytes.min(room),
                }
            }
            Err(at) => {
                self.flight.on_paced();
                self.throttle.on_held_elsewhere();
                Permit::Wait(at)
            }
        }
    }

    /// A packet of `size` bytes that needs no permit (a probe, an acknowledgement) wants to leave:
    /// the time before which the strict limit forbids even that. Without a limit never one.
    pub fn held_until(&mut self, now: Time, size: u16) -> Option<Time> {
        self.touch(now);
        let datagram = u64::from(self.config.max_datagram_size);
        let strict_rate = self.controller.strict_rate();
        self.throttle
            .exempt(now, u64::from(size), datagram, strict_rate)
    }

    /// There is something to send that `permit` told to wait: what a limit held back is wanted.
    pub fn on_held_back(&mut self) {
        self.flight.on_wanted();
        self.throttle.on_held_back();
    }

    /// PTO probes this space still owes; they bypass window and pacer. Each ack-eliciting packet
    /// sent in the space pays one off, and so does any progress by acknowledgement.
    /// They count as in flight even so (RFC 9002 §7.5).
    pub fn probes_owed(&self, space: PacketNumberSpace) -> u8 {
        self.spaces.get(space).map_or(0, |space| space.probes_owed)
    }

    /// The number the next packet of the space gets.
    pub fn next_packet_number(&self, space: PacketNumberSpace) -> u64 {
        self.spaces.get(space).map_or(0, Space::next)
    }

    /// Decides whether the train about to be built is marked ECT(0) (RFC 9000 §13.4): all of its
    /// packets are, or none.
    pub fn mark_train(&mut self) {
        self.marking = self.ecn.marks();
    }

    /// Whether the train being built is marked.
    pub fn is_train_marked(&self) -> bool {
        self.marking
    }

    /// An authentic ack-eliciting packet arrived for the first time, `marked` ECN-capable or not. A
    /// peer that stops marking is answered without marks if nothing of ours in flight can tell what
    /// became of them; a peer that is heard while probes to it are unanswered is probed again soon.
    pub fn on_ack_eliciting_received(&mut self, space: PacketNumberSpace, marked: bool) {
        let spaces = &self.spaces;
        let may_probe = || spaces.iter().any(|space| space.ack_eliciting_in_flight > 0);
        self.ecn.on_received(marked, may_probe);
        if space == PacketNumberSpace::Application {
            self.pto.on_peer_heard();
        }
    }

    /// Whether a 1-RTT acknowledgement that leaves now should hold a PING. So an end that is heard
    /// while its own packets get nowhere learns at the next acknowledgement that they pass again.
    pub fn may_ask(&self, now: Time) -> bool {
        self.pto.may_ask(now, &self.rtt)
    }

    /// The largest number acknowledged in the space.
    pub fn largest_acked(&self, space: PacketNumberSpace) -> Option<u64> {
        self.spaces.get(space)?.largest_acked
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
            asks,
        } = kind;
        let bytes = u64::from(size);
        if in_flight && !self.pto.handshake_confirmed {
            // Handshake flights never fill a path: their rates say nothing about it.
            self.sampler
                .on_app_limited(self.flight.bytes().saturating_add(bytes));
        }
        self.throttle.on_sent(now, bytes);
        let snapshot = match in_flight {
            true => self.sampler.on_sent(now, bytes, self.flight.bytes()),
            false => self.sampler.snapshot(now, self.flight.bytes()),
        };
        if in_flight {
            let bytes_in_flight = self.flight.bytes();
            self.controller.on_sent(&SendSample {
                now,
                bytes,
                bytes_in_flight,
                app_limited: snapshot.app_limited,
            });
            self.flight.on_sent(bytes);
            self.pacer.on_sent(bytes);
            self.recovery_datagram = false;
        }
        if asks {
            self.pto.on_asked(now);
        } else if in_flight {
            self.pto.base = Some(now);
        }
        let Some(space) = self.spaces.get_mut(space) else {
            debug_assert!(false, "nothing is sent in a space without keys");
            return 0;
        };
        if self.marking {
            self.ecn.on_marked_sent(&mut space.ecn);
        }
        if ack_eliciting {
            debug_assert!(in_flight, "an ack-eliciting packet is in flight");
            space.ack_eliciting_in_flight += 1;
        }
        if ack_eliciting && !asks {
            space.last_ack_eliciting_sent = Some(now);
            space.probes_owed = space.probes_owed.saturating_sub(1);
        }
        space.push(
            Sent {
                now,
                size,
                ack_eliciting,
                in_flight,
                marked: self.marking,
            },
            snapshot,
            frames,
        )
    }

    /// There is nothing more to send although the window has room, whether `permit` allowed it or
    /// told to wait: without a pacer the window would not have been filled either, so neither may
    /// the rate count as the path's nor may the window grow (RFC 9002 §7.8).
    pub fn on_app_limited(&mut self) {
        self.flight.on_app_limited();
        self.pacer.on_app_limited();
        self.on_rate_below_path();
    }

    /// It is not the path that holds the sender back.
    fn on_rate_below_path(&mut self) {
        self.sampler.on_app_limited(self.flight.bytes());
        self.controller
            .on_app_limited(self.now, self.flight.bytes());
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
            probe_timeouts: self.counters.probe_timeouts,
            packets_sent: self.counters.packets_sent,
            bytes_sent: self.counters.bytes_sent,
            packets_lost: self.counters.packets_lost,
            bytes_lost: self.counters.bytes_lost,
            packets_spuriously_lost: self.counters.packets_spuriously_lost,
            bytes_in_flight: self.flight.bytes(),
            cwnd: self.controller.window(),
            ssthresh: self.controller.ssthresh(),
            pacing_rate: self
                .pacing_rate()
                .into_iter()
                .chain(self.throttle.rate())
                .min(),
            delivery_rate: self.sampler.latest(),
            congestion_events: self.counters.congestion_events,
            spurious_congestion_events: self.counters.spurious_congestion_events,
            persistent_congestion: self.counters.persistent_congestion,
            in_slow_start: self.controller.in_slow_start(),
            congestion: self.congestion_phase(),
            ecn_capable: self.ecn.is_capable(),
            ecn: self.ecn.state(),
            ce_marks: self.counters.ce_marks,
            mtu: self.config.max_datagram_size,
        }
    }

    /// Where the controller is.
    fn congestion_phase(&self) -> CongestionPhase {
        let newest_acked = self.spaces.iter().filter_map(|s| s.newest_acked_sent).max();
        let is_over = |start| newest_acked.is_some_and(|sent| sent > start);
        match self.controller.recovery_start() {
            Some(start) if !is_over(start) => CongestionPhase::Recovery,
            _ if self.controller.in_slow_start() => CongestionPhase::SlowStart,
            _ => CongestionPhase::CongestionAvoidance,
        }
    }

    /// The packets that the latest ACK frame or loss timer showed to be lost. Meaningful right
    /// after a call that says there were some.
    pub fn losses(&self) -> impl Iterator<Item = Loss> + '_ {
        self.batch.losses()
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
        self.flight.bytes()
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
        self.controller.pacing_rate().or_else(|| {
            pacing::rate_of_window(
                self.controller.window(),
                self.controller.in_slow_start(),
                self.rtt.smoothed(),
            )
        })
    }

    /// As many packets as can be tracked wait for their fate: only probes should be sent.
    pub fn is_full(&self) -> bool {
        self.tracked() >= MAX_TRACKED_PACKETS
    }

    fn tracked(&self) -> usize {
        self.spaces.iter().map(Space::tracked).sum()
    }

    fn touch(&mut self, now: Time) {
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests;

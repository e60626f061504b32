//! BBRv3 (draft-ietf-ccwg-bbr-06): a model of the path instead of a reaction to loss.
//!
//! `Bbr` runs the state machine and sets window, pacing rate and quantum; the parts own their
//! state: `model` the bandwidth and volume bounds, `startup` the full-pipe detectors, `probe_bw`
//! the probing cycle, `probe_rtt` the round trip, `aggregation` lumps of ACKs, `ecn` marks.
//! An ACK goes through the steps in the order of `Bbr::on_ack`, which is the draft's. Gains are a
//! function of the state, so none is left behind by a transition. Where the draft's pseudocode
//! contradicts its text the text is followed, with a comment.

mod aggregation;
mod ecn;
mod model;
mod path_loss;
mod probe_bw;
mod probe_rtt;
mod startup;
mod state;
mod units;

use core::time::Duration;

use towline_wire::Time;

use self::aggregation::Aggregation;
use self::ecn::{Ecn, RoundMarks};
use self::model::{Model, Round, inflight_at_loss, is_too_high};
use self::probe_bw::{AckPhase, Cycle};
use self::probe_rtt::{MinRtt, ProbeRtt, Progress};
use self::startup::{FullPipe, LossExit};
use self::state::State;
use self::units::{Hundredths, carried, rate, scale};
use super::interface::{
    AckSample, CongestionController, Handover, LEAST_ACKS_OTHERWISE, LeastAckRate, LossSample,
    SendSample, opens_recovery,
};
use super::window::{initial_window, minimum_window, resized_window};

/// Pacing runs at this share of the bandwidth, so that queues shrink on average (§2.5).
const PACING_SHARE: Hundredths = 99;
/// Pace of a slow start by the window, as for the other controllers.
const SLOW_START_PACING: Hundredths = 150;
/// The least window of the model, in datagrams (§2.8).
const MIN_PIPE_DATAGRAMS: u64 = 4;
/// Rounds after which Drain ends even if the queue did not (§5.3.2).
const DRAIN_ROUNDS: u64 = 3;
/// A quantum is what the rate carries in this time, within the next two limits (§5.6.3).
const QUANTUM_TIME: Duration = Duration::from_millis(1);
const QUANTUM_DATAGRAMS: u64 = 2;
const MOST_QUANTUM: u64 = 65_536;
/// Rounds between probes of a path that fell to less than half of its bandwidth.
const ROUNDS_AFTER_A_FALL: u64 = 4;
/// Round trip assumed for the first pacing rate (§5.6.2).
const NOMINAL_RTT: Duration = Duration::from_millis(1);
/// ACKs per round in phases that measure (§4.1.3.3).
const LEAST_ACKS_MEASURING: LeastAckRate = LeastAckRate { per_round: 4 };

/// What a loss changed, kept until its recovery period is known to be justified.
#[derive(Clone, Copy, Debug)]
struct Undo {
    bw_short: Option<u64>,
    inflight_short: Option<u64>,
    inflight_long: Option<u64>,
    /// The probing state that the loss ended.
    probe: Option<State>,
}

/// The controller of draft-ietf-ccwg-bbr.
#[derive(Clone, Debug)]
pub struct Bbr {
    max_datagram_size: u16,
    state: State,
    round: Round,
    model: Model,
    full_pipe: FullPipe,
    loss_exit: LossExit,
    drain_start_round: u64,
    cycle: Cycle,
    min_rtt: MinRtt,
    probe_rtt: ProbeRtt,
    aggregation: Aggregation,
    ecn: Ecn,
    window: u64,
    /// The last window that neither losses nor ProbeRTT held down.
    prior_window: u64,
    /// Bytes per second; nominal until the first round trip is known.
    pacing_rate: u64,
    has_rtt: bool,
    recovery_start: Option<Time>,
    in_recovery: bool,
    undo: Option<Undo>,
    /// Sending started again after the application had nothing to send.
    idle_restart: bool,
    /// All bytes delivered, and how many of them before this path.
    delivered: u64,
    delivered_before_path: u64,
    /// The window was full when what is delivered up to here was in flight.
    window_limited_until: u64,
    /// What was sent before says nothing about this path.
    path_start: Option<Time>,
}

impl Bbr {
    /// A controller at its initial window; `seed` decides when it probes.
    pub fn new(max_datagram_size: u16, seed: u64) -> Self {
        let window = initial_window(max_datagram_size);
        Self {
            max_datagram_size,
            state: State::Startup,
            round: Round::default(),
            model: Model::default(),
            full_pipe: FullPipe::default(),
            loss_exit: LossExit::default(),
            drain_start_round: 0,
            cycle: Cycle::new(seed),
            min_rtt: MinRtt::default(),
            probe_rtt: ProbeRtt::default(),
            aggregation: Aggregation::new(),
            ecn: Ecn::new(),
            window,
            prior_window: 0,
            pacing_rate: scale(rate(window, NOMINAL_RTT), State::Startup.pacing_gain()),
            has_rtt: false,
            recovery_start: None,
            in_recovery: false,
            undo: None,
            idle_restart: false,
            delivered: 0,
            delivered_before_path: 0,
            window_limited_until: 0,
            path_start: None,
        }
    }

    /// The same with another seed; before anything was sent.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.cycle = Cycle::new(seed);
        self
    }

    // Volumes.

    fn datagram(&self) -> u64 {
        u64::from(self.max_datagram_size)
    }

    fn floor(&self) -> u64 {
        MIN_PIPE_DATAGRAMS * self.datagram()
    }

    fn quantum(&self) -> u64 {
        carried(self.pacing_rate, QUANTUM_TIME)
            .min(MOST_QUANTUM)
            .max(QUANTUM_DATAGRAMS * self.datagram())
    }

    /// `gain` times the bandwidth-delay product at `bw`; the initial window while either factor
    /// is unknown.
    fn bdp(&self, bw: u64, gain: Hundredths) -> u64 {
        match self.min_rtt.get() {
            Some(min_rtt) if bw > 0 => scale(carried(bw, min_rtt), gain),
            _ => initial_window(self.max_datagram_size),
        }
    }

    /// At least what keeps sender and receiver busy whatever their batching.
    fn quantized(&self, inflight: u64) -> u64 {
        let least = inflight.max(self.quantum()).max(self.floor());
        match self.state {
            State::Up => least.saturating_add(2 * self.datagram()),
            _ => least,
        }
    }

    /// The draft's `Inflight`: what fills the pipe at `bw` without a queue.
    fn inflight(&self, bw: u64) -> u64 {
        self.quantized(self.bdp(bw, 100))
    }

    /// The BDP, unless congestion cut the window.
    fn target_inflight(&self) -> u64 {
        self.bdp(self.model.bw(), 100).min(self.window)
    }

    fn probe_rtt_window(&self) -> u64 {
        let gain = State::ProbeRtt.window_gain();
        self.bdp(self.model.bw(), gain).max(self.floor())
    }

    // Transitions.

    fn start_down(&mut self, now: Time) {
        self.model.reset_congestion_signals();
        self.cycle.start_down(now);
        self.round.restart(self.delivered);
        self.state = State::Down;
    }

    fn start_refill(&mut self, now: Time) {
        self.model.reset_short_term(now);
        self.cycle.start_refill();
        self.round.restart(self.delivered);
        self.state = State::Refill;
    }

    fn start_up(&mut self, sample: &AckSample) {
        self.round.restart(self.delivered);
        self.full_pipe.restart(sample.delivery_rate.unwrap_or(0));
        self.state = State::Up;
        self.cycle.start_up(self.window, self.datagram());
    }

    fn start_drain(&mut self) {
        self.state = State::Drain;
        self.drain_start_round = self.round.count;
    }

    fn start_probe_rtt(&mut self) {
        self.save_window();
        self.state = State::ProbeRtt;
        self.probe_rtt.start();
        self.cycle.ack_phase = AckPhase::Stopping;
        self.round.restart(self.delivered);
    }

    fn exit_probe_rtt(&mut self, now: Time) {
        self.window = self.window.max(self.prior_window);
        self.model.reset_short_term(now);
        if self.full_pipe.reached {
            // The queue is empty already: DOWN only restarts the clock of the cycle.
            self.start_down(now);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    fn save_window(&mut self) {
        self.prior_window = match self.in_recovery || self.state == State::ProbeRtt {
            true => self.prior_window.max(self.window),
            false => self.window,
        };
    }

    // The steps of an ACK.

    fn on_round_marks(&mut self, sample: &AckSample) -> RoundMarks {
        self.ecn.on_ack(sample.acked_packets, sample.ce_marks);
        match self.model.loss_round_start {
            true => self.ecn.end_round(),
            false => RoundMarks::default(),
        }
    }

    /// Losses or marks that end Startup although the rate still grows (§5.3.1.3).
    ///
    /// A round of losses starts with the first of them, so at its end recovery has lasted a round.
    fn check_startup_congestion(&mut self, sample: &AckSample, lossy: bool, marks: RoundMarks) {
        if !self.model.loss_round_start {
            return;
        }
        let many = self.loss_exit.end_round();
        let excused = (self.full_pipe.growing || sample.app_limited) && !self.stands_queue();
        let threshold = match excused {
            true => path_loss::MOST_SHARE,
            false => self.model.loss_threshold(sample.now),
        };
        let high = is_too_high(sample.lost_since_sent, sample.tx_in_flight, threshold);
        if self.full_pipe.reached || !((lossy && many && high) || marks.ends_startup) {
            return;
        }
        self.save_probe(State::Startup, marks);
        self.full_pipe.reached = true;
        let bdp = self.bdp(self.model.bw(), 100);
        self.model.inflight_long = Some(bdp.max(self.model.inflight_latest));
    }

    /// Remembers the probe that losses end, should they be spurious; marks never are.
    fn save_probe(&mut self, probe: State, marks: RoundMarks) {
        match &mut self.undo {
            Some(_) if marks.too_high => self.undo = None,
            Some(undo) => undo.probe = Some(probe),
            None => {}
        }
    }

    fn check_drain(&mut self, sample: &AckSample) {
        if self.state == State::Startup && self.full_pipe.reached {
            self.start_drain();
        }
        if self.state == State::Drain
            && (sample.bytes_in_flight <= self.inflight(self.model.bw())
                || self.round.count > self.drain_start_round + DRAIN_ROUNDS)
        {
            self.start_down(sample.now);
        }
    }

    /// Moves through DOWN, CRUISE, REFILL and UP (§5.3.3.9).
    fn update_cycle(&mut self, sample: &AckSample, marks: RoundMarks) {
        // Before growth: a bound that this ACK raises was still in force until now.
        let bounded = self.is_bounded_by_long_term(sample);
        if !self.full_pipe.reached || self.adapt_long_term(sample, marks, bounded) {
            return;
        }
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(sample.now) => {
                self.start_refill(sample.now);
            }
            State::Down if self.is_time_to_cruise(sample) => self.state = State::Cruise,
            State::Refill if self.round.start => self.start_up(sample),
            State::Up if self.found_the_path_again(sample.now) => self.restart_startup(),
            State::Up => self.check_up(sample, bounded),
            _ => {}
        }
    }

    /// Whether this probe shows that a path that fell is fast again: the rate grows, no queue does.
    fn found_the_path_again(&self, now: Time) -> bool {
        self.full_pipe.grew && self.model.has_fallen(now) && !self.stands_queue()
    }

    /// Whether one of the frequent probes after a fall has made a queue: the path is still slow.
    fn found_nothing_again(&self, now: Time) -> bool {
        self.round.start && self.model.has_fallen(now) && self.stands_queue()
    }

    fn stands_queue(&self) -> bool {
        self.model.queue_stood(self.min_rtt.get())
    }

    /// Looks for a new rate as for the first one: a quarter more each round would take long.
    fn restart_startup(&mut self) {
        self.model.on_probed();
        self.full_pipe.reached = false;
        self.full_pipe.restart(self.model.max_bw());
        self.round.restart(self.delivered);
        self.cycle.is_probe_sample = false;
        self.cycle.previous_too_high = false;
        self.state = State::Startup;
    }

    fn is_time_to_probe(&self, now: Time) -> bool {
        let most_rounds = match self.model.has_fallen(now) {
            true => ROUNDS_AFTER_A_FALL,
            false => u64::MAX,
        };
        self.cycle
            .is_time_to_probe(now, self.target_inflight(), self.datagram(), most_rounds)
    }

    fn is_time_to_cruise(&self, sample: &AckSample) -> bool {
        let headroom = self
            .model
            .inflight_with_headroom(self.datagram(), self.floor());
        headroom.is_none_or(|limit| sample.bytes_in_flight <= limit)
            && sample.bytes_in_flight <= self.inflight(self.model.max_bw())
    }

    /// Leaves UP when a careful probe reached the known volume, or the rate no longer grows.
    fn check_up(&mut self, sample: &AckSample, bounded: bool) {
        // Before the ACK, and with the datagram that did not fit: afterwards the volume in flight
        // never reaches a bound that the window obeys.
        let peak = sample
            .bytes_in_flight_before
            .saturating_add(self.datagram());
        let is_at_long = self.model.inflight_long.is_some_and(|long| peak > long);
        if self.cycle.previous_too_high && is_at_long {
            self.cycle.previous_precautionary = true;
        } else if bounded {
            self.full_pipe.restart(sample.delivery_rate.unwrap_or(0));
            return;
        } else if !self.full_pipe.now && !self.found_nothing_again(sample.now) {
            return;
        }
        self.cycle.previous_too_high = false;
        self.model.on_probed();
        self.start_down(sample.now);
    }

    /// Whether the long-term volume held back what this ACK acknowledges.
    fn is_bounded_by_long_term(&self, sample: &AckSample) -> bool {
        sample.prior_delivered < self.window_limited_until
            && self
                .model
                .inflight_long
                .is_some_and(|long| self.window >= long)
    }

    /// Learns from the ACKs of a probe; returns whether it moved the state machine.
    fn adapt_long_term(&mut self, sample: &AckSample, marks: RoundMarks, bounded: bool) -> bool {
        if self.cycle.ack_phase == AckPhase::Starting && self.round.start {
            self.cycle.ack_phase = AckPhase::Feedback;
        }
        if self.cycle.ack_phase == AckPhase::Stopping && self.round.start {
            self.cycle.is_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !sample.app_limited {
                self.model.advance_max_bw(sample.now);
            }
            if self.state.is_probe_bw()
                && self.cycle.previous_precautionary
                && !self.cycle.previous_too_high
            {
                self.start_refill(sample.now);
                return true;
            }
        }
        if marks.too_high && self.cycle.is_probe_sample {
            self.on_inflight_too_high(sample.now, sample.tx_in_flight, sample.app_limited, marks);
            return true;
        }
        let threshold = self.model.loss_threshold(sample.now);
        if marks.too_high || is_too_high(sample.lost_since_sent, sample.tx_in_flight, threshold) {
            return false;
        }
        self.model.raise_inflight_long(sample.tx_in_flight);
        if self.state == State::Up && bounded {
            let growth = self.cycle.growth(sample.acked_bytes);
            if let Some(long) = &mut self.model.inflight_long {
                *long =
                    long.saturating_add(growth.saturating_mul(u64::from(self.max_datagram_size)));
            }
            if self.round.start {
                self.cycle.raise_slope(self.window, self.datagram());
            }
        }
        false
    }

    /// A probe put too much in flight: remember how much was safe, once per probe.
    fn on_inflight_too_high(&mut self, now: Time, safe: u64, app_limited: bool, marks: RoundMarks) {
        self.cycle.previous_too_high = true;
        self.cycle.is_probe_sample = false;
        if !app_limited {
            let least = scale(self.target_inflight(), model::BETA);
            self.model.inflight_long = Some(safe.max(least));
        }
        if self.state == State::Up {
            self.save_probe(State::Up, marks);
            self.model.on_probed();
            self.start_down(now);
        }
    }

    fn check_probe_rtt(&mut self, sample: &AckSample) {
        if self.state != State::ProbeRtt && self.min_rtt.expired && !self.idle_restart {
            self.start_probe_rtt();
        }
        if self.state == State::ProbeRtt {
            let limit = self.probe_rtt_window();
            let progress = self.probe_rtt.on_ack(
                sample.now,
                sample.bytes_in_flight,
                limit,
                self.round.start,
                &mut self.min_rtt,
            );
            match progress {
                Progress::Waiting => {}
                Progress::Drained => self.round.restart(self.delivered),
                Progress::Done => self.exit_probe_rtt(sample.now),
            }
        }
        if sample.acked_bytes > 0 {
            self.idle_restart = false;
        }
    }

    // Control parameters.

    fn update_pacing_rate(&mut self, gain: Hundredths) {
        let bw = self.model.bw();
        let wanted = scale(scale(bw, gain), PACING_SHARE);
        if bw > 0 && (self.full_pipe.reached || wanted > self.pacing_rate) {
            self.pacing_rate = wanted.max(1);
        }
    }

    /// In Startup the pace never falls behind what any slow start would do: the first rates are
    /// those of the handshake and of the pacing itself, and say nothing of the path.
    fn follow_window(&mut self, sample: &AckSample) {
        if self.state == State::Startup && !sample.smoothed_rtt.is_zero() {
            let slow_start = scale(rate(self.window, sample.smoothed_rtt), SLOW_START_PACING);
            self.pacing_rate = self.pacing_rate.max(slow_start);
        }
    }

    /// The first round trip replaces the nominal one (§5.6.2).
    fn init_pacing_rate(&mut self, sample: &AckSample) {
        if !self.has_rtt && sample.rtt.is_some() && !sample.smoothed_rtt.is_zero() {
            self.has_rtt = true;
            let nominal = rate(initial_window(self.max_datagram_size), sample.smoothed_rtt);
            self.pacing_rate = scale(nominal, State::Startup.pacing_gain()).max(1);
        }
    }

    fn update_window(&mut self, sample: &AckSample) {
        let bdp = self.bdp(self.model.bw(), self.state.window_gain());
        let max_inflight = self.quantized(bdp.saturating_add(self.aggregation.extra_acked()));
        let grown = self.window.saturating_add(sample.acked_bytes);
        let delivered_here = self.delivered - self.delivered_before_path;
        if self.full_pipe.reached {
            self.window = grown.min(max_inflight);
        } else if !self.model.is_measured() && !sample.cwnd_limited {
            // A handshake must not widen the first flight of data (RFC 9002 §7.8).
        } else if self.window < max_inflight
            || delivered_here < initial_window(self.max_datagram_size)
        {
            self.window = grown;
        }
        self.window = self.window.max(self.floor());
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        self.bound_window();
    }

    /// Recent congestion's bounds. Like the draft's code and unlike its table, Drain obeys only
    /// the short-term one: after a loss exit the long-term volume is what was just delivered.
    fn bound_window(&mut self) {
        let long = match self.state {
            State::Startup | State::Drain => None,
            State::Down | State::Refill | State::Up => self.model.inflight_long,
            State::Cruise | State::ProbeRtt => self
                .model
                .inflight_with_headroom(self.datagram(), self.floor()),
        };
        let bounds = [long, self.model.inflight_short];
        if let Some(bound) = bounds.into_iter().flatten().min() {
            self.window = self.window.min(bound.max(self.floor()));
        }
    }

    /// Leaving recovery brings back the window from before it; the model bounds it again.
    fn check_recovery_end(&mut self, sample: &AckSample) {
        if self.in_recovery && opens_recovery(self.recovery_start, sample.newest_sent_time) {
            self.in_recovery = false;
            self.window = self.window.max(self.prior_window);
        }
    }

    fn is_of_another_path(&self, sent: Time) -> bool {
        self.path_start.is_some_and(|start| sent < start)
    }
}

impl CongestionController for Bbr {
    fn on_sent(&mut self, sample: &SendSample) {
        if sample.bytes_in_flight == 0 && sample.app_limited {
            self.idle_restart = true;
            self.aggregation.on_restart(sample.now);
            if self.state.is_probe_bw() {
                self.update_pacing_rate(100);
            } else if self.state == State::ProbeRtt
                && self.probe_rtt.is_over(sample.now, &mut self.min_rtt)
            {
                self.exit_probe_rtt(sample.now);
            }
        }
        // Latched here: when the ACK comes, the volume in flight has already shrunk.
        let inflight = sample.bytes_in_flight.saturating_add(sample.bytes);
        if inflight.saturating_add(self.datagram()) > self.window {
            self.window_limited_until = self.delivered.saturating_add(inflight);
        }
    }

    fn on_ack(&mut self, sample: &AckSample) -> bool {
        self.delivered = sample.delivered;
        if self.is_of_another_path(sample.newest_sent_time) {
            self.delivered_before_path = sample.delivered;
            return false;
        }
        if sample.acked_bytes == 0 {
            self.ecn.on_ack(0, sample.ce_marks);
            return false;
        }
        self.check_recovery_end(sample);
        self.init_pacing_rate(sample);

        self.model.update_latest(sample);
        self.round.on_ack(sample);
        if self.round.start {
            self.cycle.rounds_since_probe += 1;
        }
        self.model.update_max_bw(sample);
        let lossy = self.model.loss_in_round;
        let marks = self.on_round_marks(sample);
        let (window, probing) = (self.window, self.state.is_probing());
        let adapted = self.model.adapt_short_term(
            window,
            probing,
            marks.cut,
            self.min_rtt.get(),
            sample.now,
            self.datagram(),
        );

        self.aggregation.on_ack(
            sample.now,
            sample.acked_bytes,
            self.model.bw(),
            self.window,
            self.round.count,
            !self.full_pipe.reached,
        );
        self.full_pipe.on_ack(sample, self.round.start);
        self.check_startup_congestion(sample, lossy, marks);
        self.check_drain(sample);
        self.update_cycle(sample, marks);
        self.min_rtt.on_ack(sample.now, sample.rtt);
        self.check_probe_rtt(sample);
        self.model.advance_latest(sample);

        self.update_pacing_rate(self.state.pacing_gain());
        self.update_window(sample);
        self.follow_window(sample);
        marks.cut > 0 && adapted
    }

    fn on_lost(&mut self, sample: &LossSample<'_>) -> bool {
        self.delivered = sample.delivered;
        if self.is_of_another_path(sample.largest_sent_time) {
            return false;
        }
        let opens = opens_recovery(self.recovery_start, sample.largest_sent_time);
        if opens {
            self.save_window();
            self.recovery_start = Some(sample.now);
            self.in_recovery = true;
            // Once per recovery period: a later loss in it must not save what the first changed.
            self.undo = Some(Undo {
                bw_short: self.model.bw_short,
                inflight_short: self.model.inflight_short,
                inflight_long: self.model.inflight_long,
                probe: None,
            });
        }
        let threshold = self.model.loss_threshold(sample.now);
        // Bytes lost up to and including each packet.
        let mut lost = sample.lost.saturating_sub(sample.bytes);
        for packet in sample.packets {
            lost = lost.saturating_add(u64::from(packet.size));
            self.model
                .note_loss(sample.delivered, u64::from(packet.size));
            self.loss_exit.on_lost(packet);
            let lost_since_sent = lost.saturating_sub(packet.lost);
            if self.cycle.is_probe_sample
                && is_too_high(lost_since_sent, packet.tx_in_flight, threshold)
            {
                let safe = inflight_at_loss(packet, lost_since_sent, threshold);
                self.on_inflight_too_high(
                    sample.now,
                    safe,
                    packet.app_limited,
                    RoundMarks::default(),
                );
            }
        }
        self.update_pacing_rate(self.state.pacing_gain());
        opens
    }

    fn on_spurious_loss(&mut self, now: Time) -> bool {
        let Some(undo) = self.undo.take() else {
            return false;
        };
        self.in_recovery = false;
        self.window = self.window.max(self.prior_window);
        self.model.forgive();
        self.full_pipe.restart(0);
        let higher = |now: Option<u64>, saved: Option<u64>| Some(now?.max(saved?));
        self.model.bw_short = higher(self.model.bw_short, undo.bw_short);
        self.model.inflight_short = higher(self.model.inflight_short, undo.inflight_short);
        self.model.inflight_long = higher(self.model.inflight_long, undo.inflight_long);
        match undo.probe {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_pipe.reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if self.state != State::Up && self.state != State::ProbeRtt => {
                self.start_refill(now);
            }
            _ => {}
        }
        self.update_pacing_rate(self.state.pacing_gain());
        true
    }

    fn on_persistent_congestion(&mut self, now: Time) {
        // The window alone: bandwidth and round trip measured before still describe the path, and
        // a round trip measured now would include the queue that caused this.
        self.save_window();
        self.window = minimum_window(self.max_datagram_size);
        self.recovery_start = Some(now);
        self.in_recovery = true;
        self.undo = None;
    }

    fn on_max_datagram_size(&mut self, max_datagram_size: u16, during_handshake: bool) {
        let old = self.max_datagram_size;
        self.max_datagram_size = max_datagram_size;
        self.window = resized_window(self.window, old, max_datagram_size, during_handshake);
    }

    fn on_path_change(&mut self, now: Time, max_datagram_size: u16) {
        *self = Self {
            cycle: self.cycle.renewed(),
            delivered: self.delivered,
            delivered_before_path: self.delivered,
            recovery_start: Some(now),
            path_start: Some(now),
            ..Self::new(max_datagram_size, 0)
        };
    }

    /// What the controller before learnt fills the model: without it a full pipe would be searched
    /// for at 2.77 times its rate.
    fn take_over(&mut self, handover: &Handover) {
        self.on_path_change(handover.now, self.max_datagram_size);
        self.window = handover.window.max(self.floor());
        if !handover.smoothed_rtt.is_zero() {
            self.has_rtt = true;
            self.pacing_rate = rate(self.window, handover.smoothed_rtt).max(1);
        }
        if let (false, Some(rate), Some(min_rtt)) = (
            handover.in_slow_start,
            handover.delivery_rate,
            handover.min_rtt,
        ) {
            self.model.assume_bandwidth(rate);
            self.min_rtt.on_ack(handover.now, Some(min_rtt));
            self.full_pipe.reached = true;
            self.start_down(handover.now);
            self.update_pacing_rate(self.state.pacing_gain());
        }
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn ssthresh(&self) -> Option<u64> {
        None
    }

    fn in_slow_start(&self) -> bool {
        self.state == State::Startup
    }

    fn recovery_start(&self) -> Option<Time> {
        self.recovery_start
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate.max(1))
    }

    /// In Startup the initial window may leave as one burst (RFC 9002 §7.7): paced, the first
    /// flights would take a third of a round trip longer.
    fn send_quantum(&self) -> Option<u64> {
        (self.state != State::Startup).then(|| self.quantum())
    }

    fn is_holding_back(&self) -> bool {
        self.state == State::ProbeRtt
    }

    fn least_ack_rate(&self) -> LeastAckRate {
        match self.state.is_probing() || self.state == State::ProbeRtt {
            true => LEAST_ACKS_MEASURING,
            false => LEAST_ACKS_OTHERWISE,
        }
    }
}

#[cfg(test)]
mod tests;

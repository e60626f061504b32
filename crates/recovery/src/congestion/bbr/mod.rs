//! BBRv3 (draft-ietf-ccwg-bbr-06): a model of the path instead of a reaction to loss.
//!
//! `Bbr` decides what follows from each ACK and loss; the parts own their state: `model` the
//! bandwidth and volume bounds, `phases` the state machine with its `round`, `startup`'s full-pipe
//! detector and `probe_bw`'s cycle, `controls` window, pacing rate and quantum, `probe_rtt` the round
//! trip, `recovery` the period after losses, `aggregation` lumps of ACKs, `ecn` marks.
//! An ACK goes through the steps in the order of `Bbr::on_ack`, which is the draft's. Gains are a
//! function of the state, so none is left behind by a transition. Where the draft's pseudocode
//! contradicts its text the text is followed, with a comment.

mod aggregation;
mod controls;
mod ecn;
mod model;
mod path_loss;
mod phases;
mod probe_bw;
mod probe_rtt;
mod recovery;
mod round;
mod startup;
mod state;
mod units;

use towline_wire::Time;

use self::aggregation::Aggregation;
use self::controls::Controls;
use self::ecn::{Ecn, RoundMarks};
use self::model::{Model, inflight_at_loss, is_too_high};
use self::phases::Phases;
use self::probe_bw::Cycle;
use self::probe_rtt::{MinRtt, ProbeRtt, Progress};
use self::recovery::RecoveryPeriod;
use self::startup::LossExit;
use self::state::State;
use self::units::{Hundredths, carried, scale};
use super::interface::{
    AckSample, CongestionController, Handover, LEAST_ACKS_OTHERWISE, LeastAckRate, LossSample,
    SendSample,
};

/// Rounds between probes of a path that fell to less than half of its bandwidth.
const ROUNDS_AFTER_A_FALL: u64 = 4;
/// ACKs per round in phases that measure (§4.1.3.3).
const LEAST_ACKS_MEASURING: LeastAckRate = LeastAckRate { per_round: 4 };

/// The controller of draft-ietf-ccwg-bbr.
#[derive(Clone, Debug)]
pub struct Bbr {
    controls: Controls,
    phases: Phases,
    model: Model,
    loss_exit: LossExit,
    min_rtt: MinRtt,
    probe_rtt: ProbeRtt,
    aggregation: Aggregation,
    ecn: Ecn,
    recovery: RecoveryPeriod,
    /// Sending started again after the application had nothing to send.
    idle_restart: bool,
    /// Of all bytes delivered, those before this path.
    delivered_before_path: u64,
    /// The window was full when what is delivered up to here was in flight.
    window_limited_until: u64,
    /// What was sent before says nothing about this path.
    path_start: Option<Time>,
}

impl Bbr {
    /// A controller at its initial window; `seed` decides when it probes.
    pub fn new(max_datagram_size: u16, seed: u64) -> Self {
        Self {
            controls: Controls::new(max_datagram_size),
            phases: Phases::new(seed),
            model: Model::default(),
            loss_exit: LossExit::default(),
            min_rtt: MinRtt::default(),
            probe_rtt: ProbeRtt::default(),
            aggregation: Aggregation::new(),
            ecn: Ecn::new(),
            recovery: RecoveryPeriod::default(),
            idle_restart: false,
            delivered_before_path: 0,
            window_limited_until: 0,
            path_start: None,
        }
    }

    /// The same with another seed; before anything was sent.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.phases.cycle = Cycle::new(seed);
        self
    }

    // Volumes.

    /// `gain` times the bandwidth-delay product at `bw`; the initial window while either factor
    /// is unknown.
    fn bdp(&self, bw: u64, gain: Hundredths) -> u64 {
        match self.min_rtt.get() {
            Some(min_rtt) if bw > 0 => scale(carried(bw, min_rtt), gain),
            _ => self.controls.initial_window(),
        }
    }

    /// The draft's `Inflight`: what fills the pipe at `bw` without a queue.
    fn inflight(&self, bw: u64) -> u64 {
        self.controls
            .quantized(self.bdp(bw, 100), self.phases.state)
    }

    /// The BDP, unless congestion cut the window.
    fn target_inflight(&self) -> u64 {
        self.bdp(self.model.bw(), 100).min(self.controls.window)
    }

    fn probe_rtt_window(&self) -> u64 {
        let gain = State::ProbeRtt.window_gain();
        self.bdp(self.model.bw(), gain).max(self.controls.floor())
    }

    fn exit_probe_rtt(&mut self, now: Time) {
        self.controls.restore_window();
        self.phases.exit_probe_rtt(now, &mut self.model);
    }

    fn save_window(&mut self) {
        let is_held_down = self.recovery.is_open() || self.phases.state == State::ProbeRtt;
        self.controls.save_window(is_held_down);
    }

    // The steps of an ACK.

    /// Losses or marks that end Startup although the rate still grows (§5.3.1.3).
    ///
    /// A round of losses starts with the first of them, so at its end recovery has lasted a round.
    fn check_startup_congestion(&mut self, sample: &AckSample, lossy: bool, marks: RoundMarks) {
        if !self.model.loss_round_start {
            return;
        }
        let many = self.loss_exit.end_round();
        let excused = (self.phases.full_pipe.growing || sample.app_limited) && !self.stands_queue();
        let threshold = match excused {
            true => path_loss::MOST_SHARE,
            false => self.model.loss_threshold(sample.now),
        };
        let high = is_too_high(sample.lost_since_sent, sample.tx_in_flight, threshold);
        if self.phases.full_pipe.reached || !((lossy && many && high) || marks.ends_startup) {
            return;
        }
        self.recovery.save_probe(State::Startup, marks);
        self.phases.full_pipe.reached = true;
        let bdp = self.bdp(self.model.bw(), 100);
        self.model.inflight_long = Some(bdp.max(self.model.inflight_latest));
    }

    fn check_drain(&mut self, sample: &AckSample) {
        if self.phases.state == State::Startup && self.phases.full_pipe.reached {
            self.phases.start_drain();
        }
        if self.phases.state == State::Drain
            && (sample.bytes_in_flight <= self.inflight(self.model.bw())
                || self.phases.has_drained_enough())
        {
            self.phases.start_down(sample.now, &mut self.model);
        }
    }

    /// Moves through DOWN, CRUISE, REFILL and UP (§5.3.3.9).
    fn update_cycle(&mut self, sample: &AckSample, marks: RoundMarks) {
        // Before growth: a bound that this ACK raises was still in force until now.
        let bounded = self.is_bounded_by_long_term(sample);
        if !self.phases.full_pipe.reached || self.adapt_long_term(sample, marks, bounded) {
            return;
        }
        match self.phases.state {
            State::Down | State::Cruise if self.is_time_to_probe(sample.now) => {
                self.phases.start_refill(sample.now, &mut self.model);
            }
            State::Down if self.is_time_to_cruise(sample) => self.phases.state = State::Cruise,
            State::Refill if self.phases.round.start => {
                let (window, datagram) = (self.controls.window, self.controls.datagram());
                self.phases.start_up(sample.delivery_rate, window, datagram);
            }
            State::Up if self.found_the_path_again(sample.now) => {
                self.phases.restart_startup(&mut self.model);
            }
            State::Up => self.check_up(sample, bounded),
            _ => {}
        }
    }

    /// Whether this probe shows that a path that fell is fast again: the rate grows, no queue does.
    fn found_the_path_again(&self, now: Time) -> bool {
        self.phases.full_pipe.grew && self.model.has_fallen(now) && !self.stands_queue()
    }

    /// Whether one of the frequent probes after a fall has made a queue: the path is still slow.
    fn found_nothing_again(&self, now: Time) -> bool {
        self.phases.round.start && self.model.has_fallen(now) && self.stands_queue()
    }

    fn stands_queue(&self) -> bool {
        self.model.queue_stood(self.min_rtt.get())
    }

    fn is_time_to_probe(&self, now: Time) -> bool {
        let most_rounds = match self.model.has_fallen(now) {
            true => ROUNDS_AFTER_A_FALL,
            false => u64::MAX,
        };
        self.phases.cycle.is_time_to_probe(
            now,
            self.target_inflight(),
            self.controls.datagram(),
            most_rounds,
        )
    }

    fn is_time_to_cruise(&self, sample: &AckSample) -> bool {
        let headroom = self
            .model
            .inflight_with_headroom(self.controls.datagram(), self.controls.floor());
        headroom.is_none_or(|limit| sample.bytes_in_flight <= limit)
            && sample.bytes_in_flight <= self.inflight(self.model.max_bw())
    }

    /// Leaves UP when a careful probe reached the known volume, or the rate no longer grows.
    fn check_up(&mut self, sample: &AckSample, bounded: bool) {
        // Before the ACK, and with the datagram that did not fit: afterwards the volume in flight
        // never reaches a bound that the window obeys.
        let peak = sample
            .bytes_in_flight_before
            .saturating_add(self.controls.datagram());
        let is_at_long = self.model.inflight_long.is_some_and(|long| peak > long);
        if self.phases.cycle.previous_too_high && is_at_long {
            self.phases.cycle.previous_precautionary = true;
        } else if bounded {
            self.phases
                .full_pipe
                .restart(sample.delivery_rate.unwrap_or(0));
            return;
        } else if !self.phases.full_pipe.now && !self.found_nothing_again(sample.now) {
            return;
        }
        self.phases.cycle.previous_too_high = false;
        self.model.on_probed();
        self.phases.start_down(sample.now, &mut self.model);
    }

    /// Whether the long-term volume held back what this ACK acknowledges.
    fn is_bounded_by_long_term(&self, sample: &AckSample) -> bool {
        sample.prior_delivered < self.window_limited_until
            && self
                .model
                .inflight_long
                .is_some_and(|long| self.controls.window >= long)
    }

    /// Learns from the ACKs of a probe; returns whether it moved the state machine.
    fn adapt_long_term(&mut self, sample: &AckSample, marks: RoundMarks, bounded: bool) -> bool {
        let is_answered = self.phases.round.start && self.phases.cycle.on_round();
        if is_answered && self.phases.state.is_probe_bw() {
            if !sample.app_limited {
                self.model.advance_max_bw(sample.now);
            }
            if self.phases.cycle.was_too_careful() {
                self.phases.start_refill(sample.now, &mut self.model);
                return true;
            }
        }
        if marks.too_high && self.phases.cycle.is_probe_sample {
            self.on_inflight_too_high(sample.now, sample.tx_in_flight, sample.app_limited, marks);
            return true;
        }
        let threshold = self.model.loss_threshold(sample.now);
        if marks.too_high || is_too_high(sample.lost_since_sent, sample.tx_in_flight, threshold) {
            return false;
        }
        self.model.raise_inflight_long(sample.tx_in_flight);
        if self.phases.state == State::Up && bounded {
            let growth = self.phases.cycle.growth(sample.acked_bytes);
            if let Some(long) = &mut self.model.inflight_long {
                *long = long.saturating_add(growth.saturating_mul(self.controls.datagram()));
            }
            if self.phases.round.start {
                self.phases
                    .cycle
                    .raise_slope(self.controls.window, self.controls.datagram());
            }
        }
        false
    }

    /// A probe put too much in flight: remember how much was safe, once per probe.
    fn on_inflight_too_high(&mut self, now: Time, safe: u64, app_limited: bool, marks: RoundMarks) {
        self.phases.cycle.previous_too_high = true;
        self.phases.cycle.is_probe_sample = false;
        if !app_limited {
            let least = scale(self.target_inflight(), model::BETA);
            self.model.inflight_long = Some(safe.max(least));
        }
        if self.phases.state == State::Up {
            self.recovery.save_probe(State::Up, marks);
            self.model.on_probed();
            self.phases.start_down(now, &mut self.model);
        }
    }

    fn check_probe_rtt(&mut self, sample: &AckSample) {
        if self.phases.state != State::ProbeRtt && self.min_rtt.expired && !self.idle_restart {
            self.save_window();
            self.phases.start_probe_rtt();
            self.probe_rtt.start();
        }
        if self.phases.state == State::ProbeRtt {
            let limit = self.probe_rtt_window();
            let progress = self.probe_rtt.on_ack(
                sample.now,
                sample.bytes_in_flight,
                limit,
                self.phases.round.start,
                &mut self.min_rtt,
            );
            match progress {
                Progress::Waiting => {}
                Progress::Drained => self.phases.round.restart(),
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
        self.controls
            .update_pacing_rate(bw, gain, self.phases.full_pipe.reached);
    }

    fn update_window(&mut self, sample: &AckSample) {
        let bdp = self.bdp(self.model.bw(), self.phases.state.window_gain());
        let max_inflight = self.controls.quantized(
            bdp.saturating_add(self.aggregation.extra_acked()),
            self.phases.state,
        );
        let grown = self.controls.window.saturating_add(sample.acked_bytes);
        let delivered_here = self.phases.round.delivered - self.delivered_before_path;
        let has_room =
            self.controls.window < max_inflight || delivered_here < self.controls.initial_window();
        // A handshake must not widen the first flight of data (RFC 9002 §7.8).
        let was_used = self.model.is_measured() || sample.cwnd_limited;
        if self.phases.full_pipe.reached {
            self.controls.window = grown.min(max_inflight);
        } else if was_used && has_room {
            self.controls.window = grown;
        }
        self.controls.window = self.controls.window.max(self.controls.floor());
        if self.phases.state == State::ProbeRtt {
            self.controls.window = self.controls.window.min(self.probe_rtt_window());
        }
        self.bound_window();
    }

    /// Recent congestion's bounds. Like the draft's code and unlike its table, Drain obeys only
    /// the short-term one: after a loss exit the long-term volume is what was just delivered.
    fn bound_window(&mut self) {
        let long = match self.phases.state {
            State::Startup | State::Drain => None,
            State::Down | State::Refill | State::Up => self.model.inflight_long,
            State::Cruise | State::ProbeRtt => self
                .model
                .inflight_with_headroom(self.controls.datagram(), self.controls.floor()),
        };
        let bounds = [long, self.model.inflight_short];
        if let Some(bound) = bounds.into_iter().flatten().min() {
            self.controls.window = self.controls.window.min(bound.max(self.controls.floor()));
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
            if self.phases.state.is_probe_bw() {
                self.update_pacing_rate(100);
            } else if self.phases.state == State::ProbeRtt
                && self.probe_rtt.is_over(sample.now, &mut self.min_rtt)
            {
                self.exit_probe_rtt(sample.now);
            }
        }
        // Latched here: when the ACK comes, the volume in flight has already shrunk.
        let inflight = sample.bytes_in_flight.saturating_add(sample.bytes);
        if inflight.saturating_add(self.controls.datagram()) > self.controls.window {
            self.window_limited_until = self.phases.round.delivered.saturating_add(inflight);
        }
    }

    fn on_ack(&mut self, sample: &AckSample) -> bool {
        self.phases.round.delivered = sample.delivered;
        if self.is_of_another_path(sample.newest_sent_time) {
            self.delivered_before_path = sample.delivered;
            return false;
        }
        if sample.acked_bytes == 0 {
            self.ecn.on_ack(0, sample.ce_marks);
            return false;
        }
        if self.recovery.on_ack(sample.newest_sent_time) {
            self.controls.restore_window();
        }
        self.controls.init_pacing_rate(sample);

        self.model.update_latest(sample);
        self.phases.on_ack(sample);
        self.model.update_max_bw(sample);
        let lossy = self.model.loss_in_round;
        self.ecn.on_ack(sample.acked_packets, sample.ce_marks);
        let marks = match self.model.loss_round_start {
            true => self.ecn.end_round(),
            false => RoundMarks::default(),
        };
        let (window, probing) = (self.controls.window, self.phases.state.is_probing());
        let adapted = self.model.adapt_short_term(
            window,
            probing,
            marks.cut,
            self.min_rtt.get(),
            sample.now,
            self.controls.datagram(),
        );

        self.aggregation.on_ack(
            sample.now,
            sample.acked_bytes,
            self.model.bw(),
            self.controls.window,
            self.phases.round.count,
            !self.phases.full_pipe.reached,
        );
        self.phases.look_for_full_pipe(sample);
        self.check_startup_congestion(sample, lossy, marks);
        self.check_drain(sample);
        self.update_cycle(sample, marks);
        self.min_rtt.on_ack(sample.now, sample.rtt);
        self.check_probe_rtt(sample);
        self.model.advance_latest(sample);

        self.update_pacing_rate(self.phases.state.pacing_gain());
        self.update_window(sample);
        if self.phases.state == State::Startup {
            self.controls.follow_window(sample.smoothed_rtt);
        }
        marks.cut > 0 && adapted
    }

    fn on_lost(&mut self, sample: &LossSample<'_>) -> bool {
        self.phases.round.delivered = sample.delivered;
        if self.is_of_another_path(sample.largest_sent_time) {
            return false;
        }
        let opens = self.recovery.opens(sample.largest_sent_time);
        if opens {
            self.save_window();
            self.recovery.open(sample.now, self.model.bounds());
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
            if self.phases.cycle.is_probe_sample
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
        self.update_pacing_rate(self.phases.state.pacing_gain());
        opens
    }

    fn on_spurious_loss(&mut self, now: Time) -> bool {
        let Some(undo) = self.recovery.take_undo() else {
            return false;
        };
        self.controls.restore_window();
        self.model.forgive();
        self.phases.full_pipe.restart(0);
        self.model.restore(undo.bounds);
        self.phases.resume(undo.probe, now, &mut self.model);
        self.update_pacing_rate(self.phases.state.pacing_gain());
        true
    }

    fn on_persistent_congestion(&mut self, now: Time) {
        // The window alone: bandwidth and round trip measured before still describe the path, and
        // a round trip measured now would include the queue that caused this.
        self.save_window();
        self.controls.collapse();
        self.recovery.open_for_good(now);
    }

    fn on_max_datagram_size(&mut self, max_datagram_size: u16, during_handshake: bool) {
        self.controls
            .on_max_datagram_size(max_datagram_size, during_handshake);
    }

    fn on_path_change(&mut self, now: Time, max_datagram_size: u16) {
        *self = Self {
            phases: self.phases.renewed(),
            recovery: RecoveryPeriod::none_since(now),
            delivered_before_path: self.phases.round.delivered,
            path_start: Some(now),
            ..Self::new(max_datagram_size, 0)
        };
    }

    /// What the controller before learnt fills the model: without it a full pipe would be searched
    /// for at 2.77 times its rate.
    fn take_over(&mut self, handover: &Handover) {
        self.on_path_change(handover.now, self.controls.max_datagram_size());
        self.controls
            .take_over(handover.window, handover.smoothed_rtt);
        if let (false, Some(rate), Some(min_rtt)) = (
            handover.in_slow_start,
            handover.delivery_rate,
            handover.min_rtt,
        ) {
            self.model.assume_bandwidth(rate);
            self.min_rtt.on_ack(handover.now, Some(min_rtt));
            self.phases.full_pipe.reached = true;
            self.phases.start_down(handover.now, &mut self.model);
            self.update_pacing_rate(self.phases.state.pacing_gain());
        }
    }

    fn window(&self) -> u64 {
        self.controls.window
    }

    fn ssthresh(&self) -> Option<u64> {
        None
    }

    fn in_slow_start(&self) -> bool {
        self.phases.state == State::Startup
    }

    fn recovery_start(&self) -> Option<Time> {
        self.recovery.start()
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.controls.pacing_rate.max(1))
    }

    /// In Startup the initial window may leave as one burst (RFC 9002 §7.7): paced, the first
    /// flights would take a third of a round trip longer.
    fn send_quantum(&self) -> Option<u64> {
        (self.phases.state != State::Startup).then(|| self.controls.quantum())
    }

    fn is_holding_back(&self) -> bool {
        self.phases.state == State::ProbeRtt
    }

    fn least_ack_rate(&self) -> LeastAckRate {
        match self.phases.state.is_probing() || self.phases.state == State::ProbeRtt {
            true => LEAST_ACKS_MEASURING,
            false => LEAST_ACKS_OTHERWISE,
        }
    }
}

#[cfg(test)]
mod tests;

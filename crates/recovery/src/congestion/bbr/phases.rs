//! The phases of BBR: which one it is in, and every way from one to another (draft §5.3).
//!
//! `Phases` owns the state with what its phases end by: the round, the search for a full pipe and the
//! probing cycle. `Bbr` decides when a phase ends, by what the model says; a phase that begins
//! resets its part of the model.

use towline_wire::Time;

use super::model::Model;
use super::probe_bw::{AckPhase, Cycle};
use super::round::Round;
use super::startup::FullPipe;
use super::state::State;
use crate::congestion::interface::AckSample;

/// Rounds after which Drain ends even if the queue did not (§5.3.2).
const DRAIN_ROUNDS: u64 = 3;

#[derive(Clone, Debug)]
pub(super) struct Phases {
    pub(super) state: State,
    pub(super) round: Round,
    pub(super) full_pipe: FullPipe,
    pub(super) cycle: Cycle,
    drain_start_round: u64,
}

impl Phases {
    /// Startup; `seed` decides when it probes.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            state: State::Startup,
            round: Round::default(),
            full_pipe: FullPipe::default(),
            cycle: Cycle::new(seed),
            drain_start_round: 0,
        }
    }

    /// Startup on another path.
    pub(super) fn renewed(&self) -> Self {
        Self {
            round: self.round.renewed(),
            cycle: self.cycle.renewed(),
            ..Self::new(0)
        }
    }

    /// Counts the rounds.
    pub(super) fn on_ack(&mut self, sample: &AckSample) {
        self.round.on_ack(sample);
        if self.round.start {
            self.cycle.rounds_since_probe += 1;
        }
    }

    pub(super) fn look_for_full_pipe(&mut self, sample: &AckSample) {
        self.full_pipe.on_ack(sample, self.round.start);
    }

    pub(super) fn start_down(&mut self, now: Time, model: &mut Model) {
        model.reset_congestion_signals();
        self.cycle.start_down(now);
        self.round.restart();
        self.state = State::Down;
    }

    pub(super) fn start_refill(&mut self, now: Time, model: &mut Model) {
        model.reset_short_term(now);
        self.cycle.start_refill();
        self.round.restart();
        self.state = State::Refill;
    }

    /// `rate` is the baseline of the new search, `window` and `datagram` are those in force.
    pub(super) fn start_up(&mut self, rate: Option<u64>, window: u64, datagram: u64) {
        self.round.restart();
        self.full_pipe.restart(rate.unwrap_or(0));
        self.state = State::Up;
        self.cycle.start_up(window, datagram);
    }

    pub(super) fn start_drain(&mut self) {
        self.state = State::Drain;
        self.drain_start_round = self.round.count;
    }

    /// Whether Drain has lasted as long as it may.
    pub(super) fn has_drained_enough(&self) -> bool {
        self.round.count > self.drain_start_round + DRAIN_ROUNDS
    }

    pub(super) fn start_probe_rtt(&mut self) {
        self.state = State::ProbeRtt;
        self.cycle.ack_phase = AckPhase::Stopping;
        self.round.restart();
    }

    pub(super) fn exit_probe_rtt(&mut self, now: Time, model: &mut Model) {
        model.reset_short_term(now);
        if self.full_pipe.reached {
            // The queue is empty already: DOWN only restarts the clock of the cycle.
            self.start_down(now, model);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// Looks for a new rate as for the first one: a quarter more each round would take long.
    pub(super) fn restart_startup(&mut self, model: &mut Model) {
        model.on_probed();
        self.full_pipe.reached = false;
        self.full_pipe.restart(model.max_bw());
        self.round.restart();
        self.cycle.is_probe_sample = false;
        self.cycle.previous_too_high = false;
        self.state = State::Startup;
    }

    /// Takes up a probe again that spurious losses ended.
    pub(super) fn resume(&mut self, probe: Option<State>, now: Time, model: &mut Model) {
        match probe {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_pipe.reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if self.state != State::Up && self.state != State::ProbeRtt => {
                self.start_refill(now, model);
            }
            _ => {}
        }
    }
}

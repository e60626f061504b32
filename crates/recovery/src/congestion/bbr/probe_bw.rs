//! The probing cycle of ProbeBW: when to probe next and how steeply to raise the long-term volume
//! (draft §5.3.3).
//!
//! `Cycle` owns the clock of the cycle, the phase of the ACKs that answer a probe, and what the
//! previous probe taught. `Bbr` asks it and moves the state machine.

use core::time::Duration;

use towline_wire::Time;

use super::units::Random;

/// Wall-clock wait between probes: this and up to as much more (§5.3.3.8).
const LEAST_WAIT: Duration = Duration::from_secs(2);
const WAIT_SPREAD: Duration = Duration::from_secs(1);
/// Rounds after which a flow that coexists with Reno probes at the latest (§5.3.3.8).
const MOST_ROUNDS: u64 = 63;
/// Keeps the shift of `raise_slope` below the width of a window.
const MOST_UP_ROUNDS: u32 = 30;

/// Which part of a probe the ACKs arriving now answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AckPhase {
    #[default]
    Init,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

#[derive(Clone, Debug)]
pub(super) struct Cycle {
    random: Random,
    /// When ProbeBW_DOWN began.
    stamp: Time,
    wait: Duration,
    pub(super) rounds_since_probe: u64,
    pub(super) ack_phase: AckPhase,
    /// Losses reported now are of packets sent while probing, and were not answered yet.
    pub(super) is_probe_sample: bool,
    /// The latest probe ended in too much loss: the next one stops at the known volume.
    pub(super) previous_too_high: bool,
    /// The latest probe was such a careful one.
    pub(super) previous_precautionary: bool,
    up_rounds: u32,
    up_acked: u64,
    /// Bytes to be acknowledged per datagram of growth; `None` while not in ProbeBW_UP.
    acked_per_increment: Option<u64>,
}

impl Cycle {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            stamp: Time::ZERO,
            wait: LEAST_WAIT,
            rounds_since_probe: 0,
            ack_phase: AckPhase::Init,
            is_probe_sample: false,
            previous_too_high: false,
            previous_precautionary: false,
            up_rounds: 0,
            up_acked: 0,
            acked_per_increment: None,
        }
    }

    /// A cycle of another path, with the random numbers going on.
    pub(super) fn renewed(&self) -> Self {
        Self {
            random: self.random.clone(),
            ..Self::new(0)
        }
    }

    pub(super) fn start_down(&mut self, now: Time) {
        self.acked_per_increment = None;
        self.rounds_since_probe = self.random.bits() & 1;
        self.wait = LEAST_WAIT + self.random.below(WAIT_SPREAD);
        self.stamp = now;
        self.ack_phase = AckPhase::Stopping;
    }

    pub(super) fn start_refill(&mut self) {
        self.up_rounds = 0;
        self.up_acked = 0;
        self.previous_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
    }

    pub(super) fn start_up(&mut self, window: u64, datagram: u64) {
        self.is_probe_sample = true;
        self.ack_phase = AckPhase::Starting;
        self.raise_slope(window, datagram);
    }

    /// A round starts: the ACKs from now on answer the next part of a probe. Returns whether those
    /// before answered its end.
    pub(super) fn on_round(&mut self) -> bool {
        match self.ack_phase {
            AckPhase::Starting => {
                self.ack_phase = AckPhase::Feedback;
                false
            }
            AckPhase::Stopping => {
                self.is_probe_sample = false;
                self.ack_phase = AckPhase::Init;
                true
            }
            _ => false,
        }
    }

    /// Whether the latest probe stopped at the known volume and found nothing wrong with it.
    pub(super) fn was_too_careful(&self) -> bool {
        self.previous_precautionary && !self.previous_too_high
    }

    /// Whether the wait is over, by the clock or by the rounds that Reno would take to fill
    /// `target` bytes in flight. The draft compares rounds with bytes; packets are meant.
    pub(super) fn is_time_to_probe(
        &self,
        now: Time,
        target: u64,
        datagram: u64,
        most_rounds: u64,
    ) -> bool {
        let rounds = (target / datagram.max(1))
            .clamp(1, MOST_ROUNDS)
            .min(most_rounds);
        now > self.stamp + self.wait || self.rounds_since_probe >= rounds
    }

    /// Doubles the growth of the long-term volume: 1, 2, 4, … datagrams per round.
    pub(super) fn raise_slope(&mut self, window: u64, datagram: u64) {
        self.acked_per_increment = Some((window >> self.up_rounds).max(datagram));
        self.up_rounds = (self.up_rounds + 1).min(MOST_UP_ROUNDS);
    }

    /// Datagrams by which `acked` bytes raise the long-term volume.
    pub(super) fn growth(&mut self, acked: u64) -> u64 {
        let Some(per_increment) = self.acked_per_increment else {
            return 0;
        };
        self.up_acked = self.up_acked.saturating_add(acked);
        let increments = self.up_acked / per_increment.max(1);
        self.up_acked -= increments * per_increment.max(1);
        increments
    }
}

//! The round trip without queue: its filter, and ProbeRTT, which empties the queue to measure it
//! (draft §5.3.4).
//!
//! `MinRtt` is fed every sample and says when an estimate is due for a refresh; `ProbeRtt` keeps
//! the clock of one episode. Neither is reset by timeouts or persistent congestion.

use core::time::Duration;

use towline_wire::Time;

/// How long an estimate of the round trip holds (§2.16).
const FILTER_LENGTH: Duration = Duration::from_secs(10);
/// All BBR flows must use this one, so that they drain a shared queue together (§5.3.4.2).
const INTERVAL: Duration = Duration::from_secs(5);
/// How long the volume in flight stays low (§2.16).
const DURATION: Duration = Duration::from_millis(200);

/// Two minima: one schedules ProbeRTT, the other is the estimate. No stamp is set before the first
/// sample: counted from an origin, the first ACK of a connection would start ProbeRTT.
#[derive(Clone, Debug, Default)]
pub(super) struct MinRtt {
    /// The estimate, and when it was measured.
    best: Option<(Duration, Time)>,
    /// The lowest since the latest ProbeRTT or refresh.
    recent: Option<(Duration, Time)>,
    /// The recent minimum was too old as of this ACK.
    pub(super) expired: bool,
}

impl MinRtt {
    pub(super) fn get(&self) -> Option<Duration> {
        self.best.map(|(rtt, _)| rtt)
    }

    pub(super) fn on_ack(&mut self, now: Time, rtt: Option<Duration>) {
        self.expired = self.recent.is_some_and(|(_, stamp)| now > stamp + INTERVAL);
        if let Some(rtt) = rtt
            && (self.expired || self.recent.is_none_or(|(recent, _)| rtt < recent))
        {
            self.recent = Some((rtt, now));
        }
        let Some(recent) = self.recent else { return };
        if self
            .best
            .is_none_or(|(best, stamp)| recent.0 < best || now > stamp + FILTER_LENGTH)
        {
            self.best = Some(recent);
        }
    }

    /// ProbeRTT ended: the next one is due an interval from now.
    fn on_probed(&mut self, now: Time) {
        if let Some((_, stamp)) = &mut self.recent {
            *stamp = now;
        }
    }
}

/// One episode of ProbeRTT.
#[derive(Clone, Debug, Default)]
pub(super) struct ProbeRtt {
    /// When it may end; `None` until the volume in flight is low enough.
    done: Option<Time>,
    round_done: bool,
}

/// What an ACK did to the episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// The volume in flight is low enough: a round starts.
    Drained,
    Done,
}

impl ProbeRtt {
    pub(super) fn start(&mut self) {
        *self = Self::default();
    }

    /// `limit` is the window of ProbeRTT with its floor: in flight at or below it counts as
    /// drained, or a path with a tiny BDP would never leave.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        inflight: u64,
        limit: u64,
        round_start: bool,
        min_rtt: &mut MinRtt,
    ) -> Progress {
        if self.done.is_none() {
            if inflight > limit {
                return Progress::Waiting;
            }
            self.done = Some(now + DURATION);
            self.round_done = false;
            return Progress::Drained;
        }
        self.round_done |= round_start;
        match self.round_done && self.is_over(now, min_rtt) {
            true => Progress::Done,
            false => Progress::Waiting,
        }
    }

    /// Whether the time is up, rounds aside.
    pub(super) fn is_over(&self, now: Time, min_rtt: &mut MinRtt) -> bool {
        let over = self.done.is_some_and(|done| now > done);
        if over {
            min_rtt.on_probed(now);
        }
        over
    }
}

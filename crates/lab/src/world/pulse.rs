//! I8: the world's pulse. Nothing may happen infinitely often in finite time.
//!
//! Counts steps of an instant and of a virtual millisecond, and timers that want to be woken in
//! the past although nothing came of it the last time.

use towline_wire::Time;

use crate::violation::{Invariant, Violation};

/// Steps at one instant; links have delay, so a handful is normal.
const MAX_STEPS_AT_ONCE: u32 = 64;

/// Steps of one virtual millisecond.
const MAX_STEPS_A_MILLISECOND: u32 = 4_000;

/// Timer runs in a row that neither sent, received nor told anything.
const MAX_EMPTY_TIMERS: u32 = 200;

#[derive(Debug)]
pub(super) struct Pulse {
    instant: Time,
    steps_at_once: u32,
    millisecond: u64,
    steps_this_millisecond: u32,
    empty_timers: u32,
    late_timers: u32,
}

impl Pulse {
    pub(super) fn new(now: Time) -> Self {
        Self {
            instant: now,
            steps_at_once: 0,
            millisecond: 0,
            steps_this_millisecond: 0,
            empty_timers: 0,
            late_timers: 0,
        }
    }

    pub(super) fn on_step(&mut self, now: Time) -> Result<(), Violation> {
        if now > self.instant {
            self.instant = now;
            self.steps_at_once = 0;
            self.late_timers = 0;
        }
        let millisecond = now.as_nanos() / 1_000_000;
        if millisecond != self.millisecond {
            self.millisecond = millisecond;
            self.steps_this_millisecond = 0;
        }
        self.steps_at_once += 1;
        self.steps_this_millisecond += 1;
        if self.steps_at_once > MAX_STEPS_AT_ONCE {
            return Err(busy(now, "too many steps without the clock moving"));
        }
        if self.steps_this_millisecond > MAX_STEPS_A_MILLISECOND {
            return Err(busy(now, "too many steps in a millisecond"));
        }
        Ok(())
    }

    /// A datagram moved or an event was told.
    pub(super) fn on_progress(&mut self) {
        self.empty_timers = 0;
        self.late_timers = 0;
    }

    pub(super) fn on_timer(&mut self, now: Time) -> Result<(), Violation> {
        self.empty_timers += 1;
        if self.empty_timers > MAX_EMPTY_TIMERS {
            return Err(busy(now, "timer after timer without any effect"));
        }
        Ok(())
    }

    /// After a drain, `next_timeout` is not in the future.
    pub(super) fn on_late_timer(&mut self, now: Time) -> Result<(), Violation> {
        self.late_timers += 1;
        // Once is fair: the timer came due while the endpoint was busy with something else.
        if self.late_timers > 4 {
            return Err(busy(now, "next_timeout stays in the past without progress"));
        }
        Ok(())
    }
}

fn busy(now: Time, what: &str) -> Violation {
    Violation::new(Invariant::Pace, now, what)
}

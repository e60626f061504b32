//! How long packets of one path wait in queues: the newest round trips less the lowest seen.
//!
//! The base is the lowest of ten one-minute minima, so that a longer route is believed after ten
//! minutes; the current delay is the lowest of up to four samples of the last round trip, so that
//! one late ACK is no queue (RFC 6817 §2.4, §4.2; LEDBAT++ §4.5). Knows no window.

use core::time::Duration;

use towline_wire::Time;

use crate::rtt::nanos;

/// One-minute minima kept (RFC 6817's BASE_HISTORY).
const BASE_HISTORY: usize = 10;
const MINUTE_NANOS: u64 = 60_000_000_000;
/// Samples of the current delay (RFC 6817's CURRENT_FILTER).
const CURRENT_FILTER: usize = 4;

/// Base and current delay of one path, in nanoseconds.
#[derive(Clone, Debug)]
pub(in crate::congestion) struct QueueDelay {
    /// The minimum of each minute, by its number modulo the length.
    minutes: [Option<u64>; BASE_HISTORY],
    minute: u64,
    base: Option<u64>,
    /// Newest last.
    current: [(Time, u64); CURRENT_FILTER],
    filled: usize,
}

impl Default for QueueDelay {
    fn default() -> Self {
        Self {
            minutes: [None; BASE_HISTORY],
            minute: 0,
            base: None,
            current: [(Time::ZERO, 0); CURRENT_FILTER],
            filled: 0,
        }
    }
}

impl QueueDelay {
    /// Takes a round trip. Returns whether all that was known before had expired.
    pub(in crate::congestion) fn on_sample(
        &mut self,
        now: Time,
        rtt: Duration,
        smoothed_rtt: Duration,
    ) -> bool {
        let rtt = nanos(rtt);
        let expired = self.turn_minutes(now);
        let slot = &mut self.minutes[(self.minute % BASE_HISTORY as u64) as usize];
        *slot = Some(slot.map_or(rtt, |least| least.min(rtt)));
        self.base = self.minutes.iter().flatten().min().copied();

        let kept = self.current[..self.filled]
            .iter()
            .position(|(at, _)| now.saturating_duration_since(*at) <= smoothed_rtt)
            .unwrap_or(self.filled);
        let full = usize::from(self.filled == CURRENT_FILTER);
        let dropped = kept.max(full);
        self.current.copy_within(dropped..self.filled, 0);
        self.filled -= dropped;
        self.current[self.filled] = (now, rtt);
        self.filled += 1;
        expired
    }

    /// Empties the minutes that passed without a sample.
    fn turn_minutes(&mut self, now: Time) -> bool {
        let minute = (now.as_nanos() / MINUTE_NANOS).max(self.minute);
        let passed = minute - self.minute;
        if passed == 0 {
            return false;
        }
        let known = self.base.is_some();
        for step in 1..=passed.min(BASE_HISTORY as u64) {
            self.minutes[((self.minute + step) % BASE_HISTORY as u64) as usize] = None;
        }
        self.minute = minute;
        known && passed >= BASE_HISTORY as u64
    }

    /// The lowest round trip of the last ten minutes.
    pub(in crate::congestion) fn base(&self) -> Option<u64> {
        self.base
    }

    /// The current delay above the base.
    pub(in crate::congestion) fn queue(&self) -> Option<u64> {
        let current = self.current[..self.filled].iter().map(|(_, rtt)| *rtt);
        Some(current.min()?.saturating_sub(self.base?))
    }
}

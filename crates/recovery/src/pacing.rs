//! The pacer: a token bucket in bytes at train granularity (RFC 9002 §7.7).
//!
//! `Recovery::permit` asks it how much may leave now; every packet in flight is charged, probes
//! included. It sees a rate and sizes, never a window. The bucket holds the initial window, or two
//! quanta if that is more; a quantum is what the rate earns in 1 ms. A wait shorter than the timer
//! granularity is never asked for: at the rates of a LAN a train is always allowed, at 10 Mbit/s
//! a train is two packets.

use core::time::Duration;

use towline_wire::Time;

use crate::rtt::GRANULARITY;

/// Largest train, and the deepest debt that packets sent without permission may leave.
const MAX_TRAIN: u64 = 65_536;

/// What a sender that waited may catch up on. The path was idle meanwhile, so the burst fills what
/// has drained; without it a busy machine lowers the rate, and a controller that measures rates
/// believes it.
const LATENESS: Duration = Duration::from_millis(10);

/// Smallest quantum, in datagrams.
const MIN_QUANTUM_DATAGRAMS: u64 = 2;

/// Gains as fractions (RFC 9002 §7.7 names 1.25 as an example). In slow start 1.39 is enough
/// to double each round trip; with twice the window a flight of half the path's size queues already,
/// and HyStart++ takes that for the path's own queue.
const GAIN: (u64, u64) = (5, 4);
const GAIN_SLOW_START: (u64, u64) = (3, 2);

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A token bucket.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Bytes that may leave now; negative after probes.
    level: i64,
    capacity: u64,
    last: Time,
    /// It was refused when last asked: what a late timer costs may be caught up on.
    waiting: bool,
}

impl Pacer {
    /// A full bucket.
    pub(crate) fn new(initial_window: u64) -> Self {
        Self {
            level: clamp_i64(initial_window),
            capacity: initial_window,
            last: Time::ZERO,
            waiting: false,
        }
    }

    /// Bytes that may leave now (at least one datagram), or the time to ask again.
    ///
    /// `rate` is in bytes per second and not zero.
    pub(crate) fn permit(
        &mut self,
        now: Time,
        rate: u64,
        datagram: u64,
        initial_window: u64,
    ) -> Result<u64, Time> {
        let earned_per_tick = earned(rate, GRANULARITY);
        let quantum = earned_per_tick.max(MIN_QUANTUM_DATAGRAMS * datagram);
        self.capacity = capacity(quantum, initial_window);
        if self.waiting {
            let late = earned(rate, LATENESS).min(MAX_TRAIN);
            self.capacity = self.capacity.max(late);
        }
        self.refill(now, rate);
        self.waiting = self.level < clamp_i64(datagram);
        if !self.waiting {
            return Ok(self.level.unsigned_abs());
        }
        let missing = clamp_i64(quantum).saturating_sub(self.level).unsigned_abs();
        Err(now + time_to_earn(missing, rate))
    }

    /// Charges a packet.
    pub(crate) fn on_sent(&mut self, size: u64) {
        let floor = -clamp_i64(MAX_TRAIN);
        self.level = self.level.saturating_sub(clamp_i64(size)).max(floor);
    }

    /// Nobody waits for the refused permit: the pause that follows is not made up for.
    pub(crate) fn on_app_limited(&mut self) {
        self.waiting = false;
    }

    fn refill(&mut self, now: Time, rate: u64) {
        let elapsed = now.saturating_duration_since(self.last);
        let gain = earned(rate, elapsed);
        let room = clamp_i64(self.capacity).saturating_sub(self.level);
        if clamp_i64(gain) >= room {
            self.level = clamp_i64(self.capacity);
            self.last = self.last.max(now);
        } else if gain > 0 {
            self.level += clamp_i64(gain);
            // Only the time these whole bytes took: fractions are not lost over many calls.
            self.last += time_to_earn(gain, rate);
        }
    }
}

/// The largest burst: RFC 9002 §7.7 allows the initial window; above it, one quantum to send and
/// one more that a late timer has earned meanwhile.
pub(crate) fn capacity(quantum: u64, initial_window: u64) -> u64 {
    let second = quantum.min(MAX_TRAIN);
    initial_window.max(quantum.saturating_add(second))
}

/// Whole bytes earned in `elapsed`.
fn earned(rate: u64, elapsed: Duration) -> u64 {
    let bytes = u128::from(rate) * u128::from(crate::rtt::nanos(elapsed)) / NANOS_PER_SECOND;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Time in which `bytes` are earned, rounded up.
fn time_to_earn(bytes: u64, rate: u64) -> Duration {
    let nanos = (u128::from(bytes) * NANOS_PER_SECOND).div_ceil(u128::from(rate.max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn clamp_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The rate, in bytes per second, that spreads a window over the round trip and leaves it room to
/// grow; `None` if the round trip is zero.
#[inline]
pub(crate) fn rate_of_window(
    window: u64,
    in_slow_start: bool,
    smoothed_rtt: Duration,
) -> Option<u64> {
    let gain = match in_slow_start {
        true => GAIN_SLOW_START,
        false => GAIN,
    };
    rate(window, gain, smoothed_rtt)
}

/// `gain * window / smoothed_rtt` in bytes per second, the gain as a fraction; `None` if the
/// round trip is zero, which makes the rate unbounded.
pub(crate) fn rate(window: u64, gain: (u64, u64), smoothed_rtt: Duration) -> Option<u64> {
    let rtt = u128::from(crate::rtt::nanos(smoothed_rtt));
    let rate = (u128::from(window) * u128::from(gain.0) * NANOS_PER_SECOND)
        .checked_div(rtt * u128::from(gain.1))?;
    Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
}

#[cfg(test)]
mod tests;

//! The round-trip estimator: smoothed_rtt, rttvar, min_rtt and latest_rtt (RFC 9002 §5).
//!
//! `Recovery` feeds it one sample per qualifying ACK; loss detection and the PTO read their delays
//! from it. It never decides whether an ACK yields a sample (`Recovery` does, RFC 9002 §5.1).
//! Kept in nanoseconds with saturating arithmetic, so neither a zero nor a 584-year sample breaks it.

use core::time::Duration;

use towline_wire::Time;

/// The timer granularity, RFC 9002's `kGranularity` (§6.1.2).
pub const GRANULARITY: Duration = Duration::from_millis(1);

/// The round-trip time assumed before the first sample, where nothing is known of the path. RFC 9002
/// §6.2.2 recommends 333 ms; `docs/adr/0017-an-initial-round-trip-of-100-ms.md` says why not.
pub const INITIAL_RTT: Duration = Duration::from_millis(100);

const GRANULARITY_NANOS: u64 = nanos(GRANULARITY);

/// Round-trip statistics of one path.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    latest: u64,
    smoothed: u64,
    rttvar: u64,
    min: Option<u64>,
    first_sample: Option<Time>,
}

impl RttEstimator {
    /// An estimator without a sample: smoothed_rtt is `initial`, rttvar half of it.
    pub const fn new(initial: Duration) -> Self {
        let initial = nanos(initial);
        Self {
            latest: 0,
            smoothed: initial,
            rttvar: initial / 2,
            min: None,
            first_sample: None,
        }
    }

    /// Sets the initial estimate from a round trip that is not a sample, such as the one a Retry
    /// took (RFC 9002 §6.2.2, §6.3). Does nothing once a real sample was seen.
    pub fn seed(&mut self, rtt: Duration) {
        if self.first_sample.is_none() {
            self.smoothed = nanos(rtt);
            self.rttvar = self.smoothed / 2;
        }
    }

    /// Takes a sample. `ack_delay` is what the peer reported, already limited by the rules for the
    /// space and the state of the handshake; min_rtt ignores it (RFC 9002 §5.2, §5.3).
    pub fn update(&mut self, now: Time, latest: Duration, ack_delay: Duration) {
        let latest = nanos(latest);
        self.latest = latest;
        if self.first_sample.is_none() {
            self.first_sample = Some(now);
            self.min = Some(latest);
            self.smoothed = latest;
            self.rttvar = latest / 2;
            return;
        }
        let min = self.min.map_or(latest, |min| min.min(latest));
        self.min = Some(min);
        let adjusted = self.adjusted(ack_delay);
        // rttvar first, with the old smoothed_rtt: RFC 9002 A.7 and RFC 6298 §2.3, not the order
        // in which RFC 9002 §5.3 happens to list the two.
        let deviation = self.smoothed.abs_diff(adjusted);
        self.rttvar = weighted(self.rttvar, deviation, 4);
        self.smoothed = weighted(self.smoothed, adjusted, 8);
    }

    /// The latest sample less `ack_delay`, unless that would fall below min_rtt (RFC 9002 §5.3).
    fn adjusted(&self, ack_delay: Duration) -> u64 {
        let delay = nanos(ack_delay);
        let min = self.min.unwrap_or(0);
        if self.latest >= min.saturating_add(delay) {
            self.latest - delay
        } else {
            self.latest
        }
    }

    /// The latest sample less as much of `ack_delay` as leaves min_rtt: what a controller that
    /// listens to delays is told. By the rule of `adjusted` a jitter of microseconds below min_rtt
    /// would show it a queue as long as the whole ACK delay.
    pub(crate) fn without_ack_delay(&self, ack_delay: Duration) -> u64 {
        let less = self.latest.saturating_sub(nanos(ack_delay));
        less.max(self.min.unwrap_or(0)).min(self.latest)
    }

    /// After persistent congestion min_rtt restarts at the newest sample (RFC 9002 §5.2).
    pub(crate) fn restart_min(&mut self) {
        if self.first_sample.is_some() {
            self.min = Some(self.latest);
        }
    }

    /// Time after the sending of a packet at which it counts as lost once a later packet is
    /// acknowledged: `max(9/8 * max(smoothed_rtt, latest_rtt), 1 ms)` (RFC 9002 §6.1.2).
    pub fn loss_delay(&self) -> Duration {
        let rtt = self.smoothed.max(self.latest);
        Duration::from_nanos(rtt.saturating_add(rtt / 8).max(GRANULARITY_NANOS))
    }

    /// `smoothed_rtt + max(4 * rttvar, 1 ms)`: the PTO without max_ack_delay (RFC 9002 §6.2.1).
    pub fn pto_base(&self) -> Duration {
        let spread = self.rttvar.saturating_mul(4).max(GRANULARITY_NANOS);
        Duration::from_nanos(self.smoothed.saturating_add(spread))
    }

    /// smoothed_rtt; the initial estimate before the first sample.
    pub fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed)
    }

    /// rttvar, the mean deviation.
    pub fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar)
    }

    /// The newest sample, not adjusted; zero before the first.
    pub fn latest(&self) -> Duration {
        Duration::from_nanos(self.latest)
    }

    /// min_rtt, or `None` before the first sample.
    pub fn min(&self) -> Option<Duration> {
        self.min.map(Duration::from_nanos)
    }

    /// When the first sample was taken.
    pub fn first_sample(&self) -> Option<Time> {
        self.first_sample
    }
}

/// `((weight - 1) * old + new) / weight`, without overflow.
fn weighted(old: u64, new: u64, weight: u64) -> u64 {
    let sum = u128::from(old) * u128::from(weight - 1) + u128::from(new);
    u64::try_from(sum / u128::from(weight)).unwrap_or(u64::MAX)
}

/// Whole nanoseconds of `duration`, saturating.
pub(crate) const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 {
        u64::MAX
    } else {
        nanos as u64
    }
}

#[cfg(test)]
mod tests;

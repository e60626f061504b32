//! A fixed rate, for paths whose capacity is known: no window growth, no reaction to single losses.
//!
//! The rate is held by the strict limit of `Recovery`, over every packet. The window only bounds
//! what a dead path can swallow: two round trips of the rate, and two datagrams after persistent
//! congestion until something sent since is acknowledged. A sender that never slows has no back
//! pressure, so use it where nobody else shares the bottleneck.

use core::num::NonZeroU64;
use core::time::Duration;

use towline_wire::Time;

use super::interface::{
    AckSample, CongestionController, Handover, LEAST_ACKS_OTHERWISE, LeastAckRate, LossSample,
};
use super::window::{initial_window, minimum_window};
use crate::rtt::{INITIAL_RTT, nanos};

/// Round trips of the rate that may be in flight.
const WINDOW_ROUNDS: u128 = 2;

/// The controller of a fixed rate.
#[derive(Clone, Debug)]
pub struct FixedRate {
    max_datagram_size: u16,
    /// Bytes per second.
    rate: NonZeroU64,
    smoothed_rtt: Duration,
    /// Persistent congestion since then, and nothing sent later was acknowledged.
    congested_since: Option<Time>,
}

impl FixedRate {
    /// A controller that sends `rate` bytes per second.
    pub fn new(max_datagram_size: u16, rate: NonZeroU64) -> Self {
        Self {
            max_datagram_size,
            rate,
            smoothed_rtt: INITIAL_RTT,
            congested_since: None,
        }
    }
}

impl CongestionController for FixedRate {
    fn on_ack(&mut self, sample: &AckSample) -> bool {
        self.smoothed_rtt = sample.smoothed_rtt;
        if self
            .congested_since
            .is_some_and(|since| sample.acked_bytes > 0 && sample.newest_sent_time > since)
        {
            self.congested_since = None;
        }
        false
    }

    fn on_lost(&mut self, _sample: &LossSample<'_>) -> bool {
        false
    }

    fn on_persistent_congestion(&mut self, now: Time) {
        self.congested_since = Some(now);
    }

    fn on_max_datagram_size(&mut self, max_datagram_size: u16, _during_handshake: bool) {
        self.max_datagram_size = max_datagram_size;
    }

    fn on_path_change(&mut self, _now: Time, max_datagram_size: u16) {
        *self = Self::new(max_datagram_size, self.rate);
    }

    fn take_over(&mut self, handover: &Handover) {
        self.smoothed_rtt = handover.smoothed_rtt;
    }

    fn window(&self) -> u64 {
        if self.congested_since.is_some() {
            return minimum_window(self.max_datagram_size);
        }
        let rtt = u128::from(nanos(self.smoothed_rtt));
        let rounds =
            (u128::from(self.rate.get()) * rtt).saturating_mul(WINDOW_ROUNDS) / 1_000_000_000;
        u64::try_from(rounds)
            .unwrap_or(u64::MAX)
            .saturating_add(initial_window(self.max_datagram_size))
    }

    fn ssthresh(&self) -> Option<u64> {
        None
    }

    fn in_slow_start(&self) -> bool {
        false
    }

    fn recovery_start(&self) -> Option<Time> {
        None
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.rate.get())
    }

    fn strict_rate(&self) -> Option<NonZeroU64> {
        Some(self.rate)
    }

    fn least_ack_rate(&self) -> LeastAckRate {
        LEAST_ACKS_OTHERWISE
    }
}

#[cfg(test)]
mod tests;

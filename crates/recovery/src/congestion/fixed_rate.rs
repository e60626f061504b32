//! A fixed rate, for paths whose capacity is known: no window growth, no reaction to single losses.
//!
//! The rate is held by the strict limit of `Recovery`, over every packet. The window only bounds
//! what a dead path can swallow: two round trips of the rate, and two datagrams after persistent
//! congestion until something sent since is acknowledged. A sender that never slows has no back
//! pressure, so use it where nobody else shares the bottleneck.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use towline_wire::Time;

use super::{
    AckSample, CongestionController, Handover, LEAST_ACKS_OTHERWISE, LeastAckRate, LossSample,
    UnknownAlgorithm, initial_window, minimum_window,
};
use crate::rtt::{INITIAL_RTT, nanos};

/// Least rate that can be asked for by name, bytes a second: a long handshake, 10 kB, takes 10 s at
/// it, and below that a connection is given up before it is there.
pub const LEAST_FIXED_RATE: u64 = 1000;

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

/// Reads a rate in bytes per second: `10mbit`, `500kbit` (bits), `2M`, `64k`, `1MiB` or `1250000`
/// (bytes), with or without `/s`.
pub(super) fn parse_rate(text: &str) -> Result<NonZeroU64, UnknownAlgorithm> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| UnknownAlgorithm::Rate)?;
    let scale = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1_048_576.0,
        "gi" | "gib" => 1_073_741_824.0,
        "bit" => 0.125,
        "kbit" => 125.0,
        "mbit" => 125e3,
        "gbit" => 125e6,
        _ => return Err(UnknownAlgorithm::Rate),
    };
    let rate = number * scale;
    if rate.is_nan() || rate >= 4e18 {
        return Err(UnknownAlgorithm::Rate);
    }
    match NonZeroU64::new(rate as u64) {
        Some(rate) if rate.get() < LEAST_FIXED_RATE => Err(UnknownAlgorithm::TooSlow),
        rate => rate.ok_or(UnknownAlgorithm::Rate),
    }
}

/// Writes a rate so that `parse_rate` reads the same number.
pub(super) fn write_rate(f: &mut fmt::Formatter<'_>, rate: NonZeroU64) -> fmt::Result {
    let rate = rate.get();
    match rate {
        _ if rate.is_multiple_of(125_000) => write!(f, "{}mbit", rate / 125_000),
        _ if rate.is_multiple_of(125) => write!(f, "{}kbit", rate / 125),
        _ => write!(f, "{rate}"),
    }
}

#[cfg(test)]
mod tests;

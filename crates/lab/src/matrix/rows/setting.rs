//! What every row's setting is written with: rates, times, and paths by their buffer.

use std::time::Duration;

use crate::scenario::{Scenario, bdp};

/// A megabit a second.
pub(super) const MBIT: u64 = 1_000_000;

pub(super) const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A path whose buffer is a number of bandwidth-delay products.
pub(super) fn path_of(rate: u64, rtt: Duration, bdps: f64, duration: Duration) -> Scenario {
    let buffer = (bdp(rate, rtt) as f64 * bdps) as u64;
    Scenario::dumbbell(rate, rtt, buffer, duration)
}

//! The rows, in the order of the table of targets.

mod fault;
mod limit;
mod path;
mod share;
mod transfer;

use std::time::Duration;

use super::Row;
use crate::scenario::{Scenario, bdp};

#[cfg(test)]
pub(in crate::matrix) use self::{limit::most_above, path::expected_window};

/// Every row except `thinning`, which is all of them again.
pub fn rows() -> Vec<Row> {
    vec![
        path::utilisation(),
        path::queue_delay(),
        share::fairness(),
        share::yielding(),
        share::background(),
        share::bbr_against_cubic(),
        transfer::freenet(),
        path::random_loss(),
        transfer::reordering(),
        fault::outage(),
        fault::lost_handshake_packet(),
        path::heavier_loss(),
        path::regained_capacity(),
        path::ack_loss(),
        share::parallel(),
        share::uplink(),
        transfer::slow_start(),
        path::step(),
        limit::rate_limit(),
        transfer::seed_streams(),
        transfer::seed_concurrency(),
    ]
}

const MBIT: u64 = 1_000_000;

const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A path whose buffer is a number of bandwidth-delay products.
fn path_of(rate: u64, rtt: Duration, bdps: f64, duration: Duration) -> Scenario {
    let buffer = (bdp(rate, rtt) as f64 * bdps) as u64;
    Scenario::dumbbell(rate, rtt, buffer, duration)
}

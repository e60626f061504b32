//! The rows, in the order of the table of targets.

mod fault;
mod limit;
mod path;
mod setting;
mod share;
mod transfer;

use super::Row;

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

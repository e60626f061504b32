//! The networks that telemetry is measured on, by name: figures are of one way.

use std::time::Duration;

use towline_sim::{LinkConfig, LossModel};

use super::{Voyage, VoyageOutcome, VoyagePlan};
use crate::scenario::HEADERS;

/// Deltas come once there is a connection.
const CONNECTING: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(600);

/// A named network. Both ways are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedNetwork {
    /// What it is called in tables.
    pub name: &'static str,
    /// One way, in milliseconds.
    pub delay_ms: u64,
    /// The most by which a datagram is later than that, in milliseconds.
    pub jitter_ms: f64,
    /// The chance of a datagram to get lost.
    pub loss: f64,
    /// Bits a second, and bytes of the queue before them; 0 is no limit.
    pub rate: (u64, u64),
}

/// From a cable to a telephone at the edge of its cell.
pub const NETWORKS: [NamedNetwork; 6] = [
    of("local", (0, 0.0, 0.0), (0, 0)),
    of("lan", (1, 0.5, 0.0), (100_000_000, 256 << 10)),
    of("lte", (30, 10.0, 0.01), (10_000_000, 256 << 10)),
    of("3g", (100, 30.0, 0.03), (1_000_000, 64 << 10)),
    of("satellite", (600, 50.0, 0.02), (1_000_000, 128 << 10)),
    of("poor-cellular", (200, 80.0, 0.1), (128_000, 32 << 10)),
];

const fn of(name: &'static str, path: (u64, f64, f64), rate: (u64, u64)) -> NamedNetwork {
    NamedNetwork {
        name,
        delay_ms: path.0,
        jitter_ms: path.1,
        loss: path.2,
        rate,
    }
}

/// So many deltas, 80 a second, over each of them: a table by rows.
pub fn six_networks(seed: u64, deltas: u64) -> Vec<(NamedNetwork, VoyageOutcome)> {
    let sail = |network: NamedNetwork| {
        let mut voyage = Voyage::new(VoyagePlan::new(seed, network.link()));
        voyage.run_for(CONNECTING);
        voyage.offer(deltas);
        // Who is not done by then has lost some, which the row shows.
        voyage.finish(PATIENCE);
        (network, voyage.outcome())
    };
    NETWORKS.into_iter().map(sail).collect()
}

impl NamedNetwork {
    /// One way of it.
    pub fn link(&self) -> LinkConfig {
        let limit = |limit: u64| (limit > 0).then_some(limit);
        LinkConfig {
            rate: limit(self.rate.0),
            queue: limit(self.rate.1),
            delay: Duration::from_millis(self.delay_ms),
            jitter: self.jitter(),
            loss: LossModel::Bernoulli(self.loss),
            overhead: HEADERS,
            ..LinkConfig::default()
        }
    }

    /// The most by which a datagram is later.
    pub fn jitter(&self) -> Duration {
        Duration::from_secs_f64(self.jitter_ms / 1e3)
    }

    /// The least round trip.
    pub fn rtt(&self) -> Duration {
        Duration::from_millis(2 * self.delay_ms)
    }
}

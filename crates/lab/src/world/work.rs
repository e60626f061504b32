//! What datagrams cost their receivers, in the engine's own units of work, by who sent them.
//!
//! The world asks a counter before and after each delivery; the swarm compares an adversary with
//! an honest host (I15). Without a counter nothing is counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use towline_quic::{Connection, Endpoint};

/// Units of work a connection has done since it began.
pub type WorkCounter = fn(&Connection) -> u64;

/// Bytes delivered one way, and the work they made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// UDP payload bytes delivered.
    pub bytes: u64,
    /// Units of work.
    pub units: u64,
}

/// The books of a world.
#[derive(Debug, Default)]
pub struct Work {
    counter: Option<WorkCounter>,
    /// By sender and receiver.
    costs: BTreeMap<[SocketAddr; 2], Cost>,
}

impl Work {
    pub(super) fn new(counter: WorkCounter) -> Self {
        Self {
            counter: Some(counter),
            costs: BTreeMap::new(),
        }
    }

    /// What the datagrams from one address to another cost; `None` if nobody counts.
    pub fn cost(&self, way: [SocketAddr; 2]) -> Option<Cost> {
        self.counter?;
        Some(self.costs.get(&way).copied().unwrap_or_default())
    }

    /// Work of all connections of an endpoint.
    pub(super) fn total(&self, endpoint: &Endpoint) -> u64 {
        let Some(counter) = self.counter else {
            return 0;
        };
        let connections = endpoint.handles().filter_map(|h| endpoint.connection(h));
        connections.map(counter).sum()
    }

    pub(super) fn add(&mut self, way: [SocketAddr; 2], bytes: usize, units: u64) {
        if self.counter.is_some() {
            let cost = self.costs.entry(way).or_default();
            cost.bytes += bytes as u64;
            cost.units += units;
        }
    }
}

impl Cost {
    /// Whether a byte of this costs at most `times` as much as one of `other`. Few bytes prove
    /// nothing.
    pub fn is_within(self, times: u64, other: Self) -> bool {
        const FEW_BYTES: u64 = 10_000;
        if self.bytes < FEW_BYTES || other.bytes < FEW_BYTES {
            return true;
        }
        let [own, honest] = [
            u128::from(self.units) * u128::from(other.bytes),
            u128::from(other.units) * u128::from(self.bytes),
        ];
        own <= u128::from(times) * honest
    }
}

#[cfg(test)]
mod tests {
    use super::Cost;

    #[test]
    fn bytes_are_compared_and_few_of_them_prove_nothing() {
        let honest = Cost {
            bytes: 50_000,
            units: 1_000,
        };
        let hostile = |bytes, units| Cost { bytes, units };
        assert!(hostile(100_000, 40_000).is_within(20, honest));
        assert!(!hostile(100_000, 40_001).is_within(20, honest));
        assert!(hostile(9_999, u64::MAX).is_within(20, honest));
        assert!(hostile(100_000, 40_001).is_within(20, hostile(9_999, 1)));
    }
}

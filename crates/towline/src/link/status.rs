//! How an uplink behaves, and how it is doing.

use std::time::Duration;

use towline_link::PathPatterns;
use towline_link::sender::{SenderConfig, SenderStats};

use super::store::StoreError;
use super::via::Via;
use crate::setters::setters;
use crate::stats::Stats;

/// How an uplink behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UplinkConfig {
    /// What to send and when.
    pub sender: SenderConfig,
    /// Bytes that may be sent and received, all connections together; beyond these, alarms alone go.
    /// [`Uplink::set_budget`](super::Uplink::set_budget) sets it anew.
    pub budget: Option<u64>,
    /// A connection over UDP that was not answered for so long is given up for TLS, if TLS is answered and the dialer
    /// has that [fallback](super::Dialer::fallback). 5 s at first.
    pub silence: Duration,
    /// How often UDP is tried while TLS carries the link. 30 s at first.
    pub back_to_udp: Duration,
    /// Which records are alarms, of those that the store holds at the start: the last of them are sent as if they were
    /// new.
    pub alarms: PathPatterns,
}

impl UplinkConfig {
    /// One with no budget.
    #[must_use]
    pub fn new(sender: SenderConfig) -> Self {
        Self {
            sender,
            budget: None,
            silence: Duration::from_secs(5),
            back_to_udp: Duration::from_secs(30),
            alarms: PathPatterns::default(),
        }
    }

    setters! {
        budget: Option<u64>,
        silence: Duration,
        back_to_udp: Duration,
        alarms: PathPatterns,
    }
}

/// Whether there is a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The first attempt is under way.
    Connecting,
    /// There is.
    Live(Via),
    /// There is none, and why.
    Down(String),
}

/// How an uplink is doing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Whether there is a connection.
    pub state: State,
    /// What was sent.
    pub sender: SenderStats,
    /// The connection's numbers, if it is one over UDP.
    pub connection: Option<Stats>,
    /// UDP or TCP payload sent since the start, all connections together, in bytes.
    pub bytes_sent: u64,
    /// The same, received.
    pub bytes_received: u64,
    /// All records below are durable at the other end, or gone.
    pub durable: u64,
    /// The number of the next record.
    pub next: u64,
    /// Records that wait to be sent.
    pub backlog: u64,
    /// Batches on their way.
    pub in_flight: usize,
    /// Bytes in the store.
    pub stored: u64,
    /// How long the oldest record in memory has waited.
    pub oldest_unsent: Option<Duration>,
    /// For how long the oldest batch on its way has not been heard of, beyond what a report may take.
    pub overdue: Option<Duration>,
    /// The other end takes live data alone: what it makes durable has no place.
    pub is_on_hold: bool,
    /// What is wrong with the store.
    pub store: Option<StoreError>,
    /// Records that the store refused.
    pub refused: u64,
    /// Connections that were made.
    pub connections: u64,
}

/// Why a record was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The store refused it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The uplink is closed.
    #[error("the uplink is closed")]
    Closed,
}

//! Experiments: flows of the real engine, each with its controller, across one bottleneck.
//!
//! ```text
//!   sender 1 ─ access ─┐                         ┌─ receiver 1
//!   sender 2 ─ access ─┼─▶ forward (bottleneck) ─┼─ receiver 2
//!   pinger   ──────────┘ ◀─ back ────────────────└─ echo
//! ```
//!
//! A [`Scenario`] says what stands where; [`run`] plays it on virtual time; an [`Outcome`] holds
//! what was seen, and a [`Summary`] its figures. The matrix, `towline sim` and the tests use nothing
//! else; [`ScenarioText`] reads the TOML form. Nothing here opens a file, draws, or reads a clock:
//! one scenario is one outcome, byte for byte.

mod capacity;
mod error;
mod flow;
mod outcome;
mod run;
mod summary;
mod text;

use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;
use std::time::Duration;

use towline_quic::{Algorithm, TrafficClass, TransportConfig};
use towline_sim::{LinkConfig, NatConfig};
use towline_wire::Time;

pub use error::RunError;
pub use outcome::{
    BottleneckSample, FlowOutcome, FlowSample, Outcome, coefficient_of_variation, jain, mean,
    median, percentile,
};
pub use run::{run, run_with};
pub use summary::{FlowSummary, Summary};
pub use text::{Congestion, ScenarioText, TextError, UnknownCongestion};

/// Where a scenario's clock starts: links count blackouts and changes of rate from there.
const START: Time = Time::ZERO;

/// IPv4 and UDP headers, which the rate of a scenario's links carries as well.
pub const HEADERS: u32 = 28;

/// Flows of one scenario at most.
pub const MAX_FLOWS: usize = 100;

/// One experiment.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is called in tables and plots.
    pub name: String,
    /// Everything random follows from it.
    pub seed: u64,
    /// How long it is played.
    pub duration: Duration,
    /// From the senders to the receivers: the bottleneck.
    pub forward: LinkConfig,
    /// From the receivers to the senders.
    pub back: LinkConfig,
    /// What becomes of the links, and when; in order of time.
    pub changes: Vec<Change>,
    /// Who sends.
    pub flows: Vec<Flow>,
    /// The clients' first key share is as long as X25519MLKEM768's, so that their first flight fills
    /// two datagrams, as it does by the product's defaults.
    pub post_quantum: bool,
    /// Total of the bandwidth pool for flows with a `share`, in bits per second.
    pub pool: Option<NonZeroU64>,
    /// Time between two samples of a flow.
    pub sample_every: Duration,
}

/// New settings of a link from some time on.
#[derive(Clone, Debug)]
pub struct Change {
    /// When, from the start of the scenario.
    pub at: Duration,
    /// New forward link, if it changes.
    pub forward: Option<LinkConfig>,
    /// New back link, if it changes.
    pub back: Option<LinkConfig>,
    /// New total of the pool, if it changes.
    pub pool: Option<NonZeroU64>,
}

/// A sender and its receiver.
#[derive(Clone, Debug)]
pub struct Flow {
    /// What it is called in tables and plots.
    pub name: String,
    /// Transport settings of both ends, the controller among them.
    pub transport: TransportConfig,
    /// Instead of a controller of its own it is under the one background controller of all such
    /// flows.
    pub background: bool,
    /// Its part in the scenario's pool, if it has one.
    pub share: Option<(TrafficClass, NonZeroU32)>,
    /// What is sent.
    pub traffic: Traffic,
    /// When it is sent, from the start of the scenario: a connection is opened at the start and
    /// closed at the end.
    pub active: Range<Duration>,
    /// Further one-way delay of this flow alone, both ways.
    pub access_delay: Duration,
    /// The NAT that its sender is behind, if any.
    pub nat: Option<NatConfig>,
    /// It sends against the others, over the back link.
    pub reverse: bool,
    /// Other controllers to switch to, and when.
    pub switches: Vec<(Duration, Algorithm)>,
    /// Keep the time and size of every datagram the sender sends.
    pub record_sends: bool,
}

/// What a flow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// One stream without end.
    Bulk,
    /// So many streams of so many bytes each, all opened at once.
    Streams {
        /// How many; at most 100.
        count: u32,
        /// Bytes of each.
        bytes: u64,
    },
    /// One question of a packet, answered by so many bytes: they arrive at the flow's sender.
    Request {
        /// Bytes of the answer.
        bytes: u64,
    },
    /// Datagrams of no protocol, answered by the other side: they measure the path.
    Ping {
        /// Time between two.
        interval: Duration,
        /// UDP payload of each; at least 8.
        size: u32,
    },
    /// Datagrams of no protocol at a constant rate, whatever happens to them.
    Constant {
        /// Bits of UDP payload a second.
        rate: u64,
        /// UDP payload of each; at least 8.
        size: u32,
    },
    /// The same by turns: cross traffic that comes and goes.
    OnOff {
        /// Bits of UDP payload a second while it is on.
        rate: u64,
        /// UDP payload of each; at least 8.
        size: u32,
        /// How long it sends, from the start of the flow on; above 0.
        on: Duration,
        /// How long it then pauses.
        off: Duration,
    },
}

impl Traffic {
    /// Whether connections of the engine carry it, rather than datagrams of no protocol.
    pub const fn is_engine(&self) -> bool {
        matches!(
            self,
            Self::Bulk | Self::Streams { .. } | Self::Request { .. }
        )
    }
}

impl Flow {
    /// A bulk flow from the start to the end.
    pub fn bulk(name: impl Into<String>, congestion: Algorithm) -> Self {
        Self {
            name: name.into(),
            // One size of packets: figures are then of the controller alone.
            transport: TransportConfig::default().congestion(congestion).mtu(1200),
            background: false,
            share: None,
            traffic: Traffic::Bulk,
            active: Duration::ZERO..Duration::MAX,
            access_delay: Duration::ZERO,
            nat: None,
            reverse: false,
            switches: Vec::new(),
            record_sends: false,
        }
    }

    /// A bulk flow under the scenario's background controller.
    pub fn background(name: impl Into<String>) -> Self {
        Self {
            background: true,
            ..Self::bulk(name, Algorithm::LedbatPlusPlus)
        }
    }

    /// A ping of 64 bytes each 100 ms.
    pub fn ping() -> Self {
        Self {
            traffic: Traffic::Ping {
                interval: Duration::from_millis(100),
                size: 64,
            },
            ..Self::bulk("ping", Algorithm::default())
        }
    }

    /// The same with other traffic.
    #[must_use]
    pub fn with_traffic(mut self, traffic: Traffic) -> Self {
        self.traffic = traffic;
        self
    }

    /// The same, sent in this time only.
    #[must_use]
    pub fn during(mut self, active: Range<Duration>) -> Self {
        self.active = active;
        self
    }
}

impl Scenario {
    /// No flow yet on a path of `rate` bits per second and `rtt`, with a drop-tail buffer of so
    /// many bytes; the way back has the same rate and delay and a buffer that never matters.
    pub fn dumbbell(rate: u64, rtt: Duration, buffer: u64, duration: Duration) -> Self {
        let link = LinkConfig {
            rate: Some(rate),
            delay: rtt / 2,
            queue: Some(buffer),
            overhead: HEADERS,
            ..LinkConfig::default()
        };
        let back = LinkConfig {
            queue: Some(buffer.max(1 << 20)),
            ..link.clone()
        };
        Self {
            name: String::new(),
            seed: 1,
            duration,
            forward: link,
            back,
            changes: Vec::new(),
            flows: Vec::new(),
            post_quantum: false,
            pool: None,
            sample_every: Duration::from_millis(100),
        }
    }

    /// The same with one more flow.
    #[must_use]
    pub fn flow(mut self, flow: Flow) -> Self {
        self.flows.push(flow);
        self
    }
}

/// One bandwidth-delay product in bytes, at least one full packet.
pub fn bdp(rate: u64, rtt: Duration) -> u64 {
    let bits = u128::from(rate) * rtt.as_nanos() / 1_000_000_000;
    u64::try_from(bits / 8).unwrap_or(u64::MAX).max(1500)
}

#[cfg(test)]
mod tests;

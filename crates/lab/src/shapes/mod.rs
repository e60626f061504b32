//! Freenet's benchmark shapes on virtual time: how long the network takes, and nothing else.
//!
//! [`SHAPES`] are the transfers of its published tables, [`PATHS`] where they are played; [`play`]
//! plays one with the product's defaults, and [`transfer`] any other single transfer. Called by
//! `benches/seed.rs`, by the program `shapes` and by `make bench-seed`. The times depend on no
//! machine: one shape on one path is one [`Played`], to the nanosecond.

mod table;

use std::fmt;
use std::time::Duration;

use towline_quic::{Algorithm, TransportConfig};

use crate::scenario::{Flow, RunError, Scenario, Traffic, bdp, run};

pub use table::{RATE_LIMITED, SHAPES, Shape};

/// Longest time a transfer is given.
const MOST: Duration = Duration::from_secs(120);

/// Where a transfer is played: a bottleneck with a drop-tail buffer of one bandwidth-delay product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// What it is called in tables and baselines.
    pub name: &'static str,
    /// Bits a second, both ways.
    pub rate: u64,
    /// Round trip.
    pub rtt: Duration,
}

/// The near path stands for Freenet's mock network without delay, the far one for its longest.
pub const PATHS: [Path; 2] = [
    Path {
        name: "virtual_1ms",
        rate: 1_000_000_000,
        rtt: Duration::from_millis(1),
    },
    Path {
        name: "virtual_50ms",
        rate: 100_000_000,
        rtt: Duration::from_millis(50),
    },
];

/// One transfer, in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Played {
    /// From the client's first packet until it knows that the handshake is done.
    pub handshake: Duration,
    /// From the client's first packet until the receiver has the last byte of all streams.
    pub whole: Duration,
    /// Probe timeouts and losses that turned out to be none.
    pub spurious: u64,
}

impl Played {
    /// From the end of the handshake until the receiver has everything.
    pub fn after_handshake(&self) -> Duration {
        self.whole.saturating_sub(self.handshake)
    }
}

/// Why a transfer has no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlayError {
    /// The path or the transfer is impossible: the caller's mistake.
    Impossible(RunError),
    /// It ended early, or did not end: the engine's mistake.
    Incomplete(String),
}

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible(error) => error.fmt(f),
            Self::Incomplete(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for PlayError {}

impl From<RunError> for PlayError {
    fn from(error: RunError) -> Self {
        Self::Impossible(error)
    }
}

/// Plays `shape` on `path` with the product's defaults.
///
/// # Errors
/// When it did not end.
pub fn play(shape: &Shape, path: &Path, seed: u64) -> Result<Played, PlayError> {
    let transport = TransportConfig::default().rate_limit(shape.rate_limit);
    let traffic = Traffic::Streams {
        count: shape.streams,
        bytes: shape.bytes,
    };
    play_flow(shape.id, transport, traffic, path, seed)
}

/// One stream of `bytes` on `path` under `congestion`, other settings the product's.
///
/// # Errors
/// When it did not end, or `bytes` is 0.
pub fn transfer(
    bytes: u64,
    congestion: Algorithm,
    path: &Path,
    seed: u64,
) -> Result<Played, PlayError> {
    let transport = TransportConfig::default().congestion(congestion);
    let traffic = Traffic::Streams { count: 1, bytes };
    play_flow("transfer", transport, traffic, path, seed)
}

fn play_flow(
    name: &str,
    transport: TransportConfig,
    traffic: Traffic,
    path: &Path,
    seed: u64,
) -> Result<Played, PlayError> {
    let mut flow = Flow::bulk(name, transport.congestion).with_traffic(traffic);
    flow.transport = transport;
    let buffer = bdp(path.rate, path.rtt);
    let mut scenario = Scenario::dumbbell(path.rate, path.rtt, buffer, MOST).flow(flow);
    scenario.seed = seed;
    let outcome = run(&scenario)?;
    let incomplete = |why: &str| {
        let path = path.name;
        PlayError::Incomplete(format!("`{name}` on {path}: {why}"))
    };
    let [flow] = &outcome.flows[..] else {
        return Err(incomplete("no flow was played"));
    };
    if let Some(failure) = &flow.failure {
        return Err(incomplete(failure));
    }
    let took = flow.took().filter(|_| !flow.completed.is_empty());
    let (Some(whole), Some(handshake)) = (took, flow.connected) else {
        return Err(incomplete(&format!("not complete after {MOST:?}")));
    };
    let stats = flow.stats.as_ref();
    Ok(Played {
        handshake,
        whole,
        spurious: stats.map_or(0, |s| s.probe_timeouts + s.packets_spuriously_lost),
    })
}

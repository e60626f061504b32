//! How fast this process sends: flags of every command that opens or accepts connections.

use std::num::NonZeroU64;

use towline::config::{BandwidthShare, TransportConfig};
use towline::engine::{Algorithm, HostController, Pool};

use crate::handshake::{HANDSHAKE_TIMEOUT, LONG_HANDSHAKE};
use crate::units::parse_rate;

/// Least `--limit`, bytes a second: below it a connection may be given up before it is there.
const MIN_LIMIT: u64 = LONG_HANDSHAKE.div_ceil(HANDSHAKE_TIMEOUT.as_secs());

/// How fast this process sends.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CongestionArgs {
    /// Congestion controller of this end when it sends: cubic, newreno, bbr, ledbat++, or fixed:RATE
    /// for a path of known capacity that nobody shares
    #[arg(long, value_name = "NAME", default_value_t)]
    pub(crate) cc: Algorithm,
    /// Make way for everybody else: one LEDBAT++ for all connections of this process, which aims
    /// at 25 ms of queue
    #[arg(long, conflicts_with = "cc")]
    pub(crate) background: bool,
    /// Send no faster than this, all connections together, every packet counted: 500k, 2M, 2MiB
    /// (bytes a second), 16Mbit; at least 1k
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    pub(crate) limit: Option<u64>,
}

impl CongestionArgs {
    /// Sets what all connections of this process have in common.
    pub(crate) fn apply(&self, transport: &mut TransportConfig) {
        transport.congestion = self.cc;
        transport.background = self.background.then(HostController::new);
        transport.bandwidth = self
            .limit
            .and_then(NonZeroU64::new)
            .map(|total| BandwidthShare::new(Pool::new(total)));
    }

    /// The controller's name, for people and records.
    pub(crate) fn name(&self) -> String {
        match self.background {
            true => "background".to_owned(),
            false => self.cc.to_string(),
        }
    }
}

fn parse_limit(text: &str) -> Result<u64, String> {
    match parse_rate(text)? {
        limit if limit < MIN_LIMIT => Err(format!(
            "too low for a handshake to finish within {} s; the least is {MIN_LIMIT} bytes a second",
            HANDSHAKE_TIMEOUT.as_secs()
        )),
        limit => Ok(limit),
    }
}

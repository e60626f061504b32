//! `towline perf`: throughput between two ends, with the letters of iperf3.
//!
//! `client` asks over a control stream, `server` (and `serve`) answers; data runs over
//! lanes in one direction. `control` has what they say to each other.

mod client;
pub(crate) mod control;
mod host;
pub(crate) mod report;
mod server;
mod tune;

pub(crate) use host::{PerfHost, payload};
pub(crate) use tune::TuneArgs;

use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Flags of `perf`.
#[derive(clap::Args)]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    command: PerfCommand,
}

#[derive(clap::Subcommand)]
enum PerfCommand {
    /// Wait for clients and measure with them
    Server(server::ServerArgs),
    /// Measure against a server
    Client(client::ClientArgs),
}

impl PerfArgs {
    /// Whether it waits for clients.
    pub(crate) fn listens(&self) -> bool {
        matches!(self.command, PerfCommand::Server(_))
    }

    /// Runs the subcommand.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            PerfCommand::Client(args) => args.run(printer).await,
            PerfCommand::Server(args) => args.run(printer).await,
        }
    }
}

//! `towline web`: clients of HTTP/3 and WebTransport; and what `serve --web` serves.

mod client;
mod echo;
mod get;
mod perf;
pub(crate) mod serve;

use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Flags of `web`.
#[derive(clap::Args)]
pub(crate) struct WebCommandArgs {
    #[command(subcommand)]
    command: WebCommand,
}

#[derive(clap::Subcommand)]
enum WebCommand {
    /// Fetch a URL over HTTP/3
    Get(get::GetArgs),
    /// Measure round trips in a session of WebTransport
    Echo(echo::WebEchoArgs),
    /// Measure streams, datagrams and sessions of WebTransport
    Perf(perf::WebPerfArgs),
}

impl WebCommandArgs {
    /// Runs the subcommand.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            WebCommand::Get(args) => args.run(printer).await,
            WebCommand::Echo(args) => args.run(printer).await,
            WebCommand::Perf(args) => args.run(printer).await,
        }
    }
}

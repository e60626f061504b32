//! `towline link`: telemetry over bad links.

mod config;
pub(super) mod control;
mod ends;
mod keygen;
mod lines;
mod measure;
mod monitor;
mod pace;
mod publish;
mod replay;
mod reports;
mod run;
pub(super) mod show;
mod stages;
mod subscribe;

use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Flags of `link`.
#[derive(clap::Args)]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    command: LinkCommand,
}

#[derive(clap::Subcommand)]
enum LinkCommand {
    /// Run a link as a service, by its configuration
    Run(run::RunArgs),
    /// Show how the running links are
    Show(show::ShowArgs),
    /// Send JSON objects, one a line, to the other end of a link
    Pub(Box<publish::PubArgs>),
    /// Receive what others send, and print it, one JSON object a line
    Sub(subscribe::SubArgs),
    /// Print recorded deltas at the pace of their timestamps
    Replay(replay::ReplayArgs),
    /// Print the pin of this machine's key, made at the first use, for the other end
    Keygen,
    /// Measure how many bytes a file of deltas takes
    Measure(measure::MeasureArgs),
}

impl LinkArgs {
    /// Whether it waits for others.
    pub(crate) fn listens(&self) -> bool {
        matches!(self.command, LinkCommand::Run(_) | LinkCommand::Sub(_))
    }

    /// Runs the subcommand.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            LinkCommand::Run(args) => args.run(printer).await,
            LinkCommand::Show(args) => args.run(printer).await,
            LinkCommand::Pub(args) => args.run(printer).await,
            LinkCommand::Sub(args) => args.run(printer).await,
            LinkCommand::Replay(args) => args.run(printer).await,
            LinkCommand::Keygen => keygen::run(printer),
            LinkCommand::Measure(args) => args.run(printer).await,
        }
    }
}

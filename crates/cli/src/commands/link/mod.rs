//! `towline link`: telemetry over bad links.

mod measure;

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
    /// Measure how many bytes a file of deltas takes
    Measure(measure::MeasureArgs),
}

impl LinkArgs {
    /// Runs the subcommand.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            LinkCommand::Measure(args) => args.run(printer).await,
        }
    }
}

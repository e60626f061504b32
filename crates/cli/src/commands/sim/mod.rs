//! `towline sim`: experiments on the simulator. Nothing here touches a network or waits.

mod matrix;

use clap::{Args, Subcommand};

use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Arguments of `towline sim`.
#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    /// What each congestion controller must reach, and whether it does
    Matrix(matrix::MatrixArgs),
}

impl SimArgs {
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            SimCommand::Matrix(args) => args.run(printer).await,
        }
    }
}

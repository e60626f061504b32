//! `towline sim`: experiments on the simulator, from scenarios written in TOML.
//!
//! ```text
//!   run      plays scenarios as they are            compare  one scenario under several controllers
//!   input    files to scenarios                     play     virtual time, in parallel, with a bar
//!   record   the JSON of a run                      plot     what is drawn of a run
//!   table    columns for people
//!   matrix   every row of what a controller must reach
//! ```

mod compare;
mod input;
mod matrix;
mod play;
mod plot;
mod record;
mod run;
mod table;

use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Flags of `sim`.
#[derive(clap::Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(clap::Subcommand)]
enum SimCommand {
    /// Play scenarios and show what happened
    Run(run::RunArgs),
    /// Play one scenario under several congestion controllers
    Compare(compare::CompareArgs),
    /// What each congestion controller must reach, and whether it does
    Matrix(matrix::MatrixArgs),
}

impl SimArgs {
    /// Runs the subcommand.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            SimCommand::Run(args) => args.run(printer).await,
            SimCommand::Compare(args) => args.run(printer).await,
            SimCommand::Matrix(args) => args.run(printer).await,
        }
    }
}

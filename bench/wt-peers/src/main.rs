//! The drivers of WebTransport's stacks in Rust: the same measurements over each one's public API.
//!
//! [`stack`] says what a measurement needs of a stack, [`server`] and [`client`] have the two ends of each
//! measurement, and one module a stack stands behind the traits. What is asked and reported is `bench-contract`'s.

mod client;
mod server;
mod stack;
mod towline;
mod wtransport;

use std::process::ExitCode;

use bench_contract::sessions::{SessionMeasure, SessionSettings};
use bench_contract::{Report, Role};
use clap::{Parser, ValueEnum};

/// Why a run failed; printed, never matched.
type Error = Box<dyn std::error::Error + Send + Sync>;
/// What comes of a run.
type Result<T, E = Error> = std::result::Result<T, E>;

/// One end of one measurement of WebTransport.
#[derive(Parser)]
struct Cli {
    stack: Stack,
    role: Role,
    measure: SessionMeasure,
    #[command(flatten)]
    settings: SessionSettings,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stack {
    /// This project, by its public API
    Towline,
    /// wtransport, on quinn
    Wtransport,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-wt-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match cli.stack {
            Stack::Towline => end::<towline::Towline>(cli).await,
            Stack::Wtransport => end::<wtransport::Wtransport>(cli).await,
        }
    })
}

async fn end<S: stack::Stack>(cli: &Cli) -> Result<()> {
    match cli.role {
        Role::Server => server::serve::<S>(cli.measure, &cli.settings).await,
        Role::Client => client::drive::<S>(cli.measure, &cli.settings).await,
    }
}

fn print(report: &Report) -> Result<()> {
    println!("{}", serde_json::to_string(report)?);
    Ok(())
}

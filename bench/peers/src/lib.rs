//! Drivers of the measured stacks: the same measurements over each one's public API.
//!
//! [`stack`] says what a measurement needs of a stack, [`measures`] has the measurements, and
//! one module a stack stands behind the traits. The floor program and TLS over TCP are no QUIC
//! stacks and run by themselves. Three binaries: `bench-peer`, `bench-peer-counting` with an
//! allocator that counts, and `bench-stcp-peer`, the framed echo of secure TCP.

pub mod alloc;
#[path = "../../../crates/cli/src/framed_echo/mod.rs"]
pub mod echo;
mod floor;
mod material;
mod measures;
pub mod paths;
mod quinn;
mod s2n;
mod stack;
pub mod stcp;
mod tls;
mod towline;

use std::process::ExitCode;

use bench_contract::{Measure, Role, Settings};
use clap::{Parser, ValueEnum};

/// Why a run failed; printed, never matched.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// What comes of a run.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where a client binds: on the loopback, or on any address where the server is elsewhere.
fn client_address(settings: &Settings) -> std::net::SocketAddr {
    match settings.addr.ip().is_loopback() {
        true => std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
        false => std::net::SocketAddr::from(([0, 0, 0, 0], 0)),
    }
}

/// One end of one measurement.
#[derive(Parser)]
struct Cli {
    stack: Stack,
    role: Role,
    measure: Measure,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stack {
    /// This project, by its public API
    Towline,
    Quinn,
    S2nQuic,
    /// Raw UDP with segmentation offload and packet protection, and no protocol
    Floor,
    /// TLS 1.3 over TCP, by rustls
    Tls,
}

/// The body of both binaries.
pub fn main() -> ExitCode {
    exit("bench-peer", run(&Cli::parse()))
}

/// How `program` ends; why it failed is printed.
fn exit(program: &str, result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let (role, measure, settings) = (cli.role, cli.measure, &cli.settings);
    if let Stack::Floor = cli.stack {
        return floor::run(role, measure, settings);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match cli.stack {
            Stack::Towline => measures::run::<towline::Towline>(role, measure, settings).await,
            Stack::Quinn => measures::run::<quinn::Quinn>(role, measure, settings).await,
            Stack::S2nQuic => measures::run::<s2n::S2n>(role, measure, settings).await,
            Stack::Tls => tls::run(role, measure, settings).await,
            Stack::Floor => Ok(()),
        }
    })
}

//! The `towline` command: one file per subcommand in `commands`, results on stdout, logs
//! and progress on stderr, exit codes as in `exit`. This file only parses and dispatches.

mod certs;
mod chart;
mod clients;
mod commands;
mod congestion;
mod display;
mod exit;
mod failures;
#[expect(unreachable_pub, reason = "the benchmarks include the same files")]
mod framed_echo;
mod handshake;
mod interrupt;
mod logging;
mod metrics;
mod net;
mod plain_http;
mod printer;
mod qlog;
mod service;
#[cfg(target_os = "linux")]
mod service_manager;
mod stats;
mod streams;
mod summary;
mod under_way;
mod units;
mod url;
mod watched;

use std::process::ExitCode;

use clap::{Args, Parser};

use crate::commands::Command;
use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Files, measurements and echoes over one secure, congestion-controlled transport.
#[derive(Parser)]
#[command(name = "towline", version, after_help = exit::HELP)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every command.
#[derive(Args)]
struct Global {
    /// Results as JSON objects on stdout, one a line; each names its schema
    #[arg(long, global = true)]
    json: bool,
    /// No progress bars (they are off anyway when stderr is not a terminal)
    #[arg(long, global = true)]
    no_progress: bool,
    /// More log output: -v info, -vv debug, -vvv trace; RUST_LOG overrides
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// No log output, and no results except with --json
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(
        cli.global.verbose,
        cli.global.quiet,
        cli.command.is_a_server(),
    );
    let printer = Printer::new(cli.global.json, cli.global.quiet, !cli.global.no_progress);
    cli.command.prepare();
    let result = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let result = runtime.block_on(cli.command.run(&printer));
            // File threads may be inside a system call; the process ends without them.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Failure::new(
            Exit::Other,
            format!("the runtime does not start: {error}"),
        )),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => printer.failure(&failure),
    }
}

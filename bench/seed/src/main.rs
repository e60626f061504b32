//! `make bench-seed`: Freenet's published transport tables beside Towline's figures.
//!
//! 1. Runs Freenet's shapes over real sockets of this machine and on virtual time ([`measure`]).
//! 2. Prints them beside what Freenet published ([`published`], [`table`]).
//! 3. Writes the tables into docs/benchmarks.md and a page of evidence ([`page`]).
//!
//! Judges nothing but that everything sent has arrived. Exit code 0: measured; 1: something did
//! not arrive; 2: wrong use, or a page could not be written.

mod measure;
mod page;
mod published;
mod table;

use std::process::ExitCode;

use bench_runner::build::root;
use bench_runner::machine::Machine;
use clap::Parser;

use measure::Network;

/// Runs the shapes of Freenet's benchmarks and shows both sides' figures.
#[derive(Parser)]
#[command(name = "bench-seed")]
struct Cli {
    /// Rounds of everything over real sockets; medians are shown
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seed of the simulated network
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Five rounds, and nothing written
    #[arg(long)]
    quick: bool,
    /// Nothing written: neither docs/benchmarks.md nor a page in docs/evidence
    #[arg(long)]
    no_evidence: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("bench-seed: no runtime: {error}");
            return ExitCode::from(2);
        }
    };
    let rounds = if cli.quick { 5 } else { cli.rounds };
    let mut machine = Machine::describe(
        &root(),
        [
            ("seed", format!("{} (of the simulated network)", cli.seed)),
            ("rounds", rounds.to_string()),
            ("scheduling", scheduling()),
        ],
    );
    if !cli.quick {
        machine.settle();
    }
    println!("{machine}");
    let tables = match runtime.block_on(tables(usize::from(rounds), cli.seed)) {
        Ok(tables) => tables,
        Err(error) => {
            eprintln!("bench-seed: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{tables}");
    if cli.quick || cli.no_evidence {
        return ExitCode::SUCCESS;
    }
    match page::write(&root(), &machine, &tables) {
        Ok(paths) => {
            println!("written: {}", paths.join(", "));
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("bench-seed: {message}");
            ExitCode::from(2)
        }
    }
}

/// How the system schedules this process: on a busy machine that decides what pacing can hold.
fn scheduling() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields 40 and 41 of the line; the name in field 2 may hold blanks.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let mut fields = fields.split(' ').skip(37);
    match (fields.next(), fields.next()) {
        (Some(priority), Some("1" | "2")) => format!("real-time priority {priority}"),
        (Some(_), Some(_)) => "like any other program".to_owned(),
        _ => "unknown".to_owned(),
    }
}

async fn tables(
    rounds: usize,
    seed: u64,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    eprintln!("fresh connections");
    let cold = measure::cold(rounds, seed).await?;
    eprintln!("single messages");
    let near = measure::warm(Network::Loopback, rounds).await?;
    let far = measure::warm(Network::Relay, rounds).await?;
    eprintln!("saturation");
    let saturated = measure::saturated(rounds.div_ceil(4)).await?;
    eprintln!("long transfers");
    let long = measure::long(seed)?;
    Ok(format!(
        "### Fresh connections, set-up included\n\n{}\n{}\n\
         ### Connections that stand\n\n{}\n\
         Without delay: two sockets of the loopback interface. 2 ms: `towline relay`'s links between \
         them, 1 ms each way, in real time; the shortest smoothed round trip a connection saw was \
         {:.2} ms there and {:.2} ms without the relay.\n\n\
         ### Long transfers\n\n{}",
        table::cold(&cold),
        table::limit(&cold).unwrap_or_default(),
        table::warm(&near, &far, &saturated),
        far.rtt * 1e3,
        near.rtt * 1e3,
        table::long(&long),
    ))
}

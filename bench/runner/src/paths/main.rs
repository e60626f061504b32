//! `make bench-paths`: Towline beside quinn on bad paths, in real time.
//!
//! 1. Builds `towline` and the peers, and waits until the machine is quiet.
//! 2. For each stack in turn ([`trial`]) a fresh `towline relay --tun` with fresh namespaces: a
//!    download that the path interrupts, and handshakes of which the path loses packets.
//! 3. Prints a table ([`table`]), and writes the page if the run was whole.
//!
//! Judges nothing. Exit code 0: everything was measured; 1: some could not be; 2: wrong use, or
//! nothing could be started.

mod table;
mod trial;

use std::process::ExitCode;

use bench_runner::Outcome;
use bench_runner::build::{cargo, locked, root, target_folder};
use bench_runner::machine::Machine;
use bench_runner::material::make_material;
use bench_runner::page;
use clap::Parser;

use table::Figures;
use trial::{Clients, Programs, Stack};

/// Seconds of the outages of a whole run, and of a quick one.
const OUTAGES: [u32; 6] = [1, 2, 3, 5, 7, 10];
const QUICK_OUTAGES: [u32; 2] = [1, 3];
const ROUNDS: u32 = 5;
/// Handshakes of a whole run, and of a quick one.
const HANDSHAKES: u32 = 400;
const QUICK_HANDSHAKES: u32 = 100;

/// Runs Towline and quinn over outages and lossy handshakes. Needs root.
#[derive(Parser)]
#[command(name = "bench-paths")]
struct Cli {
    /// Outages of 1 and 3 s once, 100 handshakes, and no page
    #[arg(long)]
    quick: bool,
    /// Times that each outage is played
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seed of the relay's links
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// No page in docs/evidence
    #[arg(long)]
    no_evidence: bool,
    /// Take the programs as they were built last
    #[arg(long)]
    no_build: bool,
}

fn main() -> ExitCode {
    match compare(&Cli::parse()) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("bench-paths: {message}");
            ExitCode::from(2)
        }
    }
}

fn compare(cli: &Cli) -> Outcome<ExitCode> {
    let root = root();
    let bench = root.join("bench");
    if !cli.no_build {
        cargo(&root, &["-p", "towline-cli"])?;
        cargo(&bench, &["-p", "bench-peers", "--bin", "bench-paths-peer"])?;
    }
    let target = target_folder(&bench)?;
    let programs = Programs {
        towline: target_folder(&root)?.join("release/towline"),
        peer: target.join("release/bench-paths-peer"),
        material: target.join("material-paths"),
    };
    make_material(&programs.material)?;
    let rounds = if cli.quick { 1 } else { cli.rounds };
    let mut machine = Machine::describe(
        &root,
        [
            ("seed", cli.seed.to_string()),
            ("rounds of each outage", rounds.to_string()),
            ("quinn", locked("quinn")),
        ],
    );
    machine.settle();
    let figures = measure(cli, rounds, &programs)?;
    machine.finish();

    let table = table::all(&figures);
    println!("{machine}\n{table}");
    let is_whole = !cli.quick && rounds >= ROUNDS && figures.failures.is_empty();
    if is_whole && !cli.no_evidence {
        let title = "Towline beside quinn on bad paths";
        let draw = |chart: &std::path::Path| table::draw(&figures, chart);
        let page = page::write(&root, &machine, "bench-paths", title, draw, |chart| {
            format!(
                "{}\n\n![time until data flows]({chart})\n\n{table}",
                table::EXPLANATION
            )
        })?;
        eprintln!("wrote {page}");
    }
    Ok(match figures.failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

fn measure(cli: &Cli, rounds: u32, programs: &Programs) -> Outcome<Figures> {
    let lengths: &[u32] = match cli.quick {
        true => &QUICK_OUTAGES,
        false => &OUTAGES,
    };
    let count = match cli.quick {
        true => QUICK_HANDSHAKES,
        false => HANDSHAKES,
    };
    let mut figures = Figures::default();
    for round in 0..rounds {
        let seed = cli.seed + u64::from(round);
        for length in lengths {
            for stack in Stack::ALL {
                eprintln!(
                    "round {}, outage of {length} s, {}",
                    round + 1,
                    stack.name()
                );
                match trial::outage(stack, *length, seed, programs) {
                    Ok(seconds) => figures.add_outage(stack, *length, seconds),
                    Err(why) => {
                        figures.fail(format!("{}, outage of {length} s: {why}", stack.name()))
                    }
                }
            }
        }
    }
    for clients in Clients::ALL {
        for stack in Stack::ALL {
            eprintln!("{count} handshakes, {}, {}", stack.name(), clients.name());
            match trial::handshakes(stack, clients, count, cli.seed, programs) {
                Ok(seconds) => figures.add_handshakes(stack, clients, seconds),
                Err(why) => figures.fail(format!("{}, handshakes: {why}", stack.name())),
            }
        }
    }
    match figures.is_empty() {
        true => Err(format!(
            "nothing could be measured: {}",
            figures.failures.join("; ")
        )),
        false => Ok(figures),
    }
}

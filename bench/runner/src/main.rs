//! `make bench-quic`: Towline beside quinn, s2n-quic, quic-go and the floor program.
//!
//! 1. Builds the programs ([`programs`]) and waits until the machine is quiet ([`machine`]).
//! 2. Runs every case of the plan ([`plan`]), the stacks in turn, a fresh pair of processes each
//!    time ([`run`]).
//! 3. Takes medians, checks that the peers come out as peers do, holds ours against the marks
//!    ([`marks`]).
//! 4. Prints tables ([`table`]), draws a chart ([`chart`]), writes the results and the page of
//!    evidence ([`evidence`]).
//!
//! Exit code 0: the marks are reached; 1: a mark is missed; 2: wrong use, or nothing could be
//! measured; 3: the peers did not come out as peers do, so nothing is proved.

mod chart;
mod evidence;
mod marks;
mod plan;
mod programs;
mod run;
mod table;

use std::process::ExitCode;

use bench_runner::Outcome;
use bench_runner::build::root;
use bench_runner::flags::Flags;
use bench_runner::machine::{self, Machine};
use bench_runner::results::Results;
use bench_runner::rounds::measure;
use bench_runner::verdict::Scope;
use clap::Parser;

use plan::Stack;
use programs::Programs;

/// Compares Towline with other QUIC stacks on this machine.
#[derive(Parser)]
#[command(name = "bench-quic")]
struct Cli {
    #[command(flatten)]
    flags: Flags<Stack>,
    /// The case of 100,000 idle connections as well
    #[arg(long)]
    soak: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match compare(&cli) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("bench-quic: {message}");
            ExitCode::from(2)
        }
    }
}

fn compare(cli: &Cli) -> Outcome<ExitCode> {
    let flags = &cli.flags;
    let cases = flags.choose(plan::cases(flags.quick, cli.soak))?;
    let (rounds, scope) = (flags.rounds(plan::ROUNDS), flags.scope(plan::ROUNDS));
    let programs = Programs::find(&root(), !flags.no_build, &cases)?;
    let mut machine = Machine::describe(
        &root(),
        [
            ("seed", "none: nothing here is drawn at random".to_owned()),
            ("rounds", format!("{rounds}, the stacks in turn; medians")),
            ("go", machine::said("go", &["version"])),
        ],
    );
    machine.settle();
    let figures = measure(cases, rounds, &programs);
    machine.finish();

    let verdict = marks::verdict(&figures, scope);
    let tables = table::all(&figures, &verdict);
    let results = Results::of(&figures, verdict.invalid.as_deref());
    flags.publish(
        &results,
        &format!("{machine}\n{tables}\n{}", verdict.line()),
    )?;
    if scope == Scope::Whole {
        results.write(&root().join("bench/results/quic.json"))?;
        if !flags.no_evidence {
            let page = evidence::write(&root(), &machine, &figures, &verdict, &tables)?;
            eprintln!("wrote bench/results/quic.json and {page}");
        }
    }
    Ok(verdict.exit_code())
}

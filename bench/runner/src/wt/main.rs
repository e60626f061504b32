//! `make bench-wt`: Towline's WebTransport beside wtransport and aioquic.
//!
//! 1. Builds the programs ([`programs`]) and waits until the machine is quiet.
//! 2. Runs every case of the plan ([`plan`]), the stacks in turn, a fresh pair of processes each
//!    time ([`trial`]).
//! 3. Takes medians, checks that the peers come out as peers do, holds ours against wtransport's
//!    ([`marks`]).
//! 4. Prints tables, draws a chart, writes the results and the page of evidence ([`report`]).
//!
//! Exit code 0: the marks are reached; 1: a mark is missed; 2: wrong use, or nothing could be
//! measured; 3: the peers did not come out as peers do, so nothing is proved.

mod marks;
mod plan;
mod programs;
mod report;
mod trial;

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

/// Compares WebTransport stacks on this machine.
#[derive(Parser)]
#[command(name = "bench-wt")]
struct Cli {
    #[command(flatten)]
    flags: Flags<Stack>,
}

fn main() -> ExitCode {
    match compare(&Cli::parse().flags) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("bench-wt: {message}");
            ExitCode::from(2)
        }
    }
}

fn compare(flags: &Flags<Stack>) -> Outcome<ExitCode> {
    let cases = flags.choose(plan::cases(flags.quick))?;
    let (rounds, scope) = (flags.rounds(plan::ROUNDS), flags.scope(plan::ROUNDS));
    let programs = Programs::find(&root(), !flags.no_build, &cases)?;
    let mut machine = Machine::describe(
        &root(),
        [
            ("seed", "none: nothing here is drawn at random".to_owned()),
            (
                "rounds",
                format!(
                    "{rounds}, the stacks in turn; medians; aioquic {} at most",
                    plan::AIOQUIC_ROUNDS
                ),
            ),
            ("python", machine::said("python3", &["--version"])),
        ],
    );
    machine.settle();
    let figures = measure(cases, rounds, &programs);
    machine.finish();

    let verdict = marks::verdict(&figures, scope);
    let tables = report::tables(&figures, &verdict);
    let results = Results::of(&figures, verdict.invalid.as_deref());
    flags.publish(
        &results,
        &format!("{machine}\n{tables}\n{}", verdict.line()),
    )?;
    if scope == Scope::Whole {
        results.write(&root().join("bench/results/wt.json"))?;
        if !flags.no_evidence {
            let page = report::evidence(&root(), &machine, &figures, &verdict, &tables)?;
            eprintln!("wrote bench/results/wt.json and {page}");
        }
    }
    Ok(verdict.exit_code())
}

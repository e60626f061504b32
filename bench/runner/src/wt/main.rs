//! `make bench-wt`: Towline's WebTransport, in Rust and in Python, beside other stacks in both.
//!
//! 1. Builds the programs ([`programs`]) and waits until the machine is quiet.
//! 2. Runs every case of the plan ([`plan`]), the stacks in turn, a fresh pair of processes each
//!    time ([`trial`]); the uploads again where the machine had no time for one of the peers.
//! 3. Takes medians, checks that the peers come out as peers do, holds ours against theirs ([`marks`]).
//! 4. Prints tables, draws a chart, writes the results and the page of evidence ([`report`]).
//!
//! Exit code 0: the marks are reached; 1: a mark is missed; 2: wrong use, or nothing could be
//! measured; 3: the peers did not come out as peers do, so nothing is proved.

mod marks;
mod plan;
mod programs;
mod python;
mod report;
mod trial;

use std::process::ExitCode;

use bench_runner::Outcome;
use bench_runner::build::root;
use bench_runner::figures::Case as _;
use bench_runner::flags::Flags;
use bench_runner::machine::Machine;
use bench_runner::results::Results;
use bench_runner::rounds::measure;
use bench_runner::verdict::Scope;
use clap::Parser;

use plan::{Case, Figures, Stack};
use programs::Programs;

/// How often the uploads are repeated at most, until pywebtransport 0.21.1 is itself.
const REPEATED: u32 = 5;

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
                    "{rounds}, the stacks in turn; medians; aioquic, pywebtransport 0.9.0 and asyncio's own \
                     loop {} at most",
                    plan::FEW_ROUNDS
                ),
            ),
            ("python", programs.python_version()),
        ],
    );
    machine.settle();
    let repeated = if flags.quick { 0 } else { REPEATED };
    let figures = measure_all(cases, rounds, repeated, &programs);
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

/// All cases; the uploads first, and again while others on the machine slow pywebtransport 0.21.1 down.
fn measure_all(cases: Vec<Case>, rounds: u32, repeated: u32, programs: &Programs) -> Figures {
    let is_upload = |case: &Case| case.setting().is_none() && case.is_named(marks::UPLOAD);
    let (uploads, others): (Vec<_>, Vec<_>) = cases.into_iter().partition(is_upload);
    let mut figures = measure(uploads.clone(), rounds, programs);
    for time in 1..=repeated {
        if marks::is_itself(&figures) != Some(false) {
            break;
        }
        eprintln!(
            "pywebtransport 0.21.1 is slower than it can be: upload again, {time} of {repeated}"
        );
        figures = measure(uploads.clone(), rounds, programs);
    }
    figures.append(measure(others, rounds, programs));
    figures
}

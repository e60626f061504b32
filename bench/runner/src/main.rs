//! `make bench-quic`: Towline beside quinn, s2n-quic, quic-go and the floor program.
//!
//! 1. Builds the programs ([`programs`]) and waits until the machine is quiet ([`machine`]).
//! 2. Runs every case of the plan ([`plan`]), the stacks in turn, a fresh pair of processes each
//!    time ([`process`], [`run`]).
//! 3. Takes medians, checks that the peers come out as peers do, holds ours against the marks
//!    ([`figures`], [`marks`]).
//! 4. Prints tables ([`table`]), draws a chart ([`chart`]), writes the results ([`results`]) and
//!    the page of evidence ([`evidence`]).
//!
//! Exit code 0: the marks are reached; 1: a mark is missed; 2: wrong use, or nothing could be
//! measured; 3: the peers did not come out as peers do, so nothing is proved.

mod chart;
mod evidence;
mod figures;
mod marks;
mod plan;
mod programs;
mod results;
mod run;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench_runner::build::root;
use bench_runner::machine::{self, Machine};
use bench_runner::{Outcome, process};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use figures::Figures;
use marks::{Scope, Verdict};
use plan::{Case, Stack};
use programs::Programs;

/// Compares Towline with other QUIC stacks on this machine.
#[derive(Parser)]
#[command(name = "bench-quic")]
struct Cli {
    /// One round, small sizes, nothing judged
    #[arg(long)]
    quick: bool,
    /// Rounds of each case; the stacks take turns in each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Only these measures (`bulk_s_per_gb`, …) or cases (`bulk`, `matrix`, …)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these stacks
    #[arg(long, value_enum, value_delimiter = ',')]
    stacks: Vec<Stack>,
    /// The case of 100,000 idle connections as well
    #[arg(long)]
    soak: bool,
    /// No page in docs/evidence
    #[arg(long)]
    no_evidence: bool,
    /// Results to this file too, or to standard output if it is `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Take the programs as they were built last
    #[arg(long)]
    no_build: bool,
}

impl Cli {
    /// Only a whole comparison counts, and only that is kept.
    fn scope(&self) -> Scope {
        let all = self.only.is_empty()
            && self.stacks.is_empty()
            && self.rounds.is_none_or(|rounds| rounds >= plan::ROUNDS);
        match (self.quick, all) {
            (true, _) => Scope::Quick,
            (false, true) => Scope::Whole,
            (false, false) => Scope::Part,
        }
    }

    fn cases(&self) -> Outcome<Vec<Case>> {
        let mut cases = plan::cases(self.quick, self.soak);
        for name in &self.only {
            if !cases.iter().any(|case| case.is_named(name)) {
                let mut names: Vec<_> = cases.iter().map(|case| case.name).collect();
                names.dedup();
                return Err(format!(
                    "no measure `{name}`; there are {}",
                    names.join(", ")
                ));
            }
        }
        if !self.only.is_empty() {
            cases.retain(|case| self.only.iter().any(|name| case.is_named(name)));
        }
        if !self.stacks.is_empty() {
            for case in &mut cases {
                case.stacks.retain(|stack| self.stacks.contains(stack));
            }
            cases.retain(|case| !case.stacks.is_empty());
        }
        if cases.is_empty() {
            return Err("nothing is left to measure".to_owned());
        }
        Ok(cases)
    }
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
    let cases = cli.cases()?;
    let rounds = cli
        .rounds
        .unwrap_or(if cli.quick { 1 } else { plan::ROUNDS });
    let programs = Programs::find(&root(), !cli.no_build, &cases)?;
    let mut machine = Machine::describe(
        &root(),
        [
            ("seed", "none: nothing here is drawn at random".to_owned()),
            ("rounds", format!("{rounds}, the stacks in turn; medians")),
            ("go", machine::said("go", &["version"])),
        ],
    );
    machine.settle();
    let figures = measure(cases, rounds, &programs)?;
    machine.finish();

    let verdict = Verdict::of(&figures, cli.scope());
    let tables = table::all(&figures, &verdict);
    let report = results::Results::of(&figures, &verdict);
    // Standard output belongs to the results if they were asked for there.
    let results_on_stdout = cli.json.as_deref() == Some(Path::new("-"));
    if results_on_stdout {
        println!("{}", report.to_json()?);
    } else {
        println!("{machine}\n{tables}");
        println!("{}", verdict.line());
    }
    if let Some(path) = cli.json.as_deref().filter(|_| !results_on_stdout) {
        report.write(path)?;
    }
    if cli.scope() == Scope::Whole {
        report.write(&root().join("bench/results/quic.json"))?;
        if !cli.no_evidence {
            let page = evidence::write(&root(), &machine, &figures, &verdict, &tables)?;
            eprintln!("wrote bench/results/quic.json and {page}");
        }
    }
    Ok(verdict.exit_code())
}

fn measure(cases: Vec<Case>, rounds: u32, programs: &Programs) -> Outcome<Figures> {
    let turns = |case: &Case| u64::from(case.rounds(rounds)) * case.stacks.len() as u64;
    let bar = ProgressBar::new(cases.iter().map(turns).sum());
    // No steady tick: between two runs is the only time at which this process may do anything.
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {msg} [{elapsed}, {eta} left]") {
        bar.set_style(style);
    }
    let mut figures = Figures::default();
    for case in cases {
        for round in 0..case.rounds(rounds) {
            for stack in case.stacks.clone() {
                if let Some(why) = programs.missing(stack) {
                    figures.fail(&case, stack, why);
                    bar.inc(1);
                    continue;
                }
                // What cannot be done costs its whole patience each time.
                if figures.is_hopeless(&case, stack) {
                    bar.inc(1);
                    continue;
                }
                bar.set_message(format!("{}, {stack}, round {}", case.title(), round + 1));
                match run::run(&case, stack, programs) {
                    Ok(samples) => figures.add(&case, stack, programs.version(stack), samples),
                    Err(why) => {
                        bar.suspend(|| eprintln!("{}, {stack}: {why}", case.title()));
                        figures.fail(&case, stack, &why);
                    }
                }
                bar.inc(1);
            }
        }
        figures.cases.push(case);
    }
    bar.finish_and_clear();
    Ok(figures)
}

//! `make bench-neighbour`: Towline beside Linux TCP on one bottleneck, in real time.
//!
//! 1. Builds the `towline` program and waits until the machine is quiet.
//! 2. Runs every case of the plan ([`plan`]): a fresh `towline relay --tun` with fresh namespaces,
//!    senders in one, receivers in the other ([`trial`], [`tcp`]).
//! 3. Prints a table ([`table`]), draws a chart ([`chart`]) and writes the page ([`evidence`]).
//!
//! Judges nothing: what is fair beside another stack is for the reader of the table. Exit code 0:
//! every case was measured; 1: some could not be; 2: wrong use, or nothing could be started.

mod chart;
mod evidence;
mod figures;
mod plan;
mod table;
mod tcp;
mod trial;

use std::process::ExitCode;

use bench_runner::Outcome;
use bench_runner::build::{cargo, root, target_folder};
use bench_runner::machine::Machine;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use figures::Figures;
use plan::{Case, Setting};
use trial::Programs;

/// Runs Towline and Linux TCP over one bottleneck and shows who gets what. Needs root.
#[derive(Parser)]
#[command(name = "bench-neighbour")]
struct Cli {
    /// Seconds of each run; the first sixth does not count
    #[arg(long, value_name = "N", default_value_t = plan::SECONDS, value_parser = clap::value_parser!(u32).range(6..=3600))]
    seconds: u32,
    /// Runs of each case
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// These cases instead of the plan's: flows joined by `+`, such as `towline-cubic+linux-bbr`
    #[arg(long, value_name = "CASE", value_delimiter = ',')]
    cases: Vec<Case>,
    /// UDP payload of Towline's full packets; its own default otherwise
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1200..=1472))]
    mtu: Option<u16>,
    /// Seed of the relay's links
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// No page in docs/evidence
    #[arg(long)]
    no_evidence: bool,
    /// Take the program as it was built last
    #[arg(long)]
    no_build: bool,
}

impl Cli {
    /// Only a whole comparison is kept.
    fn is_whole(&self) -> bool {
        self.cases.is_empty() && self.seconds >= plan::SECONDS && self.mtu.is_none()
    }
}

fn main() -> ExitCode {
    match compare(&Cli::parse()) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("bench-neighbour: {message}");
            ExitCode::from(2)
        }
    }
}

fn compare(cli: &Cli) -> Outcome<ExitCode> {
    let setting = Setting {
        seconds: cli.seconds,
        mtu: cli.mtu,
        seed: cli.seed,
        ..Setting::default()
    };
    let cases = if cli.cases.is_empty() {
        plan::cases()
    } else {
        cli.cases.clone()
    };
    let root = root();
    if !cli.no_build {
        cargo(&root, &["-p", "towline-cli"])?;
    }
    let programs = Programs::find(target_folder(&root)?.join("release/towline"))?;
    trial::check(&setting, &programs)?;
    let mut machine = Machine::describe(
        &root,
        [
            ("seed", format!("{} (the link draws nothing)", cli.seed)),
            ("rounds", cli.rounds.to_string()),
            ("link", setting.describe()),
            ("linux TCP", tcp::describe()),
        ],
    );
    machine.settle();
    let figures = measure(&cases, cli.rounds, &setting, &programs)?;
    machine.finish();

    let table = table::all(&figures, &setting);
    println!("{machine}\n{table}");
    if cli.is_whole() && !cli.no_evidence && figures.is_complete() {
        let page = evidence::write(&root, &machine, &figures, &setting, &table)?;
        eprintln!("wrote {page}");
    }
    Ok(if figures.is_complete() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn measure(
    cases: &[Case],
    rounds: u32,
    setting: &Setting,
    programs: &Programs,
) -> Outcome<Figures> {
    let bar = ProgressBar::new(cases.len() as u64 * u64::from(rounds));
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {msg} [{elapsed}, {eta} left]") {
        bar.set_style(style);
    }
    let mut figures = Figures::of(cases);
    for round in 1..=rounds {
        for (case, entry) in cases.iter().zip(&mut figures.entries) {
            bar.set_message(format!("{case}, round {round}"));
            match trial::run(case, setting, programs) {
                Ok(trial) => entry.trials.push(trial),
                Err(why) => {
                    bar.suspend(|| eprintln!("NOT MEASURED {case}: {why}"));
                    entry.failure = Some(why);
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if figures.entries.iter().all(|entry| entry.trials.is_empty()) {
        return Err("nothing could be measured".to_owned());
    }
    Ok(figures)
}

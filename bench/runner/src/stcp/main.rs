//! `make bench-stcp`: secure TCP, by library, proxy and `stcp run`, beside plain TCP, tokio-rustls, OpenSSL
//! and stunnel, by the framed echo.
//!
//! 1. Builds the programs and waits until the machine is quiet.
//! 2. Runs every cell of the plan ([`plan`]) in slices, the stacks in turn ([`trial`]), servers and
//!    what stands before them on the first core, clients on the second.
//! 3. Takes medians, holds ours against the marks ([`figures`]).
//! 4. Prints tables, draws a chart, writes the results and the page of evidence ([`report`]).
//!
//! Exit code 0: the marks are reached; 1: a mark is missed; 2: wrong use, or nothing could be
//! measured; 3: a whole run that does not count.

mod chart;
mod figures;
mod plan;
mod programs;
mod report;
mod trial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench_runner::Outcome;
use bench_runner::build::root;
use bench_runner::machine::{self, Machine};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use figures::{Figures, Verdict};
use plan::{Cell, Route, SLICE_SECONDS, SLICES, Stack};
use programs::Programs;

/// Compares secure TCP with other ways on this machine.
#[derive(Parser)]
#[command(name = "bench-stcp")]
struct Cli {
    /// One slice of two seconds each, nothing judged
    #[arg(long)]
    quick: bool,
    /// Slices of each cell; the stacks take turns in each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slices: Option<u32>,
    /// Seconds of a slice
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Only these payload sizes
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    sizes: Vec<u64>,
    /// Only these stacks
    #[arg(long, value_enum, value_delimiter = ',')]
    stacks: Vec<Stack>,
    /// Not the rows between network namespaces, which need root
    #[arg(long)]
    no_tun: bool,
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
    fn slices(&self) -> u32 {
        self.slices.unwrap_or(if self.quick { 1 } else { SLICES })
    }

    fn seconds(&self) -> u32 {
        let usual = if self.quick { 2 } else { SLICE_SECONDS };
        self.seconds.unwrap_or(usual)
    }

    /// Only a whole comparison is judged and kept.
    fn is_whole(&self) -> bool {
        self.sizes.is_empty()
            && self.stacks.is_empty()
            && self.slices() >= SLICES
            && self.seconds() >= SLICE_SECONDS
    }

    fn cells(&self) -> Outcome<Vec<Cell>> {
        let mut cells = plan::cells();
        cells.retain(|cell| self.sizes.is_empty() || self.sizes.contains(&cell.size));
        cells.retain(|cell| cell.route == Route::Loopback || !self.no_tun);
        for cell in &mut cells {
            cell.stacks
                .retain(|stack| self.stacks.is_empty() || self.stacks.contains(stack));
        }
        match cells.iter().all(|cell| cell.stacks.is_empty()) {
            true => Err("nothing is left to measure".to_owned()),
            false => Ok(cells),
        }
    }
}

fn main() -> ExitCode {
    match compare(&Cli::parse()) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("bench-stcp: {message}");
            ExitCode::from(2)
        }
    }
}

fn compare(cli: &Cli) -> Outcome<ExitCode> {
    let cells = cli.cells()?;
    let programs = Programs::find(&root(), !cli.no_build)?;
    let (slices, seconds) = (cli.slices(), cli.seconds());
    let mut machine = Machine::describe(
        &root(),
        [
            ("seed", "none: nothing here is drawn at random".to_owned()),
            (
                "slices",
                format!("{slices} of {seconds} s, the stacks in turn; medians"),
            ),
            ("openssl", machine::said("openssl", &["version"])),
        ],
    );
    machine.settle();
    let mut figures = measure(&cells, slices, seconds, &programs);
    for stack in [Stack::Towline, Stack::Rustls] {
        if cli.stacks.is_empty() || cli.stacks.contains(&stack) {
            match trial::idle(stack, &programs) {
                Ok(kib) => figures.idle.push((stack, kib)),
                Err(why) => eprintln!("NOT MEASURED idle connections, {stack}: {why}"),
            }
        }
    }
    machine.finish();

    let verdict = Verdict::of(&figures, cli.is_whole());
    let tables = report::tables(&figures, &verdict);
    let results = report::results(&figures, &verdict)?;
    let on_stdout = cli.json.as_deref() == Some(Path::new("-"));
    if on_stdout {
        println!("{results}");
    } else {
        println!("{machine}\n{tables}\n{}", verdict.line());
    }
    if let Some(path) = cli.json.as_deref().filter(|_| !on_stdout) {
        report::write(path, &results)?;
    }
    if cli.is_whole() {
        report::write(&root().join("bench/results/stcp.json"), &results)?;
        if !cli.no_evidence {
            let page = report::evidence(&root(), &machine, &figures, &verdict, &tables)?;
            eprintln!("wrote bench/results/stcp.json and {page}");
        }
    }
    Ok(verdict.exit_code())
}

fn measure(cells: &[Cell], slices: u32, seconds: u32, programs: &Programs) -> Figures {
    let turns: usize = cells.iter().map(|cell| cell.stacks.len()).sum();
    let bar = ProgressBar::new(turns as u64 * u64::from(slices));
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {msg} [{elapsed}, {eta} left]") {
        bar.set_style(style);
    }
    let mut figures = Figures::default();
    for cell in cells {
        for slice in 0..slices {
            for stack in &cell.stacks {
                bar.set_message(format!("{cell}, {stack}, slice {}", slice + 1));
                let version = programs.version(*stack);
                match trial::run(cell, *stack, seconds, programs) {
                    Ok(sample) => figures.add(cell, *stack, version, sample),
                    Err(why) => {
                        bar.suspend(|| eprintln!("NOT MEASURED {cell}, {stack}: {why}"));
                        figures.fail(cell, *stack, version, why);
                    }
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    figures
}

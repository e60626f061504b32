//! `towline sim matrix`: plays the rows of the good-neighbour table and prints their verdicts.
//!
//! The rows and their marks are the lab's; this file chooses, shows progress and prints.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use towline_lab::matrix::{Line, Options, Plan, Report, Thinning, Verdict};

use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::printer::Printer;

const SCHEMA: &str = "towline.matrix/1";
const BAR: &str = "{bar:24} {pos}/{len} runs  {elapsed} of about {duration}";

/// Arguments of `towline sim matrix`.
#[derive(Args)]
pub(crate) struct MatrixArgs {
    /// Only this row, such as `fairness`; may be repeated
    #[arg(long, value_name = "NAME")]
    row: Vec<String>,
    /// Only cases of these controllers, such as `cubic,bbr`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    cc: Vec<String>,
    /// Only cases whose name contains this, such as `100 Mbit/s`
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Play seeds 1 to N
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Without ACK thinning, with it (the row `thinning`), or both
    #[arg(long, value_enum, default_value = "both")]
    thinning: ThinningArg,
    /// Threads; all cores if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Print every case, not only the one nearest to failing of each row
    #[arg(long)]
    all: bool,
    /// Print what would be played, and play nothing
    #[arg(long)]
    list: bool,
    /// Write the whole table to this file too, as markdown
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ThinningArg {
    On,
    Off,
    Both,
}

impl MatrixArgs {
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let options = Options {
            rows: self.row.clone(),
            controllers: self.cc.clone(),
            case: self.case.clone(),
            seeds: self.seeds,
            thinning: match self.thinning {
                ThinningArg::On => Thinning::On,
                ThinningArg::Off => Thinning::Off,
                ThinningArg::Both => Thinning::Both,
            },
        };
        let plan = Plan::new(&options).map_err(|error| {
            Failure::usage(error.to_string()).next("`towline sim matrix --list` shows every case")
        })?;
        if self.list {
            list(&plan, printer);
            return Ok(Exit::Ok);
        }
        // Minutes of work are not lost to a path that cannot be written.
        if let Some(path) = &self.out {
            check_writable(path).map_err(|error| unwritable(path, &error))?;
        }
        let mut interrupt = Interrupt::install(printer);
        let jobs = self.jobs.map_or_else(cores, usize::from);
        let (bar, total) = (bar(&plan, printer), plan.len());
        let shown = bar.clone();
        let playing = tokio::task::spawn_blocking(move || plan.play(jobs, &|| shown.inc(1)));
        let played = tokio::select! {
            played = playing => Some(played),
            // The threads end with the process.
            () = interrupt.wait() => None,
        };
        let done = bar.position();
        bar.finish_and_clear();
        let report = match played {
            Some(played) => played.map_err(|error| {
                Failure::new(Exit::Other, format!("a run ended by a defect: {error}"))
            })?,
            None => {
                return Err(Failure::new(
                    Exit::Interrupted,
                    format!("interrupted after {done} of {total} runs; a table needs all of them"),
                )
                .next("choose less with --row, --cc, --case or --seeds"));
            }
        };
        self.print(&report, printer);
        if let Some(path) = &self.out {
            fs::write(path, document(&report)).map_err(|error| unwritable(path, &error))?;
        }
        match report.holds() {
            true => Ok(Exit::Ok),
            false => Ok(Exit::Threshold),
        }
    }

    fn print(&self, report: &Report, printer: Printer) {
        printer.line(report.text(self.all));
        printer.line(report.verdict_text());
        for line in &report.lines {
            printer.record(&case_record(line));
        }
        for row in &report.rows {
            printer.record(&json!({
                "schema": SCHEMA,
                "kind": "row",
                "row": row.id,
                "setting": row.setting,
                "mark": row.mark,
                "nearest": row.place(),
                "median": number(row.worst.median()),
                "worst": number(row.worst.worst()),
                "lines": row.lines,
                "reached": row.reached,
                "verdict": verdict(row.verdict()),
            }));
        }
        printer.record(&json!({
            "schema": SCHEMA,
            "kind": "end",
            "seeds": report.seeds,
            "pass": report.count(Verdict::Pass) + report.count(Verdict::Stale),
            "open": report.count(Verdict::Open),
            "fail": report.count(Verdict::Fail),
            "missing": report.count(Verdict::Missing),
            "holds": report.holds(),
        }));
    }
}

/// Leaves nothing behind: the run may be broken off.
fn check_writable(path: &Path) -> io::Result<()> {
    match File::create_new(path) {
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(path).map(drop)
        }
        Err(error) => Err(error),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Exit::Other,
        format!("cannot write {}: {error}", path.display()),
    )
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn bar(plan: &Plan, printer: Printer) -> ProgressBar {
    if !printer.shows_progress() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(plan.len() as u64);
    if let Ok(style) = ProgressStyle::with_template(BAR) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// What `--list` prints: each row, its setting and mark, and its cases.
fn list(plan: &Plan, printer: Printer) {
    for row in plan.rows() {
        printer.line(format_args!(
            "{}\n  {}\n  {}",
            row.id, row.setting, row.mark
        ));
        for (_, case, thinned) in plan.cases().filter(|(other, ..)| other.id == row.id) {
            let acks = match thinned {
                true => " (ACKs thinned)",
                false => "",
            };
            for measure in &case.measures {
                let mark = measure.mark_text();
                let case = &case.name;
                printer.line(format_args!("    {case}{acks}: {} {mark}", measure.name));
                printer.record(&json!({
                    "schema": SCHEMA,
                    "kind": "listed",
                    "row": row.id,
                    "setting": row.setting,
                    "case": case,
                    "thinning": thinned,
                    "measure": measure.name,
                    "mark": mark,
                }));
            }
        }
    }
}

fn case_record(line: &Line) -> Value {
    let measure = &line.measure;
    json!({
        "schema": SCHEMA,
        "kind": "case",
        "row": line.row,
        "case": line.case,
        "controller": line.controller,
        "thinning": line.thinning,
        "measure": measure.name,
        "unit": measure.unit.name(),
        "at_least": measure.mark.low,
        "at_most": measure.mark.high,
        "values": line.values.iter().map(|value| number(*value)).collect::<Vec<Value>>(),
        "median": number(line.median()),
        "worst": number(line.worst()),
        "verdict": verdict(line.verdict),
        "note": line.note,
    })
}

/// JSON has no infinity: what took for ever is null.
fn number(value: f64) -> Value {
    match value.is_finite() {
        true => json!(value),
        false => Value::Null,
    }
}

const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Stale => "pass, listed as open",
        Verdict::Open => "open",
        Verdict::Missing => "missing",
        Verdict::Fail => "FAIL",
    }
}

/// What `--out` writes.
fn document(report: &Report) -> String {
    format!(
        "# The good-neighbour matrix\n\n\
         What each congestion controller must reach, played by the real engine with the product's\n\
         defaults over simulated links, on virtual time: one seed gives one table on every machine.\n\
         `ACKs all` is an acknowledgement of every second packet, `thinned` what the ACK-frequency\n\
         extension makes of it by default. Where a row draws nothing at random, its seeds differ in\n\
         the moment of the start only.\n\
         The median of the seeds must meet the mark and the worst may miss it by a tenth, but no mark of\n\
         one value (`=`); `open` rows are in [open-marks.md](open-marks.md). Written by `towline sim matrix --out\n\
         docs/matrix.md`, and compared with a fresh run by `cargo test -p towline-lab --test matrix`.\n\n\
         {}.\n\n{}",
        report.verdict_text(),
        report.markdown()
    )
}

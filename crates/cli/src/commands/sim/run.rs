//! `towline sim run`: scenarios as they are written.

use std::path::PathBuf;

use towline_lab::scenario::{Outcome, Scenario, Summary};

use super::input::{self, Input};
use super::plot::{self, Target};
use super::record::record;
use super::table::{Table, megabits, millis, or_none, percent};
use super::{play, record};
use crate::exit::{Exit, Failure};
use crate::printer::Printer;
use crate::units::Bytes;

/// Flags of `sim run`.
#[derive(clap::Args)]
#[command(
    after_help = "A FILE is TOML; docs/scenarios.md lists its keys, and scenarios/ holds examples."
)]
pub(super) struct RunArgs {
    /// Scenarios; `-` reads one from standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Another seed than the one in the files
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Draw plots: a file that ends in .svg, or a folder that gets one for each scenario
    #[arg(long, value_name = "PATH")]
    svg: Option<PathBuf>,
    /// With --json: the course of every flow and of the bottleneck too
    #[arg(long)]
    series: bool,
}

impl RunArgs {
    /// Plays, then shows.
    pub(super) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let mut inputs: Vec<Input> = Vec::new();
        for file in &self.files {
            let mut input = input::read(file)?;
            input.text.scenario.seed = self.seed.unwrap_or(input.text.scenario.seed);
            inputs.push(input);
        }
        let stems: Vec<&str> = inputs.iter().map(|input| input.stem.as_str()).collect();
        let target = self.svg.map(|path| Target::new(path, &stems)).transpose()?;
        let scenarios = inputs.iter().map(|input| input.text.scenario.clone());
        let played = play::play(scenarios.collect(), printer).await?;
        let mut shown: Vec<(&str, Summary)> = Vec::new();
        for (place, (input, outcome)) in inputs.iter().zip(&played.outcomes).enumerate() {
            let Some(outcome) = outcome else { continue };
            let scenario = &input.text.scenario;
            let summary = Summary::new(scenario, outcome, input.text.warmup);
            if place > 0 {
                printer.line("");
            }
            show(scenario, outcome, &summary, printer);
            printer.record(&record(
                scenario,
                outcome,
                &summary,
                Some(&input.file),
                self.series,
            ));
            if let Some(target) = &target {
                let chart = plot::of_run(scenario, outcome, &input.text.groups);
                let path = target.save(place, &chart)?;
                printer.line(format_args!("plot   {}", path.display()));
            }
            shown.push((&scenario.name, summary));
        }
        played.exit(shown.iter().map(|(name, summary)| (*name, summary)))
    }
}

/// The head, a row for each flow, a line for the bottleneck.
fn show(scenario: &Scenario, outcome: &Outcome, summary: &Summary, printer: Printer) {
    printer.line(head(scenario, summary));
    let mut table = Table::new([
        "flow",
        "cc",
        "Mbit/s",
        "share",
        "loss",
        "sent again",
        "rtt p50",
        "rtt p95 ms",
        "took s",
    ]);
    for (flow, seen) in scenario.flows.iter().zip(&summary.flows) {
        table.row([
            seen.name.clone(),
            or_none(record::controller(flow), |cc| cc),
            megabits(seen.goodput),
            or_none(seen.share, percent),
            or_none(seen.loss, percent),
            or_none(seen.bytes_retransmitted, |bytes| Bytes(bytes).to_string()),
            or_none(seen.rtt_p50, millis),
            or_none(seen.rtt_p95, millis),
            or_none(seen.took, |took| format!("{took:.2}")),
        ]);
    }
    table.print(printer);
    let fairness = summary.fairness.map(|jain| format!("; Jain {jain:.3}"));
    let marks = outcome.forward.ce_marks;
    printer.line(format_args!(
        "bottleneck {} used; queue mean {} ms, p95 {} ms, max {} ms; {} dropped{}{}",
        or_none(summary.utilisation, percent),
        millis(summary.queue_mean),
        millis(summary.queue_p95),
        millis(summary.queue_max),
        outcome.forward.drops.total(),
        if marks > 0 {
            format!(", {marks} marked")
        } else {
            String::new()
        },
        fairness.unwrap_or_default(),
    ));
}

/// What was played, in one line.
pub(super) fn head(scenario: &Scenario, summary: &Summary) -> String {
    let [start, end] = [summary.span.start, summary.span.end].map(|time| time.as_secs_f64());
    format!(
        "{}: {}; measured {start:.1} to {end:.1} s, seed {}",
        scenario.name,
        plot::path(scenario),
        scenario.seed
    )
}

//! `towline sim compare`: one scenario, once for each controller.

use std::path::PathBuf;

use serde_json::{Value, json};
use towline_lab::scenario::{Congestion, Outcome, Scenario, ScenarioText, Summary, Traffic};

use super::input::{self, Input};
use super::play;
use super::plot::{self, Target};
use super::record::record;
use super::run::head;
use super::table::{Table, megabits, millis, or_none, percent};
use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Flags of `sim compare`.
#[derive(clap::Args)]
#[command(
    after_help = "Every flow of FILE without a `cc` of its own gets the controller. Without FILE, \
                  bulk flows share a path of 20mbit, 40ms and a queue of 1bdp, or as the flags say."
)]
pub(super) struct CompareArgs {
    /// Controllers, with commas between them
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    cc: Vec<Congestion>,
    /// A scenario; `-` reads it from standard input
    #[arg(value_name = "FILE", conflicts_with_all = ["profile", "rate", "rtt", "queue", "loss", "duration", "flows"])]
    file: Option<PathBuf>,
    /// A named network: lan, lte, 3g, satellite, poor-cellular
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Rate of the path, such as 20mbit
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Round trip without a queue, such as 40ms
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// Queue of the bottleneck: 1bdp, 64kb or 500ms
    #[arg(long, value_name = "SIZE")]
    queue: Option<String>,
    /// Random loss, such as 1%
    #[arg(long, value_name = "SHARE")]
    loss: Option<String>,
    /// How long each is played, such as 30s (the default)
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Bulk flows that share the path
    #[arg(long, value_name = "N")]
    flows: Option<u32>,
    /// Another seed than the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Draw all in one plot: a file that ends in .svg, or a folder
    #[arg(long, value_name = "PATH")]
    svg: Option<PathBuf>,
    /// With --json: the course of every run too
    #[arg(long)]
    series: bool,
}

impl CompareArgs {
    /// Plays them side by side, then shows.
    pub(super) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let Input {
            mut text,
            file,
            stem,
        } = match &self.file {
            Some(file) => input::read(file)?,
            None => self.path()?,
        };
        if !text.is_open() {
            return Err(
                Failure::usage(format!("{file}: every flow has a controller of its own"))
                    .next("take `cc` away from the [[flow]] that is to be compared"),
            );
        }
        text.scenario.seed = self.seed.unwrap_or(text.scenario.seed);
        let target = self.svg.clone();
        let stem = format!("{stem}-compare");
        let target = target.map(|path| Target::new(path, &[&stem])).transpose()?;
        let scenarios: Vec<Scenario> = self.cc.iter().map(|cc| text.with_congestion(*cc)).collect();
        let played = play::play(scenarios.clone(), printer).await?;

        let mut runs: Vec<Run<'_>> = Vec::new();
        for ((cc, scenario), outcome) in self.cc.iter().zip(&scenarios).zip(&played.outcomes) {
            if let Some(outcome) = outcome {
                runs.push(Run {
                    cc: cc.to_string(),
                    scenario,
                    outcome,
                    summary: Summary::new(scenario, outcome, text.warmup),
                });
            }
        }
        let Some(first) = runs.first() else {
            return played.exit([]);
        };
        printer.line(head(first.scenario, &first.summary));
        let rows: Vec<Row> = runs.iter().map(|run| Row::new(run, &text)).collect();
        show(&rows, printer);
        let source = self.file.is_some().then_some(file.as_str());
        let rows: Vec<Value> = runs
            .iter()
            .zip(&rows)
            .map(|(run, row)| row.record(run, source, self.series))
            .collect();
        printer.record(&json!({
            "schema": "towline.sim.compare/1",
            "scenario": first.scenario.name,
            "file": source,
            "seed": first.scenario.seed,
            "rows": rows,
        }));
        if let Some(target) = target {
            let all: Vec<_> = runs.iter().map(Run::compared).collect();
            let first = first.compared();
            let chart = plot::of_comparison(&first, &all, |flow| text.is_open_flow(flow));
            let path = target.save(0, &chart)?;
            printer.line(format_args!("plot   {}", path.display()));
        }
        played.exit(runs.iter().map(|run| (run.cc.as_str(), &run.summary)))
    }

    /// The scenario that the flags describe.
    fn path(&self) -> Result<Input, Failure> {
        let or = |flag: &Option<String>, default: &str| {
            let default = self.profile.is_none().then(|| default.to_owned());
            flag.clone().or(default)
        };
        let path = [
            ("profile", self.profile.clone()),
            ("rate", or(&self.rate, "20mbit")),
            ("rtt", or(&self.rtt, "40ms")),
            ("queue", or(&self.queue, "1bdp")),
            ("loss", self.loss.clone()),
        ];
        let duration = self.duration.as_deref().unwrap_or("30s");
        // What JSON escapes in a string, TOML reads the same way.
        let mut toml = format!("[scenario]\nduration = {}\n[path]\n", Value::from(duration));
        for (key, value) in path {
            if let Some(value) = value {
                toml.push_str(&format!("{key} = {}\n", Value::from(value)));
            }
        }
        toml.push_str(&format!("[[flow]]\ncount = {}\n", self.flows.unwrap_or(1)));
        let no_files = |_: &str| Err("there are no files here".to_owned());
        let mut text = ScenarioText::parse(&toml, &no_files).map_err(|error| {
            let key = error.key.rsplit('.').next().unwrap_or_default();
            let flag = match key {
                "count" => "flows",
                key => key,
            };
            Failure::usage(format!("--{flag} {}: {}", error.value, error.problem))
                .next("see `towline sim compare --help`")
        })?;
        text.scenario.name = self.profile.clone().unwrap_or_else(|| "path".to_owned());
        Ok(Input {
            file: String::new(),
            stem: text.scenario.name.clone(),
            text,
        })
    }
}

/// The scenario under one controller.
struct Run<'r> {
    cc: String,
    scenario: &'r Scenario,
    outcome: &'r Outcome,
    summary: Summary,
}

impl Run<'_> {
    fn compared(&self) -> plot::Compared<'_> {
        (&self.cc, self.scenario, self.outcome)
    }
}

/// Its figures: those of the flows that had the controller, taken together.
struct Row {
    cc: String,
    goodput: f64,
    share: f64,
    loss: f64,
    retransmitted: u64,
    /// Of the pings, if there are any.
    rtt: [Option<f64>; 2],
    took: Option<f64>,
    summary: Summary,
}

impl Row {
    fn new(run: &Run<'_>, text: &ScenarioText) -> Self {
        let flows = run.scenario.flows.iter().zip(&run.summary.flows);
        let is_ping = |traffic| matches!(traffic, Traffic::Ping { .. });
        let (mut goodput, mut share, mut sent, mut lost, mut retransmitted) = (0.0, 0.0, 0, 0, 0);
        let mut took: Option<f64> = None;
        for (index, (_, seen)) in flows.clone().enumerate() {
            if !text.is_open_flow(index) {
                continue;
            }
            goodput += seen.goodput;
            share += seen.share.unwrap_or(0.0);
            lost += seen.packets_lost.unwrap_or(0);
            retransmitted += seen.bytes_retransmitted.unwrap_or(0);
            sent += run.outcome.flows[index]
                .stats
                .as_ref()
                .map_or(0, |stats| stats.packets_sent);
            took = took.into_iter().chain(seen.took).reduce(f64::max);
        }
        let pings = flows.clone().any(|(flow, _)| is_ping(flow.traffic));
        let measured = flows.enumerate().filter(|(index, (flow, _))| match pings {
            true => is_ping(flow.traffic),
            false => text.is_open_flow(*index),
        });
        // Of several, the one that has it worst.
        let rtt = measured.fold([None, None], |[p50, p95]: [Option<f64>; 2], (_, (_, s))| {
            let worse = |a: Option<f64>, b| a.into_iter().chain(b).reduce(f64::max);
            [worse(p50, s.rtt_p50), worse(p95, s.rtt_p95)]
        });
        Self {
            cc: run.cc.clone(),
            goodput,
            share,
            loss: lost as f64 / sent.max(1) as f64,
            retransmitted,
            rtt,
            took,
            summary: run.summary.clone(),
        }
    }

    fn record(&self, run: &Run<'_>, file: Option<&str>, with_series: bool) -> Value {
        json!({
            "cc": self.cc,
            "goodput_bits_per_second": self.goodput,
            "share": self.share,
            "loss": self.loss,
            "bytes_retransmitted": self.retransmitted,
            "rtt_p50": self.rtt[0],
            "rtt_p95": self.rtt[1],
            "took": self.took,
            "utilisation": self.summary.utilisation,
            "queue_mean": self.summary.queue_mean,
            "queue_p95": self.summary.queue_p95,
            "queue_max": self.summary.queue_max,
            "fairness": self.summary.fairness,
            "run": record(run.scenario, run.outcome, &run.summary, file, with_series),
        })
    }
}

fn show(rows: &[Row], printer: Printer) {
    let mut table = Table::new([
        "cc",
        "Mbit/s",
        "used",
        "share",
        "loss",
        "queue mean",
        "p95",
        "max ms",
        "rtt p50",
        "p95 ms",
        "Jain",
        "took s",
    ]);
    for row in rows {
        let summary = &row.summary;
        table.row([
            row.cc.clone(),
            megabits(row.goodput),
            or_none(summary.utilisation, percent),
            percent(row.share),
            percent(row.loss),
            millis(summary.queue_mean),
            millis(summary.queue_p95),
            millis(summary.queue_max),
            or_none(row.rtt[0], millis),
            or_none(row.rtt[1], millis),
            or_none(summary.fairness, |jain| format!("{jain:.3}")),
            or_none(row.took, |took| format!("{took:.2}")),
        ]);
    }
    table.print(printer);
}

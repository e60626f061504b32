//! `towline link measure`: how many bytes a delta of a file takes, by the size of the batch.
//!
//! The measurement is the lab's: sealed datagrams over a link that loses some. This file reads, shows
//! progress and prints.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::time::Instant;
use towline_lab::link::{COLD, Failure as LabFailure, Outcome, Plan, measure};
use towline_link::codec::{Encoder, Record};

use super::lines::Records;
use super::stages;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::printer::Printer;

const SCHEMA: &str = "towline.link.measure/1";
const BAR: &str = "{bar:24} {pos}/{len} deltas  {elapsed} of about {duration}";
/// Lines that are refused are told one by one up to here.
const TOLD: usize = 5;

/// Arguments of `towline link measure`.
#[derive(Args)]
pub(crate) struct MeasureArgs {
    /// Deltas, one JSON object a line; `-` is stdin
    #[arg(value_name = "FILE.jsonl")]
    file: PathBuf,
    /// Deltas in a batch, each measured
    #[arg(
        long,
        value_name = "N,N…",
        value_delimiter = ',',
        default_value = "1,5,10,20,50"
    )]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: Vec<u16>,
    /// Send these deltas first; their bytes count in the cold rows
    #[arg(long, value_name = "FILE.jsonl")]
    train: Option<PathBuf>,
    /// Share of the datagrams that get lost, either way
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = loss)]
    loss: f64,
    /// Where chance begins
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Measure what each stage of a batch costs instead, and how much memory grows; with one size of batches
    #[arg(long)]
    stages: bool,
    /// Batches for --stages; the deltas come again and again
    #[arg(long, value_name = "N", default_value_t = 5_000, requires = "stages")]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    rounds: u32,
}

fn loss(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=0.5).contains(&share) => Ok(share),
        _ => Err("a share from 0 to 0.5 is wanted, such as 0.05".to_owned()),
    }
}

/// What was measured with batches of one size.
struct Row {
    batch: u16,
    outcome: Outcome,
    /// Half of the batches were coded within the first time, 19 of 20 within the second.
    encode: [Duration; 2],
}

/// What a file has in it.
struct Deltas {
    records: Vec<Record>,
    refused: usize,
}

impl MeasureArgs {
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let training = match &self.train {
            Some(file) => read(file, printer)?,
            None => Deltas {
                records: Vec::new(),
                refused: 0,
            },
        };
        let deltas = read(&self.file, printer)?;
        if deltas.records.is_empty() {
            let what = format!("{} has no delta in it", self.file.display());
            return Err(Failure::usage(what).next("each line is one JSON object: {\"context\":…}"));
        }
        if self.stages {
            let &[batch] = &self.batch[..] else {
                return Err(Failure::usage("--stages measures batches of one size")
                    .next("give it, such as --batch 20"));
            };
            let texts: Vec<String> = deltas.records.iter().map(Record::to_json).collect();
            let (batch, rounds) = (usize::from(batch), self.rounds as usize);
            let bar = bar(rounds * batch, printer);
            return stages::run(texts, batch, rounds, bar, printer).await;
        }
        let refused = deltas.refused + training.refused;
        let total = deltas.records.len() * self.batch.len();
        let bar = bar(total, printer);
        let mut interrupt = Interrupt::install(printer);
        let (shown, batches) = (bar.clone(), self.batch.clone());
        let count = deltas.records.len();
        let measuring = tokio::task::spawn_blocking(move || {
            let rows = batches.iter().enumerate().map(|(at, batch)| {
                let plan = Plan {
                    batch: usize::from(*batch),
                    loss: self.loss,
                    seed: self.seed,
                };
                let progress = |sent| shown.set_position((at * count + sent) as u64);
                let outcome = measure(&training.records, &deltas.records, plan, progress)?;
                Ok(Row {
                    batch: *batch,
                    outcome,
                    encode: encode_times(&deltas.records, plan.batch)?,
                })
            });
            rows.collect::<Result<Vec<Row>, LabFailure>>()
        });
        let measured = tokio::select! {
            measured = measuring => measured,
            () = interrupt.wait() => {
                bar.finish_and_clear();
                return Err(Failure::new(Exit::Interrupted, "interrupted; nothing is known yet"));
            }
        };
        bar.finish_and_clear();
        let rows = measured
            .map_err(|error| {
                Failure::new(Exit::Other, format!("the measurement broke off: {error}"))
            })?
            .map_err(|error| Failure::new(Exit::Other, error.to_string()))?;
        print(&rows, count, refused, printer);
        match refused {
            0 => Ok(Exit::Ok),
            _ => Ok(Exit::Partial),
        }
    }
}

fn bar(total: usize, printer: Printer) -> ProgressBar {
    if !printer.shows_progress() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template(BAR) {
        bar.set_style(style);
    }
    bar
}

/// The deltas of a file. What is none is told, by its line, and left out.
fn read(path: &Path, printer: Printer) -> Result<Deltas, Failure> {
    let unreadable =
        |error: io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    let input: Box<dyn BufRead> = match path == Path::new("-") {
        true => Box::new(BufReader::new(io::stdin())),
        false => Box::new(BufReader::new(File::open(path).map_err(unreadable)?)),
    };
    let mut deltas = Deltas {
        records: Vec::new(),
        refused: 0,
    };
    for (number, record) in Records::new(input) {
        match record {
            Ok(record) => deltas.records.push(record),
            Err(error) => {
                deltas.refused += 1;
                if deltas.refused <= TOLD {
                    printer.note(format_args!(
                        "{}:{number}: {error}; left out",
                        path.display()
                    ));
                }
            }
        }
    }
    if deltas.refused > TOLD {
        printer.note(format_args!(
            "{}: {} lines are no deltas and were left out",
            path.display(),
            deltas.refused,
        ));
    }
    Ok(deltas)
}

/// How long a batch takes to be coded, when the three before it are on their way: the median and what one of
/// twenty exceeds, of those that are not cold.
fn encode_times(records: &[Record], batch: usize) -> Result<[Duration; 2], LabFailure> {
    let mut encoder = Encoder::new();
    let mut times = Vec::new();
    let mut message = Vec::new();
    let mut sent = 0;
    for chunk in records.chunks(batch) {
        let number = encoder.push(chunk)?;
        message.clear();
        let start = Instant::now();
        encoder.encode(number, &mut message);
        if sent >= COLD || records.len() <= COLD {
            times.push(start.elapsed());
        }
        sent += chunk.len();
        encoder.on_decoded(0..number.saturating_sub(2));
    }
    times.sort_unstable();
    let of = |share: usize| {
        times
            .get(times.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    Ok([of(50), of(95)])
}

fn print(rows: &[Row], deltas: usize, refused: usize, printer: Printer) {
    printer.line(format_args!(
        "bytes a delta, all of UDP's payload; cold: the first {} deltas",
        COLD.min(deltas)
    ));
    printer.line("batch    cold    warm  datagrams  sent again  to encode, µs: p50  p95");
    for row in rows {
        let Row {
            batch,
            outcome,
            encode,
        } = row;
        let warm = outcome
            .warm
            .map_or("-".to_owned(), |warm| format!("{warm:.2}"));
        let [median, late] = encode.map(|time| time.as_secs_f64() * 1e6);
        printer.line(format_args!(
            "{batch:>5} {:>7.2} {warm:>7} {:>10} {:>11} {median:>19.0} {late:>4.0}",
            outcome.cold, outcome.datagrams, outcome.again
        ));
    }
    printer.line(format_args!(
        "{deltas} deltas came back exactly in each row"
    ));
    let record = |row: &Row, mode: &str, bytes: f64| {
        let [median, late] = row.encode.map(|time| time.as_secs_f64() * 1e6);
        json!({
            "batch": row.batch,
            "mode": mode,
            "bytes_per_delta": round(bytes, 1000.0),
            "datagrams": row.outcome.datagrams,
            "streams": row.outcome.streams,
            "sent_again": row.outcome.again,
            "encode_us": { "p50": round(median, 10.0), "p95": round(late, 10.0) },
        })
    };
    let warm = rows
        .iter()
        .filter_map(|row| Some(record(row, "warm", row.outcome.warm?)));
    let cold = rows.iter().map(|row| record(row, "cold", row.outcome.cold));
    let rows: Vec<Value> = warm.chain(cold).collect();
    printer.record(&json!({
        "schema": SCHEMA,
        "deltas": deltas,
        "refused": refused,
        "rows": rows,
        "round_trip": "exact",
    }));
}

fn round(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

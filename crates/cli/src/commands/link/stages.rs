//! `towline link measure --stages`: what each stage of a batch costs.

use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use towline_lab::link::{STAGES, Stages, stages};

use crate::exit::{Exit, Failure};
use crate::printer::Printer;

const SCHEMA: &str = "towline.link.stages/1";
/// Memory is looked at when a twentieth of the batches are through, and at the end.
const SETTLED: usize = 20;

/// Sends `rounds` batches of these texts, and tells.
pub(super) async fn run(
    texts: Vec<String>,
    batch: usize,
    rounds: usize,
    bar: ProgressBar,
    printer: Printer,
) -> Result<Exit, Failure> {
    let other = |what: String| Failure::new(Exit::Other, what);
    let shown = bar.clone();
    let measuring = tokio::task::spawn_blocking(move || {
        let start = Instant::now();
        let mut memory = [None; 2];
        let progress = |at: usize| {
            shown.set_position((at * batch) as u64);
            if at == rounds / SETTLED {
                memory[0] = resident();
            } else if at == rounds {
                memory[1] = resident();
            }
        };
        let measured = stages(&texts, batch, rounds, || start.elapsed(), progress);
        measured.map(|stages| (stages, memory))
    });
    let measured = measuring.await;
    bar.finish_and_clear();
    let (stages, memory) = measured
        .map_err(|error| other(format!("the measurement broke off: {error}")))?
        .map_err(|error| other(error.to_string()))?;
    let growth = match memory {
        [Some(before), Some(after)] => Some(after as i64 - before as i64),
        _ => None,
    };
    print(&stages, batch, rounds, growth, printer);
    Ok(Exit::Ok)
}

fn print(stages: &Stages, batch: usize, rounds: usize, growth: Option<i64>, printer: Printer) {
    printer.line(format_args!(
        "{rounds} batches of {batch} deltas, in one thread; µs a batch"
    ));
    printer.line("stage       p50      p95      p99");
    let mut told = Map::new();
    let all = STAGES.iter().zip(&stages.each);
    for (name, times) in all.chain([(&"whole", &stages.whole)]) {
        let [median, late, latest] = [50, 95, 99].map(|share| micros(at(times, share)));
        printer.line(format_args!(
            "{name:<8} {median:>6.1} {late:>8.1} {latest:>8.1}"
        ));
        told.insert(
            (*name).to_owned(),
            json!({ "p50_us": median, "p95_us": late, "p99_us": latest }),
        );
    }
    let [_, encode, seal, open, decode, _] = &stages.each;
    let rate = |one: &[Duration], other: &[Duration]| {
        let all: Duration = one.iter().chain(other).sum();
        (one.len() as f64 / all.as_secs_f64().max(f64::EPSILON)).round()
    };
    let (sent, received) = (rate(encode, seal), rate(open, decode));
    printer.line(format_args!(
        "{sent} batches a second are coded and sealed, {received} opened and decoded"
    ));
    if let Some(growth) = growth {
        printer.line(format_args!(
            "memory grew by {growth} KiB over the last nineteen twentieths"
        ));
    }
    printer.record(&json!({
        "schema": SCHEMA,
        "batch": batch,
        "rounds": rounds,
        "stages": Value::Object(told),
        "tx_per_s": sent,
        "rx_per_s": received,
        "memory_growth_kib": growth,
    }));
}

fn at(times: &[Duration], share: usize) -> Duration {
    let at = (times.len() * share / 100).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

/// KiB of memory that the process has, where the system tells (proc_pid_status(5)).
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

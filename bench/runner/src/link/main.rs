//! `make bench-link`'s chart: what `bench/edge-link/bench.py` measured, a panel for each row.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use bench_runner::Outcome;
use bench_runner::bars::{self, Bar, Shade};
use bench_runner::tables::number;
use clap::Parser;
use serde_json::Value;

/// Draws the results of bench.py.
#[derive(Parser)]
#[command(name = "bench-link-chart")]
struct Cli {
    /// What bench.py wrote
    results: PathBuf,
    /// The chart, as SVG
    out: PathBuf,
}

fn main() -> ExitCode {
    match draw(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench-link-chart: {message}");
            ExitCode::from(2)
        }
    }
}

fn draw(cli: &Cli) -> Outcome {
    let unreadable = |error: &dyn std::fmt::Display| format!("{}: {error}", cli.results.display());
    let text = fs::read_to_string(&cli.results).map_err(|error| unreadable(&error))?;
    let results: Value = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
    let rows = results["rows"].as_array().ok_or("there are no rows")?;
    let panels: Vec<(String, Vec<Bar>)> = rows.iter().filter_map(panel).collect();
    bars::draw(&cli.out, 3, &panels)
}

/// The panel of a row, if there is something to be seen in it.
fn panel(row: &Value) -> Option<(String, Vec<Bar>)> {
    let shades = [
        ("towline", "Towline", Shade::Ours),
        ("peer", "signalk-edge-link", Shade::Peer),
        ("mark", "the mark", Shade::Floor),
    ];
    let bar = |(field, name, shade): (&str, &'static str, Shade)| {
        let value = row[field].as_f64()?;
        Some(Bar {
            name,
            value,
            text: number(value),
            shade,
        })
    };
    let bars: Vec<Bar> = shades.into_iter().filter_map(bar).collect();
    let is_seen = bars.iter().any(|bar| bar.value > 0.0);
    is_seen.then(|| (row["row"].as_str().unwrap_or_default().to_owned(), bars))
}

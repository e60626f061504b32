//! Tables, results and the page of evidence.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use bench_runner::machine::Machine;
use bench_runner::{Outcome, page};
use serde_json::{Value, json};

use crate::chart;
use crate::figures::{Entry, Figures, Verdict};
use crate::trial::Sample;

/// Results and their units; the first has the cell's own name.
type Column = (&'static str, &'static str, fn(&Sample) -> f64);
const COLUMNS: [Column; 7] = [
    ("", "1/s", |sample| sample.requests_per_s),
    ("_mb_per_s", "MB/s", |sample| sample.mb_per_s),
    ("_avg_ms", "ms", |sample| sample.avg_ms),
    ("_p50_ms", "ms", |sample| sample.p50_ms),
    ("_p95_ms", "ms", |sample| sample.p95_ms),
    ("_p99_ms", "ms", |sample| sample.p99_ms),
    ("_s_per_gb", "s/GB", |sample| sample.worse_s_per_gb),
];

/// Both tables, in Markdown, which a terminal shows well enough.
pub(crate) fn tables(figures: &Figures, verdict: &Verdict) -> String {
    let mut text = "\
### Medians of the slices

| payload × clients | stack | version | req/s | MB/s | avg ms | p50 | p95 | p99 | CPU s/GB, worse core | errors |
|---|---|---|---|---|---|---|---|---|---|---|
"
    .to_owned();
    for entry in &figures.entries {
        let _ = writeln!(text, "| {} |", row(entry).join(" | "));
    }
    for (stack, kib) in &figures.idle {
        let _ = writeln!(
            text,
            "\nAn idle connection of a server, {stack}: {kib:.1} KiB resident"
        );
    }
    text.push_str(
        "\n### Ours against the marks\n\n\
         | measure | what | measured | mark | | goal |\n|---|---|---|---|---|---|\n",
    );
    for row in &verdict.judgements {
        let number =
            |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let outcome = match (row.first, row.is_missed()) {
            (None, _) => "–",
            (_, false) => "pass",
            (_, true) => "FAIL",
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {outcome} | {}{} |",
            row.measure,
            row.what,
            number(row.value),
            number(row.first),
            number(row.goal),
            if row.is_goal_reached() {
                " (reached)"
            } else {
                ""
            },
        );
    }
    let _ = writeln!(
        text,
        "| `errors` | ours, all cells | {} | 0 | {} | – |",
        verdict.errors,
        if verdict.errors > 0.0 { "FAIL" } else { "pass" }
    );
    for entry in &figures.entries {
        for why in &entry.failures {
            let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
            let _ = writeln!(
                text,
                "\nNOT MEASURED {}, {}: {why}",
                entry.cell, entry.stack
            );
        }
    }
    text
}

fn row(entry: &Entry) -> Vec<String> {
    let mut cells = vec![
        entry.cell.to_string(),
        entry.stack.to_string(),
        entry.version.clone(),
    ];
    for (name, _, of) in COLUMNS {
        let digits = match name {
            "" => 0,
            "_mb_per_s" => 1,
            _ => 3,
        };
        let median = entry.median(of);
        cells.push(median.map_or("–".to_owned(), |value| format!("{value:.digits$}")));
    }
    cells.push(format!("{}", entry.errors()));
    cells
}

/// As `towline.bench/1`.
pub(crate) fn results(figures: &Figures, verdict: &Verdict) -> Outcome<String> {
    let mut rows = Vec::new();
    for entry in &figures.entries {
        let mut add = |measure: String, value: f64, unit: &str| {
            rows.push(json!({
                "measure": measure,
                "stack": entry.stack.name(),
                "version": entry.version,
                "value": (value * 1e6).round() / 1e6,
                "unit": unit,
            }));
        };
        for (name, unit, of) in COLUMNS {
            if let Some(value) = entry.median(of) {
                add(format!("{}{name}", entry.cell.measure()), value, unit);
            }
        }
        add(
            format!("{}_errors", entry.cell.measure()),
            entry.errors(),
            "1",
        );
    }
    for (stack, kib) in &figures.idle {
        rows.push(json!({
            "measure": "idle_kib", "stack": stack.name(), "value": (kib * 1e3).round() / 1e3,
            "unit": "KiB",
        }));
    }
    let mut results = json!({
        "schema": "towline.bench/1",
        "valid": verdict.invalid.is_none(),
        "rows": rows,
    });
    if let Some(why) = &verdict.invalid {
        results["reason"] = Value::from(why.clone());
    }
    serde_json::to_string_pretty(&results).map_err(|error| error.to_string())
}

/// Writes a file of results.
pub(crate) fn write(path: &Path, results: &str) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, format!("{results}\n")).map_err(failed)
}

/// Writes the page and its chart and returns the page's path in the repository.
pub(crate) fn evidence(
    root: &Path,
    machine: &Machine,
    figures: &Figures,
    verdict: &Verdict,
    tables: &str,
) -> Outcome<String> {
    let title = "Secure TCP beside others";
    let draw = |path: &Path| chart::draw(path, figures);
    page::write(root, machine, "bench-stcp", title, draw, |chart| {
        format!(
            "The framed echo: four bytes of length and a payload, which comes back and is compared; each \
         client has one connection and one request under way. MB are 10^6 bytes of payload, there and \
         back. Everything of the server's side is on one core, everything of the client's on the other: \
         program, and proxy, stunnel or `stcp run`. TCP_NODELAY everywhere, AES-128-GCM, one runtime with one \
         thread for plain TCP, Towline, rustls and OpenSSL, and the same code but for the stream. The tiers of \
         `stcp run` are measured between two network namespaces, joined by a pair of veth, as they leave in \
         clear what stays on one host. The last cell \
         goes over `towline relay --tun` (100 Mbit/s, 20 ms round trip), where the link decides.\n\n\
         ![requests a second]({chart})\n\n{tables}\n{}\n",
            verdict.line()
        )
    })
}

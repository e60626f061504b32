//! Tables and the page of evidence.

use std::path::Path;

use bench_runner::bars::{self, Shade};
use bench_runner::machine::Machine;
use bench_runner::tables::{failures, marks, medians, number, sections, table};
use bench_runner::verdict::Verdict;
use bench_runner::{Outcome, page};

use crate::marks::{is_itself, peers_apart};
use crate::plan::{Figures, Stack};

/// All tables, one below the other.
pub(crate) fn tables(figures: &Figures, verdict: &Verdict) -> String {
    sections([
        ("Ours against the marks", marks(verdict)),
        ("Do the peers come out as peers do?", peers(figures)),
        ("Medians", medians(figures, Stack::Wtransport, |_| true)),
        ("What could not be measured", failures(figures)),
    ])
}

fn peers(figures: &Figures) -> Option<String> {
    let mut rows = Vec::new();
    if let Some(ratio) = peers_apart(figures) {
        rows.push(vec![
            "wtransport ÷ aioquic".to_owned(),
            number(ratio),
            "≥ 25".to_owned(),
        ]);
    }
    let stack = Stack::Pywebtransport021;
    if let (Some(upload), Some(counts)) = (
        figures.median("upload_mb_s", None, stack),
        is_itself(figures),
    ) {
        let expected = match counts {
            true => "≥ 150 MB/s",
            false => "≥ 150 MB/s; slower, so its rows are only shown",
        };
        rows.push(vec![stack.to_string(), number(upload), expected.to_owned()]);
    }
    table(&["upload_mb_s", "measured", "expected"], &rows)
}

/// Writes the page and its chart and returns the page's path in the repository.
pub(crate) fn evidence(
    root: &Path,
    machine: &Machine,
    figures: &Figures,
    verdict: &Verdict,
    tables: &str,
) -> Outcome<String> {
    let panels = bars::panels(figures, |stack| match stack {
        Stack::Towline | Stack::TowlinePython => Shade::Ours,
        _ => Shade::Peer,
    });
    let draw = |path: &Path| bars::draw(path, 3, &panels);
    let title = "WebTransport beside other stacks";
    page::write(root, machine, "bench-wt", title, draw, |chart| {
        format!(
            "Server and client are processes of their own on two cores, of the same stack, with its own defaults where \
             nothing else is said: Towline and wtransport by the same program over their public APIs, on a tokio \
             current_thread runtime. The stacks in Python are on CPython 3.12 and uvloop, and ours is judged so; it is \
             measured on asyncio's own loop too. aioquic and pywebtransport 0.9.0 have sizes and rounds that end in time. \
             The certificate is of P-256; Towline's clients and those in Rust believe its hash. Towline takes AES-128-GCM by default, the \
             others AES-256-GCM. Every byte of a transfer is confirmed by its receiver's count. MB are 10^6 bytes, KB \
             10^3; times are medians of milliseconds, with the rest of the distribution beside them.\n\n\
             ![medians of each measure]({chart})\n\n{tables}\n{}\n",
            verdict.line()
        )
    })
}

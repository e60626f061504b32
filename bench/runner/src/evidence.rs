//! The page that stays: what was run, where, and what came out.

use std::path::Path;

use bench_runner::machine::Machine;
use bench_runner::verdict::Verdict;
use bench_runner::{Outcome, page};

use crate::chart;
use crate::plan::Figures;

/// Writes the page and its chart and returns the page's path in the repository.
pub(crate) fn write(
    root: &Path,
    machine: &Machine,
    figures: &Figures,
    verdict: &Verdict,
    tables: &str,
) -> Outcome<String> {
    let title = "Towline beside other QUIC stacks";
    let draw = |path: &Path| chart::draw(path, figures);
    page::write(root, machine, "bench-quic", title, draw, |chart| {
        format!(
            "Server and client are processes of their own on two cores; every stack has AES-128-GCM, \
             X25519, a P-256 certificate, packets of 1472 bytes and 4 MB socket buffers where nothing \
             else is said. Bulk transfers are 1 GiB; s/GB are processor seconds of the worse side per \
             10^9 bytes. `bulk_s_per_gb` of Towline is `towline perf`'s; everything else goes over the \
             public APIs, all stacks by the same program.\n\n\
             ![medians of each measure]({chart})\n\n{tables}\n{}\n",
            verdict.line()
        )
    })
}

#[cfg(test)]
mod tests;

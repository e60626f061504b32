//! The page that stays: what was run, where, and what came out.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::chart;
use crate::figures::Figures;
use crate::machine::Machine;
use crate::marks::Verdict;

/// Writes the page and its chart and returns the page's path in the repository.
pub(crate) fn write(
    root: &Path,
    machine: &Machine,
    figures: &Figures,
    verdict: &Verdict,
    tables: &str,
) -> Outcome<String> {
    let name = format!("{}-bench-quic", machine.date);
    let folder = root.join("docs/evidence");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    chart::draw(&folder.join(format!("{name}.svg")), figures)?;
    let mut page = "# Towline beside other QUIC stacks\n\n`make bench-quic`\n\n".to_owned();
    for (name, text) in machine.lines() {
        let _ = writeln!(page, "- {name}: {text}");
    }
    let _ = write!(
        page,
        "\nServer and client are processes of their own on two cores; every stack has AES-128-GCM, \
         X25519, a P-256 certificate, packets of 1472 bytes and 4 MB socket buffers where nothing \
         else is said. Bulk transfers are 1 GiB; s/GB are processor seconds of the worse side per \
         10^9 bytes. `bulk_s_per_gb` of Towline is `towline perf`'s; everything else goes over the \
         public APIs, all stacks by the same program.\n\n\
         ![medians of each measure]({name}.svg)\n\n{tables}\n{}\n",
        verdict.line()
    );
    let path = folder.join(format!("{name}.md"));
    fs::write(&path, page).map_err(failed)?;
    Ok(format!("docs/evidence/{name}.md"))
}

#[cfg(test)]
mod tests;

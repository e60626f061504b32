//! The page of evidence, and the tables between the markers of `docs/benchmarks.md`.

use std::fs;
use std::path::Path;

use bench_runner::Outcome;
use bench_runner::machine::Machine;

const PAGE: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- bench-seed: begin -->";
const END: &str = "<!-- bench-seed: end -->";

/// Writes both and returns their paths in the repository.
pub(crate) fn write(root: &Path, machine: &Machine, tables: &str) -> Outcome<[String; 2]> {
    let evidence = format!("docs/evidence/{}-bench-seed.md", machine.date);
    let failed = |path: &str| {
        let path = path.to_owned();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    let page = fs::read_to_string(root.join(PAGE)).map_err(failed(PAGE))?;
    let name = evidence.trim_start_matches("docs/");
    let fresh = format!(
        "Measured on {}: [{name}]({name}).\n\n{tables}",
        machine.date
    );
    let page = between(&page, &fresh)?;
    let mut text =
        "# Freenet's published tables beside Towline\n\n`make bench-seed`\n\n".to_owned();
    for (name, line) in machine.lines() {
        text += &format!("- {name}: {line}\n");
    }
    text += &format!(
        "\nWhat was measured how, and what cannot be compared: \
         [benchmarks.md](../benchmarks.md#freenets-tables).\n\n{tables}"
    );
    fs::write(root.join(&evidence), text).map_err(failed(&evidence))?;
    fs::write(root.join(PAGE), page).map_err(failed(PAGE))?;
    Ok([PAGE.to_owned(), evidence])
}

/// `page` with `fresh` between the markers.
fn between(page: &str, fresh: &str) -> Outcome<String> {
    let parts = page
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        parts.ok_or_else(|| format!("{PAGE} has no `{BEGIN}` … `{END}` for the tables"))?;
    Ok(format!(
        "{before}{BEGIN}\n{}\n{END}{after}",
        fresh.trim_end()
    ))
}

#[cfg(test)]
mod tests;

//! The table, and whether it is good.

use std::path::Path;

use crate::cell::{CASES, Cell};
use crate::drivers::{Driver, NotBuilt, OURS};

/// The table as Markdown, the failures, the closing line.
pub(crate) fn print(drivers: &[Driver], cells: &[Cell], runs: &Path) {
    println!("| client | server | {} |", CASES.join(" | "));
    println!("|---|---|{}", "---|".repeat(CASES.len()));
    for cell in cells {
        let columns = cell.outcomes.each_ref().map(|outcome| match outcome {
            Ok(detail) if detail.is_empty() => "ok".to_owned(),
            Ok(detail) => format!("ok, {detail}"),
            Err(_) => "**failed**".to_owned(),
        });
        let (client, server) = (cell.client, cell.server);
        println!("| {client} | {server} | {} |", columns.join(" | "));
    }
    println!();
    for cell in cells {
        for (case, outcome) in CASES.iter().zip(&cell.outcomes) {
            if let Err(why) = outcome {
                println!("{} with {}, {case}: {why}", cell.client, cell.server);
            }
        }
    }
    let outcomes = || cells.iter().flat_map(|cell| &cell.outcomes);
    let passed = outcomes().filter(|outcome| outcome.is_ok()).count();
    let failed = outcomes().count() - passed;
    let skipped = drivers
        .iter()
        .filter(|driver| driver.words.is_err())
        .count();
    println!("logs: {}", runs.display());
    println!("interop-wt: {passed} passed, {failed} failed, {skipped} stacks skipped");
}

/// Nothing failed where Towline is an end, and nothing failed to build.
pub(crate) fn all_good(drivers: &[Driver], cells: &[Cell]) -> bool {
    let built = drivers
        .iter()
        .all(|driver| !matches!(driver.words, Err(NotBuilt::Failed(_))));
    let ours = cells
        .iter()
        .filter(|cell| [cell.client, cell.server].contains(&OURS));
    built && ours.flat_map(|cell| &cell.outcomes).all(Result::is_ok)
}

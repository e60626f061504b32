//! The table of HTTP/3 as Markdown, what failed, what was skipped and the closing line.

use std::path::Path;

use crate::drivers::{Driver, Fleet, Stack};
use crate::http3::cell::{Case, Cell, Outcome};

/// Says at once how a cell ended.
pub(crate) fn announce(cell: &Cell) {
    let (client, server) = (cell.client.name(), cell.server.name());
    for (case, outcome) in &cell.outcomes {
        let word = match outcome {
            Outcome::Passed(detail) => format!("ok, {detail}"),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::Skipped(why) => format!("skipped: {why}"),
        };
        eprintln!("  {:<9} {client} -> {server}: {word}", case.name());
    }
}

/// Prints it all.
pub(crate) fn print(cells: &[Cell], fleet: &Fleet, runs: &Path) {
    let names = Case::ALL.map(Case::name).join(" | ");
    println!("\n| client | server | {names} |");
    println!("|---|---|{}", "---|".repeat(Case::ALL.len()));
    for cell in cells {
        let columns: Vec<String> = cell.outcomes.iter().map(|(_, o)| column(o)).collect();
        let (client, server) = (cell.client.name(), cell.server.name());
        println!("| {client} | {server} | {} |", columns.join(" | "));
    }
    println!();
    for (cell, case, outcome) in outcomes(cells) {
        if let Outcome::Failed(why) = outcome {
            let (client, server) = (cell.client.name(), cell.server.name());
            println!("FAILED {} {client} -> {server}: {why}", case.name());
        }
    }
    for (stack, driver) in &fleet.drivers {
        match driver {
            Driver::Ready(_) => {}
            Driver::Skipped(why) => println!("SKIPPED HTTP/3 with {}: {why}", stack.name()),
            Driver::Broken(why) => println!("BROKEN {}: {why}", stack.name()),
        }
    }
    let count = |wanted: fn(&Outcome) -> bool| {
        let outcomes = outcomes(cells).filter(|(_, _, outcome)| wanted(outcome));
        outcomes.count()
    };
    let passed = count(|outcome| matches!(outcome, Outcome::Passed(_)));
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    println!("logs: {}", runs.display());
    println!("interop-h3: {passed} passed, {failed} failed, {skipped} skipped");
}

/// Whether nothing failed where Towline is an end, and no driver's build did.
pub(crate) fn all_good(cells: &[Cell], fleet: &Fleet) -> bool {
    let is_ours = |cell: &Cell| [cell.client, cell.server].contains(&Stack::Towline);
    let mut failed = outcomes(cells)
        .filter(|(cell, _, outcome)| is_ours(cell) && matches!(outcome, Outcome::Failed(_)));
    let mut broken = fleet
        .drivers
        .iter()
        .filter(|(_, driver)| matches!(driver, Driver::Broken(_)));
    failed.next().is_none() && broken.next().is_none()
}

fn outcomes(cells: &[Cell]) -> impl Iterator<Item = (&Cell, Case, &Outcome)> {
    cells.iter().flat_map(|cell| {
        let outcomes = cell.outcomes.iter();
        outcomes.map(move |(case, outcome)| (cell, *case, outcome))
    })
}

fn column(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed(detail) => format!("ok, {detail}"),
        Outcome::Failed(_) => "**failed**".to_owned(),
        Outcome::Skipped(_) => "–".to_owned(),
    }
}

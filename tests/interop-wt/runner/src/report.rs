//! The table a person reads, the closing line scripts read and the JSON file.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::cell::{CASES, Cell, Outcome};
use crate::drivers::{Driver, NotBuilt, Stack};

/// What is wrong with both ends of pywebtransport 0.9.0, in Towline's words; a peer meets either first. It writes
/// the types of its QPACK streams on its control stream, where they are frames, and its SETTINGS name no version.
const FLAWS: [&str; 2] = ["a frame of HTTP/2", "name no version of WebTransport"];

/// Whether the pair must have no session, and its client must tell one of [`FLAWS`].
fn must_refuse(client: Stack, server: Stack) -> bool {
    match (client, server) {
        (ours, Stack::Pywebtransport9) | (Stack::Pywebtransport9, ours) => ours.is_ours(),
        _ => false,
    }
}

/// What a case of a cell counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
    /// Two other stacks have no session, or the pair [must have none](must_refuse).
    Refused,
    /// Two other stacks have a session, and fail in this case.
    PeersFail,
}

impl Verdict {
    const ALL: [Verdict; 5] = [
        Verdict::Passed,
        Verdict::Failed,
        Verdict::Skipped,
        Verdict::Refused,
        Verdict::PeersFail,
    ];

    fn name(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
            Verdict::Refused => "refused",
            Verdict::PeersFail => "fails among peers",
        }
    }
}

/// The cases of a cell with what each counts as.
fn verdicts(cell: &Cell) -> impl Iterator<Item = (&'static str, &Outcome, Verdict)> {
    let ours = cell.client.is_ours() || cell.server.is_ours();
    let must_refuse = must_refuse(cell.client, cell.server);
    let refused = match &cell.outcomes[0] {
        Outcome::Failed(why) if must_refuse => FLAWS.iter().any(|flaw| why.contains(flaw)),
        Outcome::Failed(_) => !ours,
        _ => false,
    };
    CASES
        .iter()
        .zip(&cell.outcomes)
        .map(move |(case, outcome)| {
            let verdict = match outcome {
                _ if refused => Verdict::Refused,
                Outcome::Failed(_) if !ours => Verdict::PeersFail,
                Outcome::Failed(_) | Outcome::NoSession => Verdict::Failed,
                // The refusal is what is right; a session would mean that the rule above is old.
                Outcome::Passed(_) if must_refuse => Verdict::Failed,
                Outcome::Passed(_) => Verdict::Passed,
                Outcome::Skipped(_) => Verdict::Skipped,
            };
            (*case, outcome, verdict)
        })
}

/// The table as Markdown, then in words what did not pass, then the closing line.
pub(crate) fn print(drivers: &[Driver], cells: &[Cell], missing: usize, runs: &Path) {
    println!("\n| client | server | {} |", CASES.join(" | "));
    println!("|---|---|{}", "---|".repeat(CASES.len()));
    for cell in cells {
        let columns: Vec<String> = verdicts(cell).map(column).collect();
        let (client, server) = (cell.client.name(), cell.server.name());
        println!("| {client} | {server} | {} |", columns.join(" | "));
    }
    println!();
    print_reasons(cells);
    for driver in drivers {
        let name = driver.stack.name();
        match &driver.words {
            Ok(_) => {}
            Err(NotBuilt::Missing(why)) => println!("SKIPPED WebTransport with {name}: {why}"),
            Err(NotBuilt::Failed(why)) => println!("BROKEN {name}: {why}"),
        }
    }
    println!("logs: {}", runs.display());
    let [passed, failed, skipped, refused, peers_fail] = count(cells);
    if refused > 0 {
        let pairs = refused / CASES.len();
        println!("interop-wt: {pairs} pairs have no session with each other, as told above");
    }
    if peers_fail > 0 {
        println!("interop-wt: {peers_fail} runs fail among the peers, and do not count");
    }
    let skipped = skipped + missing;
    println!("interop-wt: {passed} passed, {failed} failed, {skipped} skipped");
}

fn column((_, outcome, verdict): (&str, &Outcome, Verdict)) -> String {
    match (verdict, outcome) {
        (Verdict::Passed, Outcome::Passed(detail)) if detail.is_empty() => "ok".to_owned(),
        (Verdict::Passed, Outcome::Passed(detail)) => format!("ok, {detail}"),
        (Verdict::Failed, _) => "**failed**".to_owned(),
        (Verdict::PeersFail, _) => "fails".to_owned(),
        (verdict, _) => verdict.name().to_owned(),
    }
}

fn print_reasons(cells: &[Cell]) {
    // What a stack cannot do is the same in all its cells.
    let mut skips = BTreeSet::new();
    for cell in cells {
        let pair = format!("{} with {}", cell.client.name(), cell.server.name());
        for (case, outcome, verdict) in verdicts(cell) {
            let why = match outcome {
                Outcome::NoSession => continue,
                Outcome::Skipped(why) => {
                    skips.insert(format!("{why} ({case})"));
                    continue;
                }
                Outcome::Passed(_) => "there is a session, and there should be none",
                Outcome::Failed(why) => why,
            };
            match verdict {
                Verdict::Refused => println!("refused, {pair}: {why}"),
                Verdict::PeersFail => println!("fails among peers, {pair}, {case}: {why}"),
                Verdict::Failed => println!("FAILED {pair}, {case}: {why}"),
                Verdict::Passed | Verdict::Skipped => {}
            }
        }
    }
    for skip in skips {
        println!("skipped, {skip}");
    }
}

/// How many runs there are of each verdict, in the order of [`Verdict::ALL`].
fn count(cells: &[Cell]) -> [usize; Verdict::ALL.len()] {
    let all: Vec<Verdict> = cells
        .iter()
        .flat_map(|cell| verdicts(cell).map(|(_, _, verdict)| verdict))
        .collect();
    Verdict::ALL.map(|verdict| all.iter().filter(|found| **found == verdict).count())
}

/// Nothing failed where Towline is an end, and nothing failed to build.
pub(crate) fn all_good(drivers: &[Driver], cells: &[Cell]) -> bool {
    let broken = |driver: &Driver| matches!(driver.words, Err(NotBuilt::Failed(_)));
    count(cells)[1] == 0 && !drivers.iter().any(broken)
}

/// Everything as JSON text.
pub(crate) fn json(drivers: &[Driver], cells: &[Cell], missing: usize) -> String {
    let [passed, failed, skipped, refused, peers_fail] = count(cells);
    let results: Vec<Value> = cells.iter().flat_map(cell_json).collect();
    let not_built: Vec<Value> = drivers
        .iter()
        .filter_map(|driver| match &driver.words {
            Ok(_) => None,
            Err(NotBuilt::Missing(why)) => {
                Some(json!({"stack": driver.stack.name(), "skipped": why}))
            }
            Err(NotBuilt::Failed(why)) => {
                Some(json!({"stack": driver.stack.name(), "broken": why}))
            }
        })
        .collect();
    let document = json!({
        "passed": passed,
        "failed": failed,
        "skipped": skipped + missing,
        "refused": refused,
        "fails_among_peers": peers_fail,
        "missing": not_built,
        "results": results,
    });
    format!("{document:#}\n")
}

fn cell_json(cell: &Cell) -> impl Iterator<Item = Value> {
    verdicts(cell).map(|(case, outcome, verdict)| {
        let mut value = json!({
            "case": case,
            "client": cell.client.name(),
            "server": cell.server.name(),
            "result": verdict.name(),
        });
        match outcome {
            Outcome::Passed(detail) => value["detail"] = json!(detail),
            Outcome::Failed(why) | Outcome::Skipped(why) => value["why"] = json!(why),
            Outcome::NoSession => value["why"] = json!("there was no session"),
        }
        value
    })
}

#[cfg(test)]
mod tests;

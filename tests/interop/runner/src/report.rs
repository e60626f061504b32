//! The table a person reads, the closing line scripts read and the JSON file.

use std::path::Path;

use serde_json::{Value, json};

use crate::drivers::{Driver, Fleet};
use crate::matrix::{Outcome, Verdict};

/// Prints the table, what failed, what was skipped and the closing line.
pub(crate) fn print(outcomes: &[Outcome], fleet: &Fleet, runs: &Path) {
    let mut cases: Vec<_> = outcomes.iter().map(|o| o.run.case).collect();
    cases.dedup();
    let mut pairs = Vec::new();
    for outcome in outcomes {
        let pair = (outcome.run.client, outcome.run.server);
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    print!("\n{:<20}", "client -> server");
    for case in &cases {
        print!(" {:>10}", case.name());
    }
    println!();
    for (client, server) in pairs {
        print!("{:<20}", format!("{} -> {}", client.name(), server.name()));
        for case in &cases {
            let found = outcomes
                .iter()
                .find(|o| o.run.case == *case && o.run.client == client && o.run.server == server);
            let cell = match found.map(|o| &o.verdict) {
                Some(Verdict::Passed(passed)) => format!("{:.2} s", passed.took.as_secs_f64()),
                Some(Verdict::Failed(_)) => "FAILED".to_owned(),
                Some(Verdict::PeersToo(_)) => "peers too".to_owned(),
                Some(Verdict::Skipped(_)) => "skipped".to_owned(),
                None => "-".to_owned(),
            };
            let width = case.name().len().max(10);
            print!(" {cell:>width$}");
        }
        println!();
    }
    println!();
    for outcome in outcomes {
        if let Verdict::Failed(why) = &outcome.verdict {
            let run = &outcome.run;
            println!("FAILED {}: {why}", run.folder());
            println!("      folder: {}", runs.join(run.folder()).display());
        }
        if let Verdict::PeersToo(why) = &outcome.verdict {
            println!("FAILS AMONG PEERS TOO {}: {why}", outcome.run.folder());
        }
    }
    for (stack, driver) in &fleet.drivers {
        match driver {
            Driver::Ready(_) => {}
            Driver::Skipped(why) => println!("SKIPPED {}: {why}", stack.name()),
            Driver::Broken(why) => println!("BROKEN {}: {why}", stack.name()),
        }
    }
    let [passed, failed, skipped, peers_too] = count(outcomes);
    if peers_too > 0 {
        println!("interop: {peers_too} runs fail among the peers too, and do not count");
    }
    println!("interop: {passed} passed, {failed} failed, {skipped} skipped");
}

/// Whether no run failed and no driver's build did.
pub(crate) fn all_good(outcomes: &[Outcome], fleet: &Fleet) -> bool {
    let broken = |driver: &Driver| matches!(driver, Driver::Broken(_));
    count(outcomes)[1] == 0 && !fleet.drivers.iter().any(|(_, driver)| broken(driver))
}

/// Everything as JSON text.
pub(crate) fn json(outcomes: &[Outcome], fleet: &Fleet) -> String {
    let [passed, failed, skipped, peers_too] = count(outcomes);
    let results: Vec<Value> = outcomes.iter().map(outcome_json).collect();
    let missing: Vec<Value> = fleet
        .drivers
        .iter()
        .filter_map(|(stack, driver)| match driver {
            Driver::Ready(_) => None,
            Driver::Skipped(why) => Some(json!({"stack": stack.name(), "skipped": why})),
            Driver::Broken(why) => Some(json!({"stack": stack.name(), "broken": why})),
        })
        .collect();
    let document = json!({
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "fails_among_peers_too": peers_too,
        "missing": missing,
        "results": results,
    });
    format!("{document:#}\n")
}

fn outcome_json(outcome: &Outcome) -> Value {
    let mut value = json!({
        "case": outcome.run.case.name(),
        "client": outcome.run.client.name(),
        "server": outcome.run.server.name(),
    });
    match &outcome.verdict {
        Verdict::Passed(passed) => {
            let summary = |text: String| serde_json::from_str::<Value>(&text).ok();
            value["result"] = json!("passed");
            value["seconds"] = json!(passed.took.as_secs_f64());
            value["client_summary"] = json!(summary(passed.client.to_json()));
            value["server_summary"] = json!(
                passed
                    .server
                    .as_ref()
                    .and_then(|server| summary(server.to_json()))
            );
            value["path"] = json!(passed.path);
        }
        Verdict::Failed(why) => {
            value["result"] = json!("failed");
            value["why"] = json!(why);
        }
        Verdict::PeersToo(why) => {
            value["result"] = json!("fails among peers too");
            value["why"] = json!(why);
        }
        Verdict::Skipped(why) => {
            value["result"] = json!("skipped");
            value["why"] = json!(why);
        }
    }
    value
}

/// Passed, failed and skipped runs, and those that fail among the peers too.
fn count(outcomes: &[Outcome]) -> [usize; 4] {
    let mut counts = [0; 4];
    for outcome in outcomes {
        let index = match outcome.verdict {
            Verdict::Passed(_) => 0,
            Verdict::Failed(_) => 1,
            Verdict::Skipped(_) => 2,
            Verdict::PeersToo(_) => 3,
        };
        counts[index] += 1;
    }
    counts
}

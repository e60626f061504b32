//! `make link-chaos` and `make bench-link`: the delta link under kills, and beside its peer.

use std::process::Command;

use crate::Outcome;
use crate::exec::{cargo, root, run};

/// What `bench.py` writes, and the picture of it.
const RESULTS: &str = "bench/results/link.json";
const CHART: &str = "docs/plots/link.svg";

/// `cargo xtask link-chaos ARG…`.
pub(crate) fn chaos(arguments: &[String]) -> Outcome {
    run(&mut chaos_of(arguments)?)
}

/// Builds the program, with its crash points, and gives the script that kills it.
pub(crate) fn chaos_of(arguments: &[String]) -> Outcome<Command> {
    run(&mut cargo([
        "build",
        "--quiet",
        "--locked",
        "-p",
        "towline-cli",
    ]))?;
    let mut command = Command::new("python3");
    command.current_dir(root());
    command.args(["tests/link/chaos.py", "--towline", "target/debug/towline"]);
    command.args(arguments);
    Ok(command)
}

/// `cargo xtask bench-link ARG…`.
pub(crate) fn bench(arguments: &[String]) -> Outcome {
    run(&mut cargo([
        "build",
        "--quiet",
        "--locked",
        "--release",
        "-p",
        "towline-cli",
    ]))?;
    let mut command = Command::new("python3");
    command.current_dir(root());
    command.args([
        "bench/edge-link/bench.py",
        "--towline",
        "target/release/towline",
        "--out",
        RESULTS,
    ]);
    let measured = run(command.args(arguments));
    if let Ok(text) = std::fs::read_to_string(root().join(RESULTS))
        && text.contains("\"rows\"")
    {
        chart(RESULTS, CHART)?;
    }
    measured
}

/// Draws what was measured.
fn chart(results: &str, out: &str) -> Outcome {
    run(cargo([
        "run",
        "--quiet",
        "--release",
        "--locked",
        "--manifest-path",
        "bench/Cargo.toml",
        "--bin",
        "bench-link-chart",
        "--",
        results,
        out,
    ])
    .current_dir(root()))
}

//! `make link-chaos` and `make bench-link`: the delta link under kills, and beside its peer.

use std::process::Command;

use crate::Outcome;
use crate::exec::{cargo, root, run, which};
use crate::report::Skips;

/// Runs in `make test`.
const RUNS: &str = "10";

/// `cargo xtask link-chaos ARG…`.
pub(crate) fn chaos(arguments: &[String]) -> Outcome {
    run(&mut chaos_of(arguments)?)
}

/// The same in `make test`.
pub(crate) fn few_chaos(skips: &mut Skips) -> Outcome<String> {
    if which("python3").is_none() {
        return Err("python3 is not installed".to_owned());
    }
    let runs = ["--runs".to_owned(), RUNS.to_owned()];
    crate::suites::suite(&mut chaos_of(&runs)?, skips)
}

/// Builds the program, with its crash points, and gives the script that kills it.
fn chaos_of(arguments: &[String]) -> Outcome<Command> {
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
    ]);
    run(command.args(arguments))
}

//! `make link-chaos` and `make bench-link`: the delta link under kills, and beside its peer.

use std::process::Command;

use crate::Outcome;
use crate::exec::{cargo, root, run};

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
    ]);
    run(command.args(arguments))
}

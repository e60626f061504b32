//! `make bench-quic`: the comparison with other stacks, a workspace of its own under `bench/`.

use std::os::unix::process::CommandExt as _;

use crate::Outcome;
use crate::exec::{cargo, shown};

const BENCH: &str = "bench/Cargo.toml";

/// `cargo xtask bench-quic ARG…`; the runner's exit code becomes ours, for it says more than
/// success or failure.
pub(crate) fn bench_quic(arguments: &[String]) -> Outcome {
    let mut command = cargo([
        "run",
        "--quiet",
        "--release",
        "--locked",
        "--manifest-path",
        BENCH,
        "--bin",
        "bench-quic",
        "--",
    ]);
    command.args(arguments);
    let error = command.exec();
    Err(format!("`{}` did not start: {error}", shown(&command)))
}

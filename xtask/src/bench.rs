//! `make bench-quic`, `bench-wt`, `bench-stcp`, `bench-neighbour`, `bench-paths` and `bench-seed`: the comparisons
//! with other QUIC, WebTransport and TLS stacks, with Linux TCP and with Freenet's tables; and `make flood`. A
//! workspace of its own in `bench/`.

use std::os::unix::process::CommandExt as _;

use crate::Outcome;
use crate::exec::{cargo, shown};

const BENCH: &str = "bench/Cargo.toml";

/// `cargo xtask bench-quic ARG…`.
pub(crate) fn bench_quic(arguments: &[String]) -> Outcome {
    become_runner("bench-quic", arguments)
}

/// `cargo xtask bench-wt ARG…`.
pub(crate) fn bench_wt(arguments: &[String]) -> Outcome {
    become_runner("bench-wt", arguments)
}

/// `cargo xtask bench-stcp ARG…`.
pub(crate) fn bench_stcp(arguments: &[String]) -> Outcome {
    become_runner("bench-stcp", arguments)
}

/// `cargo xtask bench-neighbour ARG…`.
pub(crate) fn bench_neighbour(arguments: &[String]) -> Outcome {
    become_runner("bench-neighbour", arguments)
}

/// `cargo xtask bench-paths ARG…`.
pub(crate) fn bench_paths(arguments: &[String]) -> Outcome {
    become_runner("bench-paths", arguments)
}

/// `cargo xtask bench-seed ARG…`.
pub(crate) fn bench_seed(arguments: &[String]) -> Outcome {
    become_runner("bench-seed", arguments)
}

/// `cargo xtask flood ARG…`.
pub(crate) fn flood(arguments: &[String]) -> Outcome {
    become_runner("bench-flood", arguments)
}

/// The runner's exit code becomes ours, for it says more than success or failure.
fn become_runner(name: &str, arguments: &[String]) -> Outcome {
    let mut command = cargo([
        "run",
        "--quiet",
        "--release",
        "--locked",
        "--manifest-path",
        BENCH,
        "--bin",
        name,
        "--",
    ]);
    command.args(arguments);
    let error = command.exec();
    Err(format!("`{}` did not start: {error}", shown(&command)))
}

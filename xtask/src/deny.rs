//! Licences, banned packages, sources and advisories of every dependency, by `cargo deny`.
//!
//! The rules are in `deny.toml`. The advisory database comes over the network from outside the
//! package registries; where it cannot be fetched that part alone is skipped.

use crate::Outcome;
use crate::exec::{cargo, run, run_reading, which};
use crate::report::{Report, Skips};

/// `cargo xtask deny`.
pub(crate) fn deny() -> Outcome {
    let mut report = Report::default();
    report.step("cargo deny", deny_step);
    report.finish("deny")
}

/// The same as a step of `check`.
pub(crate) fn deny_step(skips: &mut Skips) -> Outcome<String> {
    if which("cargo-deny").is_none() {
        skips.add(
            "cargo deny",
            "cargo-deny is not installed (make setup-system)",
        );
        return Ok("skipped".to_owned());
    }
    run(&mut cargo([
        "deny",
        "--locked",
        "--all-features",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    let mut unreachable = false;
    let outcome = run_reading(
        &mut cargo([
            "deny",
            "--locked",
            "check",
            "--hide-inclusion-graph",
            "advisories",
        ]),
        |line| {
            unreachable |= line.contains("failed to fetch advisory database")
                || line.contains("failed to clone");
        },
    );
    match outcome {
        Err(_) if unreachable => {
            skips.add(
                "cargo deny advisories",
                "the advisory database cannot be reached from here",
            );
            Ok("bans, licences and sources are fine".to_owned())
        }
        Err(message) => Err(message),
        Ok(()) => Ok("bans, licences, sources and advisories are fine".to_owned()),
    }
}

//! `make check`: everything that can be said about the tree without running its tests.
//!
//! fmt, clippy, layers, house, docs, deny, the caps table, the citations, and the build for aarch64 where its target and
//! C compiler are installed. `tests/interop` and `fuzz` are workspaces of their own and are looked
//! at too. Every step runs even when one before it failed.

use std::path::Path;
use std::process::Command;

use crate::exec::{capture, cargo, program, run, which};
use crate::report::{Report, Skips};
use crate::{Outcome, caps, citations, deny, house, layers};

const ROOT: &str = "Cargo.toml";
const INTEROP: &str = "tests/interop/Cargo.toml";
const INTEROP_WT: &str = "tests/interop-wt/Cargo.toml";
const FUZZ: &str = "fuzz/Cargo.toml";

const CROSS_TARGET: &str = "aarch64-unknown-linux-gnu";
const CROSS_COMPILER: &str = "aarch64-linux-gnu-gcc";

/// `cargo xtask check`.
pub(crate) fn check() -> Outcome {
    let mut report = Report::default();
    report.step("fmt", |_| {
        // `--all` follows path dependencies, so tests/interop brings the crates it uses along.
        run(&mut cargo(["fmt", "--all", "--check", "--", "-l"]))?;
        run(&mut cargo([
            "fmt",
            "--check",
            "--manifest-path",
            FUZZ,
            "--",
            "-l",
        ]))?;
        for workspace in [INTEROP, INTEROP_WT] {
            let mut interop = cargo(["fmt", "--all", "--check", "--manifest-path", workspace]);
            run(interop.args(["--", "-l"]))?;
        }
        Ok("fine".to_owned())
    });
    report.step("caps", |_| quietly(caps::caps()));
    report.step("citations", |_| quietly(citations::citations(&[])));
    report.step("clippy", |_| quietly(run(&mut clippy(ROOT))));
    report.step("clippy of tests/interop", |_| {
        quietly(run(&mut clippy(INTEROP)))
    });
    report.step("clippy of tests/interop-wt", |_| {
        quietly(run(&mut clippy(INTEROP_WT)))
    });
    report.step("entry points of fuzz", |_| {
        let mut command = cargo(["check", "--locked", "--manifest-path", FUZZ]);
        quietly(run(command.args(["--target-dir", "target"])))
    });
    report.step("layers", |_| quietly(layers::layers(&[])));
    report.step("house", |_| quietly(house::house(&["--strict".to_owned()])));
    // Libraries only: the binary and the library `towline` would write to one folder.
    report.step("docs", |_| {
        let mut command = cargo(["doc", "--locked", "--workspace", "--no-deps", "--lib"]);
        quietly(run(command.env("RUSTDOCFLAGS", "-D warnings")))
    });
    report.step("deny", deny::deny_step);
    report.step("aarch64", cross_check);
    report.finish("check")
}

fn clippy(workspace: &str) -> Command {
    let mut command = cargo(["clippy", "--locked", "--workspace", "--all-targets"]);
    command.args(["--manifest-path", workspace, "--", "-D", "warnings"]);
    command
}

fn quietly(outcome: Outcome) -> Outcome<String> {
    outcome.map(|()| "fine".to_owned())
}

fn cross_check(skips: &mut Skips) -> Outcome<String> {
    let sysroot = capture(&mut program("rustc", ["--print", "sysroot"]))?;
    let what = "cargo check for aarch64";
    if !Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(CROSS_TARGET)
        .join("lib")
        .is_dir()
    {
        skips.add(
            what,
            "the Rust target aarch64-unknown-linux-gnu is not installed (make setup-system)",
        );
        return Ok("skipped".to_owned());
    }
    if which(CROSS_COMPILER).is_none() {
        skips.add(
            what,
            "aarch64-linux-gnu-gcc is not installed (make setup-system)",
        );
        return Ok("skipped".to_owned());
    }
    quietly(run(&mut cargo([
        "check",
        "--locked",
        "--workspace",
        "--target",
        CROSS_TARGET,
    ])))
}

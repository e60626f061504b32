//! The Python package: built for the machine's own interpreter, its types checked, its tests run; and its wheel.
//!
//! Part of `make test`, but for the wheel. It works in an environment of its own under `target`, and takes its
//! tools from PyPI: by uv, or by pip where there is no uv. Without Python 3.11, `venv` or the registry it is
//! skipped by name, and pyright without Node.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::exec::{program, root, run, run_reading, target, which};
use crate::report::Skips;

/// What builds the package; what tests it, its own `test` extra says.
const BUILDER: &str = "maturin>=1.9.4,<2";
/// What installs, where it is there.
const UV: &str = "uv";
/// The second checker of types, which runs on Node. Each version finds more: this one is named.
const PYRIGHT: &str = "pyright==1.1.414";

/// `cargo xtask python`.
pub(crate) fn python(skips: &mut Skips) -> Outcome<String> {
    const NOTHING: &str = "0 passed, 0 failed";
    let environment = match built(&["--extras", "test"])? {
        Ok(environment) => environment,
        Err(why) => {
            skips.add("python", why);
            return Ok(NOTHING.to_owned());
        }
    };
    let tool = |name: &str, arguments: &[&str]| tool(&environment, name, arguments);
    run(&mut tool("mypy", &[]))?;
    let stubs = ["-m", "mypy.stubtest", "towline._native"];
    run(&mut tool("python", &stubs))?;
    if which("node").is_none() {
        skips.add("pyright", "node is not installed");
    } else if works(&mut install(&environment, PYRIGHT)) {
        let interpreter = environment.join("bin/python");
        let pyright = |arguments: &[&str]| {
            let mut command = tool("pyright", arguments);
            command.arg("--pythonpath").arg(&interpreter);
            // It looks up no package through an editable installation.
            command.env("PYTHONPATH", root().join("python"));
            run(&mut command)
        };
        pyright(&[])?;
        // Whoever imports the package finds a type for everything.
        pyright(&["--verifytypes", "towline", "--ignoreexternal"])?;
    } else {
        skips.add("pyright", "PyPI does not give it");
    }
    let mut closing = None;
    // -ra names each test that was skipped, and why.
    let outcome = run_reading(&mut tool("pytest", &["-q", "-ra"]), |line| {
        skips.hear(line);
        if is_closing(line) {
            closing = Some(line.to_owned());
        }
    });
    let closing = closing.ok_or("pytest counted no tests")?;
    outcome.map(|()| closing)
}

/// The environment with the package in it, built of this tree by maturin with these arguments; the inner error
/// says why there is none.
pub(crate) fn built(arguments: &[&str]) -> Outcome<Result<PathBuf, &'static str>> {
    let environment = target()?.join("python");
    if let Err(why) = prepare(&environment) {
        return Ok(Err(why));
    }
    let mut build = tool(&environment, "maturin", ["develop", "--quiet", "--locked"]);
    if which(UV).is_some() {
        build.arg("--uv");
    }
    run(build.args(arguments))?;
    Ok(Ok(environment))
}

/// `cargo xtask wheel`: a release wheel in `target/wheels`. Arguments go to maturin, such as `--zig`.
pub(crate) fn wheel(arguments: &[String]) -> Outcome {
    let target = target()?;
    let (environment, wheels) = (target.join("python"), target.join("wheels"));
    prepare(&environment)?;
    let build = ["build", "--release", "--locked", "--out"];
    run(tool(&environment, "maturin", build)
        .arg(wheels)
        .args(arguments))
}

fn tool(
    environment: &Path,
    name: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Command {
    let mut command = Command::new(environment.join("bin").join(name));
    command.args(arguments).current_dir(root());
    // maturin looks for the environment here.
    command.env("VIRTUAL_ENV", environment);
    command
}

fn works(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

/// An environment with the tools; the error says why there is none.
fn prepare(environment: &Path) -> Result<(), &'static str> {
    const RECENT: &str = "import sys; sys.exit(sys.version_info < (3, 11))";
    if which("python3").is_none() {
        return Err("python3 is not installed");
    }
    if !works(&mut program("python3", ["-c", RECENT])) {
        return Err("python3 is older than 3.11");
    }
    let has_uv = which(UV).is_some();
    let (mut make, made) = match has_uv {
        true => (program(UV, ["venv", "--quiet"]), "bin/python"),
        false => (program("python3", ["-m", "venv"]), "bin/pip"),
    };
    if !has_uv {
        println!("uv is not installed: pip installs what the suite needs");
    }
    if !environment.join(made).exists() && !works(make.arg(environment)) {
        return Err("python3 makes no environment (make setup-system: python3-venv)");
    }
    match works(&mut install(environment, BUILDER)) {
        true => Ok(()),
        false => Err("PyPI does not give maturin"),
    }
}

/// Installs a package into the environment.
fn install(environment: &Path, package: &str) -> Command {
    let mut command = match which(UV) {
        Some(_) => {
            let mut command = program(UV, ["pip", "install", "--python"]);
            command.arg(environment.join("bin/python"));
            command
        }
        None => {
            let mut command = Command::new(environment.join("bin/pip"));
            command.arg("install");
            command
        }
    };
    command.args(["--quiet", package]).current_dir(root());
    command
}

/// The last line of pytest, such as `97 passed, 1 skipped in 16.01s`.
fn is_closing(line: &str) -> bool {
    let counts = ["passed", "failed", "error"];
    line.contains(" in ")
        && counts.iter().any(|word| line.contains(word))
        && line.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::is_closing;

    #[test]
    fn the_closing_line_of_pytest_is_found_whatever_came_of_it() {
        assert!(is_closing("97 passed in 16.01s"));
        assert!(is_closing("1 failed, 96 passed in 17.20s"));
        assert!(!is_closing(
            "SKIPPED [1] conftest.py:71: not passed in time"
        ));
        assert!(!is_closing("........ [ 50%]"));
    }
}

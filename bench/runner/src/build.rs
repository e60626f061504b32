//! Cargo: our programs are built for every comparison, in release.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;

/// The peers' versions are those of the lock file.
const LOCK: &str = include_str!("../../Cargo.lock");

/// The repository's root folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `cargo build --release` in the workspace at `folder`.
///
/// # Errors
/// It did not start or did not succeed.
pub fn cargo(folder: &Path, arguments: &[&str]) -> Outcome {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--locked"])
        .args(arguments)
        .current_dir(folder);
    run(command, &format!("cargo build {}", arguments.join(" ")))
}

/// Runs a program called `what`. Its output belongs to standard error: standard output is for results.
///
/// # Errors
/// It did not start or did not succeed.
pub fn run(mut command: Command, what: &str) -> Outcome {
    let status = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .map_err(|error| format!("`{what}` did not start: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{what}` ended with {status}"))
    }
}

/// Where cargo puts what it builds in this workspace.
///
/// # Errors
/// Cargo does not tell.
pub fn target_folder(workspace: &Path) -> Outcome<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .current_dir(workspace)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("`cargo metadata` did not start: {error}"))?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("`cargo metadata` is not understood: {error}"))?;
    let folder = metadata["target_directory"].as_str();
    Ok(folder
        .ok_or("`cargo metadata` names no target folder")?
        .into())
}

/// A package's version in the peers' lock file.
pub fn locked(package: &str) -> String {
    let mut lines = LOCK.lines();
    lines.find(|line| *line == format!("name = \"{package}\""));
    let version = lines
        .next()
        .and_then(|line| line.strip_prefix("version = "));
    version.unwrap_or("unknown").trim_matches('"').to_owned()
}

//! The program `ip` of iproute2, which makes namespaces and sets addresses and routes.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::error::TunError;

/// Runs `ip` with these arguments; its output is kept for the error.
pub(super) fn ip(arguments: &[&str]) -> Result<(), TunError> {
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        // A Ctrl-C or a hangup is for the relay: what removes its namespaces must outlive it.
        .process_group(0)
        .output()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => TunError::NoIpProgram,
            _ => TunError::of("starting the program `ip`".to_owned(), error),
        })?;
    if output.status.success() {
        return Ok(());
    }
    let command = format!("ip {}", arguments.join(" "));
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // Its exit code says nothing of the cause.
    if message.contains("Operation not permitted") || message.contains("Permission denied") {
        return Err(TunError::NotPermitted {
            action: format!("`{command}`"),
        });
    }
    Err(TunError::Ip { command, message })
}

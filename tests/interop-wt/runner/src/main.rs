//! The WebTransport runner: builds the drivers whose toolchains are present, lets every client run its
//! cases against every server, and prints the table that `docs/interop-webtransport.md` shows.
//!
//! Steps, in this order: `drivers` (build) → [`cell`] (one client and one server) → `report`.

mod cell;
mod drivers;
mod report;

use std::path::Path;
use std::process::{Command, ExitCode};

use drivers::Driver;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("interop-wt: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything; true when nothing of Towline's failed and every driver that could be built was.
fn run() -> Result<bool, Error> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the runner's folder has no parent")?;
    let scratch = here.join("target").join("interop-wt");
    let runs = scratch.join("runs");
    std::fs::create_dir_all(&runs)?;
    let drivers = drivers::build(here, &scratch)?;
    let ready: Vec<&Driver> = drivers.iter().filter(|d| d.words.is_ok()).collect();
    let ours = ready.first().ok_or("no driver was built")?;
    write_certificate(ours, &scratch)?;
    let mut cells = Vec::new();
    for client in &ready {
        for server in &ready {
            cells.push(cell::run(client, server, &scratch, &runs)?);
        }
    }
    report::print(&drivers, &cells, &runs);
    Ok(report::all_good(&drivers, &cells))
}

fn write_certificate(ours: &Driver, folder: &Path) -> Result<(), Error> {
    let mut command: Command = ours.command()?;
    let status = command.arg("certificate").arg(folder).status()?;
    match status.success() {
        true => Ok(()),
        false => Err("no certificate was made".into()),
    }
}

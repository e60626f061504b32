//! The WebTransport runner: builds the drivers whose toolchains are present, lets clients run their cases
//! against servers, and prints the table that `docs/interop-webtransport.md` shows.
//!
//! Steps, in this order: `options` → `drivers` (build) → [`cell`] (one client and one server) → `report`.

mod cell;
mod drivers;
mod options;
mod report;

use std::path::Path;
use std::process::{Command, ExitCode};

use cell::CASES;
use drivers::Driver;
use options::Options;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let options = match Options::from_args() {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("interop-wt: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything; true when nothing of Towline's failed and every driver that could be built was.
fn run(options: &Options) -> Result<bool, Error> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the runner's folder has no parent")?;
    let scratch = here.join("target").join("interop-wt");
    let runs = scratch.join("runs");
    std::fs::create_dir_all(&runs)?;
    let drivers = drivers::build(here, &scratch, options)?;
    write_certificate(&drivers[0], &scratch)?;
    let mut cells = Vec::new();
    let mut missing = 0;
    for client in &drivers {
        for server in &drivers {
            if !options.pairs.include(client.stack, server.stack) {
                continue;
            }
            if client.words.is_err() || server.words.is_err() {
                missing += CASES.len();
                continue;
            }
            eprintln!(
                "interop-wt: {} with {}",
                client.stack.name(),
                server.stack.name()
            );
            cells.push(cell::run(client, server, &scratch, &runs)?);
        }
    }
    if let Some(file) = &options.json {
        std::fs::write(file, report::json(&drivers, &cells, missing))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    report::print(&drivers, &cells, missing, &runs);
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

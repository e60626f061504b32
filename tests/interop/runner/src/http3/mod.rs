//! `--http3`: each HTTP/3 client with each HTTP/3 server, over the same drivers in other roles.
//!
//! Steps, in this order: [`site`] (a folder of files) → [`cell`] (one client and one server) → `report`.
//! Towline's server is `towline serve --web` where files are asked for, and the driver elsewhere.

mod cell;
mod report;
mod site;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::drivers::{Driver, Fleet, Stack};
use crate::material::Material;
use crate::options::Options;

/// Who plays: quinn has no HTTP/3 of its own.
pub(crate) const PEERS: [Stack; 2] = [Stack::QuicGo, Stack::Aioquic];

/// Runs the table; true when nothing of Towline's failed and every driver that could be built was.
pub(crate) fn run(
    here: &Path,
    scratch: &Path,
    fleet: &Fleet,
    options: &Options,
) -> Result<bool, Error> {
    let scratch = scratch.join("http3");
    let material = Material::generate(&scratch.join("material"))?;
    let place = cell::Place {
        program: program(here, options.build)?,
        site: site::Site::generate(&scratch.join("site"), &scratch.join("list.txt"))?,
        runs: scratch.join("runs"),
        material,
    };
    let mut cells = Vec::new();
    for (client, _) in ready(fleet) {
        for (server, _) in ready(fleet) {
            let cell = cell::run(*client, *server, fleet, &place)?;
            report::announce(&cell);
            cells.push(cell);
        }
    }
    report::print(&cells, fleet, &place.runs);
    Ok(report::all_good(&cells, fleet))
}

fn ready(fleet: &Fleet) -> impl Iterator<Item = &(Stack, Driver)> {
    let drivers = fleet.drivers.iter();
    drivers.filter(|(_, driver)| matches!(driver, Driver::Ready(_)))
}

/// The program `towline`, built in the workspace above with the profile of its tests.
fn program(here: &Path, build: bool) -> Result<PathBuf, Error> {
    let manifest = here.join("../../Cargo.toml");
    let cargo = || {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.stderr(Stdio::inherit());
        command
    };
    if build {
        eprintln!("interop-h3: building the program towline");
        let mut command = cargo();
        command.args(["build", "--quiet", "--locked", "--package", "towline-cli"]);
        let status = command.arg("--manifest-path").arg(&manifest).status()?;
        if !status.success() {
            return Err("the program towline does not build".into());
        }
    }
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--no-deps", "--locked"]);
    let said = command.arg("--manifest-path").arg(&manifest).output()?;
    let said: serde_json::Value = serde_json::from_slice(&said.stdout)?;
    let target = said["target_directory"].as_str();
    let target = target.ok_or("cargo metadata names no target directory")?;
    Ok(Path::new(target).join("debug").join("towline"))
}

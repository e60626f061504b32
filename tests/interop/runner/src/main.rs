//! The interop runner: builds the drivers whose toolchains are present, runs
//! every case between Towline and each peer in both roles, compares the files
//! byte for byte and checks from independent evidence that what the case is
//! about really happened.
//!
//! Steps, in this order: `options` → `drivers` (build) → `material`
//! (certificate and files) → `matrix` (which runs, two at a time) → `case`
//! (one run) → `report`. With `--http3` it is [`http3`] that follows the drivers.

mod case;
mod drivers;
mod http3;
mod material;
mod matrix;
mod options;
mod path;
mod process;
mod report;

use std::path::Path;
use std::process::ExitCode;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let options = match options::Options::from_args() {
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
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything; true when nothing failed.
fn run(options: &options::Options) -> Result<bool, Error> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the runner's folder has no parent")?;
    let scratch = here.join("target").join("interop");
    let fleet = drivers::build(here, &scratch, options)?;
    if options.http3 {
        return http3::run(here, &scratch, &fleet, options);
    }
    let material = material::Material::generate(&scratch.join("material"))?;
    let runs = scratch.join("runs");
    let outcomes = matrix::run(options, &fleet, &material, &runs)?;
    if let Some(file) = &options.json {
        std::fs::write(file, report::json(&outcomes, &fleet))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    report::print(&outcomes, &fleet, &runs);
    Ok(report::all_good(&outcomes, &fleet))
}

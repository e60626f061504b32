//! `shapes`: Freenet's benchmark shapes on virtual time, as JSON on standard output.
//!
//! What it prints is what `crates/lab/benches/baseline.json` holds: `cargo xtask bench-compare
//! --record` writes it there, and a test compares the two.
#![expect(clippy::print_stdout, reason = "a program: it talks to its user")]

use std::process::ExitCode;

use towline_lab::shapes::{PATHS, SHAPES, play};

/// Everything random in the simulated network follows from it; the benches take the same one.
const SEED: u64 = 1;

fn main() -> ExitCode {
    let mut rows = Vec::new();
    for shape in SHAPES {
        for path in PATHS {
            match play(&shape, &path, SEED) {
                Ok(played) => rows.push(format!(
                    "    {{\"shape\": \"{}\", \"path\": \"{}\", \"handshake_ns\": {}, \
                     \"whole_ns\": {}}}",
                    shape.id,
                    path.name,
                    played.handshake.as_nanos(),
                    played.whole.as_nanos()
                )),
                Err(error) => {
                    eprintln!("shapes: {error}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    println!(
        "{{\n  \"schema\": \"towline.shapes/1\",\n  \"seed\": {SEED},\n  \"rows\": [\n{}\n  ]\n}}",
        rows.join(",\n")
    );
    ExitCode::SUCCESS
}

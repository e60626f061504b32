//! `make fuzz`: each fuzz target for a while, and the seeds its corpus starts from.
//!
//! The targets are plain functions in `crates/lab`. With a nightly toolchain and cargo-fuzz they
//! run under libFuzzer (`fuzz/`); otherwise a stable random mutator (`towline-lab`'s `fuzz`
//! binary) runs them, and says so. `fuzz/seeds.txt` holds the hand-written seeds in hexadecimal.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::Outcome;
use crate::exec::{cargo, program, root, run, which};
use crate::report::Report;

/// Every fuzz target.
pub(crate) const TARGETS: &[&str] = &[
    "packet",
    "frame",
    "connection",
    "message",
    "agent",
    "http3_frames_capsules",
    "http3_server",
    "link_codec",
    "link_messages",
    "link_spool",
    "qpack_decoder",
];

/// The target whose seeds a program makes.
const RECORDED: &str = "http3_server";

const SEEDS: &str = "fuzz/seeds.txt";
const DEFAULT_SECONDS: u64 = 600;

/// `cargo xtask fuzz [TARGET…] [--seconds N]`.
pub(crate) fn fuzz(arguments: &[String]) -> Outcome {
    let mut targets = Vec::new();
    let mut seconds = DEFAULT_SECONDS;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            let number = arguments.next().and_then(|number| number.parse().ok());
            seconds = number.ok_or("--seconds needs a whole number")?;
        } else if let Some(target) = TARGETS.iter().find(|target| *target == argument) {
            targets.push(*target);
        } else {
            return Err(format!(
                "no fuzz target `{argument}`; there are {}",
                TARGETS.join(", ")
            ));
        }
    }
    if targets.is_empty() {
        targets = TARGETS.to_vec();
    }
    let coverage_guided = has_cargo_fuzz();
    if !coverage_guided {
        println!("cargo-fuzz or the nightly toolchain is missing: using the stable random mutator");
    }
    let mut report = Report::default();
    for target in targets {
        report.step(&format!("fuzz {target}, {seconds} s"), |_| {
            let mut command = if coverage_guided {
                nightly(target, seconds)
            } else {
                stable(target, seconds)
            };
            run(&mut command).map(|()| "clean".to_owned())
        });
    }
    report.finish("fuzz")
}

/// The stable mutator; 0 seconds only replays the corpus.
pub(crate) fn stable(target: &str, seconds: u64) -> Command {
    let mut command = cargo([
        "run",
        "--quiet",
        "--locked",
        "-p",
        "towline-lab",
        "--bin",
        "fuzz",
        "--",
        target,
    ]);
    command.args([
        "--seconds",
        &seconds.to_string(),
        "--corpus",
        &format!("fuzz/corpus/{target}"),
    ]);
    command
}

/// New finds go to `target/`, so that the committed corpus changes only on purpose.
fn nightly(target: &str, seconds: u64) -> Command {
    let finds = root().join("fuzz/target/finds").join(target);
    let _ = std::fs::create_dir_all(&finds);
    let mut command = program("cargo", ["+nightly", "fuzz", "run", target]);
    command.arg(finds).arg(format!("fuzz/corpus/{target}"));
    command.args([
        "--",
        &format!("-max_total_time={seconds}"),
        "-max_len=65535",
    ]);
    // rustup must choose the toolchain by `+nightly`, not by what started this helper.
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn has_cargo_fuzz() -> bool {
    which("cargo-fuzz").is_some()
        && program("rustup", ["run", "nightly", "rustc", "--version"])
            .output()
            .is_ok_and(|output| output.status.success())
}

/// `cargo xtask fuzz-seeds`: writes every seed of `fuzz/seeds.txt` to its file, and those of exchanges
/// that are recorded.
pub(crate) fn write_seeds() -> Outcome {
    let seeds = seeds()?;
    for seed in &seeds {
        if let Some(folder) = seed.path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        std::fs::write(&seed.path, &seed.bytes)
            .map_err(|error| format!("{}: {error}", seed.path.display()))?;
    }
    println!("{} seeds written to fuzz/corpus", seeds.len());
    // What a client of ours sends is recorded.
    let mut recorded = stable(RECORDED, 0);
    recorded.args(["--write-seeds", &format!("fuzz/corpus/{RECORDED}")]);
    run(&mut recorded)
}

struct Seed {
    path: PathBuf,
    bytes: Vec<u8>,
}

fn seeds() -> Outcome<Vec<Seed>> {
    let text =
        std::fs::read_to_string(root().join(SEEDS)).map_err(|error| format!("{SEEDS}: {error}"))?;
    parse_seeds(&text)
}

/// A seed is a line `target/name` and the hexadecimal lines under it; `#` starts a comment and
/// `NN*COUNT` repeats a byte.
fn parse_seeds(text: &str) -> Outcome<Vec<Seed>> {
    let mut seeds: Vec<Seed> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let wrong = |what: &str| {
            let mut message = format!("{SEEDS}:{}: ", index + 1);
            let _ = write!(message, "{what}");
            message
        };
        if line.contains('/') {
            seeds.push(Seed {
                path: root().join("fuzz/corpus").join(line.trim()),
                bytes: Vec::new(),
            });
            continue;
        }
        for word in line.split_whitespace() {
            let seed = seeds
                .last_mut()
                .ok_or_else(|| wrong("bytes before the first name"))?;
            let (digits, count) = word.split_once('*').unwrap_or((word, "1"));
            let bytes = hexadecimal(digits).ok_or_else(|| wrong("not hexadecimal"))?;
            let count = count.parse().map_err(|_| wrong("not a count"))?;
            seed.bytes.extend(bytes.repeat(count));
        }
    }
    Ok(seeds)
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests;

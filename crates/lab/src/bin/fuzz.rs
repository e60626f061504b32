//! `fuzz`: runs a fuzz target with the stable random mutator, or replays a corpus.
//!
//! The last line of stdout is `fuzz TARGET: N executions, C crashes`. A crash is written to
//! `fuzz/crashes/TARGET-HASH` with the line that replays it. This mutator is random and not
//! coverage-guided; the same bodies run under libFuzzer from `fuzz/`.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program: it talks to its user and stops after a time"
)]

#[path = "../counting.rs"]
mod counting;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use towline_lab::fuzz::{Mutator, TARGETS, Target, target};

const USAGE: &str = "fuzz TARGET [--seconds N] [--corpus DIR] [--replay] [--seed S] [FILE…]
  --seconds N   how long to try new inputs (default 60); 0 only replays
  --corpus DIR  inputs to start from
  --replay      run the corpus and the files named once each, and stop
  --seed S      of the mutator (default 0)
  --write-seeds DIR  writes the inputs that the target itself makes, and stops";

/// Where crashes go.
const CRASHES: &str = "fuzz/crashes";

/// Heap one input may leave behind: what the process makes once, and nothing else.
const MAX_LEFT: i64 = 4 << 20;

/// Crashes after which there is no point in going on.
const MOST_CRASHES: u64 = 20;

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

struct Options {
    target: Target,
    seconds: u64,
    corpus: Option<PathBuf>,
    replay: bool,
    seed: u64,
    write_seeds: Option<PathBuf>,
    files: Vec<PathBuf>,
}

struct Runner {
    target: Target,
    executions: u64,
    crashes: u64,
    held_at_start: i64,
}

impl Runner {
    /// Runs one input; `None` if it crashed.
    fn run(&mut self, input: &[u8]) -> Option<u64> {
        self.executions += 1;
        match catch_unwind(AssertUnwindSafe(|| (self.target.run)(input))) {
            Ok(signature) => {
                let left = counting::held() - self.held_at_start;
                if left > MAX_LEFT {
                    self.crash(
                        input,
                        &format!("{left} bytes of heap were never given back"),
                    );
                    self.held_at_start = counting::held();
                    return None;
                }
                Some(signature)
            }
            Err(_) => {
                let what = LAST_PANIC.with(RefCell::take);
                self.crash(input, &what);
                None
            }
        }
    }

    fn crash(&mut self, input: &[u8], what: &str) {
        self.crashes += 1;
        let name = format!("{}-{:016x}", self.target.name, fnv(input));
        let path = Path::new(CRASHES).join(name);
        let written = std::fs::create_dir_all(CRASHES).and_then(|()| std::fs::write(&path, input));
        if let Err(error) = written {
            eprintln!("{}: {error}", path.display());
        }
        println!("CRASH {}", what.replace('\n', " "));
        println!(
            "  cargo run -p towline-lab --bin fuzz -- {} --replay {}",
            self.target.name,
            path.display()
        );
    }
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
            eprintln!("{message}\n{USAGE}\ntargets: {}", names.join(", "));
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|info| {
        LAST_PANIC.with(|last| last.replace(info.to_string()));
    }));
    match fuzz(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn fuzz(options: &Options) -> Result<u64, String> {
    let name = options.target.name;
    if let Some(folder) = &options.write_seeds {
        return write_seeds(options.target, folder).map(|()| 0);
    }
    let mut runner = Runner {
        target: options.target,
        executions: 0,
        crashes: 0,
        held_at_start: counting::held(),
    };
    let mut mutator = Mutator::new(options.target, options.seed);
    for path in starting_inputs(options)? {
        let input = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        if let Some(signature) = runner.run(&input) {
            mutator.learn(&input, signature);
        }
    }
    if !options.replay && options.seconds > 0 {
        for (_, input) in (options.target.seeds)() {
            if let Some(signature) = runner.run(&input) {
                mutator.learn(&input, signature);
            }
        }
        println!(
            "a stable random mutator, not coverage-guided; {} inputs to start from",
            mutator.pool_len()
        );
        let end = Instant::now() + Duration::from_secs(options.seconds);
        while Instant::now() < end && runner.crashes < MOST_CRASHES {
            let input = mutator.next_input();
            if let Some(signature) = runner.run(&input) {
                // What the mutator keeps is not a leak.
                let before = counting::held();
                mutator.learn(&input, signature);
                runner.held_at_start += counting::held() - before;
            }
        }
        println!("{} inputs kept for what they did", mutator.pool_len());
    }
    println!(
        "fuzz {name}: {} executions, {} crashes",
        runner.executions, runner.crashes
    );
    Ok(runner.crashes)
}

fn write_seeds(target: Target, folder: &Path) -> Result<(), String> {
    let failed = |path: &Path, error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let seeds = (target.seeds)();
    for (name, bytes) in &seeds {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|error| failed(&path, error))?;
    }
    println!("{} seeds written to {}", seeds.len(), folder.display());
    Ok(())
}

fn starting_inputs(options: &Options) -> Result<Vec<PathBuf>, String> {
    let mut inputs = options.files.clone();
    if let Some(corpus) = &options.corpus {
        let entries =
            std::fs::read_dir(corpus).map_err(|e| format!("{}: {e}", corpus.display()))?;
        inputs.extend(
            entries
                .filter_map(Result::ok)
                .map(|e| e.path())
                .filter(|p| p.is_file()),
        );
    }
    inputs.sort();
    Ok(inputs)
}

/// FNV-1a, to name a crash.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let name = arguments.next().unwrap_or_default();
    let mut options = Options {
        target: target(&name).ok_or_else(|| format!("no such target: `{name}`"))?,
        seconds: 60,
        corpus: None,
        replay: false,
        seed: 0,
        write_seeds: None,
        files: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("not a number: `{text}`"));
        match argument.as_str() {
            "--seconds" => options.seconds = number(value()?)?,
            "--corpus" => options.corpus = Some(value()?.into()),
            "--write-seeds" => options.write_seeds = Some(value()?.into()),
            "--replay" => options.replay = true,
            "--seed" => options.seed = number(value()?)?,
            flag if flag.starts_with("--") => return Err(format!("no such option: {flag}")),
            file => options.files.push(file.into()),
        }
    }
    Ok(options)
}

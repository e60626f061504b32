//! `swarm`: runs seeds of the random swarm on a few threads and reports the first failures.
//!
//! Progress goes to stderr where that is a terminal; the last line of stdout is
//! `sim: N passed, M failed`. A failure prints the line that runs it again, what was on, and the
//! smaller set of features that still fails.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program: it talks to its user and tells how long it took"
)]

#[path = "../counting.rs"]
mod counting;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towline_lab::swarm::{Failure, Features, Plan, check_seed, shrink};

/// Every seed divisible by this runs twice (I12).
const TWICE_EVERY: u64 = 1000;

/// Failures shrunk and printed in full.
const MOST_PRINTED: usize = 10;

const USAGE: &str = "swarm [--seeds N] [--start S] [--seed X] [--only MASK] [--jobs J] [--first] [--trace]
  --seeds N    how many seeds (default 2000)
  --start S    the first one (default 0)
  --seed X     only seed X, run twice, with its plan printed: the same as --seeds 1 --start X --trace
  --only MASK  turn off every feature whose bit is not in MASK
  --jobs J     threads (default 2)
  --first      stop at the first failure
  --trace      print each seed's plan and trace hash";

struct Options {
    seeds: u64,
    start: u64,
    only: Features,
    jobs: usize,
    first: bool,
    trace: bool,
    twice: bool,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // A panic inside a run is caught and reported with its seed; the default hook would only add noise.
    if !options.trace {
        std::panic::set_hook(Box::new(|info| {
            LAST_PANIC.with(|last| last.replace(info.to_string()));
        }));
    }
    let begin = Instant::now();
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| work(&options, &tally));
        }
        if std::io::stderr().is_terminal() {
            scope.spawn(|| show_progress(&options, &tally));
        }
    });
    report(&options, &tally, begin.elapsed())
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

#[derive(Default)]
struct Tally {
    taken: AtomicU64,
    finished: AtomicU64,
    virtual_milliseconds: AtomicU64,
    datagrams: AtomicU64,
    completed: AtomicU64,
    peak_memory: AtomicU64,
    slowest: Mutex<(Duration, u64)>,
    failures: Mutex<Vec<(Failure, String)>>,
}

fn work(options: &Options, tally: &Tally) {
    loop {
        let n = tally.taken.fetch_add(1, Ordering::Relaxed);
        if n >= options.seeds {
            return;
        }
        let seed = options.start.wrapping_add(n);
        if options.trace {
            println!("{}", Plan::draw(seed, options.only));
        }
        let twice = options.twice || seed.is_multiple_of(TWICE_EVERY);
        let begin = Instant::now();
        match check_seed(seed, options.only, twice, Some(counting::held)) {
            Ok(report) => {
                let milliseconds = report.took.as_millis() as u64;
                tally
                    .virtual_milliseconds
                    .fetch_add(milliseconds, Ordering::Relaxed);
                tally
                    .datagrams
                    .fetch_add(report.datagrams, Ordering::Relaxed);
                tally
                    .completed
                    .fetch_add(report.completed as u64, Ordering::Relaxed);
                tally
                    .peak_memory
                    .fetch_max(report.peak_memory.max(0) as u64, Ordering::Relaxed);
                if options.trace {
                    println!("{report:?}");
                }
            }
            Err(failure) => {
                let panic = LAST_PANIC.with(RefCell::take);
                if let Ok(mut failures) = tally.failures.lock() {
                    failures.push((*failure, panic));
                }
                if options.first {
                    tally.taken.fetch_max(options.seeds, Ordering::Relaxed);
                }
            }
        }
        if let Ok(mut slowest) = tally.slowest.lock() {
            *slowest = (*slowest).max((begin.elapsed(), seed));
        }
        tally.finished.fetch_add(1, Ordering::Relaxed);
    }
}

fn show_progress(options: &Options, tally: &Tally) {
    loop {
        let finished = tally.finished.load(Ordering::Relaxed);
        let failed = tally.failures.lock().map_or(0, |f| f.len());
        eprint!(
            "\rsim: {finished} of {} seeds, {failed} failed ",
            options.seeds
        );
        let _ = std::io::stderr().flush();
        if finished >= options.seeds || (options.first && failed > 0) {
            eprintln!();
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn report(options: &Options, tally: &Tally, took: Duration) -> ExitCode {
    let mut failures = tally.failures.lock().map(|f| f.clone()).unwrap_or_default();
    failures.sort_by_key(|(failure, _)| failure.seed);
    for (failure, panic) in failures.iter().take(MOST_PRINTED) {
        println!("{} features {}", failure.replay_line(), failure.features);
        println!("  {}", failure.violation);
        if !panic.is_empty() {
            println!("  {}", panic.replace('\n', " "));
        }
        let small = shrink(failure, Some(counting::held));
        if small.features != failure.features {
            println!(
                "  smaller: {} features {}",
                small.replay_line(),
                small.features
            );
            println!("  {}", small.violation);
        }
    }
    let failed = failures.len() as u64;
    let (slowest, seed) = tally.slowest.lock().map(|s| *s).unwrap_or_default();
    println!(
        "{:.1} s; {:.0} virtual hours, {} datagrams, {} connections did all they wanted; most heap {} KiB; slowest seed {seed} ({slowest:.1?})",
        took.as_secs_f64(),
        tally.virtual_milliseconds.load(Ordering::Relaxed) as f64 / 3.6e6,
        tally.datagrams.load(Ordering::Relaxed),
        tally.completed.load(Ordering::Relaxed),
        tally.peak_memory.load(Ordering::Relaxed) >> 10,
    );
    print_features(options);
    let passed = tally.finished.load(Ordering::Relaxed) - failed;
    println!("sim: {passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// How many seeds had each feature.
fn print_features(options: &Options) {
    let mut counts = BTreeMap::new();
    for n in 0..options.seeds {
        let drawn = Features::draw(options.start.wrapping_add(n));
        for feature in drawn.and(options.only).iter() {
            *counts.entry(feature).or_insert(0) += 1;
        }
    }
    let counts: Vec<String> = counts.iter().map(|(f, n)| format!("{f:?} {n}")).collect();
    println!("seeds with each feature: {}", counts.join(", "));
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        seeds: 2000,
        start: 0,
        only: Features::ALL,
        jobs: 2,
        first: false,
        trace: false,
        twice: false,
    };
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().unwrap_or_default();
            let parsed = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            parsed.map_err(|_| format!("{argument} needs a number, not `{text}`"))
        };
        match argument.as_str() {
            "--seeds" => options.seeds = number()?,
            "--start" => options.start = number()?,
            "--seed" => {
                options.start = number()?;
                options.seeds = 1;
                options.twice = true;
                options.trace = true;
            }
            "--only" => options.only = Features::from_bits(number()?),
            "--jobs" => options.jobs = number()?.clamp(1, 256) as usize,
            "--first" => options.first = true,
            "--trace" => options.trace = true,
            _ => return Err(format!("no such option: {argument}")),
        }
    }
    Ok(options)
}

//! `make test`: every suite in order, each with its own closing line, and what was skipped.
//!
//! Owns the order and the reading of closing lines; the suites themselves are cargo's tests, the
//! random swarm of `crates/lab` and the interop runners of `tests/interop` and `tests/interop-wt`. A
//! suite says that it skipped something with a line `SKIPPED what: why`.

use std::process::{Child, Command, Stdio};

use crate::Outcome;
use crate::exec::{cargo, root, run, run_reading, which};
use crate::fuzz::TARGETS;
use crate::report::{Report, Skips};

/// Seeds of the random swarm in `make test`.
const SWARM_SEEDS: &str = "2000";

/// Runs of the delta link under kills in `make test`.
const CHAOS_RUNS: &str = "10";

/// The drivers of the other stacks and their runner: a workspace of its own.
const INTEROP: &str = "tests/interop/Cargo.toml";
/// The same of WebTransport.
const INTEROP_WT: &str = "tests/interop-wt/Cargo.toml";

/// Stacks that Towline's WebTransport meets in `make test`: those that are built quickly.
const WT_PEERS: [&str; 4] = ["towline-python", "aioquic", "webtransport-go", "wtransport"];

/// `cargo xtask test`.
pub(crate) fn test() -> Outcome {
    let mut report = Report::default();
    let downloads = Downloads::start();
    report.step("cargo test", |skips| cargo_test(&["--workspace"], skips));
    report.step("examples", |_| crate::examples::examples());
    report.step("fuzz corpora", |_| replay_corpora());
    report.step("sim", |skips| {
        suite(
            &mut swarm(&["--seeds".to_owned(), SWARM_SEEDS.to_owned()]),
            skips,
        )
    });
    report.step("link under kills", |skips| {
        let runs = ["--runs".to_owned(), CHAOS_RUNS.to_owned()];
        suite(&mut crate::link::chaos_of(&runs)?, skips)
    });
    report.step("capture", crate::capture::capture);
    report.step("install", crate::install::installed);
    report.step("readme", crate::readme::readme);
    report.step("kernel module", crate::kmod::suite);
    downloads.finish();
    report.step("web", crate::web::web);
    report.step("python", crate::python::python);
    report.step("interop drivers' own tests", |skips| {
        cargo_test(&["--workspace", "--manifest-path", INTEROP], skips)
    });
    report.step("interop smoke", |skips| {
        suite(&mut interop_runner(&[]), skips)
    });
    report.step("interop-wt runner's own tests", |skips| {
        let packages = ["-p", "interop-wt-runner", "-p", "interop-wt-contract"];
        cargo_test(
            &[&["--manifest-path", INTEROP_WT][..], &packages].concat(),
            skips,
        )
    });
    report.step("interop-wt smoke", |skips| {
        let peers = WT_PEERS.map(|peer| ["--peer".to_owned(), peer.to_owned()]);
        suite(&mut interop_wt_runner(&peers.concat()), skips)
    });
    report.step("http/3 with others", |skips| {
        suite(&mut http3_runner(&[]), skips)
    });
    report.finish("test")
}

/// Cargo's tests of one workspace, added up.
fn cargo_test(arguments: &[&str], skips: &mut Skips) -> Outcome<String> {
    let mut counts = Counts::default();
    let mut command = cargo(["test", "--locked", "--no-fail-fast"]);
    let outcome = run_reading(command.args(arguments), |line| {
        counts.add_cargo_line(line);
        skips.hear(line);
    });
    println!("{}", counts.line());
    outcome.map(|()| counts.line())
}

/// `cargo xtask sim ARG…`.
pub(crate) fn sim(arguments: &[String]) -> Outcome {
    run(&mut swarm(arguments))
}

/// `cargo xtask interop ARG…`; without arguments every stack with every stack.
pub(crate) fn interop(arguments: &[String]) -> Outcome {
    run(&mut interop_runner(&or_all_pairs(arguments)))
}

/// `cargo xtask interop-h3 ARG…`.
pub(crate) fn interop_h3(arguments: &[String]) -> Outcome {
    run(&mut http3_runner(arguments))
}

/// `cargo xtask interop-wt ARG…`; without arguments every stack with every stack.
pub(crate) fn interop_wt(arguments: &[String]) -> Outcome {
    run(&mut interop_wt_runner(&or_all_pairs(arguments)))
}

fn or_all_pairs(arguments: &[String]) -> Vec<String> {
    match arguments {
        [] => vec!["--pairs".to_owned(), "all".to_owned()],
        some => some.to_vec(),
    }
}

/// The committed inputs of every fuzz target, run once each.
fn replay_corpora() -> Outcome<String> {
    let mut inputs = 0;
    for target in TARGETS {
        let corpus = root().join("fuzz/corpus").join(target);
        let found = std::fs::read_dir(&corpus)
            .map_err(|error| format!("{}: {error}", corpus.display()))?
            .count();
        if found == 0 {
            return Err(format!("fuzz/corpus/{target} is empty"));
        }
        inputs += found;
        run(&mut crate::fuzz::stable(target, 0))?;
    }
    let closing = format!("{inputs} passed, 0 failed");
    println!("{closing}");
    Ok(closing)
}

fn swarm(arguments: &[String]) -> Command {
    let mut command = cargo([
        "run",
        "--quiet",
        "--locked",
        "-p",
        "towline-lab",
        "--bin",
        "swarm",
        "--",
    ]);
    command.args(arguments);
    command
}

fn interop_runner(arguments: &[String]) -> Command {
    runner(INTEROP, "interop-runner", arguments)
}

fn interop_wt_runner(arguments: &[String]) -> Command {
    runner(INTEROP_WT, "interop-wt-runner", arguments)
}

fn runner(workspace: &str, program: &str, arguments: &[String]) -> Command {
    let mut command = cargo(["run", "--quiet", "--locked", "--manifest-path", workspace]);
    command.args(["--bin", program, "--"]).args(arguments);
    command
}

/// The same runner, with the table of HTTP/3.
fn http3_runner(arguments: &[String]) -> Command {
    let mut command = interop_runner(&["--http3".to_owned()]);
    command.args(arguments);
    command
}

/// Runs a suite that prints `N passed, N failed` as its last count; that line is its closing line.
fn suite(command: &mut Command, skips: &mut Skips) -> Outcome<String> {
    let mut closing = None;
    let outcome = run_reading(command, |line| {
        skips.hear(line);
        if is_closing_line(line) {
            closing = Some(line.trim().to_owned());
        }
    });
    match (outcome, closing) {
        (Ok(()), Some(closing)) => Ok(closing),
        (Ok(()), None) => Err("it printed no closing line `N passed, N failed`".to_owned()),
        (Err(message), closing) => Err(format!(
            "{message} ({})",
            closing.as_deref().unwrap_or("no closing line")
        )),
    }
}

/// `N passed, N failed`, perhaps `, N skipped`, perhaps after one word with a colon.
fn is_closing_line(line: &str) -> bool {
    let line = line.trim();
    let counts = match line.split_once(": ") {
        Some((word, counts)) if !word.contains(' ') => counts,
        _ => line,
    };
    let parts: Vec<&str> = counts.split(", ").collect();
    (2..=3).contains(&parts.len())
        && parts
            .iter()
            .zip(["passed", "failed", "skipped"])
            .all(|(part, word)| {
                part.strip_suffix(word)
                    .is_some_and(|number| number.trim_end().parse::<u64>().is_ok())
            })
}

/// What all of cargo's `test result:` lines add up to.
#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counts {
    fn add_cargo_line(&mut self, line: &str) {
        let Some((_, counts)) = line
            .trim()
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (Some(number), Some(word)) = (
                words.next().and_then(|word| word.parse::<u64>().ok()),
                words.next(),
            ) else {
                continue;
            };
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    fn line(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.ignored
        )
    }
}

/// Downloads for the interop drivers and the browser client, under way while cargo compiles.
struct Downloads(Vec<(&'static str, Child)>);

impl Downloads {
    fn start() -> Self {
        let mut started = Vec::new();
        let mut start = |what, command: &mut Command| {
            let quiet = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            started.extend(quiet.spawn().ok().map(|child| (what, child)));
        };
        start(
            "crates of the interop peers",
            &mut cargo(["fetch", "--locked", "--manifest-path", INTEROP]),
        );
        start(
            "crates of the WebTransport peers",
            &mut cargo(["fetch", "--locked", "--manifest-path", INTEROP_WT]),
        );
        if which("npm").is_some() {
            start("TypeScript compiler", &mut crate::web::install());
        }
        if which("go").is_some() {
            for (what, driver) in [
                ("modules of the quic-go driver", "tests/interop/quic-go"),
                (
                    "modules of the webtransport-go driver",
                    "tests/interop-wt/webtransport-go",
                ),
            ] {
                let mut command = Command::new("go");
                let download = command.args(["mod", "download"]);
                start(what, download.current_dir(root().join(driver)));
            }
        }
        if which("python3").is_some() {
            // Into a folder that nobody reads: what counts is pip's cache.
            let mut command = Command::new("python3");
            command.args(["-m", "pip", "download", "--quiet", "--dest"]);
            command.args(["target/wheels", "--requirement"]);
            let requirements = "tests/interop/aioquic/requirements.txt";
            let download = command.arg(requirements).current_dir(root());
            start("packages of the aioquic drivers", download);
        }
        Self(started)
    }

    /// Waits. What failed here is tried again by its step, which then says why it could not.
    fn finish(self) {
        for (what, mut child) in self.0 {
            if !child.wait().is_ok_and(|status| status.success()) {
                println!("could not fetch the {what} ahead of time");
            }
        }
    }
}

#[cfg(test)]
mod tests;

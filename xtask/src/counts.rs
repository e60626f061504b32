//! `make counts`: instructions of the hot paths, under callgrind, against a stored baseline.
//!
//! 1. builds `counts` of `crates/lab` for release
//! 2. runs each workload under valgrind; the program says how many packets it was, callgrind how
//!    many instructions
//! 3. compares with the baseline of this rustc and host; without one it records one, loudly
//!
//! Counts do not depend on load, so a change of 2 % is a change of the code. They are not time: what
//! a cache miss costs is measured by `make bench-quic`.

mod baseline;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::Outcome;
use crate::exec::{capture, cargo, program, shown, which};
use baseline::{Baseline, Machine, Record, Verdict};

/// How much a workload may cost above its baseline, percent.
const TOLERANCE: f64 = 2.0;

/// What sent-packet tracking may cost of a packet, percent.
const TRACK_SHARE: f64 = 10.0;

/// What RTT estimation may cost of a packet, percent.
const RTT_SHARE: f64 = 1.0;

/// Name of the function in the program that callgrind counts, and nothing outside of it.
const COUNTED: &str = "*measured_workload*";

const USAGE: &str = "\
cargo xtask counts [--record] [--json]
  --record  what is counted now becomes the baseline
  --json    prints JSON instead of the table";

/// A line of the table: one workload, or what one has beyond another.
struct Row {
    name: &'static str,
    workload: &'static str,
    without: Option<&'static str>,
    unit: &'static str,
    what: &'static str,
}

const ROWS: &[Row] = &[
    row(
        "parse",
        "parse-packet",
        "packet",
        "short header, packet number, STREAM frame",
    ),
    row("parse-ack-1", "parse-ack-1", "frame", "ACK of 1 range"),
    row("parse-ack-32", "parse-ack-32", "frame", "ACK of 32 ranges"),
    row("write", "write", "packet", "the application's writes"),
    row(
        "assemble",
        "transmit-null",
        "packet",
        "poll_transmit, null AEAD",
    ),
    Row {
        name: "seal",
        workload: "transmit-aes",
        without: Some("transmit-null"),
        unit: "packet",
        what: "AES-128-GCM and header protection",
    },
    Row {
        name: "open",
        workload: "receive-aes",
        without: Some("receive-null"),
        unit: "packet",
        what: "AES-128-GCM and header protection",
    },
    row(
        "receive",
        "receive-null",
        "packet",
        "handle_datagrams of a train, null AEAD",
    ),
    row("read", "read", "packet", "the application's reads"),
    row("ack", "ack", "packet", "an ACK frame of a train taken in"),
    row(
        "track",
        "track",
        "packet",
        "recovery alone: sent, then acknowledged",
    ),
    row("rtt", "rtt", "sample", "the RTT estimator alone"),
    row(
        "deadline",
        "deadline",
        "turn",
        "a connection with nothing to send",
    ),
    row("timer", "timer", "expiry", "a keep-alive falls due"),
    row("honest", "honest", "byte", "64-byte messages, one a packet"),
    row(
        "hostile-pings",
        "hostile-pings",
        "byte",
        "1,150 PING frames a packet",
    ),
    row(
        "hostile-streams",
        "hostile-streams",
        "byte",
        "a new stream a frame, and its end",
    ),
    row(
        "hostile-pieces",
        "hostile-pieces",
        "byte",
        "every second byte, backwards",
    ),
    row(
        "hostile-crypto",
        "hostile-crypto",
        "byte",
        "the same of handshake data",
    ),
    row(
        "hostile-resets",
        "hostile-resets",
        "byte",
        "RESET_STREAM and STOP_SENDING",
    ),
    row(
        "hostile-credit",
        "hostile-credit",
        "byte",
        "credit in small steps",
    ),
    row(
        "hostile-ids",
        "hostile-ids",
        "byte",
        "one connection ID over and over",
    ),
    row("hostile-paths", "hostile-paths", "byte", "PATH_CHALLENGE"),
    row(
        "hostile-acks",
        "hostile-acks",
        "byte",
        "ACK frames of 4,092 losses over and over",
    ),
];

/// How much more than an honest peer's a hostile byte may cost.
const HOSTILE_FACTOR: f64 = 20.0;

const fn row(
    name: &'static str,
    workload: &'static str,
    unit: &'static str,
    what: &'static str,
) -> Row {
    Row {
        name,
        workload,
        without: None,
        unit,
        what,
    }
}

/// `cargo xtask counts [--record] [--json]`.
pub(crate) fn counts(arguments: &[String]) -> Outcome {
    let (mut record, mut as_json) = (false, false);
    for argument in arguments {
        match argument.as_str() {
            "--record" => record = true,
            "--json" => as_json = true,
            other => return Err(format!("unknown argument `{other}`\n{USAGE}")),
        }
    }
    if which("valgrind").is_none() {
        return Err("valgrind is missing; `make setup-system` installs it, \
                    or: apt-get install --yes --no-install-recommends valgrind"
            .to_owned());
    }
    let key = baseline::key(&capture(&mut program("rustc", ["-Vv"]))?)?;
    let counts = build()?;
    let (instructions, machine) = count_all(&counts)?;
    let mut stored = Baseline::load()?;
    let record_now = Record {
        machine,
        instructions,
    };
    let verdicts = baseline::compare(&names(), &record_now, stored.of(&key), TOLERANCE);
    if as_json {
        println!("{:#}", to_json(&key, &verdicts));
    } else {
        print_table(&key, &verdicts);
    }
    conclude(&mut stored, &key, record_now, &verdicts, record)?;
    let missed = Shares::of(&verdicts).and_then(|shares| shares.missed());
    match missed.or_else(|| too_hostile(&verdicts)) {
        Some(missed) => Err(missed),
        None => Ok(()),
    }
}

fn names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}

// ---- counting ----

/// Builds the program; the file that cargo says it made.
fn build() -> Outcome<PathBuf> {
    let messages = capture(&mut cargo([
        "build",
        "--release",
        "--locked",
        "-p",
        "towline-lab",
        "--bin",
        "counts",
        "--message-format=json-render-diagnostics",
    ]))?;
    executable(&messages).ok_or_else(|| "cargo did not say where it put `counts`".to_owned())
}

fn executable(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "counts")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Instructions per unit of every row, and what they were counted on.
fn count_all(counts: &Path) -> Outcome<(BTreeMap<String, f64>, Machine)> {
    let valgrind = capture(&mut program("valgrind", ["--version"]))?;
    let mut machine = Machine {
        valgrind: valgrind.trim().to_owned(),
        cpu: String::new(),
    };
    let mut known: BTreeMap<&str, f64> = BTreeMap::new();
    for row in ROWS {
        for workload in [Some(row.workload), row.without].into_iter().flatten() {
            if known.contains_key(workload) {
                continue;
            }
            eprintln!("counting {workload}");
            let run = count(counts, workload)?;
            known.insert(workload, run.instructions as f64 / run.units as f64);
            machine.cpu = run.cpu;
        }
    }
    let of = |row: &Row| known[row.workload] - row.without.map_or(0.0, |other| known[other]);
    let rows = ROWS
        .iter()
        .map(|row| (row.name.to_owned(), rounded(of(row))));
    Ok((rows.collect(), machine))
}

/// To a tenth: what a file shows is what is compared.
fn rounded(instructions: f64) -> f64 {
    (instructions * 10.0).round() / 10.0
}

struct Run {
    instructions: u64,
    units: u64,
    /// The processor's features, as valgrind shows them.
    cpu: String,
}

fn count(counts: &Path, workload: &str) -> Outcome<Run> {
    let folder = counts.parent().unwrap_or(Path::new("."));
    let out = folder.join(format!("counts-{}.{workload}", std::process::id()));
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(counts)
        .arg(workload);
    // The environment lies on the stack and moves it: the same one always.
    command.env_clear();
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    let said = capture(&mut command);
    let profile = std::fs::read_to_string(&out);
    let _ = std::fs::remove_file(&out);
    let profile = profile.map_err(|error| format!("{}: {error}", out.display()));
    read_run(&said?, &profile?).map_err(|what| format!("`{}`: {what}", shown(&command)))
}

/// What the program printed and callgrind wrote.
fn read_run(said: &str, profile: &str) -> Outcome<Run> {
    let word = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
    let units = word("units ")
        .and_then(|n| n.parse().ok())
        .filter(|n| *n > 0)
        .ok_or("the program did not say how many units it ran")?;
    let instructions = total(profile)
        .filter(|n| *n > 0)
        .ok_or_else(|| format!("callgrind counted nothing in {COUNTED}"))?;
    Ok(Run {
        instructions,
        units,
        cpu: word("cpu ").unwrap_or_default().to_owned(),
    })
}

/// Instructions in all, from a callgrind profile: the events must be `Ir` first.
fn total(profile: &str) -> Option<u64> {
    let mut first_event = None;
    let mut sum = None;
    for line in profile.lines() {
        if let Some(events) = line.strip_prefix("events:") {
            first_event = events.split_whitespace().next();
        } else if let Some(costs) = line.strip_prefix("totals:") {
            let cost: u64 = costs.split_whitespace().next()?.parse().ok()?;
            // One line for each dump of the profile.
            sum = Some(sum.unwrap_or(0) + cost);
        }
    }
    sum.filter(|_| first_event == Some("Ir"))
}

// ---- what comes of it ----

fn conclude(
    stored: &mut Baseline,
    key: &str,
    now: Record,
    verdicts: &[Verdict],
    record: bool,
) -> Outcome {
    let Some(known) = stored.of(key).filter(|_| !record) else {
        let known_before = stored.of(key).is_some();
        stored.set(key, now);
        stored.save()?;
        if known_before {
            loudly(&format!("the baseline of {key} was replaced"));
        } else {
            loudly(&format!(
                "there was no baseline of {key}: it was recorded just now, and nothing was \
                 compared. Commit {}",
                baseline::FILE
            ));
        }
        return Ok(());
    };
    if known.machine != now.machine {
        loudly(&format!(
            "the baseline was taken with {}, this with {}: seal, open and copies may differ for \
             that alone",
            known.machine, now.machine
        ));
    }
    let dearer: Vec<String> = verdicts
        .iter()
        .filter(|verdict| verdict.too_dear)
        .map(|verdict| format!("{} by {:.1} %", verdict.name, verdict.change.unwrap_or(0.0)))
        .collect();
    let new: Vec<&str> = verdicts
        .iter()
        .filter(|verdict| verdict.baseline.is_none())
        .map(|verdict| verdict.name.as_str())
        .collect();
    if !new.is_empty() {
        loudly(&format!(
            "no baseline yet of {}: recorded just now. Commit {}",
            new.join(", "),
            baseline::FILE
        ));
        stored.add_missing(key, &now);
        stored.save()?;
    }
    let cheaper = |verdict: &&Verdict| verdict.change.is_some_and(|change| change < -TOLERANCE);
    if dearer.is_empty() {
        let cheaper = verdicts.iter().filter(cheaper).count();
        if cheaper > 0 {
            eprintln!("cheaper than the baseline: {cheaper} rows; --record keeps what was won");
        }
        return Ok(());
    }
    let message = format!(
        "more than {TOLERANCE} % above the baseline: {}",
        dearer.join(", ")
    );
    loudly(&message);
    Err(format!(
        "{message}; if that is meant, `cargo xtask counts --record` and say why in the commit"
    ))
}

fn loudly(message: &str) {
    eprintln!("\n!!! {message}\n");
}

fn print_table(key: &str, verdicts: &[Verdict]) {
    println!("\ninstructions, {key}\n");
    println!(
        "{:15} {:>9} {:>9} {:>8}  {:8}",
        "workload", "now", "baseline", "change", "each"
    );
    for (row, verdict) in ROWS.iter().zip(verdicts) {
        let baseline = verdict
            .baseline
            .map_or("-".to_owned(), |n| format!("{n:.1}"));
        let change = verdict
            .change
            .map_or("-".to_owned(), |change| format!("{change:+.1} %"));
        println!(
            "{:15} {:>9.1} {baseline:>9} {change:>8}  {:8} {}{}",
            row.name,
            verdict.now,
            row.unit,
            row.what,
            if verdict.too_dear { "  DEARER" } else { "" }
        );
    }
    if let Some(shares) = Shares::of(verdicts) {
        println!("\n{shares}");
    }
}

/// Which kinds of hostile bytes cost too much beside honest ones.
fn too_hostile(verdicts: &[Verdict]) -> Option<String> {
    let honest = verdicts
        .iter()
        .find(|verdict| verdict.name == "honest")?
        .now;
    let dear: Vec<String> = verdicts
        .iter()
        .filter(|verdict| verdict.name.starts_with("hostile-"))
        .map(|verdict| (&verdict.name, verdict.now / honest))
        .filter(|(_, factor)| *factor > HOSTILE_FACTOR)
        .map(|(name, factor)| {
            format!("{name} costs {factor:.0} times an honest byte, the mark is {HOSTILE_FACTOR}")
        })
        .collect();
    (!dear.is_empty()).then(|| dear.join(", "))
}

/// What a packet costs its sender in all, and the shares of recovery in it, percent.
#[derive(Debug, PartialEq)]
struct Shares {
    packet: f64,
    track: f64,
    rtt: f64,
}

impl Shares {
    /// RTT estimation is put at its dearest: an ACK for every second packet (RFC 9000 §13.2.2).
    fn of(verdicts: &[Verdict]) -> Option<Self> {
        let of = |name: &str| {
            let found = verdicts.iter().find(|verdict| verdict.name == name);
            found.map(|verdict| verdict.now)
        };
        let packet = of("write")? + of("assemble")? + of("seal")? + of("ack")?;
        Some(Self {
            packet,
            track: of("track")? * 100.0 / packet,
            rtt: of("rtt")? / 2.0 * 100.0 / packet,
        })
    }

    /// Which mark is missed, if one is.
    fn missed(&self) -> Option<String> {
        let missed: Vec<String> = [
            ("track", self.track, TRACK_SHARE),
            ("rtt", self.rtt, RTT_SHARE),
        ]
        .into_iter()
        .filter(|(_, share, mark)| share > mark)
        .map(|(name, share, mark)| {
            format!("{name} is {share:.1} % of a packet, the mark is {mark} %")
        })
        .collect();
        (!missed.is_empty()).then(|| missed.join(", "))
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a packet costs its sender {:.0} (write, assemble, seal, ack); track is {:.1} % of \
             that (mark: {TRACK_SHARE} %), rtt {:.1} % with an ACK for every second packet (mark: \
             {RTT_SHARE} %)",
            self.packet, self.track, self.rtt
        )
    }
}

fn to_json(key: &str, verdicts: &[Verdict]) -> Value {
    let rows = ROWS.iter().zip(verdicts).map(|(row, verdict)| {
        json!({
            "workload": row.name,
            "unit": row.unit,
            "instructions": verdict.now,
            "baseline": verdict.baseline,
            "change_percent": verdict.change.map(rounded),
            "ok": !verdict.too_dear,
        })
    });
    json!({
        "schema": "towline.counts/1",
        "key": key,
        "ok": verdicts.iter().all(|verdict| !verdict.too_dear),
        "track_share_percent": Shares::of(verdicts).map(|shares| rounded(shares.track)),
        "rtt_share_percent": Shares::of(verdicts).map(|shares| rounded(shares.rtt)),
        "rows": rows.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;

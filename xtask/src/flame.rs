//! `make flame`: where the processor time of a bulk transfer goes, at both ends.
//!
//! Runs `towline perf` over loopback under perf, folds the stacks with inferno's programs, writes
//! one flame graph an end to the evidence folder and prints the ten largest costs of each. What
//! the TLS library does once to gather entropy when a process starts is left out.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::Outcome;
use crate::exec::{capture, cargo, program, root, run, target, which};

/// The programs it needs, and how they are installed.
const NEEDED: [(&str, &str); 3] = [
    ("perf", "apt-get install linux-perf"),
    ("inferno-collapse-perf", "cargo install inferno"),
    ("inferno-flamegraph", "cargo install inferno"),
];

/// Samples a second; not a divisor of anything periodic.
const FREQUENCY: &str = "1999";

/// Stacks of the entropy source, which runs once a process.
const START_UP: &str = "jent_";

/// Costs named in the report.
const LARGEST: usize = 10;

/// A child that does not outlive the command.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Outcome<Self> {
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{command:?} did not start: {error}"))?;
        // perf attaches and a server binds within this time.
        thread::sleep(Duration::from_millis(700));
        Ok(Self(child))
    }

    /// Ends it as Ctrl-C does, so that perf writes its file.
    fn interrupt(mut self) -> Outcome {
        run(&mut program("kill", ["-INT", &self.0.id().to_string()]))?;
        self.0.wait().map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only for a child that is already gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `cargo xtask flame NAME [--binary PATH]`: NAME begins the names of the files written.
pub(crate) fn flame(arguments: &[String]) -> Outcome {
    let (name, binary) = match arguments {
        [name] => (name, None),
        [name, flag, path] if flag == "--binary" => (name, Some(PathBuf::from(path))),
        _ => return Err("usage: cargo xtask flame NAME [--binary PATH]".to_owned()),
    };
    for (needed, cure) in NEEDED {
        if which(needed).is_none() {
            return Err(format!("{needed} is not installed: {cure}"));
        }
    }
    let binary = match binary {
        Some(path) => path,
        None => {
            run(&mut cargo([
                "build",
                "--release",
                "--locked",
                "-p",
                "towline-cli",
            ]))?;
            target()?.join("release/towline")
        }
    };
    let folder = target()?.join("flame");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    record(&binary, &folder)?;
    for end in ["sender", "receiver"] {
        let stacks = fold(&folder.join(format!("{end}.data")))?;
        let svg = root().join(format!("docs/evidence/{name}-{end}.svg"));
        draw(&folder, end, &stacks, &svg)?;
        print_largest(end, &stacks);
    }
    Ok(())
}

/// The server sends: it is the sender.
fn record(binary: &Path, folder: &Path) -> Outcome {
    let probe = UdpSocket::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let address = probe.local_addr().map_err(|error| error.to_string())?;
    drop(probe);
    let address = address.to_string();
    let same = ["--cipher", "aes128gcm", "--kx", "x25519", "--mtu", "1472"];
    let mut server = program("taskset", ["-c", "0"]);
    server.arg(binary).args(["perf", "server", "--listen"]);
    server.arg(&address).args(same);
    let server = Running::start(server)?;
    let sampled = |end: &str| {
        let mut perf = program("perf", ["record", "-F", FREQUENCY]);
        perf.args(["--call-graph", "dwarf,16384", "-o"]);
        perf.arg(folder.join(format!("{end}.data")));
        perf
    };
    let mut of_server = sampled("sender");
    of_server.args(["-p", &server.0.id().to_string()]);
    let of_server = Running::start(of_server)?;
    let mut client = sampled("receiver");
    client.args(["taskset", "-c", "1"]).arg(binary);
    client.args(["perf", "client", &format!("towline://{address}")]);
    client.args(same).args(["--insecure", "-R", "-n", "2GiB"]);
    client.stderr(Stdio::null());
    run(&mut client)?;
    of_server.interrupt()?;
    server.interrupt()
}

/// One line a stack, frames separated by semicolons, then the weight.
fn fold(data: &Path) -> Outcome<String> {
    let script = program("perf", ["script", "-i"])
        .arg(data)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut script = script.map_err(|error| format!("perf did not start: {error}"))?;
    let mut collapse = program("inferno-collapse-perf", ["-q"]);
    collapse.stdin(script.stdout.take().map_or(Stdio::null(), Stdio::from));
    let folded = capture(&mut collapse)?;
    script.wait().map_err(|error| error.to_string())?;
    Ok(folded
        .lines()
        .filter(|line| !line.contains(START_UP))
        .map(|line| format!("{line}\n"))
        .collect())
}

fn draw(folder: &Path, end: &str, stacks: &str, svg: &Path) -> Outcome {
    let folded = folder.join(format!("{end}.folded"));
    fs::write(&folded, stacks).map_err(|error| format!("{}: {error}", folded.display()))?;
    let title = format!("towline perf, {end}");
    let mut command = program("inferno-flamegraph", ["--minwidth", "0.2", "--title"]);
    command.arg(title).arg(&folded);
    let drawn = capture(&mut command)?;
    fs::write(svg, drawn).map_err(|error| format!("{}: {error}", svg.display()))?;
    println!("{}", svg.display());
    Ok(())
}

fn print_largest(end: &str, stacks: &str) {
    let (costs, total) = own_costs(stacks);
    println!("\n| {end} | share |\n|---|---|");
    for (symbol, weight) in costs.iter().take(LARGEST) {
        println!(
            "| `{symbol}` | {:.1} % |",
            100.0 * *weight as f64 / total as f64
        );
    }
    println!();
}

/// What each function costs by itself, largest first, and the sum.
fn own_costs(stacks: &str) -> (Vec<(String, u64)>, u64) {
    let mut costs = BTreeMap::<&str, u64>::new();
    for line in stacks.lines() {
        let Some((frames, weight)) = line.rsplit_once(' ') else {
            continue;
        };
        let Ok(weight) = weight.parse::<u64>() else {
            continue;
        };
        let leaf = frames.rsplit(';').next().unwrap_or(frames);
        *costs.entry(leaf).or_default() += weight;
    }
    let total = costs.values().sum::<u64>().max(1);
    let mut costs: Vec<_> = costs
        .into_iter()
        .map(|(symbol, weight)| (symbol.to_owned(), weight))
        .collect();
    costs.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    (costs, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_functions_own_cost_is_that_of_the_stacks_it_ends() {
        let (costs, total) = own_costs("a;b;c 5\na;c 2\na;b 3\nnonsense\n");
        assert_eq!(total, 10);
        assert_eq!(costs, [("c".to_owned(), 7), ("b".to_owned(), 3)]);
    }
}

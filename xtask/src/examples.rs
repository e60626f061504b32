//! `cargo xtask examples`: every example runs, and asserts what it shows.
//!
//! 1. cargo builds them and says what it built: the examples of all packages, and the programs of
//!    `towline-examples`. None is listed here, so that a new one runs from its first day.
//! 2. Each runs without arguments and has to end with code 0.
//! 3. `NAME_server` and `NAME_client` are one: the server says where it listens and what its pin is,
//!    and the client is given both.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::Outcome;
use crate::exec::{capture, cargo, metadata};

/// The package whose programs are examples.
const PACKAGE: &str = "towline-examples";

/// Seconds that one may take.
const LIMIT: &str = "60";

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that was built.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Program {
    name: String,
    path: PathBuf,
}

/// What is run as one.
#[derive(Debug, PartialEq, Eq)]
enum Example {
    Alone(Program),
    Pair { server: Program, client: Program },
}

impl Example {
    fn name(&self) -> &str {
        match self {
            Self::Alone(program) => &program.name,
            Self::Pair { client, .. } => &client.name,
        }
    }

    /// What it said, if it failed.
    fn run(&self) -> Outcome {
        match self {
            Self::Alone(program) => run_to_its_end(&program.path, &[]),
            Self::Pair { server, client } => {
                let (_server, address, pin) = serve(&server.path)?;
                run_to_its_end(&client.path, &[&address, &pin])
            }
        }
    }
}

/// Runs them all; the closing line counts them.
pub(crate) fn examples() -> Outcome<String> {
    let mut passed = 0;
    let mut failures = Vec::new();
    for example in examples_of(build()?) {
        let name = example.name();
        match example.run() {
            Ok(()) => {
                println!("ok      {name}");
                passed += 1;
            }
            Err(why) => {
                println!("FAILED  {name}: {why}");
                failures.push(name.to_owned());
            }
        }
    }
    let closing = format!("{passed} passed, {} failed", failures.len());
    println!("examples: {closing}");
    match (passed, failures.is_empty()) {
        (0, true) => Err("there are no examples".to_owned()),
        (_, true) => Ok(closing),
        (_, false) => Err(format!("{closing}: {}", failures.join(", "))),
    }
}

/// Builds what there is, in the order of the names.
fn build() -> Outcome<Vec<Program>> {
    let bins = bins_of(&metadata()?);
    let mut command = cargo(["build", "--locked", "--workspace", "--examples"]);
    for bin in &bins {
        command.args(["--bin", bin]);
    }
    let said = capture(command.arg("--message-format=json-render-diagnostics"))?;
    let mut programs: Vec<_> = said.lines().filter_map(|line| built(line, &bins)).collect();
    programs.sort();
    Ok(programs)
}

/// The programs of the package of examples.
fn bins_of(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|package| package["name"] == PACKAGE)
        .flat_map(|package| package["targets"].as_array().into_iter().flatten());
    targets
        .filter(|target| is_kind(target, "bin"))
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect()
}

/// The example that a line of cargo's says it has built, or has found to be fresh.
fn built(line: &str, bins: &[String]) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let target = &message["target"];
    let name = target["name"].as_str()?;
    let is_bin = is_kind(target, "bin") && bins.iter().any(|bin| bin == name);
    if message["reason"] != "compiler-artifact" || !(is_bin || is_kind(target, "example")) {
        return None;
    }
    Some(Program {
        name: name.to_owned(),
        path: message["executable"].as_str()?.into(),
    })
}

fn is_kind(target: &Value, kind: &str) -> bool {
    let kinds = target["kind"].as_array().into_iter().flatten();
    kinds.into_iter().any(|found| found == kind)
}

/// Puts each server beside its client.
fn examples_of(programs: Vec<Program>) -> Vec<Example> {
    let named = |name: String| {
        programs
            .iter()
            .find(|program| program.name == name)
            .cloned()
    };
    let mut examples = Vec::new();
    for program in &programs {
        let of = |suffix| program.name.strip_suffix(suffix);
        if let Some(client) = of("_server").and_then(|name| named(format!("{name}_client"))) {
            let server = program.clone();
            examples.push(Example::Pair { server, client });
        } else if of("_client").is_none_or(|name| named(format!("{name}_server")).is_none()) {
            examples.push(Example::Alone(program.clone()));
        }
    }
    examples
}

fn run_to_its_end(program: &Path, arguments: &[&str]) -> Outcome {
    let output = Command::new("timeout")
        .arg(LIMIT)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("timeout: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}\n{said}{errors}", output.status))
}

/// A server, ended when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a child that is already gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server on a free port: itself, where it listens, and its pin.
fn serve(program: &Path) -> Outcome<(Server, String, String)> {
    let child = Command::new(program)
        .arg("127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let mut server = Server(child);
    let stdout = server.0.stdout.take().ok_or("the server has no output")?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        // To its end: a server whose output nobody takes fails.
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let (mut address, mut pin) = (None, None);
    loop {
        let line = lines
            .recv_timeout(PATIENCE)
            .map_err(|_| "the server does not say `listening on ADDRESS` and `pin PIN`")?;
        address = line
            .strip_prefix("listening on ")
            .map(str::to_owned)
            .or(address);
        pin = line.strip_prefix("pin ").map(str::to_owned).or(pin);
        if let (Some(address), Some(pin)) = (&address, &pin) {
            return Ok((server, address.clone(), pin.clone()));
        }
    }
}

#[cfg(test)]
mod tests;

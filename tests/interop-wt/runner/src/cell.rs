//! One cell of the table: a client runs its cases against a server.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crate::Error;
use crate::drivers::Driver;

/// The cases, in the order in which clients run them.
pub(crate) const CASES: [&str; 5] = [
    "handshake",
    "bidirectional",
    "unidirectional",
    "datagrams",
    "close",
];

/// For a server to come up.
const START: Duration = Duration::from_secs(15);
/// For all cases; clients give each up after 15 seconds.
const CLIENT: Duration = Duration::from_secs(90);
/// For a server to print how the last session ended.
const LAST_WORD: Duration = Duration::from_secs(3);
/// What a server prints when the session that the client closed in the last case is over.
const CLOSED: &str = "closed 4711 see you";

/// What came of one pair.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) client: &'static str,
    pub(crate) server: &'static str,
    /// One of each case: what was seen, or why it failed.
    pub(crate) outcomes: [Result<String, String>; CASES.len()],
}

/// Runs the cases of `client` against `server`; `scratch` has the certificate, `runs` takes the logs.
pub(crate) fn run(
    client: &Driver,
    server: &Driver,
    scratch: &Path,
    runs: &Path,
) -> Result<Cell, Error> {
    let log = |role: &str| runs.join(format!("{}_{}_{role}.log", client.name, server.name));
    let mut command = server.command()?;
    command.arg("server").arg(scratch);
    let serving = Process::start(command, &log("server"))?;
    let address = serving
        .line("listening ", Instant::now() + START)
        .ok_or_else(|| format!("the {} server did not come up", server.name))?;
    let mut command = client.command()?;
    command.arg("client").arg(scratch).arg(address);
    let asking = Process::start(command, &log("client"))?;
    let deadline = Instant::now() + CLIENT;
    let mut outcomes = CASES.map(|case| outcome(&asking, case, deadline));
    if let [.., close] = &mut outcomes
        && close.is_ok()
        && serving.line(CLOSED, Instant::now() + LAST_WORD).is_none()
    {
        *close = Err("the server did not hear the code and the reason".to_owned());
    }
    Ok(Cell {
        client: client.name,
        server: server.name,
        outcomes,
    })
}

fn outcome(client: &Process, case: &str, deadline: Instant) -> Result<String, String> {
    let line = client.line(&format!("{case} "), deadline);
    let line = line.ok_or("the client ended without a word")?;
    match line.strip_prefix("ok") {
        Some(detail) => Ok(detail.trim().to_owned()),
        None => Err(line.trim_start_matches("failed").trim().to_owned()),
    }
}

/// A running child; killed and reaped when dropped.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts `command` with a pipe on its input and its errors in `log`.
    fn start(mut command: Command, log: &Path) -> Result<Self, Error> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let output = child.stdout.take().ok_or("the child has no output")?;
        let (sender, lines) = mpsc::channel();
        // Ends with the child's output, at the latest when the child is killed.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// The rest of the next line that starts with `prefix`; `None` at `deadline` or at the end of the
    /// child's output.
    fn line(&self, prefix: &str, deadline: Instant) -> Option<String> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).ok()?;
            if let Some(rest) = line.strip_prefix(prefix) {
                return Some(rest.to_owned());
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a child that is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

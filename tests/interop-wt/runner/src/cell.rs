//! One cell of the table: a client runs its cases against a server.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crate::Error;
use crate::drivers::{Driver, Stack};

/// The cases, in the order in which clients run them.
pub(crate) const CASES: [&str; 6] = [
    "handshake",
    "bidirectional",
    "unidirectional",
    "datagrams",
    "server-closes",
    "client-closes",
];

/// For a server to come up.
const START: Duration = Duration::from_secs(20);
/// For all cases; clients give each up after 15 seconds.
const CLIENT: Duration = Duration::from_secs(100);
/// For a server to print how the last session ended.
const LAST_WORD: Duration = Duration::from_secs(3);
/// What a server prints when the session that the client closed in the last case is over.
const CLOSED: &str = "closed 4711 see you";

/// What came of one pair.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) client: Stack,
    pub(crate) server: Stack,
    /// One of each case.
    pub(crate) outcomes: [Outcome; CASES.len()],
}

/// What came of one case.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// With what was seen.
    Passed(String),
    /// With why.
    Failed(String),
    /// One of the two stacks cannot do its part; says which, and why.
    Skipped(String),
    /// There was no session: the handshake had failed.
    NoSession,
}

/// Runs the cases of `client` against `server`; `scratch` has the certificate, `runs` takes the logs.
pub(crate) fn run(
    client: &Driver,
    server: &Driver,
    scratch: &Path,
    runs: &Path,
) -> Result<Cell, Error> {
    let names = (client.stack.name(), server.stack.name());
    let log = |role: &str| runs.join(format!("{}_{}_{role}.log", names.0, names.1));
    let mut command = server.command()?;
    command.arg("server").arg(scratch);
    let serving = Process::start(command, &log("server"))?;
    let (address, lacks) = serving.listening(Instant::now() + START);
    let outcomes = match address {
        None => all_failed("the server did not come up"),
        Some(address) => {
            let mut command = client.command()?;
            command.arg("client").arg(scratch).arg(address);
            let asking = Process::start(command, &log("client"))?;
            outcomes(&asking, &serving, names, &lacks)
        }
    };
    Ok(Cell {
        client: client.stack,
        server: server.stack,
        outcomes,
    })
}

fn all_failed(why: &str) -> [Outcome; CASES.len()] {
    let mut outcomes = CASES.map(|_| Outcome::NoSession);
    outcomes[0] = Outcome::Failed(why.to_owned());
    outcomes
}

fn outcomes(
    client: &Process,
    server: &Process,
    names: (&str, &str),
    lacks: &[String],
) -> [Outcome; CASES.len()] {
    let deadline = Instant::now() + CLIENT;
    let mut no_session = false;
    CASES.map(|case| {
        if no_session {
            return Outcome::NoSession;
        }
        let mut outcome = outcome(client, case, deadline);
        if let Outcome::Skipped(why) = &outcome {
            outcome = Outcome::Skipped(format!("{} as client: {why}", names.0));
        }
        if case == "client-closes"
            && matches!(outcome, Outcome::Passed(_))
            && server.line(CLOSED, Instant::now() + LAST_WORD).is_none()
        {
            outcome = Outcome::Failed("the server did not hear the code and the reason".to_owned());
        }
        // What the server cannot do is no failure of the client's.
        let lack = lacks.iter().find_map(|line| skipped(line, case));
        if let (Outcome::Failed(_), Some(why)) = (&outcome, lack) {
            outcome = Outcome::Skipped(format!("{} as server: {why}", names.1));
        }
        no_session = case == "handshake" && matches!(outcome, Outcome::Failed(_));
        outcome
    })
}

fn outcome(client: &Process, case: &str, deadline: Instant) -> Outcome {
    let Some(line) = client.line(&format!("{case} "), deadline) else {
        return Outcome::Failed("the client ended without a word".to_owned());
    };
    match line.split_once(' ').unwrap_or((&line, "")) {
        ("ok", detail) => Outcome::Passed(detail.trim().to_owned()),
        ("skipped", why) => Outcome::Skipped(why.trim().to_owned()),
        ("failed", why) => Outcome::Failed(why.trim().to_owned()),
        _ => Outcome::Failed(format!("the client said: {line}")),
    }
}

/// Why a server's line says that it cannot do its part in `case`.
fn skipped<'a>(line: &'a str, case: &str) -> Option<&'a str> {
    line.strip_prefix(case)?.strip_prefix(" skipped ")
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

    /// A server's address, and the lines that came before it.
    fn listening(&self, deadline: Instant) -> (Option<String>, Vec<String>) {
        let mut before = Vec::new();
        while let Some(line) = self.line("", deadline) {
            match line.strip_prefix("listening ") {
                Some(address) => return (Some(address.to_owned()), before),
                None => before.push(line),
            }
        }
        (None, before)
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

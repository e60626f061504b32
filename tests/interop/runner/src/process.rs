//! Child processes that cannot outlive their run, with their lines of output
//! as a channel. `case` owns every one of them.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crate::Error;

const POLL: Duration = Duration::from_millis(5);

/// A running child; killed and reaped when dropped.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts `command` with a pipe on its input and its errors in `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Process, Error> {
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
        Ok(Process { child, lines })
    }

    /// The rest of the next line that starts with `prefix`; `None` at `deadline`
    /// or at the end of the child's output.
    pub(crate) fn line(&self, prefix: &str, deadline: Instant) -> Option<String> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).ok()?;
            if let Some(rest) = line.strip_prefix(prefix) {
                return Some(rest.to_owned());
            }
        }
    }

    /// Waits for the child to end by itself; `None` at `deadline`.
    pub(crate) fn wait(&mut self, deadline: Instant) -> Result<Option<ExitStatus>, Error> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Closes the child's input, which asks a server to end.
    pub(crate) fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a child that is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! One measured process: where it may run, what it prints, what it spent.
//!
//! Nothing here polls: a thread blocks on the process's standard output, the caller on a channel,
//! so that the runner takes no time from what it measures.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;

use crate::Outcome;

/// How much of what a failed process said on standard error is shown.
const LAST_WORDS: u64 = 500;

/// A running process; killed when dropped.
pub struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    errors: std::fs::File,
}

/// User and system time of a whole process, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// In the program.
    pub user: f64,
    /// In the kernel for it.
    pub system: f64,
}

impl Process {
    /// Starts a program, on one core if one is given.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(name: &str, mut command: Command, core: Option<usize>) -> Outcome<Self> {
        let failed = |error: std::io::Error| format!("{name} did not start: {error}");
        let errors = unnamed_file().map_err(failed)?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone().map_err(failed)?);
        // A child inherits the cores of the thread that starts it.
        let start = move || {
            if let Some(core) = core {
                let mut cores = CpuSet::new();
                cores.set(core)?;
                sched_setaffinity(Pid::from_raw(0), &cores)?;
            }
            command.spawn()
        };
        let mut child = thread::spawn(start)
            .join()
            .map_err(|_| format!("{name} did not start"))?
            .map_err(failed)?;
        let output = child.stdout.take().ok_or("a process without an output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            name: name.to_owned(),
            child,
            lines,
            errors,
        })
    }

    /// The next line of its output; `None` if it has ended.
    fn next_line(&self, deadline: Instant) -> Outcome<Option<String>> {
        match self
            .lines
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(format!("{} took too long", self.name)),
        }
    }

    /// The first line in which `find` finds something.
    ///
    /// # Errors
    /// It ended, or took too long.
    pub fn find<T>(&mut self, patience: Duration, find: impl Fn(&str) -> Option<T>) -> Outcome<T> {
        let deadline = Instant::now() + patience;
        while let Some(line) = self.next_line(deadline)? {
            if let Some(found) = find(&line) {
                return Ok(found);
            }
        }
        let _ = self.child.wait();
        Err(self.last_words("ended before its time"))
    }

    /// Waits for a process that ends by itself and takes what it spent.
    ///
    /// # Errors
    /// It took too long or failed.
    pub fn finish(mut self, patience: Duration) -> Outcome<Usage> {
        let deadline = Instant::now() + patience;
        while self.next_line(deadline)?.is_some() {}
        let (status, usage) = self.reap()?;
        if status.success() {
            Ok(usage)
        } else {
            Err(self.last_words(&format!("ended with {status}")))
        }
    }

    /// Waits for a process that ends by itself, however it ends, and takes what it spent.
    ///
    /// # Errors
    /// It took too long.
    pub fn finish_anyhow(mut self, patience: Duration) -> Outcome<Usage> {
        let deadline = Instant::now() + patience;
        while self.next_line(deadline)?.is_some() {}
        Ok(self.reap()?.1)
    }

    /// What it has in memory now, KiB.
    ///
    /// # Errors
    /// It has ended.
    pub fn resident_kib(&self) -> Outcome<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.ok_or_else(|| format!("{path} tells no VmRSS"))
    }

    /// Ends a process that would stay.
    ///
    /// # Errors
    /// The system does not tell what it spent.
    pub fn kill(mut self) -> Outcome<Usage> {
        let _ = self.child.kill();
        Ok(self.reap()?.1)
    }

    /// Ends a process by SIGTERM, and all that it started with it, and takes what they spent.
    ///
    /// # Errors
    /// It took too long.
    pub fn terminate(mut self, patience: Duration) -> Outcome<Usage> {
        let id = i32::try_from(self.child.id()).map_err(|error| error.to_string())?;
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        let deadline = Instant::now() + patience;
        while self.next_line(deadline)?.is_some() {}
        Ok(self.reap()?.1)
    }

    /// Ends a process by SIGINT and takes what it had still to say; how it ends is its own business.
    ///
    /// # Errors
    /// It took too long.
    pub fn interrupt(mut self, patience: Duration) -> Outcome<Vec<String>> {
        let id = i32::try_from(self.child.id()).map_err(|error| error.to_string())?;
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(id), Signal::SIGINT);
        let deadline = Instant::now() + patience;
        let mut said = Vec::new();
        while let Some(line) = self.next_line(deadline)? {
            said.push(line);
        }
        let _ = self.reap()?;
        Ok(said)
    }

    /// Waits; no other child may be waited for meanwhile.
    fn reap(&mut self) -> Outcome<(ExitStatus, Usage)> {
        let before = children()?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        let after = children()?;
        Ok((
            status,
            Usage {
                user: after.user - before.user,
                system: after.system - before.system,
            },
        ))
    }

    fn last_words(&mut self, what: &str) -> String {
        let mut text = String::new();
        let end = self.errors.seek(SeekFrom::End(0)).unwrap_or(0);
        let _ = self
            .errors
            .seek(SeekFrom::Start(end.saturating_sub(LAST_WORDS)));
        let _ = self.errors.read_to_string(&mut text);
        format!("{} {what}: {}", self.name, text.trim())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What all children that were waited for have spent.
///
/// # Errors
/// The system does not tell.
pub fn children() -> Outcome<Usage> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| error.to_string())?;
    let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 * 1e-6;
    Ok(Usage {
        user: seconds(usage.user_time()),
        system: seconds(usage.system_time()),
    })
}

/// A file that nobody else can find and that goes with its last handle.
fn unnamed_file() -> std::io::Result<std::fs::File> {
    let path = std::env::temp_dir().join(format!("bench-{}", std::process::id()));
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    std::fs::remove_file::<&Path>(path.as_ref())?;
    Ok(file)
}

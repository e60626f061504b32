//! The processes that come of a run: found by who is whose child, orphans too, whose parent this
//! process becomes.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

/// How often all are looked at again until the last has ended: 5 s.
const ROUNDS: u32 = 500;
const ROUND: Duration = Duration::from_millis(10);

/// What there was before the run is not of it: a shell that became this program may have left some.
#[derive(Debug)]
pub struct Family {
    before: Vec<Pid>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) name: String,
    parent: Pid,
    is_dead: bool,
}

impl Family {
    /// From now on this process is the parent of the orphans among those that come of it.
    pub fn adopt() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let family = Self { before: Vec::new() };
        let before = family.members(None)?.into_iter().map(|member| member.pid);
        Ok(Self {
            before: before.collect(),
        })
    }

    /// All that live, parents first. Buries the dead but `program`, for which somebody else waits.
    /// An error, for want of descriptors say, tells nothing of them.
    pub(super) fn members(&self, program: Option<Pid>) -> io::Result<Vec<Process>> {
        let mut members = self.all()?;
        members.retain(|member| {
            if member.is_dead && member.parent == getpid() && Some(member.pid) != program {
                let _ = waitpid(Some(member.pid), WaitOptions::NOHANG);
            }
            !member.is_dead
        });
        Ok(members)
    }

    fn all(&self) -> io::Result<Vec<Process>> {
        let mut others = processes()?;
        others.retain(|process| !self.before.contains(&process.pid));
        let mut members: Vec<Process> = Vec::new();
        let mut parent = getpid();
        for next in 0.. {
            let (children, rest): (Vec<_>, _) =
                others.into_iter().partition(|one| one.parent == parent);
            others = rest;
            members.extend(children);
            match members.get(next) {
                Some(member) => parent = member.pid,
                None => break,
            }
        }
        Ok(members)
    }

    /// Whether any lives, or may.
    pub fn is_there(&self) -> bool {
        self.members(None)
            .map_or(true, |members| !members.is_empty())
    }

    /// A signal to each.
    pub fn signal_all(&self, signal: Signal) {
        for member in self.members(None).unwrap_or_default() {
            let _ = kill_process(member.pid, signal);
        }
    }

    /// Ends those that `is_meant` says; what they were, or an error with it if they do not end.
    pub(super) async fn end(
        &self,
        program: Option<Pid>,
        is_meant: impl Fn(&Process) -> bool,
    ) -> Result<Vec<String>, String> {
        let mut ended: Vec<String> = Vec::new();
        // What one starts meanwhile is met in the next round.
        for _ in 0..ROUNDS {
            let Ok(mut left) = self.members(program) else {
                tokio::time::sleep(ROUND).await;
                continue;
            };
            left.retain(&is_meant);
            if left.is_empty() {
                return Ok(ended);
            }
            for member in left {
                let _ = kill_process(member.pid, Signal::KILL);
                let what = format!("{} ({})", member.pid, member.name);
                if !ended.contains(&what) {
                    ended.push(what);
                }
            }
            tokio::time::sleep(ROUND).await;
        }
        Err(format!("processes do not end: {}", ended.join(", ")))
    }

    /// Ends all of them.
    pub async fn end_all(&self) -> Result<(), String> {
        self.end(None, |_| true).await.map(drop)
    }
}

/// The words of /proc/PID/stat between the parent and the number of threads.
const THREADS: usize = 15;

fn processes() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        match fs::read_to_string(entry.path().join("stat")) {
            Ok(stat) => found.extend(process(pid, &stat)),
            Err(error) if is_foreign(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Whether a process ended while it was looked at, or is another user's that /proc hides (hidepid).
fn is_foreign(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        number,
        Some(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM)
    )
}

fn process(pid: i32, stat: &str) -> Option<Process> {
    // The name, in brackets, may have anything in it.
    let (before, after) = stat.rsplit_once(')')?;
    let mut words = after.split_whitespace();
    let has_ended = matches!(words.next()?, "Z" | "X");
    let parent = Pid::from_raw(words.next()?.parse().ok()?)?;
    // That may be its first thread alone.
    let threads: u32 = words.nth(THREADS)?.parse().ok()?;
    Some(Process {
        pid: Pid::from_raw(pid)?,
        name: before.split_once('(')?.1.to_owned(),
        is_dead: has_ended && threads < 2,
        parent,
    })
}

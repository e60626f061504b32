//! Processes that came of a run and have left its cgroup, where nothing covers them.
//!
//! Under systemd a new session (`su -l`, `login`, `sshd`) is moved to a cgroup of its own by
//! somebody else, and whoever is root can move himself. Nothing tells us, so the run looks now and
//! then at all that came of it; to find orphans too, it is their parent from the beginning.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

use super::cgroup::PREFIX;

/// What there was before the run is not of it: a shell that became this program may have left some.
#[derive(Debug)]
pub(crate) struct Family {
    before: Vec<Pid>,
}

/// One that has left.
#[derive(Debug)]
struct Process {
    pid: Pid,
    parent: Pid,
    name: String,
    is_dead: bool,
}

impl Family {
    /// From now on this process is the parent of the orphans among those that come of it.
    pub(crate) fn adopt() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let family = Self { before: Vec::new() };
        let before = family.members().into_iter().map(|member| member.pid);
        Ok(Self {
            before: before.collect(),
        })
    }

    /// Ends those that are in no run's cgroup; what they were. Buries the dead but `program`, for
    /// which somebody else waits.
    pub(crate) async fn end_strays(&self, program: Option<Pid>) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        // What a stray starts meanwhile is met in the next round.
        for _ in 0..100 {
            let mut is_done = true;
            for member in self.members() {
                if member.is_dead {
                    if member.parent == getpid() && Some(member.pid) != program {
                        let _ = waitpid(Some(member.pid), WaitOptions::NOHANG);
                    }
                } else if has_left(member.pid)
                    && !(Some(member.pid) == program && is_on_its_way(member.pid))
                {
                    is_done = false;
                    let _ = kill_process(member.pid, Signal::KILL);
                    let what = format!("{} ({})", member.pid, member.name);
                    if !found.contains(&what) {
                        found.push(what);
                    }
                }
            }
            if is_done {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        found
    }

    /// All that came of this process, parents first.
    fn members(&self) -> Vec<Process> {
        let mut others = processes();
        others.retain(|process| !self.before.contains(&process.pid));
        let mut members: Vec<Process> = Vec::new();
        let mut parent = getpid();
        for next in 0.. {
            let (children, rest) = others.into_iter().partition(|one| one.parent == parent);
            others = rest;
            members.extend::<Vec<_>>(children);
            match members.get(next) {
                Some(member) => parent = member.pid,
                None => break,
            }
        }
        members
    }
}

/// Whether a process is in no run's cgroup. A run within a run has its own.
fn has_left(pid: Pid) -> bool {
    let file = format!("/proc/{pid}/cgroup");
    fs::read_to_string(file).is_ok_and(|text| {
        let cgroup = text.lines().find_map(|line| line.strip_prefix("0::/"));
        cgroup.is_some_and(|cgroup| !cgroup.starts_with(PREFIX))
    })
}

/// Whether it is still this program, which enters the cgroup before it becomes another.
fn is_on_its_way(pid: Pid) -> bool {
    let program = |pid: Pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
    program(pid) == program(getpid())
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stat = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name, in brackets, may have anything in it.
        let (before, after) = stat.rsplit_once(')')?;
        let mut words = after.split_whitespace();
        Some(Process {
            pid: Pid::from_raw(pid)?,
            name: before.split_once('(')?.1.to_owned(),
            is_dead: matches!(words.next()?, "Z" | "X"),
            parent: Pid::from_raw(words.next()?.parse().ok()?)?,
        })
    };
    entries.filter_map(stat).collect()
}

//! The processes that come of this one, where no cgroup holds them: it is the parent of those whose
//! own parent has gone, so as long as there are any, one is its child.

use std::fs;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

/// Has this process become the parent of orphans.
pub(crate) fn adopt_orphans() -> Result<(), String> {
    set_child_subreaper(Some(getpid()))
        .map_err(|error| format!("orphans cannot be adopted: {error}"))
}

/// Whether any is left, besides `program`, for which somebody else waits. Buries the dead.
pub(crate) fn is_there(program: Option<Pid>) -> bool {
    let mut found = false;
    for process in processes() {
        if process.parent == getpid() && Some(process.pid) != program {
            match process.is_dead {
                true => drop(waitpid(Some(process.pid), WaitOptions::NOHANG)),
                false => found = true,
            }
        }
    }
    found
}

/// A signal to each.
pub(crate) fn signal_all(signal: Signal) {
    let processes = processes();
    let mut family = vec![getpid()];
    let mut at = 0;
    while let Some(parent) = family.get(at).copied() {
        let children = processes.iter().filter(|process| process.parent == parent);
        family.extend(children.map(|process| process.pid));
        at += 1;
    }
    for pid in &family[1..] {
        let _ = kill_process(*pid, signal);
    }
}

/// Ends all of them.
pub(crate) async fn end_all() -> Result<(), String> {
    for _ in 0..500 {
        if !is_there(None) {
            return Ok(());
        }
        // Whatever forks meanwhile is met in the next round.
        signal_all(Signal::KILL);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("processes of the program do not end".to_owned())
}

struct Process {
    pid: Pid,
    parent: Pid,
    is_dead: bool,
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stat = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Its name, in brackets, may have anything in it.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        Some(Process {
            pid: Pid::from_raw(pid)?,
            is_dead: matches!(words.next()?, "Z" | "X"),
            parent: Pid::from_raw(words.next()?.parse().ok()?)?,
        })
    };
    entries.filter_map(stat).collect()
}

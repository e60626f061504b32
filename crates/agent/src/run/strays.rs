//! Processes that came of a run and have left its cgroup, where nothing covers them.
//!
//! Under systemd a new session (`su -l`, `login`, `sshd`) is moved to a cgroup of its own by
//! somebody else, and whoever is root can move himself. Nothing tells us, so the run looks now and
//! then at all that came of it.

use std::fs;

use rustix::process::{Pid, getpid};

use super::cgroup::PREFIX;
use super::family::Family;

/// Ends those that are in no run's cgroup; an error if there was any.
pub(crate) async fn end_strays(family: &Family, program: Option<Pid>) -> Result<(), String> {
    let has_strayed = |pid| has_left(pid) && !(Some(pid) == program && is_on_its_way(pid));
    // Without descriptors nobody can be looked for; the next time will do.
    let members = family.members(program).unwrap_or_default();
    if !members.iter().any(|member| has_strayed(member.pid)) {
        return Ok(());
    }
    let ended = family
        .end(program, |member| has_strayed(member.pid))
        .await?;
    if ended.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} left the run's cgroup and could go on in clear: everything was ended",
        ended.join(", ")
    ))
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

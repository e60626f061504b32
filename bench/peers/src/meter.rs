//! Wall and processor time of a run's measured part, and this process's memory.

use std::time::{Duration, Instant};

use bench_contract::Report;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::Result;

/// Measures from its start on.
pub(crate) struct Meter {
    started: Instant,
    user: i64,
    system: i64,
}

impl Meter {
    pub(crate) fn start() -> Result<Self> {
        let (user, system) = usage()?;
        Ok(Self {
            started: Instant::now(),
            user,
            system,
        })
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// What was spent since the start; `count` of something was done.
    pub(crate) fn stop(&self, count: u64) -> Result<Report> {
        let seconds = self.started.elapsed().as_secs_f64();
        let (user, system) = usage()?;
        Ok(Report {
            seconds,
            cpu_user: (user - self.user) as f64 * 1e-6,
            cpu_system: (system - self.system) as f64 * 1e-6,
            count,
            ..Report::default()
        })
    }
}

/// User and system time of this process, microseconds.
fn usage() -> Result<(i64, i64)> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = |time: nix::sys::time::TimeVal| time.num_microseconds();
    Ok((micros(usage.user_time()), micros(usage.system_time())))
}

/// Resident memory of this process, KiB.
pub(crate) fn resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(number
        .ok_or("no VmRSS in /proc/self/status")?
        .trim()
        .parse()?)
}

//! Wall and processor time of a run's measured part, and this process's memory; for the drivers in Rust.

use std::error::Error;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::{Latency, Report};

/// What a measurement comes to, or why there is none.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Measures from its start on.
pub struct Meter {
    started: Instant,
    user: i64,
    system: i64,
}

impl Meter {
    /// From now on.
    ///
    /// # Errors
    /// The system does not tell what was spent.
    pub fn start() -> Result<Self> {
        let (user, system) = usage()?;
        Ok(Self {
            started: Instant::now(),
            user,
            system,
        })
    }

    /// Wall time since.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// What was spent since the start; `count` of something was done.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub fn stop(&self, count: u64) -> Result<Report> {
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
///
/// # Errors
/// The system does not tell.
pub fn resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(number
        .ok_or("no VmRSS in /proc/self/status")?
        .trim()
        .parse()?)
}

/// The distribution of round trips in nanoseconds, which are sorted; `None` without one.
pub fn latency(nanos: &mut [u64]) -> Option<Latency> {
    nanos.sort_unstable();
    let at = |share: f64| {
        let rank = (share * nanos.len() as f64).ceil() as usize;
        let nanos = nanos.get(rank.saturating_sub(1));
        nanos.map(|nanos| *nanos as f64 / 1e3)
    };
    Some(Latency {
        min: at(0.0)?,
        p50: at(0.5)?,
        p99: at(0.99)?,
        p999: at(0.999)?,
        max: at(1.0)?,
    })
}

#[cfg(test)]
mod tests;

//! Processor time of this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Measures the processor time, user and system, that this process spends from now on.
#[derive(Clone, Copy, Debug)]
pub struct CpuMeter(Duration);

impl CpuMeter {
    /// Starts measuring.
    pub fn start() -> Self {
        Self(process_cpu())
    }

    /// What was spent since.
    pub fn spent(&self) -> Duration {
        process_cpu().saturating_sub(self.0)
    }

    /// The same in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.spent().as_micros()).unwrap_or(u64::MAX)
    }
}

fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or(0),
        time.tv_nsec.try_into().unwrap_or(0),
    )
}

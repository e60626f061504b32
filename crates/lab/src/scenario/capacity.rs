//! How much a link could carry whose rate follows a schedule: for utilisation, and for queues
//! counted in bandwidth-delay products. Asked by the runner and by the text.

use std::time::Duration;

use towline_sim::RateSchedule;

/// A schedule, summed up.
#[derive(Clone, Debug)]
pub(super) struct Capacity {
    /// Start in nanoseconds, bits a second from then on, and bit-nanoseconds carried before.
    steps: Vec<(u128, u128, u128)>,
    /// Length of a period, and what it carries.
    period: Option<(u128, u128)>,
}

impl Capacity {
    pub(super) fn new(schedule: &RateSchedule) -> Self {
        let mut steps: Vec<(u128, u128, u128)> = Vec::new();
        for (start, rate) in schedule.steps() {
            let before = until(&steps, start.as_nanos());
            steps.push((start.as_nanos(), u128::from(rate), before));
        }
        let period = schedule.repeat().map(|period| {
            let length = period.as_nanos();
            (length, until(&steps, length))
        });
        Self { steps, period }
    }

    /// Mean rate from `from` for `length` on, bits a second.
    pub(super) fn mean(&self, from: Duration, length: Duration) -> u64 {
        let nanos = length.as_nanos().max(1);
        let carried = self.until(from.as_nanos() + nanos) - self.until(from.as_nanos());
        u64::try_from(carried / nanos).unwrap_or(u64::MAX)
    }

    /// Mean rate of a period, else the highest.
    pub(super) fn typical(&self) -> u64 {
        let rate = match self.period {
            Some((length, carried)) => carried / length.max(1),
            None => self.steps.iter().map(|step| step.1).max().unwrap_or(0),
        };
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Bit-nanoseconds until a time.
    fn until(&self, nanos: u128) -> u128 {
        match self.period {
            Some((length, carried)) => {
                nanos / length * carried + until(&self.steps, nanos % length)
            }
            None => until(&self.steps, nanos),
        }
    }
}

fn until(steps: &[(u128, u128, u128)], nanos: u128) -> u128 {
    let after = steps.partition_point(|step| step.0 <= nanos);
    match steps[..after].last() {
        Some((start, rate, before)) => before + rate * (nanos - start),
        None => 0,
    }
}

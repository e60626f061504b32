//! A bottleneck whose rate changes with time: steps, repeated or not, or a recorded trace.
//!
//! Owns the arithmetic of how long a datagram takes to leave at such a rate, exact to a fraction
//! of a nanosecond. Part of `LinkConfig`; asked by the bottleneck. Knows nothing of datagrams.

use core::time::Duration;

use towline_wire::Time;

use crate::error::LinkConfigError;

/// Bits that one line of a delivery trace lets through: a packet of 1500 bytes.
const OPPORTUNITY_BITS: u64 = 1500 * 8;

/// Rates over time, counted from time 0 of the link's clock as blackouts are. A rate of 0 is an
/// outage: the queue holds, then drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSchedule {
    /// Start in nanoseconds and bits per second; the first start is 0, starts increase.
    steps: Vec<(u64, u64)>,
    /// After how many nanoseconds it starts over.
    period: Option<u64>,
    /// Bit-nanoseconds that one period carries; 0 without a period.
    period_capacity: u128,
}

impl RateSchedule {
    /// `steps` of a start and a rate in bits per second from then on, starting over after `repeat`.
    ///
    /// # Errors
    /// No step, a first step later than 0, steps out of order, a period that ends before the last
    /// step, or a schedule that carries nothing for good.
    pub fn new(
        steps: &[(Duration, u64)],
        repeat: Option<Duration>,
    ) -> Result<Self, LinkConfigError> {
        let fail = |problem: &str| Err(LinkConfigError::new("steps", problem));
        let nanos = |duration: Duration| {
            u64::try_from(duration.as_nanos())
                .map_err(|_| LinkConfigError::new("steps", "a time is too large"))
        };
        let steps: Vec<(u64, u64)> = steps
            .iter()
            .map(|&(start, rate)| Ok((nanos(start)?, rate)))
            .collect::<Result<_, LinkConfigError>>()?;
        let period = repeat.map(nanos).transpose()?;
        let (Some(&(first, _)), Some(&(last, last_rate))) = (steps.first(), steps.last()) else {
            return fail("has no step; write START:RATE;START:RATE");
        };
        if first != 0 {
            return fail("the first step must start at 0s");
        }
        if !steps.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            return fail("every step must start later than the one before");
        }
        if period.is_some_and(|period| period <= last) {
            return fail("must repeat later than the last step starts");
        }
        if steps.iter().all(|&(_, rate)| rate == 0) {
            return fail("a rate of 0 throughout carries nothing; use a blackout or loss");
        }
        if period.is_none() && last_rate == 0 {
            return fail(
                "ends at a rate of 0, so what waits would never leave; add a step or repeat",
            );
        }
        let mut schedule = Self {
            steps,
            period,
            period_capacity: 0,
        };
        if let Some(period) = period {
            // At most 2^64 x the period of below 2^64.
            schedule.period_capacity = (0..schedule.steps.len())
                .map(|index| {
                    let (start, rate) = schedule.steps[index];
                    let end = schedule.steps.get(index + 1).map_or(period, |next| next.0);
                    u128::from(rate) * u128::from(end - start)
                })
                .sum();
        }
        Ok(schedule)
    }

    /// Reads a delivery trace as Mahimahi records them: each line is the millisecond by which one
    /// more packet of 1500 bytes may leave; the trace starts over after its last line's
    /// millisecond. Here those bits flow throughout the millisecond before.
    ///
    /// # Errors
    /// A line that is no number or goes back in time, or a trace that spans no time.
    pub fn from_delivery_trace(text: &str) -> Result<Self, LinkConfigError> {
        /// Keeps milliseconds in nanoseconds within a `u64`.
        const LATEST_MILLI: u64 = u64::MAX / 1_000_000;
        let fail = |number: usize, line: &str, problem: &str| {
            let item = format!("trace line {}: {line}", number + 1);
            Err(LinkConfigError::new(&item, problem))
        };
        // Rates per millisecond, outages in between left out.
        let mut busy: Vec<(u64, u64)> = Vec::new();
        let mut latest = 0;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let Ok(milli) = line.parse::<u64>() else {
                return fail(number, line, "is no number of milliseconds");
            };
            if milli < latest {
                return fail(number, line, "is earlier than the line before");
            }
            if milli > LATEST_MILLI {
                return fail(number, line, "is too large");
            }
            latest = milli;
            // A packet due at 0 shares the first millisecond, there is none before it.
            let slot = milli.saturating_sub(1);
            match busy.last_mut() {
                Some((last, rate)) if *last == slot => {
                    *rate = rate.saturating_add(OPPORTUNITY_BITS * 1000);
                }
                _ => busy.push((slot, OPPORTUNITY_BITS * 1000)),
            }
        }
        if latest == 0 {
            return Err(LinkConfigError::new(
                "trace",
                "spans no time; it needs lines of milliseconds, the last above 0",
            ));
        }
        let mut steps: Vec<(Duration, u64)> = Vec::new();
        let mut step = |milli: u64, rate: u64| {
            if steps.last().is_none_or(|&(_, before)| before != rate) {
                steps.push((Duration::from_millis(milli), rate));
            }
        };
        let mut free = 0;
        for (slot, rate) in busy {
            if slot > free {
                step(free, 0);
            }
            step(slot, rate);
            free = slot + 1;
        }
        Self::new(&steps, Some(Duration::from_millis(latest)))
    }

    /// The steps: start and bits per second.
    pub fn steps(&self) -> impl Iterator<Item = (Duration, u64)> {
        self.steps
            .iter()
            .map(|&(start, rate)| (Duration::from_nanos(start), rate))
    }

    /// After what time it starts over, if it does.
    pub fn repeat(&self) -> Option<Duration> {
        self.period.map(Duration::from_nanos)
    }

    /// Bits per second at `time`.
    pub fn rate_at(&self, time: Time) -> u64 {
        self.span(time.as_nanos()).0
    }

    /// What a default queue is sized for: the mean rate of a repeated schedule, else the highest.
    pub(crate) fn typical_rate(&self) -> u64 {
        match self.period {
            // A mean of `u64`s.
            Some(period) => ((self.period_capacity / u128::from(period)) as u64).max(1),
            None => self.steps.iter().map(|step| step.1).max().unwrap_or(0),
        }
    }

    /// The first time from `time` on at which the rate is above 0.
    pub(crate) fn available_from(&self, time: Time) -> Time {
        let mut nanos = time.as_nanos();
        // Every step comes by within as many turns, and one of them is above 0.
        for _ in 0..=self.steps.len() {
            match self.span(nanos) {
                (0, Some(end)) => nanos = end,
                (0, None) => break,
                _ => return Time::from_nanos(nanos),
            }
        }
        Time::MAX
    }

    /// When `bit_nanos` of work that starts at `start` is done: the time rounded down, and the
    /// work that remains then, which is less than a nanosecond's.
    pub(crate) fn serve(&self, start: Time, mut bit_nanos: u128) -> (Time, u64) {
        const NEVER: (Time, u64) = (Time::MAX, 0);
        let mut nanos = start.as_nanos();
        if let Some(period) = self.period {
            // Any stretch as long as a period carries as much as a period.
            let whole = bit_nanos.saturating_sub(1) / self.period_capacity;
            bit_nanos -= whole * self.period_capacity;
            let skipped = whole.saturating_mul(u128::from(period));
            let Ok(later) = u64::try_from(skipped.saturating_add(u128::from(nanos))) else {
                return NEVER;
            };
            nanos = later;
        }
        loop {
            let (rate, end) = self.span(nanos);
            let room = end.map(|end| u128::from(rate) * u128::from(end - nanos));
            if rate > 0 && room.is_none_or(|room| bit_nanos <= room) {
                let length = u64::try_from(bit_nanos / u128::from(rate)).unwrap_or(u64::MAX);
                // A remainder is below `rate`, so it fits.
                let rest = (bit_nanos % u128::from(rate)) as u64;
                return (Time::from_nanos(nanos.saturating_add(length)), rest);
            }
            let (Some(end), Some(room)) = (end, room) else {
                return NEVER;
            };
            if end == u64::MAX {
                return NEVER;
            }
            bit_nanos -= room;
            nanos = end;
        }
    }

    /// The rate at `nanos`, and when it next may change.
    fn span(&self, nanos: u64) -> (u64, Option<u64>) {
        let offset = self.period.map_or(nanos, |period| nanos % period);
        let next = self.steps.partition_point(|step| step.0 <= offset);
        let end = self.steps.get(next).map(|step| step.0).or(self.period);
        // The first step starts at 0, so there is one before `next`.
        let rate = self.steps[next.saturating_sub(1)].1;
        (rate, end.map(|end| nanos.saturating_add(end - offset)))
    }
}

/// How fast a transmitter is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Service<'a> {
    Constant(u64),
    Scheduled(&'a RateSchedule),
}

impl Service<'_> {
    /// The first time from `time` on at which it sends anything.
    pub(crate) fn available_from(self, time: Time) -> Time {
        match self {
            Self::Constant(_) => time,
            Self::Scheduled(schedule) => schedule.available_from(time),
        }
    }
}

#[cfg(test)]
mod tests;

//! Queue disciplines: what the queue in front of a bottleneck drops or marks before it is full.
//!
//! Owns the settings ([`Aqm`]) and the state of CoDel (RFC 8289), RED (Floyd and Jacobson 1993)
//! and a marking step. The bottleneck asks for a verdict when a datagram comes (RED) or is about
//! to leave (the others). Never touches a datagram.

use core::time::Duration;

use towline_wire::Time;

use crate::error::LinkConfigError;

/// CoDel's target unless given (RFC 8289 §4.4).
pub const DEFAULT_CODEL_TARGET: Duration = Duration::from_millis(5);

/// CoDel's interval unless given (RFC 8289 §4.3).
pub const DEFAULT_CODEL_INTERVAL: Duration = Duration::from_millis(100);

/// RED's weight of the newest queue length unless given.
pub const DEFAULT_RED_WEIGHT: f64 = 0.002;

/// How a queue is managed before it is full. A full queue drops its tail whatever this says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Aqm {
    /// Not at all.
    #[default]
    DropTail,
    /// CoDel, RFC 8289: drops at the head while every datagram waited longer than the target.
    CoDel {
        /// Acceptable standing wait.
        target: Duration,
        /// Time in which a burst may drain; about the longest round trip.
        interval: Duration,
    },
    /// Random early detection: drops at the tail, the more likely the longer the average queue.
    Red {
        /// Average queue in bytes below which nothing is dropped.
        min: u64,
        /// Average queue in bytes from which everything is dropped.
        max: u64,
        /// Drop probability as the average comes to `max`.
        max_probability: f64,
        /// Weight of the newest queue length in the average.
        weight: f64,
    },
    /// Marks every ECN-capable datagram that waited longer than this; never drops.
    Step(Duration),
}

impl Aqm {
    /// CoDel with the RFC's 5 ms and 100 ms.
    pub const CODEL: Self = Self::CoDel {
        target: DEFAULT_CODEL_TARGET,
        interval: DEFAULT_CODEL_INTERVAL,
    };

    pub(crate) fn validate(&self) -> Result<(), LinkConfigError> {
        let problem = match *self {
            Self::DropTail => return Ok(()),
            Self::CoDel { target, .. } if target.is_zero() => "a CoDel target of 0 drops it all",
            Self::CoDel { target, interval } if interval < target => {
                "CoDel's interval must not be shorter than its target"
            }
            Self::CoDel { .. } => return Ok(()),
            Self::Red { min: 0, .. } => "RED's minimum must be above 0 bytes",
            Self::Red { min, max, .. } if max <= min => "RED's maximum must be above its minimum",
            Self::Red {
                max_probability: p, ..
            } if !(p > 0.0 && p <= 1.0) => "RED's probability must be above 0 and at most 1",
            Self::Red { weight: w, .. } if !(w > 0.0 && w <= 1.0) => {
                "RED's weight must be above 0 and at most 1"
            }
            Self::Red { .. } => return Ok(()),
            Self::Step(threshold) if threshold.is_zero() => "a step at 0 marks it all",
            Self::Step(_) => return Ok(()),
        };
        Err(LinkConfigError::new("aqm", problem))
    }
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Mark,
    Drop,
}

/// The state of one queue's discipline.
#[derive(Debug, Default)]
pub(crate) struct Discipline {
    codel: CoDel,
    red: Red,
}

/// A datagram about to leave the queue.
pub(crate) struct Leaving {
    pub(crate) now: Time,
    pub(crate) sojourn: Duration,
    /// Bytes that stay behind.
    pub(crate) backlog: u64,
    /// Whether it can be marked in place of being dropped.
    pub(crate) markable: bool,
}

/// A datagram that comes to the queue.
pub(crate) struct Coming {
    pub(crate) now: Time,
    /// Bytes in the queue before it.
    pub(crate) backlog: u64,
    /// Since when the bottleneck has nothing to do, if so.
    pub(crate) idle_since: Option<Time>,
    /// How long the bottleneck takes for it.
    pub(crate) service: Duration,
    pub(crate) markable: bool,
    /// The datagram's luck, 0 to below 1.
    pub(crate) luck: f64,
}

impl Discipline {
    /// RED's say, before a datagram enters.
    pub(crate) fn on_coming(&mut self, aqm: &Aqm, coming: &Coming) -> Verdict {
        match *aqm {
            Aqm::Red {
                min,
                max,
                max_probability,
                weight,
            } => self
                .red
                .judge((min as f64, max as f64), max_probability, weight, coming),
            _ => Verdict::Pass,
        }
    }

    /// The others' say, when it has been taken out.
    pub(crate) fn on_leaving(&mut self, aqm: &Aqm, leaving: &Leaving) -> Verdict {
        match *aqm {
            Aqm::CoDel { target, interval } => self.codel.judge(target, interval, leaving),
            Aqm::Step(threshold) if leaving.sojourn > threshold && leaving.markable => {
                Verdict::Mark
            }
            _ => Verdict::Pass,
        }
    }

    /// Notes a datagram's size: CoDel leaves a queue of one datagram alone.
    pub(crate) fn on_size(&mut self, size: u64) {
        self.codel.largest = self.codel.largest.max(size);
    }
}

/// RFC 8289 §5, with its names, but judging datagram by datagram.
#[derive(Debug, Default)]
struct CoDel {
    first_above: Option<Time>,
    dropping: bool,
    drop_next: Time,
    count: u64,
    last_count: u64,
    /// The drop before this datagram sets the next one's time once the wait proves still too long.
    law_due: bool,
    largest: u64,
}

impl CoDel {
    fn judge(&mut self, target: Duration, interval: Duration, leaving: &Leaving) -> Verdict {
        let now = leaving.now;
        let above = self.is_above(target, interval, leaving);
        let verdict = if leaving.markable {
            Verdict::Mark
        } else {
            Verdict::Drop
        };
        let law_due = core::mem::take(&mut self.law_due);
        if self.dropping {
            if !above {
                self.dropping = false;
                return Verdict::Pass;
            }
            if law_due {
                self.drop_next = control_law(self.drop_next, interval, self.count);
            }
            if now < self.drop_next {
                return Verdict::Pass;
            }
            self.count += 1;
            if verdict == Verdict::Mark {
                self.drop_next = control_law(self.drop_next, interval, self.count);
            } else {
                self.law_due = true;
            }
            return verdict;
        }
        if !above {
            return Verdict::Pass;
        }
        self.dropping = true;
        // Dropping that has just ended goes on at the rate it had reached.
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now.saturating_duration_since(self.drop_next) < interval.saturating_mul(16);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = control_law(now, interval, self.count);
        self.last_count = self.count;
        verdict
    }

    /// Whether waits have been above the target for an interval.
    fn is_above(&mut self, target: Duration, interval: Duration, leaving: &Leaving) -> bool {
        if leaving.sojourn < target || leaving.backlog <= self.largest {
            self.first_above = None;
            return false;
        }
        let due = *self.first_above.get_or_insert(leaving.now + interval);
        leaving.now >= due
    }
}

fn control_law(time: Time, interval: Duration, count: u64) -> Time {
    let nanos = interval.as_nanos() as f64 / (count as f64).sqrt();
    time + Duration::from_nanos(nanos as u64)
}

#[derive(Debug, Default)]
struct Red {
    average: f64,
    /// Datagrams let in since the last drop or mark above the minimum.
    since_last: u32,
}

impl Red {
    fn judge(
        &mut self,
        (min, max): (f64, f64),
        max_probability: f64,
        weight: f64,
        coming: &Coming,
    ) -> Verdict {
        if let Some(idle_since) = coming.idle_since {
            // As if as many datagrams had come to an empty queue as could have been sent.
            let idle = coming.now.saturating_duration_since(idle_since).as_nanos();
            let could = idle / coming.service.as_nanos().max(1);
            self.average *= power(1.0 - weight, u64::try_from(could).unwrap_or(u64::MAX));
        }
        self.average += weight * (coming.backlog as f64 - self.average);
        if self.average < min {
            self.since_last = 0;
            return Verdict::Pass;
        }
        if self.average >= max {
            // RFC 3168 §7: beyond the maximum, marking is not enough.
            self.since_last = 0;
            return Verdict::Drop;
        }
        let base = max_probability * (self.average - min) / (max - min);
        let spread = 1.0 - f64::from(self.since_last) * base;
        self.since_last = self.since_last.saturating_add(1);
        if spread > 0.0 && coming.luck >= base / spread {
            return Verdict::Pass;
        }
        self.since_last = 0;
        if coming.markable {
            Verdict::Mark
        } else {
            Verdict::Drop
        }
    }
}

/// By squaring, so that every platform gets the same bits.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests;

//! The bottleneck of a link: a policer, a queue and a transmitter, each with its own state.
//!
//! Owns what waits and when the transmitter is free; `Link` puts datagrams in and takes them out
//! at the exact time they start. Never draws luck and knows nothing of what follows the bottleneck.

use core::time::Duration;
use std::collections::VecDeque;

use towline_wire::Time;

use crate::aqm::{Aqm, Coming, Discipline, Leaving, Verdict};
use crate::faults::Fate;
use crate::schedule::Service;
use crate::{Datagram, Policer};

/// Bit-nanoseconds in a byte at one bit per second.
const BYTE_WORK: u128 = 8 * 1_000_000_000;

/// Sends one datagram after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transmitter {
    /// When the last bit of all accepted so far has left, rounded down.
    busy_until: Time,
    /// Work left over at `busy_until` in bit-nanoseconds, less than a nanosecond's: rates stay
    /// exact over any number of datagrams.
    fraction: u64,
}

impl Transmitter {
    /// `busy_until` rounded up: a datagram has left when its last bit has.
    pub(crate) fn departure(&self) -> Time {
        self.busy_until + Duration::from_nanos(u64::from(self.fraction > 0))
    }

    /// When a datagram that is there from `ready` on starts.
    pub(crate) fn start(&self, ready: Time, service: Service<'_>) -> Time {
        service.available_from(self.departure().max(ready))
    }

    /// Takes a datagram that is there from `ready` on; returns when its last bit leaves.
    pub(crate) fn transmit(&mut self, ready: Time, size: u64, service: Service<'_>) -> Time {
        if self.busy_until < ready {
            self.busy_until = ready;
            self.fraction = 0;
        }
        // Below 2^64 x 8 x 10^9 + 2^64 < 2^101.
        let work = u128::from(size) * BYTE_WORK + u128::from(self.fraction);
        match service {
            Service::Constant(rate) => {
                let nanos = u64::try_from(work / u128::from(rate)).unwrap_or(u64::MAX);
                self.busy_until += Duration::from_nanos(nanos);
                // A remainder is below `rate`, so it fits.
                self.fraction = (work % u128::from(rate)) as u64;
            }
            Service::Scheduled(schedule) => {
                (self.busy_until, self.fraction) = schedule.serve(self.busy_until, work);
            }
        }
        self.departure()
    }

    /// From `now` on the rate is another; what is being sent is finished at the old one.
    pub(crate) fn change_rate(&mut self, now: Time) {
        self.busy_until = self.departure().max(now);
        self.fraction = 0;
    }
}

/// A datagram that waits, its luck already cast.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) since: Time,
    /// Payload as it came and overhead.
    pub(crate) size: u64,
    pub(crate) fate: Fate,
    /// Already counted as lost behind the bottleneck; only its bytes still count.
    pub(crate) doomed: bool,
    pub(crate) datagram: Datagram,
}

/// First in, first out, as far as the discipline lets them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: u64,
    discipline: Discipline,
    /// Most bytes at once since the last `take_peak`.
    peak: u64,
}

impl Queue {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn head(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter()
    }

    pub(crate) fn has_room(&self, size: u64, limit: u64) -> bool {
        self.bytes
            .checked_add(size)
            .is_some_and(|bytes| bytes <= limit)
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.bytes = self.bytes.saturating_add(waiting.size);
        self.peak = self.peak.max(self.bytes);
        self.waiting.push_back(waiting);
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.bytes -= waiting.size;
        Some(waiting)
    }

    /// Whether a datagram may come in.
    pub(crate) fn on_coming(&mut self, aqm: &Aqm, coming: &Coming) -> Verdict {
        self.discipline.on_coming(aqm, coming)
    }

    /// What becomes of a datagram that was popped, or that found nobody waiting, at `now`.
    pub(crate) fn on_leaving(
        &mut self,
        aqm: &Aqm,
        ecn: bool,
        now: Time,
        waiting: &Waiting,
    ) -> Verdict {
        if *aqm == Aqm::DropTail {
            return Verdict::Pass;
        }
        self.discipline.on_size(waiting.size);
        let leaving = Leaving {
            now,
            sojourn: now.saturating_duration_since(waiting.since),
            backlog: self.bytes,
            markable: ecn && waiting.datagram.is_ecn_capable(),
        };
        self.discipline.on_leaving(aqm, &leaving)
    }

    /// A new discipline starts without memory.
    pub(crate) fn change_discipline(&mut self) {
        self.discipline = Discipline::default();
    }

    /// Most bytes that waited at once since the last call.
    pub(crate) fn take_peak(&mut self) -> u64 {
        core::mem::replace(&mut self.peak, self.bytes)
    }
}

/// The fill of a policer's bucket.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// What is missing to a full bucket at `at`, in bit-nanoseconds.
    missing: u128,
    at: Time,
}

impl Bucket {
    /// Takes `size` bytes out at `now`; false if there are not as many.
    pub(crate) fn take(&mut self, policer: &Policer, now: Time, size: u64) -> bool {
        let elapsed = now.saturating_duration_since(self.at).as_nanos();
        self.at = self.at.max(now);
        self.missing = self
            .missing
            .saturating_sub(elapsed.saturating_mul(u128::from(policer.rate)));
        let missing = self
            .missing
            .saturating_add(u128::from(size).saturating_mul(BYTE_WORK));
        let fits = missing <= u128::from(policer.burst) * BYTE_WORK;
        if fits {
            self.missing = missing;
        }
        fits
    }
}

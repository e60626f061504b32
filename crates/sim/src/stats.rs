//! What a link counts. Plain numbers with public fields, so that the relay and the lab can
//! print or serialise them as they like; and the histogram of queue delays that the lab drains.

use core::time::Duration;

use towline_wire::Time;

/// Datagrams dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropStats {
    /// Payload longer than the link's MTU.
    pub mtu: u64,
    /// The queue in front of the bottleneck was full.
    pub queue: u64,
    /// Taken by the queue's discipline before it was full.
    pub aqm: u64,
    /// More than the policer lets through.
    pub policer: u64,
    /// Named in the drop list.
    pub listed: u64,
    /// Taken by the loss model.
    pub loss: u64,
    /// Left the queue during a blackout.
    pub blackout: u64,
    /// The link already held [`MAX_HELD_BYTES`](crate::MAX_HELD_BYTES).
    pub capacity: u64,
}

impl DropStats {
    /// All drops together.
    pub fn total(&self) -> u64 {
        self.mtu
            + self.queue
            + self.aqm
            + self.policer
            + self.listed
            + self.loss
            + self.blackout
            + self.capacity
    }
}

/// What one link did since it was made. Bytes are bytes of payload where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Datagrams pushed in.
    pub datagrams_in: u64,
    /// Bytes pushed in.
    pub bytes_in: u64,
    /// Datagrams that came out, duplicates included.
    pub datagrams_delivered: u64,
    /// Bytes that came out, duplicates included.
    pub bytes_delivered: u64,
    /// Drops by cause.
    pub drops: DropStats,
    /// Datagrams that came out a second time (counted when decided).
    pub duplicated: u64,
    /// Datagrams held back so that later ones overtake them.
    pub reordered: u64,
    /// Datagrams with one bit flipped.
    pub corrupted: u64,
    /// Datagrams cut short.
    pub truncated: u64,
    /// Most bytes that ever waited in the queue at once (payload and overhead).
    pub queue_peak_bytes: u64,
    /// Datagrams that left the bottleneck, or passed where there is none.
    pub datagrams_out: u64,
    /// Bytes that left the bottleneck (payload and overhead), whatever the medium did to them then.
    pub bytes_out: u64,
    /// Datagrams marked Congestion Experienced that were not so before.
    pub ce_marks: u64,
    /// Datagrams whose ECN bits were rewritten.
    pub ecn_rewritten: u64,
    /// How long all `datagrams_out` together waited for the bottleneck, without being serialised.
    pub queue_delay_total: Duration,
}

/// What one link's bottleneck did over a span of time; see [`Link::take_measure`](crate::Link::take_measure).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueMeasure {
    /// Start of the span.
    pub from: Time,
    /// End of the span.
    pub to: Time,
    /// Bytes that left the bottleneck (payload and overhead).
    pub bytes_out: u64,
    /// Bytes that wait at the end.
    pub queue_bytes: u64,
    /// Most bytes that waited at once.
    pub queue_peak_bytes: u64,
    /// How long each datagram waited that started to leave.
    pub delays: DelayHistogram,
}

impl QueueMeasure {
    /// What left in bits per second; 0 over no time.
    pub fn rate(&self) -> f64 {
        let seconds = self.to.saturating_duration_since(self.from).as_secs_f64();
        if seconds > 0.0 {
            self.bytes_out as f64 * 8.0 / seconds
        } else {
            0.0
        }
    }
}

/// Delays counted in buckets no wider than 1/32 of their value, or 8.2 us if that is more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayHistogram {
    /// Grows up to the longest delay seen, at most 1504 buckets.
    buckets: Vec<u64>,
    count: u64,
    total: Duration,
    max: Duration,
}

/// Nanoseconds are counted in units of 2^13.
const UNIT_BITS: u32 = 13;

/// The first 64 buckets are a unit wide, then come 32 to each power of two.
const SUB_BITS: u32 = 5;

impl DelayHistogram {
    /// Counts one delay.
    pub fn record(&mut self, delay: Duration) {
        let index = bucket(delay);
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] += 1;
        self.count += 1;
        self.total = self.total.saturating_add(delay);
        self.max = self.max.max(delay);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All together, exact.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The longest, exact.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The mean, exact to the nanosecond; zero of none.
    pub fn mean(&self) -> Duration {
        if self.count == 0 {
            return Duration::ZERO;
        }
        let nanos = self.total.as_nanos() / u128::from(self.count);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The delay that the share `q` (0 to 1) of all stays at or below: the middle of its bucket, so
    /// right to 1.6 % or 4.1 us; zero of none. `quantile(0.95)` is the 95th percentile.
    pub fn quantile(&self, q: f64) -> Duration {
        if self.count == 0 {
            return Duration::ZERO;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(index).min(self.max);
            }
        }
        self.max
    }

    /// Adds what another counted.
    pub fn merge(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (own, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += other;
        }
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
    }
}

fn bucket(delay: Duration) -> usize {
    let units = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX) >> UNIT_BITS;
    let shift = (u64::BITS - units.leading_zeros()).saturating_sub(SUB_BITS + 1);
    // Each shift halves 64 units to 32; the lower half of the 64 belongs to the shift before.
    ((u64::from(shift) << SUB_BITS) + (units >> shift)) as usize
}

fn middle(index: usize) -> Duration {
    let index = index as u64;
    let shift = (index >> SUB_BITS).saturating_sub(1);
    let units = index - (shift << SUB_BITS);
    let unit = 1u64 << (shift + u64::from(UNIT_BITS));
    Duration::from_nanos(units.saturating_mul(unit).saturating_add(unit / 2))
}

#[cfg(test)]
mod tests;

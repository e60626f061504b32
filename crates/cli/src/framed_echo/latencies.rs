//! A distribution of times in constant memory: buckets whose width is a 128th of their value.

use std::time::Duration;

/// Buckets for each doubling.
const STEPS: u64 = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = ((64 - STEP_BITS as usize) + 1) * STEPS as usize;

/// Times, counted.
#[derive(Clone, Debug)]
pub struct Latencies {
    buckets: Box<[u64]>,
    count: u64,
    sum: Duration,
}

impl Latencies {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            buckets: vec![0; BUCKETS].into(),
            count: 0,
            sum: Duration::ZERO,
        }
    }

    /// Counts one.
    pub(crate) fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += time;
    }

    /// Counts all of another's.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (own, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += more;
        }
        self.count += other.count;
        self.sum += other.sum;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Milliseconds on average.
    pub fn mean_ms(&self) -> f64 {
        self.sum.as_secs_f64() * 1e3 / self.count.max(1) as f64
    }

    /// Milliseconds that so great a share, 0 to 1, does not exceed.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(index) * 1e-6;
            }
        }
        0.0
    }
}

fn bucket(nanos: u64) -> usize {
    let shift = (64 - STEP_BITS - 1).saturating_sub(nanos.leading_zeros());
    // The first doubling that is not exact begins at STEPS.
    (u64::from(shift) * STEPS + (nanos >> shift)) as usize
}

/// Nanoseconds in the middle of a bucket.
fn middle(index: usize) -> f64 {
    let index = index as u64;
    let shift = (index / STEPS).saturating_sub(1);
    let lowest = (index - shift * STEPS) << shift;
    lowest as f64 + ((1_u64 << shift) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_falls_into_a_bucket_that_tells_it_within_a_percent() {
        for exponent in 0..63 {
            for offset in [0, 1, 3, 77] {
                let nanos = (1_u64 << exponent) + ((1_u64 << exponent) / 128) * offset;
                let told = middle(bucket(nanos));
                let off = (told - nanos as f64).abs() / nanos as f64;
                assert!(off < 0.01, "{nanos} ns are told as {told}");
            }
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles_of_a_thousand_even_times() {
        let mut all = Latencies::new();
        for half in 0..2 {
            let mut times = Latencies::new();
            for millis in (1..=1000_u64).filter(|millis| millis % 2 == half) {
                times.add(Duration::from_millis(millis));
            }
            all.merge(&times);
        }
        assert_eq!(all.count(), 1000);
        assert!((all.mean_ms() - 500.5).abs() < 0.01);
        for (share, expected) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0)] {
            let told = all.quantile_ms(share);
            assert!((told - expected).abs() / expected < 0.01, "{told}");
        }
    }
}

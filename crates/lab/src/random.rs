//! The lab's own dice: ChaCha8 streams named by a seed and a stream number.
//!
//! Each thing drawn has its own stream, so that leaving one out does not change the others.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A seeded random stream.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Stream number `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`, all equally likely.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A number between `low` and `high` whose logarithm is uniform; both above 0.
    pub fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + self.unit() * (high.ln() - low.ln())).exp()
    }

    /// As [`Self::log_uniform`], whole; `low` may be 0, which then is as likely as 1.
    pub fn log_whole(&mut self, low: u64, high: u64) -> u64 {
        let x = self.log_uniform(low as f64 + 1.0, high as f64 + 2.0);
        (x as u64 - 1).clamp(low, high)
    }

    /// A log-uniform duration between two numbers of seconds.
    pub fn log_duration(&mut self, low: f64, high: f64) -> Duration {
        // Whole microseconds keep printed plans short.
        Duration::from_micros((self.log_uniform(low, high) * 1e6) as u64)
    }

    /// A uniform duration up to `most`.
    pub fn duration_up_to(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(most.as_micros() as u64 + 1))
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

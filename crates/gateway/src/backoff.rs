//! How long to wait before the next attempt.

use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Waits that double from 0.5 s to 30 s until something works again.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: SHORTEST }
    }
}

impl Backoff {
    /// The wait before the next attempt.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST);
        wait
    }

    /// It worked: the next wait is the shortest again.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_half_a_second_to_thirty() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..8).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        backoff.reset();
        assert_eq!(backoff.next_wait(), SHORTEST);
    }
}

//! Numbered messages that are to come back: which of them did, and how long it took.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Messages that are remembered; an answer to an older one is none.
const REMEMBERED: usize = 65_536;

/// When each message left, from the oldest that is not back.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    oldest: u64,
    left: VecDeque<Option<Instant>>,
}

impl UnderWay {
    /// The number of the next message; the first is 0.
    pub(crate) fn next(&self) -> u64 {
        self.oldest + self.left.len() as u64
    }

    /// The next message leaves now; its number.
    pub(crate) fn leaves(&mut self, now: Instant) -> u64 {
        let number = self.next();
        self.left.push_back(Some(now));
        if self.left.len() > REMEMBERED {
            self.left.pop_front();
            self.oldest += 1;
        }
        number
    }

    /// How long a message took that is back now; `None` for one that was back before, or never left.
    pub(crate) fn is_back(&mut self, number: u64, now: Instant) -> Option<Duration> {
        let at = usize::try_from(number.checked_sub(self.oldest)?).ok()?;
        let left = self.left.get_mut(at)?.take()?;
        while let Some(None) = self.left.front() {
            self.left.pop_front();
            self.oldest += 1;
        }
        Some(now.saturating_duration_since(left))
    }

    /// Whether all that are remembered are back.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_back_once_in_any_order() {
        let mut under_way = UnderWay::default();
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        for number in 0..4 {
            assert_eq!(under_way.leaves(after(number)), number);
        }
        for (number, at, took) in [
            (2, 10, Some(8)),
            (0, 11, Some(11)),
            (2, 12, None),
            (0, 12, None),
            (9, 12, None),
            (1, 13, Some(12)),
        ] {
            let back = under_way.is_back(number, after(at));
            assert_eq!(back, took.map(Duration::from_millis), "{number}");
        }
        assert!(!under_way.is_empty());
        assert!(under_way.is_back(3, after(20)).is_some() && under_way.is_empty());
        assert_eq!(under_way.leaves(after(30)), 4);
    }

    #[test]
    fn what_left_too_long_ago_is_forgotten() {
        let mut under_way = UnderWay::default();
        let now = Instant::now();
        for _ in 0..=REMEMBERED {
            under_way.leaves(now);
        }
        assert_eq!(under_way.left.len(), REMEMBERED);
        assert!(under_way.is_back(0, now).is_none());
        assert!(under_way.is_back(1, now).is_some());
    }
}

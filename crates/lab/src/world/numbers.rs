//! A set of packet numbers, kept as ranges that lie apart.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Packet numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    /// First and last number of each range.
    ranges: BTreeMap<u64, u64>,
}

impl Numbers {
    /// Adds `first..=last`.
    pub(super) fn insert(&mut self, mut first: u64, mut last: u64) {
        while let Some((start, end)) = self
            .ranges
            .range(..=last.saturating_add(1))
            .next_back()
            .map(|(start, end)| (*start, *end))
            .filter(|(_, end)| end.saturating_add(1) >= first)
        {
            self.ranges.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        self.ranges.insert(first, last);
    }

    /// Whether all of `first..=last` is in.
    pub(super) fn covers(&self, first: u64, last: u64) -> bool {
        let before = self.ranges.range(..=first).next_back();
        before.is_some_and(|(_, end)| *end >= last)
    }

    /// The lowest number.
    pub(super) fn first(&self) -> Option<u64> {
        self.ranges.first_key_value().map(|(first, _)| *first)
    }

    /// The highest number.
    pub(super) fn last(&self) -> Option<u64> {
        self.ranges.last_key_value().map(|(_, last)| *last)
    }

    /// The ranges, highest first.
    pub(super) fn descending(&self) -> impl Iterator<Item = RangeInclusive<u64>> {
        self.ranges.iter().rev().map(|(first, last)| *first..=*last)
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut numbers = Numbers::default();
        for (first, last) in [(5, 6), (9, 9), (1, 2), (7, 8), (20, 30), (25, 26)] {
            numbers.insert(first, last);
        }
        let ranges: Vec<_> = numbers.descending().collect();
        assert_eq!(ranges, [20..=30, 5..=9, 1..=2]);
        assert!(numbers.covers(5, 9) && numbers.covers(21, 22));
        assert!(!numbers.covers(2, 5) && !numbers.covers(9, 10) && !numbers.covers(0, 0));
        assert_eq!((numbers.first(), numbers.last()), (Some(1), Some(30)));
    }
}

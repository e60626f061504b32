//! [`Ranges`]: which sequence numbers a sink has.

use std::ops::Range;

/// Cap: ranges of sequence numbers that one [`Ranges`] holds. The lowest goes, which costs a repetition at most.
pub(crate) const MAX_RANGES: usize = 1 << 16;

/// A set of sequence numbers, as ranges in order that neither touch nor overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    ranges: Vec<Range<u64>>,
}

impl Ranges {
    /// The ranges, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Whether a number is in it.
    #[must_use]
    pub fn contains(&self, seq: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= seq);
        self.ranges.get(at).is_some_and(|range| range.start <= seq)
    }

    /// Adds the numbers of a range. Of more than 65,536 ranges the lowest is forgotten.
    pub fn insert(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let from = self.ranges.partition_point(|range| range.end < new.start);
        let to = self.ranges.partition_point(|range| range.start <= new.end);
        let joined = match self.ranges.get(from..to) {
            Some([first, .., last]) => first.start.min(new.start)..last.end.max(new.end),
            Some([one]) => one.start.min(new.start)..one.end.max(new.end),
            _ => new,
        };
        self.ranges.splice(from..to, [joined]);
        if self.ranges.len() > MAX_RANGES {
            self.ranges.remove(0);
        }
    }
}

impl FromIterator<u64> for Ranges {
    fn from_iter<T: IntoIterator<Item = u64>>(numbers: T) -> Self {
        let mut ranges = Self::default();
        for seq in numbers {
            ranges.insert(seq..seq.saturating_add(1));
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges: Ranges = [5, 6, 1, 9, 2].into_iter().collect();
        assert_eq!(ranges.as_slice(), [1..3, 5..7, 9..10]);
        ranges.insert(3..5);
        assert_eq!(ranges.as_slice(), [1..7, 9..10]);
        ranges.insert(0..20);
        assert_eq!(ranges.as_slice(), std::slice::from_ref(&(0..20)));
        ranges.insert(4..4);
        assert_eq!(ranges.as_slice(), std::slice::from_ref(&(0..20)));
        assert!(ranges.contains(0) && ranges.contains(19) && !ranges.contains(20));
    }

    #[test]
    fn of_too_many_ranges_the_lowest_is_forgotten() {
        let ranges: Ranges = (0..=MAX_RANGES as u64).map(|n| n * 2).collect();
        assert_eq!(ranges.as_slice().len(), MAX_RANGES);
        assert!(!ranges.contains(0) && ranges.contains(2));
    }
}

//! [`Ranges`]: which sequence numbers a sink has.

use std::ops::Range;

use towline_wire::RangeSet;

/// Cap: ranges of sequence numbers that one [`Ranges`] holds. The lowest goes, which costs a repetition at most.
pub(crate) const MAX_RANGES: usize = 1 << 16;

/// A set of sequence numbers, as ranges that neither touch nor overlap.
#[derive(Clone, Debug, Default)]
pub struct Ranges(RangeSet);

impl Ranges {
    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.within(0..u64::MAX)
    }

    /// Whether a number is in it.
    #[must_use]
    pub fn contains(&self, seq: u64) -> bool {
        self.0.contains(seq)
    }

    /// Adds the numbers of a range. Of more than 65,536 ranges the lowest is forgotten.
    pub fn insert(&mut self, new: Range<u64>) {
        self.0.insert(new);
        if self.0.len() > MAX_RANGES {
            self.0.pop_front();
        }
    }
}

impl PartialEq for Ranges {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
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
        assert!(ranges.iter().eq([1..3, 5..7, 9..10]));
        ranges.insert(3..5);
        assert!(ranges.iter().eq([1..7, 9..10]));
        ranges.insert(0..20);
        assert!(ranges.iter().eq(std::iter::once(0..20)));
        ranges.insert(4..4);
        assert!(ranges.iter().eq(std::iter::once(0..20)));
        assert!(ranges.contains(0) && ranges.contains(19) && !ranges.contains(20));
    }

    #[test]
    fn of_too_many_ranges_the_lowest_is_forgotten() {
        let ranges: Ranges = (0..=MAX_RANGES as u64).map(|n| n * 2).collect();
        assert_eq!(ranges.iter().count(), MAX_RANGES);
        assert!(!ranges.contains(0) && ranges.contains(2));
    }
}

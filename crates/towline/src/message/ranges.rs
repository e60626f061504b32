//! A small sorted set of half-open ranges: what a reader has had of its message.
//!
//! One range for a reader in order; for others as many as there are gaps, which the engine bounds.

use std::ops::Range;

/// Disjoint, non-adjacent, non-empty ranges in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// The first number that is not a member.
    pub(super) fn first_gap(&self) -> u64 {
        match self.0.first() {
            Some(first) if first.start == 0 => first.end,
            _ => 0,
        }
    }

    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // From the first that touches it to the first that lies wholly behind.
        let from = self.0.partition_point(|r| r.end < range.start);
        let to = self.0.partition_point(|r| r.start <= range.end);
        let merged = match self.0.get(from..to) {
            Some([first, .., last]) => first.start.min(range.start)..last.end.max(range.end),
            Some([only]) => only.start.min(range.start)..only.end.max(range.end),
            _ => range,
        };
        self.0.splice(from..to, [merged]);
    }

    /// The first part of `range` that has no members.
    pub(super) fn first_missing(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut start = range.start;
        let from = self.0.partition_point(|r| r.end <= start);
        for r in &self.0[from..] {
            if r.start > start {
                return (start < range.end).then(|| start..range.end.min(r.start));
            }
            start = r.end;
        }
        (start < range.end).then_some(start..range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_insertions_agree_with_a_plain_list() {
        let mut state = 11u64;
        let mut next = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..300 {
            let mut set = Ranges::default();
            let mut model = [false; 64];
            for _ in 0..20 {
                let start = next(60);
                let end = start + next(64 - start + 1).min(9);
                set.insert(start..end);
                (start..end).for_each(|i| model[i as usize] = true);
                let gap = model.iter().position(|had| !had).unwrap_or(64);
                assert_eq!(set.first_gap(), gap as u64);
                assert!(set.0.windows(2).all(|w| w[0].end < w[1].start));
                let (from, to) = (next(64), next(64));
                let missing = (from..to).find(|i| !model[*i as usize]);
                let end = missing.map(|at| (at..to).find(|i| model[*i as usize]).unwrap_or(to));
                let expected = missing.zip(end).map(|(start, end)| start..end);
                assert_eq!(set.first_missing(from..to), expected);
            }
        }
    }
}

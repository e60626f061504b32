//! A small sorted set of half-open `u64` ranges.
//!
//! Owned by the send buffer (acknowledged and lost bytes), by the acknowledgement component (packet
//! numbers received) and by the readers of a message (bytes they have had). The common case is one
//! range that grows at its end, which touches no other element. It never merges what does not touch.

use std::collections::VecDeque;
use std::ops::Range;

/// Disjoint, non-adjacent, non-empty ranges in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    ranges: VecDeque<Range<u64>>,
}

impl RangeSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Bytes of memory it has reserved.
    pub(crate) fn held(&self) -> usize {
        self.ranges.capacity() * size_of::<Range<u64>>()
    }

    /// The largest member.
    pub(crate) fn max(&self) -> Option<u64> {
        self.ranges.back().map(|r| r.end - 1)
    }

    pub(crate) fn contains(&self, value: u64) -> bool {
        // Mostly asked about what is beyond all members.
        if self.ranges.back().is_none_or(|last| value >= last.end) {
            return false;
        }
        let i = self.ranges.partition_point(|r| r.end <= value);
        self.ranges.get(i).is_some_and(|r| r.start <= value)
    }

    /// Ranges from the highest down.
    pub(crate) fn iter_descending(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().rev().cloned()
    }

    /// The members of `range`, as ranges, without a walk over the others.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|r| r.end <= range.start);
        self.ranges
            .range(first..)
            .take_while(move |r| r.start < range.end)
            .cloned()
    }

    /// The first part of `range` that has no members.
    pub(crate) fn first_missing(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut start = range.start;
        for had in self.within(range.clone()) {
            if had.start > start {
                return Some(start..had.start);
            }
            start = had.end;
        }
        (start < range.end).then_some(start..range.end)
    }

    /// Adds `range`; returns whether any member is new.
    pub(crate) fn insert(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        if let Some(last) = self.ranges.back_mut() {
            if range.start == last.end {
                last.end = range.end;
                return true;
            }
            if range.start > last.end {
                self.ranges.push_back(range);
                return true;
            }
        } else {
            self.ranges.push_back(range);
            return true;
        }
        // First range that touches or follows `range`, and first that lies wholly behind it.
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let behind = self.ranges.partition_point(|r| r.start <= range.end);
        if first == behind {
            self.ranges.insert(first, range);
            return true;
        }
        let merged =
            self.ranges[first].start.min(range.start)..self.ranges[behind - 1].end.max(range.end);
        let unchanged = behind - first == 1 && self.ranges[first] == merged;
        self.ranges[first] = merged;
        self.ranges.drain(first + 1..behind);
        !unchanged
    }

    /// Removes every member of `range`.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut i = self.ranges.partition_point(|r| r.end <= range.start);
        while let Some(current) = self.ranges.get_mut(i) {
            if current.start >= range.end {
                break;
            }
            if current.start < range.start {
                let tail = range.end..current.end;
                current.end = range.start;
                i += 1;
                if !tail.is_empty() {
                    self.ranges.insert(i, tail);
                    break;
                }
            } else if current.end > range.end {
                current.start = range.end;
                break;
            } else {
                self.ranges.remove(i);
            }
        }
    }

    /// Removes and returns up to `max` leading members of the lowest range.
    pub(crate) fn take_front(&mut self, max: u64) -> Option<Range<u64>> {
        let front = self.ranges.front_mut()?;
        if front.end - front.start <= max {
            return self.ranges.pop_front();
        }
        let taken = front.start..front.start + max;
        front.start = taken.end;
        Some(taken)
    }

    /// Drops the lowest range.
    pub(crate) fn pop_front(&mut self) -> Option<Range<u64>> {
        self.ranges.pop_front()
    }

    pub(crate) fn front(&self) -> Option<&Range<u64>> {
        self.ranges.front()
    }
}

#[cfg(test)]
mod tests {
    use super::RangeSet;
    use std::collections::BTreeSet;

    #[test]
    fn random_operations_agree_with_a_plain_set() {
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let mut set = RangeSet::default();
            let mut model = BTreeSet::new();
            for _ in 0..60 {
                let start = next(60);
                let end = start + next(12);
                if next(3) == 0 {
                    set.remove(start..end);
                    (start..end).for_each(|v| {
                        model.remove(&v);
                    });
                } else {
                    let fresh = (start..end).any(|v| !model.contains(&v));
                    assert_eq!(set.insert(start..end), fresh);
                    model.extend(start..end);
                }
                let mut members: Vec<u64> = set.iter_descending().flatten().collect();
                members.sort_unstable();
                assert_eq!(members, model.iter().copied().collect::<Vec<_>>());
                assert_eq!(set.max(), model.last().copied());
                assert!((0..75).all(|v| set.contains(v) == model.contains(&v)));
                let (from, to) = (next(75), next(75));
                let first = (from..to).find(|v| !model.contains(v));
                let missing = first.map(|first| {
                    let had = (first..to).find(|v| model.contains(v));
                    first..had.unwrap_or(to)
                });
                assert_eq!(set.first_missing(from..to), missing);
            }
        }
    }
}

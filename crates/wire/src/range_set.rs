//! A sorted set of half-open `u64` ranges.
//!
//! For what was received, acknowledged, lost or read: packet numbers, bytes, streams. The common case
//! is one range that grows at its end, which touches no other element. The peer chooses where the
//! others lie, so that many stand in a tree: no order of arrival moves more than a few of them. It
//! never merges what does not touch.

mod sorted;

use std::ops::Range;

use sorted::Sorted;

/// Disjoint, non-adjacent, non-empty ranges in ascending order.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// The highest range; `0..0` while there is none.
    last: Range<u64>,
    /// The others.
    lower: Sorted,
}

impl RangeSet {
    /// Whether it has no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Ranges it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.lower.len() + usize::from(!self.last.is_empty())
    }

    /// Bytes of memory it has reserved.
    pub fn held(&self) -> usize {
        self.lower.held()
    }

    /// Gives back unused memory.
    pub fn trim(&mut self) {
        self.lower.trim();
    }

    /// The largest member.
    #[inline]
    pub fn max(&self) -> Option<u64> {
        (!self.last.is_empty()).then(|| self.last.end - 1)
    }

    /// Whether `value` is a member.
    #[inline]
    pub fn contains(&self, value: u64) -> bool {
        // Mostly asked about what is beyond all members.
        if value >= self.last.start {
            return value < self.last.end;
        }
        let at_or_below = self.lower.below(value + 1);
        at_or_below.is_some_and(|(_, end)| value < end)
    }

    /// Ranges from the highest down.
    pub fn iter_descending(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let last = Some(self.last.clone()).filter(|last| !last.is_empty());
        let lower = self.lower.iter_descending().map(|(start, end)| start..end);
        last.into_iter().chain(lower)
    }

    /// The members of `range`, as ranges, without a walk over the others.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        // What begins before the range may reach into it.
        let first = match self.lower.below(range.start) {
            Some((start, end)) if end > range.start => start,
            _ => range.start,
        };
        let last = Some(self.last.clone()).filter(|last| last.end > range.start);
        let lower = self.lower.iter_from(first).map(|(start, end)| start..end);
        lower.chain(last).take_while(move |r| r.start < range.end)
    }

    /// The first part of `range` that has no members.
    #[inline]
    pub fn first_missing(&self, range: Range<u64>) -> Option<Range<u64>> {
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
    #[inline]
    pub fn insert(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        let last = &mut self.last;
        if range.start == last.end {
            last.end = range.end;
            return true;
        }
        if range.start > last.end {
            let before = std::mem::replace(last, range);
            if !before.is_empty() {
                self.lower.insert(before.start, before.end);
            }
            return true;
        }
        if range.end < last.start {
            return self.insert_lower(range);
        }
        if range.start >= last.start && range.end <= last.end {
            return false;
        }
        *last = last.start.min(range.start)..last.end.max(range.end);
        while let Some((start, end)) = self.lower.last()
            && end >= last.start
        {
            last.start = last.start.min(start);
            self.lower.pop_last();
        }
        true
    }

    /// Adds a range that does not touch the highest.
    fn insert_lower(&mut self, mut range: Range<u64>) -> bool {
        if let Some((start, end)) = self.lower.below(range.start + 1)
            && end >= range.start
        {
            if end >= range.end {
                return false;
            }
            range.start = start;
        }
        // What begins inside it or right behind becomes part of it.
        while let Some((start, end)) = self.lower.from(range.start + 1)
            && start <= range.end
        {
            self.lower.remove(start);
            range.end = range.end.max(end);
        }
        self.lower.insert(range.start, range.end);
        true
    }

    /// Removes every member of `range`.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.remove_lower(&range);
        let last = self.last.clone();
        if last.start >= range.end || last.end <= range.start {
            return;
        }
        match (last.start < range.start, range.end < last.end) {
            (true, true) => {
                self.lower.insert(last.start, range.start);
                self.last.start = range.end;
            }
            (true, false) => self.last.end = range.start,
            (false, true) => self.last.start = range.end,
            (false, false) => {
                let next = self.lower.pop_last();
                self.last = next.map_or(0..0, |(start, end)| start..end);
            }
        }
    }

    fn remove_lower(&mut self, range: &Range<u64>) {
        if let Some((start, end)) = self.lower.below(range.start)
            && end > range.start
        {
            self.lower.insert(start, range.start);
            if range.end < end {
                self.lower.insert(range.end, end);
                return;
            }
        }
        while let Some((start, end)) = self.lower.from(range.start)
            && start < range.end
        {
            self.lower.remove(start);
            if end > range.end {
                self.lower.insert(range.end, end);
            }
        }
    }

    /// Removes and returns up to `max` leading members of the lowest range.
    pub fn take_front(&mut self, max: u64) -> Option<Range<u64>> {
        let front = self.front()?;
        if front.end - front.start <= max {
            return self.pop_front();
        }
        let taken = front.start..front.start + max;
        match self.lower.pop_first() {
            Some((_, end)) => {
                self.lower.insert(taken.end, end);
            }
            None => self.last.start = taken.end,
        }
        Some(taken)
    }

    /// Drops the lowest range.
    pub fn pop_front(&mut self) -> Option<Range<u64>> {
        if let Some((start, end)) = self.lower.pop_first() {
            return Some(start..end);
        }
        Some(std::mem::take(&mut self.last)).filter(|last| !last.is_empty())
    }

    /// The lowest range.
    #[inline]
    pub fn front(&self) -> Option<Range<u64>> {
        if self.is_empty() {
            return None;
        }
        match self.lower.first() {
            Some((start, end)) => Some(start..end),
            None => Some(self.last.clone()),
        }
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
        // Few ranges, and so many that they stand in a tree.
        let mut most = 0;
        for (round, (width, longest, steps)) in [(60, 12, 60); 200]
            .into_iter()
            .chain([(2000, 3, 1500); 2])
            .enumerate()
        {
            let mut set = RangeSet::default();
            let mut model = BTreeSet::new();
            for step in 0..steps {
                let start = next(width);
                let end = start + next(longest);
                // The large ones fill up and are emptied again.
                let removes = if round < 200 { 1 } else { 4 * step / steps };
                if next(3) < removes {
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
                most = most.max(set.len());
                assert_eq!(members, model.iter().copied().collect::<Vec<_>>());
                assert_eq!(set.max(), model.last().copied());
                assert!((0..width + 15).all(|v| set.contains(v) == model.contains(&v)));
                assert_eq!(set.len(), set.iter_descending().count());
                assert_eq!(set.is_empty(), model.is_empty());
                assert_eq!(set.front().map(|r| r.start), model.first().copied());
                if next(8) == 0 {
                    let max = 1 + next(6);
                    let taken = set.take_front(max);
                    for v in taken.clone().into_iter().flatten() {
                        assert_eq!(model.pop_first(), Some(v));
                    }
                    let touches = |v: &u64| taken.as_ref().is_some_and(|t| t.end == *v);
                    let more = model.first().is_some_and(touches);
                    assert!(!more || taken.is_some_and(|t| t.end - t.start == max));
                }
                let (from, to) = (next(75), next(75));
                let within: Vec<u64> = set
                    .within(from..to)
                    .flatten()
                    .filter(|v| (from..to).contains(v))
                    .collect();
                let expected = (from..to).filter(|v| model.contains(v));
                assert_eq!(within, expected.collect::<Vec<_>>());
                let first = (from..to).find(|v| !model.contains(v));
                let missing = first.map(|first| {
                    let had = (first..to).find(|v| model.contains(v));
                    first..had.unwrap_or(to)
                });
                assert_eq!(set.first_missing(from..to), missing);
            }
        }
        assert!(most > 150, "{most} ranges");
    }
}

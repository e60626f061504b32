//! Ranges by their start: few in a ring, many in a tree.
//!
//! A ring keeps its memory, so that the gaps that come and go on any path allocate nothing, and at
//! most [`FEW`] entries move in it. Beyond that the ranges stand in a tree, where no order of
//! arrival moves more than a few, until all are gone.

use std::collections::{BTreeMap, VecDeque};

/// Ranges kept in the ring: 2 KiB. Twice what an acknowledgement may hold.
const FEW: usize = 128;

/// Start and end.
type Entry = (u64, u64);

/// Disjoint ranges in ascending order; what they mean is the owner's business.
#[derive(Clone, Debug)]
pub(super) enum Sorted {
    Few(VecDeque<Entry>),
    Many(BTreeMap<u64, u64>),
}

impl Default for Sorted {
    fn default() -> Self {
        Self::Few(VecDeque::new())
    }
}

impl Sorted {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(ring) => ring.len(),
            Self::Many(tree) => tree.len(),
        }
    }

    /// Bytes of memory reserved, in a tree whose nodes are two thirds full.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Few(ring) => ring.capacity() * size_of::<Entry>(),
            Self::Many(tree) => tree.len() * size_of::<Entry>() * 3 / 2,
        }
    }

    /// Gives back unused memory.
    pub(super) fn trim(&mut self) {
        if let Self::Few(ring) = self {
            ring.shrink_to_fit();
        }
    }

    pub(super) fn first(&self) -> Option<Entry> {
        match self {
            Self::Few(ring) => ring.front().copied(),
            Self::Many(tree) => tree.first_key_value().map(copied),
        }
    }

    pub(super) fn last(&self) -> Option<Entry> {
        match self {
            Self::Few(ring) => ring.back().copied(),
            Self::Many(tree) => tree.last_key_value().map(copied),
        }
    }

    /// The last that starts below `value`.
    pub(super) fn below(&self, value: u64) -> Option<Entry> {
        match self {
            Self::Few(ring) => ring.get(place(ring, value).checked_sub(1)?).copied(),
            Self::Many(tree) => tree.range(..value).next_back().map(copied),
        }
    }

    /// The first that starts at `value` or above.
    pub(super) fn from(&self, value: u64) -> Option<Entry> {
        match self {
            Self::Few(ring) => ring.get(place(ring, value)).copied(),
            Self::Many(tree) => tree.range(value..).next().map(copied),
        }
    }

    /// All from the first that starts at `value` or above.
    pub(super) fn iter_from(&self, value: u64) -> impl Iterator<Item = Entry> + '_ {
        std::iter::successors(self.from(value), |(start, _)| self.from(start + 1))
    }

    /// All from the last to the first.
    pub(super) fn iter_descending(&self) -> impl Iterator<Item = Entry> + '_ {
        std::iter::successors(self.last(), |(start, _)| self.below(*start))
    }

    /// Adds a range, or gives the one with this start another end.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        match self {
            Self::Few(ring) => {
                let at = place(ring, start);
                let room = ring.len() < FEW;
                match ring.get_mut(at) {
                    Some(entry) if entry.0 == start => entry.1 = end,
                    _ if room => ring.insert(at, (start, end)),
                    _ => {
                        let mut tree: BTreeMap<u64, u64> = ring.drain(..).collect();
                        tree.insert(start, end);
                        *self = Self::Many(tree);
                    }
                }
            }
            Self::Many(tree) => {
                tree.insert(start, end);
            }
        }
    }

    /// Removes the range with this start.
    pub(super) fn remove(&mut self, start: u64) {
        match self {
            Self::Few(ring) => {
                let at = place(ring, start);
                if ring.get(at).is_some_and(|entry| entry.0 == start) {
                    ring.remove(at);
                }
            }
            Self::Many(tree) => {
                tree.remove(&start);
                self.leave_tree();
            }
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<Entry> {
        match self {
            Self::Few(ring) => ring.pop_front(),
            Self::Many(tree) => {
                let first = tree.pop_first();
                self.leave_tree();
                first
            }
        }
    }

    pub(super) fn pop_last(&mut self) -> Option<Entry> {
        match self {
            Self::Few(ring) => ring.pop_back(),
            Self::Many(tree) => {
                let last = tree.pop_last();
                self.leave_tree();
                last
            }
        }
    }

    fn leave_tree(&mut self) {
        if self.len() == 0 {
            *self = Self::default();
        }
    }
}

/// Where what starts at `value` stands or would stand. The ends are asked first.
fn place(ring: &VecDeque<Entry>, value: u64) -> usize {
    match (ring.front(), ring.back()) {
        (Some(first), _) if value <= first.0 => 0,
        (_, Some(last)) if value > last.0 => ring.len(),
        _ => ring.partition_point(|entry| entry.0 < value),
    }
}

fn copied((start, end): (&u64, &u64)) -> Entry {
    (*start, *end)
}

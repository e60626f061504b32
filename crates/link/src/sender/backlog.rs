//! [`Backlog`]: the records that stayed behind, and what of them was read from the spool again.

use std::collections::VecDeque;
use std::ops::Range;

use towline_wire::RangeSet;

use crate::codec::Record;
use crate::message::MAX_RANGES;

/// Records that are read from the spool at once.
const READ_AT_ONCE: u64 = 512;

#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Those that nobody reads yet.
    unsent: RangeSet,
    reading: Option<Range<u64>>,
    read: VecDeque<(u64, Record)>,
}

impl Backlog {
    /// One of all these.
    pub(super) fn new(seqs: Range<u64>) -> Self {
        let mut backlog = Self::default();
        backlog.unsent.insert(seqs);
        backlog
    }

    pub(super) fn insert(&mut self, seqs: Range<u64>) {
        self.unsent.insert(seqs);
    }

    pub(super) fn remove(&mut self, seqs: Range<u64>) {
        self.unsent.remove(seqs);
    }

    /// Whether it has this one, not read yet.
    pub(super) fn contains(&self, seq: u64) -> bool {
        self.unsent.contains(seq)
    }

    /// Takes one out; whether it was there.
    pub(super) fn take(&mut self, seq: u64) -> bool {
        let was_there = self.unsent.contains(seq);
        self.unsent.remove(seq..seq + 1);
        was_there
    }

    /// Too many gaps are closed: what lies in them is sent again, and the receiver knows it.
    pub(super) fn bound(&mut self) {
        while self.unsent.len() > MAX_RANGES {
            let (Some(first), Some(second)) = (self.unsent.pop_front(), self.unsent.pop_front())
            else {
                return;
            };
            self.unsent.insert(first.start..second.end);
        }
    }

    /// Begins anew with these; what was read is read again.
    pub(super) fn reset(&mut self, unsent: RangeSet) {
        self.reading = None;
        self.read.clear();
        self.unsent = unsent;
    }

    /// What is to be read next, once all that was read is gone.
    pub(super) fn poll_read(&mut self) -> Option<Range<u64>> {
        if self.reading.is_some() || self.has_read() {
            return None;
        }
        self.reading = self.unsent.take_front(READ_AT_ONCE);
        self.reading.clone()
    }

    /// Takes what the spool gave for `seqs`, of all below `next`; what it has lost of these.
    pub(super) fn on_read(
        &mut self,
        seqs: &Range<u64>,
        next: u64,
        records: Vec<(u64, Record)>,
    ) -> Vec<Range<u64>> {
        let mut gone = Vec::new();
        if self.reading.as_ref() != Some(seqs) {
            return gone;
        }
        self.reading = None;
        let next = next.clamp(seqs.start, seqs.end);
        self.unsent.insert(next..seqs.end);
        let mut expected = seqs.start;
        for seq in records.iter().map(|(seq, _)| *seq).chain([next]) {
            if expected < seq {
                gone.push(expected..seq);
            }
            expected = seq + 1;
        }
        self.read = records.into();
        gone
    }

    /// Whether there is something to be sent.
    pub(super) fn has_read(&self) -> bool {
        !self.read.is_empty()
    }

    /// The next one to be sent.
    pub(super) fn pop(&mut self) -> Option<(u64, Record)> {
        self.read.pop_front()
    }

    /// Records it has.
    pub(super) fn len(&self) -> u64 {
        let ranges = self.unsent.iter_descending().chain(self.reading.clone());
        let waiting: u64 = ranges.map(|range| range.end - range.start).sum();
        waiting + self.read.len() as u64
    }

    /// Ranges of those that nobody reads yet.
    pub(super) fn ranges(&self) -> usize {
        self.unsent.len()
    }
}

//! [`Batch`]: records that go together, and [`Gathering`], which makes one.

use std::ops::Range;
use std::sync::Arc;

use towline_wire::RangeSet;

use crate::codec::Record;
use crate::delta::{self, MAX_PARTS};
use crate::live::Newest;
use crate::message::MAX_RANGES;
use crate::outgoing::Lane;

/// Cap: records in a batch, and bytes of memory that they take.
pub(super) const MAX_BATCH: usize = 1_024;
const MAX_BATCH_HELD: usize = 1 << 20;

/// Records that go together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) seqs: Vec<Range<u64>>,
    pub(super) records: Arc<[Record]>,
    pub(super) lane: Lane,
    /// Indexes of the values that newer records have replaced; they run on through all records.
    pub(super) replaced: Vec<Range<u64>>,
}

/// A batch that is being made.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    seqs: Vec<Range<u64>>,
    records: Vec<Record>,
    held: usize,
    replaced: RangeSet,
    /// Values of the records so far, while these are older than the connection.
    values: u64,
    has_new: bool,
}

impl Gathering {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it takes no other record.
    pub(super) fn is_full(&self) -> bool {
        // A record adds no more ranges than it has values.
        self.held >= MAX_BATCH_HELD
            || self.seqs.len() >= MAX_RANGES
            || self.replaced.len() > MAX_RANGES - MAX_PARTS
    }

    /// Adds a record none of whose values is marked as replaced.
    pub(super) fn push(&mut self, seq: u64, record: Record) {
        self.has_new = true;
        self.add(seq, record);
    }

    fn add(&mut self, seq: u64, record: Record) {
        self.held += record.memory();
        self.records.push(record);
        match self.seqs.last_mut() {
            Some(last) if last.end == seq => last.end += 1,
            _ => self.seqs.push(seq..seq + 1),
        }
    }

    /// Adds a record that is older than the connection, so that newer ones may have been shown before it.
    pub(super) fn push_older(&mut self, seq: u64, record: Record, newest: &Newest) {
        debug_assert!(
            !self.has_new,
            "a queue gives its oldest record first, so indexes run on"
        );
        for name in delta::names(&record) {
            if newest.is_replaced(name, seq) {
                self.replaced.insert(self.values..self.values + 1);
            }
            self.values += 1;
        }
        self.add(seq, record);
    }

    pub(super) fn finish(self, lane: Lane) -> Batch {
        Batch {
            seqs: self.seqs,
            records: self.records.into(),
            lane,
            replaced: self.replaced.within(0..u64::MAX).collect(),
        }
    }
}

//! [`Queue`]: records that wait to be sent for the first time, oldest first.
//!
//! It knows which of them say nothing that a later one does not say newer. Nobody is robbed of these while
//! there is room for all; under overload they stay behind.

use std::collections::{HashMap, VecDeque};

use towline_wire::Time;

use crate::codec::Record;
use crate::delta::{self, Part};

/// Cap: records that wait in memory, alarms, others and those that are doubtful each; older ones wait in the spool.
pub const MAX_WAITING: usize = 4_096;
/// Cap: bytes of memory for those, and for the batches on their way, each.
pub const MAX_HELD: usize = 16 << 20;

/// A record that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) seq: u64,
    pub(super) record: Record,
    pub(super) since: Time,
    pub(super) names: Box<[u64]>,
    /// Those of its values that no later record replaces; `None` where it has no names.
    newest: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// The record that has the newest value of each name.
    newest: HashMap<u64, u64>,
    replaced: usize,
    /// Memory of the records, in bytes.
    held: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether it has more than it may.
    pub(super) fn is_full(&self) -> bool {
        self.len() > MAX_WAITING || self.held > MAX_HELD
    }

    /// The numbers of its records.
    pub(super) fn seqs(&self) -> impl Iterator<Item = u64> + '_ {
        self.waiting.iter().map(|waiting| waiting.seq)
    }

    pub(super) fn oldest(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    /// Adds a record; one that is older than others takes its place before them.
    pub(super) fn push(&mut self, seq: u64, record: Record, since: Time) {
        let at = self.waiting.partition_point(|waiting| waiting.seq < seq);
        let parts = delta::parts(&record);
        let mut names = Vec::with_capacity(parts.len());
        let mut newest = 0;
        for Part { name, .. } in parts {
            match self.newest.get(&name).copied() {
                // A record may have a name twice.
                Some(newer) if newer == seq => continue,
                Some(newer) if newer > seq => {}
                older => {
                    if let Some(older) = older {
                        self.replace(older);
                    }
                    self.newest.insert(name, seq);
                    newest += 1;
                }
            }
            names.push(name);
        }
        self.replaced += usize::from(!names.is_empty() && newest == 0);
        self.held += record.memory();
        let waiting = Waiting {
            seq,
            record,
            since,
            newest: (!names.is_empty()).then_some(newest),
            names: names.into(),
        };
        // `replace` moved nothing.
        self.waiting.insert(at, waiting);
    }

    fn replace(&mut self, seq: u64) {
        let Ok(at) = self
            .waiting
            .binary_search_by_key(&seq, |waiting| waiting.seq)
        else {
            return;
        };
        if let Some(newest) = &mut self.waiting[at].newest {
            *newest -= 1;
            self.replaced += usize::from(*newest == 0);
        }
    }

    /// Takes the oldest record.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.held -= waiting.record.memory();
        self.replaced -= usize::from(waiting.newest == Some(0));
        for name in &waiting.names {
            if self.newest.get(name) == Some(&waiting.seq) {
                self.newest.remove(name);
            }
        }
        Some(waiting)
    }

    /// Removes the records below a number: the spool has lost them.
    pub(super) fn drop_below(&mut self, seq: u64) {
        while self.waiting.front().is_some_and(|oldest| oldest.seq < seq) {
            self.pop();
        }
    }

    /// Removes the records of which this is so.
    pub(super) fn remove(&mut self, is_gone: impl Fn(u64) -> bool) {
        if !self.waiting.iter().any(|waiting| is_gone(waiting.seq)) {
            return;
        }
        for waiting in std::mem::take(self).waiting {
            if !is_gone(waiting.seq) {
                self.push(waiting.seq, waiting.record, waiting.since);
            }
        }
    }

    /// Removes the records whose values are all replaced by later ones; their numbers.
    pub(super) fn drop_replaced(&mut self) -> Vec<u64> {
        if self.replaced == 0 {
            return Vec::new();
        }
        let mut dropped = Vec::with_capacity(self.replaced);
        let held = &mut self.held;
        self.waiting.retain(|waiting| {
            let stays = waiting.newest != Some(0);
            if !stays {
                dropped.push(waiting.seq);
                *held -= waiting.record.memory();
            }
            stays
        });
        self.replaced = 0;
        dropped
    }
}

//! [`LiveFilter`]: for those who show what is, not what was. And [`Newest`], on which it stands.

use std::collections::{HashMap, VecDeque};

use crate::codec::Record;
use crate::delta::{self, Part};

/// Cap: names (context, source and path) of which the newest value is remembered, at either end; the ones that were heard
/// of first go.
pub const MAX_LIVE_NAMES: usize = 1 << 16;

/// Lets through what is newer than all that went through before, by the source's sequence and not by its
/// clock: the last writer wins.
#[derive(Debug, Default)]
pub struct LiveFilter {
    newest: Newest,
    stale: u64,
}

impl LiveFilter {
    /// One that nothing went through.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What of the record of this number is new; `None` if nothing is. Records that are no Signal K deltas
    /// are always new.
    pub fn filter(&mut self, seq: u64, record: &Record) -> Option<Record> {
        let parts = delta::parts(record);
        let mut gone: Vec<&Part> = Vec::new();
        for part in &parts {
            match self.newest.is_replaced(part.name, seq) {
                true => gone.push(part),
                false => self.newest.see(part.name, seq),
            }
        }
        self.stale += gone.len() as u64;
        match gone.is_empty() {
            true => Some(record.clone()),
            false => delta::without(record, &gone),
        }
    }

    /// Values that were held back because newer ones had gone through.
    #[must_use]
    pub fn stale(&self) -> u64 {
        self.stale
    }
}

/// The newest record of each name.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    seqs: HashMap<u64, u64>,
    order: VecDeque<u64>,
}

impl Newest {
    /// There is a record with this name.
    pub(crate) fn see(&mut self, name: u64, seq: u64) {
        if let Some(newest) = self.seqs.get_mut(&name) {
            *newest = seq.max(*newest);
            return;
        }
        if self.order.len() == MAX_LIVE_NAMES
            && let Some(first) = self.order.pop_front()
        {
            self.seqs.remove(&first);
        }
        self.order.push_back(name);
        self.seqs.insert(name, seq);
    }

    /// Whether a newer record has this name.
    pub(crate) fn is_replaced(&self, name: u64, seq: u64) -> bool {
        self.seqs.get(&name).is_some_and(|newest| *newest > seq)
    }

    /// Whether a record says nothing that newer ones do not say.
    pub(crate) fn are_replaced(&self, names: &[u64], seq: u64) -> bool {
        !names.is_empty() && names.iter().all(|name| self.is_replaced(*name, seq))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A delta of one value.
    pub(crate) fn value(path: &str, value: u64) -> Record {
        let text = format!(
            r#"{{"context":"c","updates":[{{"$source":"s","values":[{{"path":"{path}","value":{value}}}]}}]}}"#
        );
        Record::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn an_older_value_does_not_go_through_after_a_newer_one() {
        let mut filter = LiveFilter::new();
        assert!(filter.filter(1, &value("a", 1)).is_some());
        assert!(filter.filter(3, &value("a", 3)).is_some());
        assert!(filter.filter(2, &value("a", 2)).is_none());
        assert!(filter.filter(2, &value("b", 2)).is_some());
        // The same record once more says the same.
        assert!(filter.filter(3, &value("a", 3)).is_some());
        assert_eq!(filter.stale(), 1);
        let other = Record::parse(br#"{"a":1}"#).unwrap();
        assert!(filter.filter(9, &other).is_some() && filter.filter(8, &other).is_some());
    }

    #[test]
    fn so_many_names_are_remembered() {
        let mut filter = LiveFilter::new();
        for name in 0..MAX_LIVE_NAMES + 10 {
            filter.filter(5, &value(&name.to_string(), 0));
        }
        assert_eq!(filter.newest.seqs.len(), MAX_LIVE_NAMES);
        assert!(filter.filter(1, &value("0", 0)).is_some());
        assert!(filter.filter(1, &value("11", 0)).is_none());
    }
}

//! [`Ledger`]: what was offered, what the spool said was durable, and what came out at the other end.

use std::collections::HashMap;
use std::time::Duration;

use towline_link::RangeSet;
use towline_link::codec::Record;
use towline_wire::Time;

use crate::link::source::Source;

const NONE: u64 = u64::MAX;

/// One record by its number.
#[derive(Clone, Copy)]
struct Entry {
    /// Its place in the source.
    place: u64,
    offered: Time,
    is_committed: bool,
    is_logged: bool,
    arrived: Option<Time>,
}

pub(super) struct Ledger {
    source: Source,
    entries: Vec<Entry>,
    log: RangeSet,
    /// The newest record of each name that the spool said was durable.
    newest: HashMap<String, u64>,
    /// The newest that was shown, whether the shore began again since or not.
    shown: HashMap<String, u64>,
    pub(super) wrong: u64,
    /// Records that a connection gave twice.
    pub(super) twice: u64,
    /// Records that came to the log although it had them, from an older connection.
    pub(super) logged_again: u64,
    pub(super) stale: u64,
    /// Values of live records that were not shown, though they are the newest that was durable.
    pub(super) withheld: u64,
    pub(super) shown_late: Vec<Duration>,
    pub(super) first_wrong: Option<String>,
}

impl Ledger {
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            entries: Vec::new(),
            log: RangeSet::default(),
            newest: HashMap::new(),
            shown: HashMap::new(),
            wrong: 0,
            twice: 0,
            logged_again: 0,
            stale: 0,
            withheld: 0,
            shown_late: Vec::new(),
            first_wrong: None,
        }
    }

    pub(super) fn on_offered(&mut self, now: Time, seq: u64, place: u64) {
        let nothing = Entry {
            place: NONE,
            offered: now,
            is_committed: false,
            is_logged: false,
            arrived: None,
        };
        self.entries.resize(seq as usize, nothing);
        self.entries.push(Entry { place, ..nothing });
    }

    pub(super) fn on_committed(&mut self, seq: u64) {
        let entry = &mut self.entries[seq as usize];
        entry.is_committed = true;
        for name in self.source.names(entry.place) {
            let newest = self.newest.entry(name).or_default();
            *newest = seq.max(*newest);
        }
    }

    /// The spool was opened again, and goes on with `next`.
    pub(super) fn on_opened(&mut self, next: u64) {
        let next = next as usize;
        let committed = self.entries.iter().rposition(|entry| entry.is_committed);
        assert!(
            committed.is_none_or(|last| last < next),
            "what was durable is gone: the spool goes on with {next}"
        );
        self.entries.truncate(next);
    }

    /// A record came at the other end.
    pub(super) fn on_arrived(&mut self, now: Time, seq: u64, record: &Record) {
        let Some(entry) = self.entries.get_mut(seq as usize) else {
            return self.is_wrong(seq, "nobody sent it");
        };
        entry.arrived.get_or_insert(now);
        let place = entry.place;
        if place == NONE || self.source.record(place) != *record {
            self.is_wrong(seq, &record.to_json());
        }
    }

    fn is_wrong(&mut self, seq: u64, what: &str) {
        self.wrong += 1;
        self.first_wrong
            .get_or_insert_with(|| format!("record {seq}: {what}"));
    }

    /// A live sink was shown what was left of a record, if anything was.
    pub(super) fn on_shown(&mut self, now: Time, seq: u64, left: Option<&Record>) {
        let Some(entry) = self.entries.get(seq as usize).copied() else {
            return;
        };
        let shown = match left {
            None => Some(Vec::new()),
            Some(left) => self.source.names_of(entry.place, left),
        };
        let Some(shown) = shown else {
            return self.is_wrong(seq, "a live sink was shown what is no part of it");
        };
        if left.is_some() {
            self.shown_late
                .push(now.saturating_duration_since(entry.offered));
        }
        for name in self.source.names(entry.place) {
            if !shown.contains(&name) {
                self.withheld += u64::from(self.newest.get(&name) == Some(&seq));
                continue;
            }
            let before = self.shown.entry(name).or_default();
            self.stale += u64::from(*before > seq);
            *before = seq.max(*before);
        }
    }

    /// Names of which the newest value was not shown.
    pub(super) fn unshown(&self) -> u64 {
        let newest = self.newest.iter();
        newest
            .filter(|(name, seq)| self.shown.get(*name) != Some(seq))
            .count() as u64
    }

    /// A log made records durable; it knows them by their numbers, and keeps each once.
    pub(super) fn on_logged(&mut self, seqs: std::ops::Range<u64>) {
        for seq in seqs.clone() {
            if let Some(entry) = self.entries.get_mut(seq as usize) {
                self.logged_again += u64::from(entry.is_logged);
                entry.is_logged = true;
            }
        }
        self.log.insert(seqs);
    }

    pub(super) fn log(&self) -> &RangeSet {
        &self.log
    }

    pub(super) fn committed(&self) -> u64 {
        self.entries
            .iter()
            .filter(|entry| entry.is_committed)
            .count() as u64
    }

    /// Committed records that are in the log.
    pub(super) fn logged(&self) -> u64 {
        let committed = self.entries.iter().filter(|entry| entry.is_committed);
        committed.filter(|entry| entry.is_logged).count() as u64
    }

    /// How long each record took from its source to the other end, in order of the source.
    pub(super) fn latencies(&self) -> Vec<(Time, Duration)> {
        let taken = self.entries.iter().filter_map(|entry| {
            let took = entry.arrived?.saturating_duration_since(entry.offered);
            Some((entry.offered, took))
        });
        taken.collect()
    }
}

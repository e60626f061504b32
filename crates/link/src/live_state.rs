//! [`LiveState`]: what a live sink is to be given, and what it is given again when it begins anew.

use std::collections::{HashSet, VecDeque};

use crate::codec::Record;
use crate::delta::{self, Part};

/// Cap: records of one sender that are held for a live sink; beyond, the oldest go.
pub const MAX_LIVE_RECORDS: usize = 8_192;
/// Records that wait for a live sink; with more of them, those that newer ones replace are left out.
pub const MAX_LIVE_WAITING: usize = 1_024;
/// What newer records replace is looked for when there are twice as many as the last time, and no fewer than this.
const TIDY_AT: usize = 1_024;

/// The records of one sender for one live sink, in the order in which they came: first those that the sink was given, as
/// far as they hold the newest value of some name, then those that wait. Each has a tag, which comes out with it.
///
/// A sink that keeps up is given every record. One that does not is given the newest value of each name at last, and
/// so is one that begins anew.
#[derive(Debug)]
pub struct LiveState<T> {
    kept: VecDeque<Kept<T>>,
    /// So many of them were given.
    given: usize,
    /// Bytes that they take.
    memory: usize,
    tidy_at: usize,
    /// More that wait than this are looked at sooner.
    slow_at: usize,
    missed: u64,
}

#[derive(Debug)]
struct Kept<T> {
    tag: T,
    record: Record,
    names: Box<[u64]>,
}

impl<T> Kept<T> {
    fn memory(&self) -> usize {
        self.record.memory() + size_of_val(&*self.names) + size_of::<T>()
    }
}

impl<T> Default for LiveState<T> {
    fn default() -> Self {
        Self {
            kept: VecDeque::new(),
            given: 0,
            memory: 0,
            tidy_at: TIDY_AT,
            slow_at: MAX_LIVE_WAITING,
            missed: 0,
        }
    }
}

impl<T: Clone> LiveState<T> {
    /// One of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record: one that [`LiveFilter`](crate::LiveFilter) let through, in that order.
    pub fn push(&mut self, tag: T, record: Record) {
        let names = delta::names(&record).into();
        let kept = Kept { tag, record, names };
        self.memory += kept.memory();
        self.kept.push_back(kept);
        let is_slow = self.waiting() > self.slow_at;
        if self.kept.len() < self.tidy_at && !is_slow {
            return;
        }
        self.tidy(is_slow);
        // It is looked at again when a good part of it is new.
        let most = MAX_LIVE_RECORDS / 4 * 3;
        if self.kept.len() > most {
            self.tidy(true);
        }
        while self.kept.len() > most {
            self.drop_oldest();
        }
        self.tidy_at = (2 * self.kept.len()).clamp(TIDY_AT, MAX_LIVE_RECORDS);
        self.slow_at = (2 * self.waiting()).max(MAX_LIVE_WAITING);
    }

    /// The tag of the next record that waits.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.kept.get(self.given).map(|kept| &kept.tag)
    }

    /// The next records that wait, so many at most, as long as this is so of their tags; but for the first, they have so
    /// many bytes of memory. They count as given.
    pub fn take(
        &mut self,
        most: usize,
        memory: usize,
        goes: impl Fn(&T) -> bool,
    ) -> Vec<(T, Record)> {
        let mut taken = Vec::new();
        let mut took = 0;
        for kept in self.kept.range(self.given..).take(most) {
            took += kept.memory();
            if !goes(&kept.tag) || took > memory && !taken.is_empty() {
                break;
            }
            taken.push((kept.tag.clone(), kept.record.clone()));
        }
        self.given += taken.len();
        taken
    }

    /// The sink knows nothing any more: the newest value of each name waits for it again.
    pub fn rewind(&mut self) {
        self.tidy(true);
        self.given = 0;
    }

    /// Makes room until it takes so many bytes at most. What newer records replace goes first, then what is oldest.
    pub fn shrink(&mut self, memory: usize) {
        if self.memory > memory {
            self.tidy(true);
        }
        while self.memory > memory && !self.kept.is_empty() {
            self.drop_oldest();
        }
        self.kept.shrink_to_fit();
    }

    /// Records that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.kept.len() - self.given
    }

    /// Bytes of memory that the records take.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Records that waited and were left out: newer ones replaced them, or there was no room.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.kept.pop_front() {
            self.memory -= oldest.memory();
            self.missed += u64::from(self.given == 0);
            self.given = self.given.saturating_sub(1);
        }
    }

    /// Leaves out what newer records replace: of those that were given, and, if `all` is set, of those that wait. Of
    /// those that were given, records without names go, too: they are no state.
    fn tidy(&mut self, all: bool) {
        let before = std::mem::take(&mut self.kept);
        let given = std::mem::take(&mut self.given);
        self.memory = 0;
        let mut seen = HashSet::new();
        for (at, kept) in before.into_iter().enumerate().rev() {
            let is_given = at < given;
            // The last of a record's values of one name is the newest of them.
            let names = kept.names.iter().rev();
            let is_newest: Vec<bool> = names.map(|name| seen.insert(*name)).collect();
            let replaced = is_newest.iter().filter(|is| !**is).count();
            let left = match is_given || all {
                true if kept.names.is_empty() && is_given => None,
                true if replaced > 0 && replaced == kept.names.len() => None,
                true if replaced > 0 => kept.without(&is_newest),
                _ => Some(kept),
            };
            match left {
                Some(kept) => {
                    self.memory += kept.memory();
                    self.given += usize::from(is_given);
                    self.kept.push_front(kept);
                }
                None => self.missed += u64::from(!is_given),
            }
        }
    }
}

impl<T> Kept<T> {
    /// What is left of it if of its values, the last one first, only these stay.
    fn without(self, stays: &[bool]) -> Option<Self> {
        let parts = delta::parts(&self.record);
        let parts = parts.iter().zip(stays.iter().rev());
        let gone: Vec<&Part> = parts.filter(|(_, stays)| !**stays).map(|it| it.0).collect();
        let record = delta::without(&self.record, &gone)?;
        Some(Self {
            names: delta::names(&record).into(),
            record,
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::value;

    fn take(state: &mut LiveState<u64>, most: usize) -> Vec<(u64, Record)> {
        state.take(most, usize::MAX, |_| true)
    }

    fn seqs(records: &[(u64, Record)]) -> Vec<u64> {
        records.iter().map(|(seq, _)| *seq).collect()
    }

    #[test]
    fn a_sink_that_keeps_up_is_given_every_record() {
        let mut state = LiveState::new();
        for seq in 0..20_000 {
            state.push(seq, value("a", seq));
            assert_eq!(take(&mut state, 64), [(seq, value("a", seq))]);
        }
        assert!(take(&mut state, 64).is_empty());
        assert!(state.kept.len() < TIDY_AT && state.missed() == 0);
    }

    #[test]
    fn a_sink_that_begins_anew_is_given_the_newest_value_of_each_name() {
        let mut state = LiveState::new();
        let two = r#"{"context":"c","updates":[{"$source":"s","values":[{"path":"a","value":1},{"path":"b","value":1}]}]}"#;
        let two = Record::parse(two.as_bytes()).unwrap();
        state.push(1, two);
        state.push(2, Record::parse(br#"{"no":"names"}"#).unwrap());
        state.push(3, value("a", 3));
        assert_eq!(seqs(&take(&mut state, 2)), [1, 2]);
        assert_eq!(seqs(&take(&mut state, 9)), [3]);
        state.push(4, value("c", 4));
        for _ in 0..2 {
            state.rewind();
            let all = take(&mut state, 9);
            assert_eq!(
                all,
                [(1, value("b", 1)), (3, value("a", 3)), (4, value("c", 4))]
            );
        }
        assert_eq!(state.missed(), 0);
        // What waits while it is away is replaced as well, and that is counted.
        state.push(5, value("c", 5));
        state.push(6, value("c", 6));
        state.rewind();
        assert_eq!(seqs(&take(&mut state, 9)), [1, 3, 6]);
        assert_eq!(state.missed(), 1);
    }

    #[test]
    fn of_values_of_one_name_in_a_record_the_last_stays() {
        let mut state = LiveState::new();
        let twice = r#"{"context":"c","updates":[{"$source":"s","values":[{"path":"a","value":1},{"path":"a","value":2}]}]}"#;
        state.push(1, Record::parse(twice.as_bytes()).unwrap());
        state.rewind();
        assert_eq!(take(&mut state, 9), [(1, value("a", 2))]);
    }

    #[test]
    fn a_slow_sink_is_given_the_newest_value_of_each_name_at_last() {
        let mut state = LiveState::new();
        // Five names that change, and one that does not.
        state.push(0, value("alarm", 1));
        let count = 100_000;
        for seq in 1..count {
            state.push(seq, value(&(seq % 5).to_string(), seq));
            assert!(state.kept.len() <= MAX_LIVE_RECORDS);
        }
        let all = take(&mut state, usize::MAX);
        // An alarm does not wait behind thousands of values that others replaced.
        assert!(all.len() <= 2 * MAX_LIVE_WAITING);
        assert_eq!(all[0].0, 0);
        let last = seqs(&all[all.len() - 5..]);
        assert_eq!(last, (count - 5..count).collect::<Vec<_>>());
        assert_eq!(all.len() as u64 + state.missed(), count);
    }

    #[test]
    fn so_many_records_are_held_for_a_live_sink() {
        let mut state = LiveState::new();
        let count = 3 * MAX_LIVE_RECORDS as u64;
        for seq in 0..count {
            state.push(seq, value(&seq.to_string(), 0));
            assert!(state.kept.len() <= MAX_LIVE_RECORDS);
        }
        let waiting = state.waiting() as u64;
        assert!(waiting >= MAX_LIVE_RECORDS as u64 / 2);
        assert_eq!(waiting + state.missed(), count);
        state.shrink(state.memory() / 2);
        assert!((1..=waiting / 2).contains(&(state.waiting() as u64)));
        assert_eq!(state.waiting() as u64 + state.missed(), count);
        let all = take(&mut state, usize::MAX);
        assert_eq!(all.last().unwrap().0, count - 1);
        // What was given is not missed.
        let before = state.missed();
        state.shrink(0);
        assert_eq!((state.memory(), state.missed()), (0, before));
    }

    #[test]
    fn what_nothing_replaces_stays_while_there_is_something_that_can_go() {
        let mut state = LiveState::new();
        let names = MAX_LIVE_RECORDS as u64 / 8 * 5;
        for seq in 0..names {
            state.push(seq, value(&seq.to_string(), 0));
            take(&mut state, 1);
        }
        for seq in names..4 * names {
            state.push(seq, value("x", seq));
        }
        state.rewind();
        let mut expected: Vec<u64> = (0..names).collect();
        expected.push(4 * names - 1);
        assert_eq!(seqs(&take(&mut state, usize::MAX)), expected);
    }

    #[test]
    fn what_is_taken_at_once_has_so_many_bytes() {
        let mut state = LiveState::new();
        (0..9).for_each(|seq| state.push(seq, value("a", seq)));
        let third = state.memory() / 3;
        assert_eq!(seqs(&state.take(9, third, |_| true)), [0, 1, 2]);
        assert_eq!(seqs(&state.take(9, 0, |seq| *seq == 3)), [3]);
        assert_eq!(seqs(&take(&mut state, 9)), [4, 5, 6, 7, 8]);
    }

    #[test]
    fn records_without_names_wait_but_are_no_state() {
        let mut state = LiveState::new();
        let other = || Record::parse(br#"{"a":1}"#).unwrap();
        for seq in 0..2 * MAX_LIVE_RECORDS as u64 {
            state.push(seq, other());
            take(&mut state, 1);
            assert!(state.kept.len() < TIDY_AT);
        }
        for seq in 0..2 * MAX_LIVE_RECORDS as u64 {
            state.push(seq, other());
            assert!(state.kept.len() <= MAX_LIVE_RECORDS);
        }
        state.rewind();
        assert!(state.waiting() >= MAX_LIVE_RECORDS / 2);
    }
}

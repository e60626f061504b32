//! [`LiveQueue`]: what all senders have for a live sink.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use towline_link::LiveState;

use crate::worker::lock;
use crate::{Entry, Stream};

/// Cap: bytes of memory of what one live sink is to be given and may be given again, all senders together.
const LIVE_ROOM: usize = 32 << 20;
/// Cap: senders whose newest values a live sink is given again.
const MAX_LIVE_SENDERS: usize = 1_024;
/// Records that a sender may give a live sink before it is the next one's turn.
const TURN: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct LiveQueue {
    all: Mutex<All>,
    some: Notify,
}

#[derive(Debug, Default)]
struct All {
    senders: BTreeMap<String, Sender>,
    /// The names of those that have something waiting, each once.
    turns: VecDeque<String>,
    /// Bytes that all take.
    memory: usize,
    /// Of those that are forgotten.
    missed: u64,
}

#[derive(Debug)]
struct Sender {
    stream: Arc<Stream>,
    state: LiveState,
}

impl LiveQueue {
    /// Adds what the live filter of a stream let through.
    pub(crate) fn push(&self, stream: &Arc<Stream>, entries: &[Entry]) {
        let mut all = lock(&self.all);
        all.push(stream, entries);
        all.bound(LIVE_ROOM);
        drop(all);
        self.some.notify_one();
    }

    /// The next records of one sender.
    pub(crate) fn next(&self) -> Option<(Arc<Stream>, Vec<Entry>)> {
        lock(&self.all).next()
    }

    /// Waits until there may be something.
    pub(crate) async fn some(&self) {
        self.some.notified().await;
    }

    /// The sink knows nothing any more: it gets the newest value of each name.
    pub(crate) fn rewind(&self) {
        let mut all = lock(&self.all);
        let All { senders, turns, .. } = &mut *all;
        turns.clear();
        let mut memory = 0;
        for (name, sender) in senders {
            sender.state.rewind();
            memory += sender.state.memory();
            if sender.state.waiting() > 0 {
                turns.push_back(name.clone());
            }
        }
        all.memory = memory;
    }

    /// Records that were left out.
    pub(crate) fn missed(&self) -> u64 {
        let all = lock(&self.all);
        let here = all.senders.values().map(|sender| sender.state.missed());
        all.missed + here.sum::<u64>()
    }
}

impl All {
    fn push(&mut self, stream: &Arc<Stream>, entries: &[Entry]) {
        let name = &stream.name;
        // The numbers of a new stream have nothing to do with those of the old one.
        if self
            .senders
            .get(name)
            .is_some_and(|it| it.stream != *stream)
        {
            self.forget(&name.clone());
        }
        if self.senders.len() >= MAX_LIVE_SENDERS && !self.senders.contains_key(name) {
            let is_idle = |it: &(&String, &Sender)| it.1.state.waiting() == 0;
            let idle = self.senders.iter().find(is_idle);
            let other = idle.or_else(|| self.senders.iter().next());
            if let Some(other) = other.map(|(name, _)| name.clone()) {
                self.forget(&other);
            }
        }
        let sender = self.senders.entry(name.clone()).or_insert_with(|| Sender {
            stream: Arc::clone(stream),
            state: LiveState::new(),
        });
        let state = &mut sender.state;
        let (had, took) = (state.waiting() > 0, state.memory());
        for entry in entries {
            state.push(entry.seq, entry.record.clone());
        }
        self.memory = self.memory - took + state.memory();
        if !had && state.waiting() > 0 {
            self.turns.push_back(name.clone());
        }
    }

    fn next(&mut self) -> Option<(Arc<Stream>, Vec<Entry>)> {
        while let Some(name) = self.turns.pop_front() {
            let Some(Sender { stream, state }) = self.senders.get_mut(&name) else {
                continue;
            };
            let records = state.take(TURN);
            if state.waiting() > 0 {
                self.turns.push_back(name);
            }
            if !records.is_empty() {
                let entries = records.into_iter();
                let entries = entries.map(|(seq, record)| Entry { seq, record });
                return Some((Arc::clone(stream), entries.collect()));
            }
        }
        None
    }

    fn forget(&mut self, name: &str) {
        if let Some(Sender { state, .. }) = self.senders.remove(name) {
            self.memory -= state.memory();
            self.missed += state.missed() + state.waiting() as u64;
            self.turns.retain(|it| it != name);
        }
    }

    /// Who takes most makes room.
    fn bound(&mut self, room: usize) {
        if self.memory <= room {
            return;
        }
        // More than is needed, so that it is some time until the next time.
        let aim = room / 4 * 3;
        while self.memory > aim {
            let states = self.senders.values_mut().map(|sender| &mut sender.state);
            let Some(most) = states.max_by_key(|state| state.memory()) else {
                return;
            };
            let took = most.memory();
            most.shrink(took.saturating_sub(self.memory - aim));
            self.memory = self.memory - took + most.memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_link::codec::Record;

    fn stream(name: &str, id: u64) -> Arc<Stream> {
        let name = name.to_owned();
        Arc::new(Stream { name, id })
    }

    fn entry(seq: u64, path: &str) -> Entry {
        let text = format!(
            r#"{{"context":"c","updates":[{{"$source":"s","values":[{{"path":"{path}","value":{seq}}}]}}]}}"#
        );
        let record = Record::parse(text.as_bytes()).unwrap();
        Entry { seq, record }
    }

    fn all(queue: &LiveQueue) -> Vec<(String, u64, u64)> {
        let mut all = Vec::new();
        while let Some((stream, entries)) = queue.next() {
            assert!((1..=TURN).contains(&entries.len()));
            let numbers = entries.iter().map(|entry| entry.seq);
            all.extend(numbers.map(|seq| (stream.name.clone(), stream.id, seq)));
        }
        all
    }

    #[test]
    fn senders_take_turns_and_a_sink_that_begins_anew_gets_the_newest_of_each() {
        let queue = LiveQueue::default();
        let (a, b) = (stream("a", 1), stream("b", 1));
        let many: Vec<Entry> = (0..100).map(|seq| entry(seq, "x")).collect();
        queue.push(&a, &many);
        queue.push(&b, &[entry(7, "x"), entry(8, "y")]);
        let of = |stream: &Stream, seq: u64| (stream.name.clone(), stream.id, seq);
        let mut expected: Vec<_> = (0..64).map(|seq| of(&a, seq)).collect();
        expected.extend([of(&b, 7), of(&b, 8)]);
        expected.extend((64..100).map(|seq| of(&a, seq)));
        assert_eq!(all(&queue), expected);
        assert_eq!(queue.missed(), 0);
        for _ in 0..2 {
            queue.rewind();
            let mut again = all(&queue);
            again.sort();
            assert_eq!(again, [of(&a, 99), of(&b, 7), of(&b, 8)]);
        }
        // A new spool has new numbers.
        let new = stream("a", 2);
        queue.push(&a, &[entry(100, "x")]);
        queue.push(&new, &[entry(0, "x")]);
        assert_eq!(all(&queue), [of(&new, 0)]);
        assert_eq!(queue.missed(), 1);
    }

    #[test]
    fn a_live_sink_has_so_much_memory_and_the_largest_sender_makes_room() {
        let queue = LiveQueue::default();
        let (small, large) = (stream("small", 1), stream("large", 1));
        queue.push(&small, &[entry(0, "x")]);
        let long = "p".repeat(256 << 10);
        let count = 2 * (LIVE_ROOM >> 18) as u64;
        for seq in 0..count {
            queue.push(&large, &[entry(seq, &format!("{long}{seq}"))]);
            assert!(lock(&queue.all).memory <= LIVE_ROOM);
        }
        let held: usize = {
            let all = lock(&queue.all);
            all.senders.values().map(|it| it.state.memory()).sum()
        };
        assert_eq!(held, lock(&queue.all).memory);
        assert!(held > LIVE_ROOM / 2);
        let all = all(&queue);
        assert!(all.contains(&("small".to_owned(), 1, 0)));
        assert!(all.contains(&("large".to_owned(), 1, count - 1)));
        assert_eq!(all.len() as u64 + queue.missed(), count + 1);
    }

    #[test]
    fn so_many_senders_are_remembered() {
        let queue = LiveQueue::default();
        for number in 0..MAX_LIVE_SENDERS + 10 {
            queue.push(&stream(&number.to_string(), 1), &[entry(0, "x")]);
        }
        let (senders, turns) = {
            let all = lock(&queue.all);
            (all.senders.len(), all.turns.len())
        };
        assert_eq!((senders, turns), (MAX_LIVE_SENDERS, MAX_LIVE_SENDERS));
        assert_eq!(queue.missed(), 10);
        // Those that have nothing waiting go first.
        let (stream, _) = queue.next().unwrap();
        queue.push(&self::stream("new", 1), &[entry(0, "x")]);
        assert!(!lock(&queue.all).senders.contains_key(&stream.name));
    }
}

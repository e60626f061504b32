//! [`LiveQueue`]: what all senders have for a live sink.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use towline_link::LiveState;

use crate::lock::lock;
use crate::{Entry, Stream};

/// Cap: bytes of memory of what one live sink is to be given and may be given again, all senders together.
const LIVE_ROOM: usize = 32 << 20;
/// Cap: senders whose newest values a live sink is given again.
const MAX_LIVE_SENDERS: usize = 1_024;
/// Records that a sender may give a live sink before it is the next one's turn, and bytes of memory that they take.
const TURN: usize = 64;
const TURN_BYTES: usize = 1 << 20;

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
    /// Whose turn was the last.
    last: String,
    /// Bytes that all take.
    memory: usize,
    /// Deliveries that were added.
    pushes: u64,
    /// Of those that are forgotten.
    missed: u64,
}

#[derive(Debug, Default)]
struct Sender {
    state: LiveState<(Arc<Stream>, u64)>,
    has_turn: bool,
    /// When something was added, in pushes of all.
    pushed: u64,
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

    /// The next records of one stream.
    pub(crate) fn next(&self) -> Option<(Arc<Stream>, Vec<Entry>)> {
        lock(&self.all).next()
    }

    /// Waits until there may be something.
    pub(crate) async fn some(&self) {
        self.some.notified().await;
    }

    /// The sink knows nothing any more: it gets the newest value of each name.
    pub(crate) fn rewind(&self) {
        lock(&self.all).rewind();
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
        if self.senders.len() >= MAX_LIVE_SENDERS && !self.senders.contains_key(name) {
            self.forget_one();
        }
        self.pushes += 1;
        let sender = self.senders.entry(name.clone()).or_default();
        let took = sender.state.memory();
        for entry in entries {
            let tag = (Arc::clone(stream), entry.seq);
            sender.state.push(tag, entry.record.clone());
        }
        sender.pushed = self.pushes;
        self.memory = self.memory - took + sender.state.memory();
        if !sender.has_turn && sender.state.waiting() > 0 {
            sender.has_turn = true;
            self.turns.push_back(name.clone());
        }
    }

    fn next(&mut self) -> Option<(Arc<Stream>, Vec<Entry>)> {
        while let Some(name) = self.turns.pop_front() {
            let Some(sender) = self.senders.get_mut(&name) else {
                continue;
            };
            let first = sender.state.first().map(|(stream, _)| Arc::clone(stream));
            let taken = match &first {
                // A boat with a new spool has a new stream.
                Some(stream) => sender.state.take(TURN, TURN_BYTES, |(of, _)| of == stream),
                None => Vec::new(),
            };
            sender.has_turn = sender.state.waiting() > 0;
            if sender.has_turn {
                self.turns.push_back(name.clone());
            }
            if let Some(stream) = first {
                self.last = name;
                let entries = taken.into_iter();
                let entries = entries.map(|((_, seq), record)| Entry { seq, record });
                return Some((stream, entries.collect()));
            }
        }
        None
    }

    fn rewind(&mut self) {
        self.turns.clear();
        self.memory = 0;
        // Whoever comes first must not do so again when this connection ends as early as the last one did.
        let mut before = VecDeque::new();
        for (name, sender) in &mut self.senders {
            sender.state.rewind();
            self.memory += sender.state.memory();
            sender.has_turn = sender.state.waiting() > 0;
            if sender.has_turn {
                let turns = if *name > self.last {
                    &mut self.turns
                } else {
                    &mut before
                };
                turns.push_back(name.clone());
            }
        }
        self.turns.append(&mut before);
    }

    /// Forgets who was quiet for the longest time, of those that wait for nothing if there are any.
    fn forget_one(&mut self) {
        let quiet = |(_, sender): &(&String, &Sender)| (sender.has_turn, sender.pushed);
        let quietest = self.senders.iter().min_by_key(quiet);
        let Some(name) = quietest.map(|(name, _)| name.clone()) else {
            return;
        };
        if let Some(Sender { state, .. }) = self.senders.remove(&name) {
            self.memory -= state.memory();
            self.missed += state.missed() + state.waiting() as u64;
            self.turns.retain(|it| *it != name);
        }
    }

    /// Who takes most makes room, half of what it takes at once.
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
            most.shrink((took / 2).max(took.saturating_sub(self.memory - aim)));
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
        // A new spool has new numbers, and its values are newer than all of the old one's.
        let new = stream("a", 2);
        queue.push(&a, &[entry(100, "x"), entry(101, "alarm")]);
        queue.push(&new, &[entry(0, "x")]);
        assert_eq!(all(&queue), [of(&a, 100), of(&a, 101), of(&new, 0)]);
        queue.rewind();
        let of_a: Vec<_> = all(&queue).into_iter().filter(|it| it.0 == "a").collect();
        assert_eq!(of_a, [of(&a, 101), of(&new, 0)]);
    }

    #[test]
    fn a_connection_that_ends_early_begins_where_the_last_one_ended() {
        let queue = LiveQueue::default();
        for name in ["a", "b", "c"] {
            queue.push(&stream(name, 1), &[entry(0, "x")]);
        }
        let mut firsts = Vec::new();
        for _ in 0..4 {
            queue.rewind();
            firsts.push(queue.next().unwrap().0.name.clone());
        }
        assert_eq!(firsts, ["a", "b", "c", "a"]);
    }

    #[test]
    fn those_that_make_room_keep_what_is_newest() {
        let queue = LiveQueue::default();
        let long = "p".repeat(64 << 10);
        let names = ["a", "b", "c", "d", "e"];
        let each = ((LIVE_ROOM / names.len()) >> 16) as u64;
        for seq in 0..each + 8 {
            for name in names {
                queue.push(&stream(name, 1), &[entry(seq, &format!("{long}{seq}"))]);
            }
        }
        assert!(queue.missed() > 0);
        let all = all(&queue);
        for name in names {
            assert!(all.contains(&(name.to_owned(), 1, each + 7)));
        }
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
        let turns = lock(&queue.all).turns.clone();
        let each_once: std::collections::BTreeSet<_> = turns.iter().collect();
        assert_eq!(
            (turns.len(), each_once.len()),
            (MAX_LIVE_SENDERS, MAX_LIVE_SENDERS)
        );
        assert!(!lock(&queue.all).senders.contains_key(&stream.name));
    }
}

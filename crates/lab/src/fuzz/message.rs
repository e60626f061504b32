//! A message as hostile as its sender, network and readers can make it together, against a model.
//!
//! The input is a head and then steps: bytes arrive at any place in any order, the stream ends or
//! is reset, readers come, go, read, look ahead and skip. The model of the stream hands out each
//! byte once, the lowest first, and bounds the gaps, as the engine does; it keeps no bytes, since
//! each is a function of its offset. What every call has to answer follows from the ranges.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use towline_message::{
    Found, HeadReader, LengthError, MAX_LOOSE_PIECES, MAX_MESSAGE_BUFFER, MAX_MESSAGE_PIECES,
    Payload, ReaderId,
};
use towline_wire::{MAX_VARINT, MessageHeader};

/// Gaps between what arrived, as the engine bounds them.
const MAX_GAPS: usize = 512;

/// A receive block, and the most that is handed in at once.
const BLOCK: u64 = 64 << 10;

/// Readers at once; more add nothing.
const MAX_READERS: usize = 6;

/// A stream up to this long is read to its end by all readers when the steps are over.
const READ_OUT: u64 = 3 << 20;

/// Arrivals and reads of one input; more add nothing but time.
const MAX_WORK: usize = 4000;

/// The payload repeats after a prime number of bytes, so that no two neighbouring blocks are alike.
const PERIOD: u64 = 65_521;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |i| (i ^ (i >> 7)) as u8;
    (0..PERIOD + BLOCK).map(|i| byte(i % PERIOD)).collect()
});

/// The payload's bytes at `range`, which is no longer than a block.
fn payload_bytes(range: &Range<u64>) -> &'static [u8] {
    let start = (range.start % PERIOD) as usize;
    &PATTERN[start..start + (range.end - range.start) as usize]
}

/// Runs `input`: a head, then steps.
///
/// # Panics
/// When bytes are lost, invented, repeated or out of place, when a reader waits for what it could
/// have, or when more is held than the caps say.
pub fn message(input: &[u8]) {
    run(input);
}

/// As [`message`]; returns what happened, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    let mut input = Input(input);
    let len = usize::from(input.byte());
    let cut = usize::from(input.byte()).max(1);
    let (first, rest) = input.0.split_at(len.min(input.0.len()));
    input.0 = rest;
    let Some(length) = head(first, cut) else {
        return len as u64;
    };
    let mut run = Run::new(length);
    while run.work < MAX_WORK {
        run.work += 1;
        if input.0.is_empty() || run.over {
            break;
        }
        run.step(&mut input);
        run.check();
    }
    run.read_out();
    run.signature()
}

/// Feeds `bytes` in pieces of up to `cut`; the declared length if they are a head.
fn head(bytes: &[u8], cut: usize) -> Option<Option<u64>> {
    let mut reader = HeadReader::default();
    let mut at = 0;
    let missing = loop {
        match reader.missing() {
            Ok(0) => break Ok(0),
            Ok(missing) => {
                let end = (at + missing.min(cut)).min(bytes.len());
                if at == end {
                    break Ok(missing);
                }
                reader.handle_data(&bytes[at..end]);
                at = end;
            }
            Err(error) => break Err(error),
        }
    };
    // However it was cut: as if all had come at once.
    match (missing, MessageHeader::parse(bytes)) {
        (Err(error), all) => assert_eq!(all, Err(error)),
        (Ok(_), Err(error)) => panic!("{error} was not noticed"),
        (Ok(missing), Ok(None)) => assert_eq!((missing, at), (1, bytes.len())),
        (Ok(missing), Ok(Some((header, fields)))) => {
            let len = fields + header.metadata_len;
            assert_eq!(at + missing, len);
            let head = reader.finish();
            assert_eq!(head.is_some(), missing == 0);
            let head = head?;
            assert_eq!(head.metadata, bytes[fields..len]);
            assert_eq!((head.length, head.len), (header.length, len as u64));
            return Some(head.length);
        }
    }
    None
}

struct Reader {
    id: ReaderId,
    seen: Set,
    /// It reads in order; one that takes fragments never does again.
    ordered: bool,
}

struct Run {
    payload: Payload,
    declared: Option<u64>,
    readers: Vec<Reader>,
    /// What arrived, what of it was handed in, and what was not.
    arrived: Set,
    handed_in: Set,
    unread: Set,
    final_size: Option<u64>,
    /// Bytes handed in at once.
    cut: u64,
    /// Receive blocks that somebody keeps.
    live: Arc<AtomicUsize>,
    /// The message failed, as it had to.
    over: bool,
    work: usize,
    outcomes: u64,
    most_pieces: usize,
}

/// A receive block of which some bytes are wanted.
struct Block {
    data: &'static [u8],
    live: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self.data
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Run {
    fn new(declared: Option<u64>) -> Self {
        let (payload, id) = Payload::new(declared);
        let first = Reader {
            id,
            seen: Set::default(),
            ordered: true,
        };
        Self {
            payload,
            declared,
            readers: vec![first],
            arrived: Set::default(),
            handed_in: Set::default(),
            unread: Set::default(),
            final_size: None,
            cut: BLOCK,
            live: Arc::default(),
            over: false,
            work: 0,
            outcomes: 0,
            most_pieces: 0,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let step = input.byte();
        // The low bits say what, the high ones who.
        let who = usize::from(step >> 4) % self.readers.len().max(1);
        match step & 0x0f {
            0 => {
                let (offset, len) = (input.number(), input.number() % (4 * BLOCK));
                self.arrive(offset, len);
            }
            1 => {
                let (offset, len) = (input.number(), u64::from(input.byte()));
                let (apart, count) = (input.number(), u64::from(input.byte()) + 1);
                for i in 0..count {
                    self.arrive(offset.saturating_add(i.saturating_mul(apart)), len);
                }
            }
            2 => {
                let beyond = input.number();
                let least = self.arrived.end();
                let size = least.saturating_add(beyond).min(MAX_VARINT);
                self.final_size.get_or_insert(size);
            }
            3 if step >> 4 == 15 => {
                // A reset: the owner of the stream says so.
                self.payload.clear();
                assert_eq!(self.payload.held(), (0, 0));
                self.over = true;
            }
            4 => self.cut = input.number().clamp(1, BLOCK),
            5 => while !self.over && self.hand_in(u64::MAX) {},
            6 => {
                // Watching for a fault takes no payload.
                let before = self.handed_in.total;
                while !self.over && !self.payload.is_ended() && self.hand_in(0) {}
                assert!(self.handed_in.total == before);
            }
            _ if self.readers.is_empty() => {}
            7 if self.readers.len() < MAX_READERS => {
                let like = &self.readers[who];
                let joined = Reader {
                    id: self.payload.join(like.id),
                    seen: like.seen.clone(),
                    ordered: like.ordered,
                };
                self.readers.push(joined);
            }
            8 => {
                let left = self.readers.swap_remove(who);
                self.payload.leave(left.id);
            }
            9 if self.readers[who].ordered => {
                let ahead = input.number();
                let position = self.readers[who].seen.first_gap();
                self.had(who, position..position.saturating_add(ahead));
            }
            10 if self.readers[who].ordered => {
                let (ahead, max) = (input.number(), usize::from(input.byte()) + 1);
                self.look(who, ahead, max);
            }
            11 | 12 if self.readers[who].ordered => {
                let max = input.number().clamp(1, BLOCK) as usize;
                let times = if step & 1 == 0 { 64 } else { 1 };
                for _ in 0..times {
                    if self.over || !self.next(who, max) {
                        break;
                    }
                }
            }
            _ => {
                let max = input.number().max(1);
                let times = 1 << (step & 7);
                for _ in 0..times {
                    if self.over || !self.fragment(who, max) {
                        break;
                    }
                }
            }
        }
    }

    fn arrive(&mut self, offset: u64, len: u64) {
        self.work += 1;
        let offset = offset.min(MAX_VARINT);
        let last = self.final_size.unwrap_or(MAX_VARINT);
        let range = offset..offset.saturating_add(len).min(last);
        if self.arrived.ranges.len() >= MAX_GAPS && !self.arrived.touches(&range) {
            return;
        }
        let mut from = range.start;
        while let Some(new) = self.arrived.first_missing(from..range.end) {
            from = new.end;
            self.unread.add(new);
        }
        self.arrived.add(range);
    }

    /// As the owner of the stream does; whether anything came of it.
    fn hand_in(&mut self, below: u64) -> bool {
        if self.payload.is_ended() {
            return false;
        }
        let below = self.payload.room_below(below);
        if let Some(range) = self.unread.take_front(below, self.cut) {
            self.live.fetch_add(1, Ordering::Relaxed);
            let data = Bytes::from_owner(Block {
                data: payload_bytes(&range),
                live: Arc::clone(&self.live),
            });
            let taken = self.payload.handle_data(range.start, data);
            let too_long = self.declared.filter(|declared| range.end > *declared);
            let expected = too_long.map(|declared| LengthError::TooLong { declared });
            assert_eq!(taken.err(), expected);
            self.over = too_long.is_some();
            self.handed_in.add(range);
            return true;
        }
        let Some(size) = self.final_size.filter(|size| self.handed_in.total == *size) else {
            return false;
        };
        let ended = self.payload.handle_end();
        let declared = self.declared.filter(|declared| size < *declared);
        let expected = declared.map(|declared| LengthError::TooShort {
            declared,
            received: size,
        });
        assert_eq!(ended.err(), expected);
        self.over = declared.is_some();
        true
    }

    /// As the owner of the stream does: looks, and hands in more as long as that may help.
    fn find<T>(&mut self, find: impl Fn(&Payload) -> Found<T>) -> Option<T> {
        loop {
            let (below, otherwise) = match find(&self.payload) {
                Found::This(found) => return Some(found),
                Found::More { below } => (below, None),
                Found::Unless { below, otherwise } => (below, Some(otherwise)),
            };
            if !self.hand_in(below) {
                return otherwise;
            }
            if self.over {
                return None;
            }
        }
    }

    fn had(&mut self, who: usize, range: Range<u64>) {
        let reader = &mut self.readers[who];
        reader.seen.add(range.clone());
        self.payload.on_had(reader.id, range);
    }

    /// Whether the byte at `offset` could be had: it is here, or there is room for it.
    fn is_within_reach(&self, offset: u64) -> bool {
        self.handed_in.contains(offset)
            || (self.arrived.contains(offset) && offset < self.payload.room_below(u64::MAX))
    }

    fn is_at_end(&self, offset: u64) -> bool {
        self.payload.is_ended() && self.final_size.is_some_and(|size| offset >= size)
    }

    /// Reads in order; whether there was something.
    fn next(&mut self, who: usize, max: usize) -> bool {
        let (id, position) = (self.readers[who].id, self.readers[who].seen.first_gap());
        match self.find(|payload| payload.find_next(id, max)) {
            Some(Some((at, data))) => {
                assert_eq!(at, position);
                self.verify(at, &data, max);
                self.note(0);
                self.had(who, at..at + data.len() as u64);
                true
            }
            Some(None) => {
                self.note(1);
                assert!(self.is_at_end(position), "{position} is not the end");
                false
            }
            None => {
                self.note(2);
                assert!(self.over || !self.is_within_reach(position));
                false
            }
        }
    }

    fn look(&mut self, who: usize, ahead: u64, max: usize) {
        let offset = self.readers[who].seen.first_gap().saturating_add(ahead);
        match self.find(|payload| payload.find_at(offset, max)) {
            Some(Some(data)) => {
                self.note(3);
                self.verify(offset, &data, max);
            }
            Some(None) => {
                self.note(4);
                assert!(self.is_at_end(offset), "{offset} is not the end");
            }
            None => {
                self.note(5);
                assert!(self.over || !self.is_within_reach(offset));
            }
        }
    }

    /// Takes a fragment, of which it has room for `max` bytes; whether there was one.
    fn fragment(&mut self, who: usize, max: u64) -> bool {
        self.work += 1;
        self.readers[who].ordered = false;
        let id = self.readers[who].id;
        let found = self.find(|payload| payload.find_fragment(id));
        if self.over {
            return false;
        }
        let seen = &self.readers[who].seen;
        match found {
            Some(Some((at, data))) => {
                let range = at..at + data.len() as u64;
                assert_eq!(seen.first_missing(range.clone()), Some(range.clone()));
                assert_eq!(
                    self.handed_in.first_outside(seen),
                    Some(at),
                    "not the lowest"
                );
                if at > seen.first_gap() {
                    let better = self.arrived.first_outside(seen);
                    assert!(better == Some(at) || self.payload.room_below(at) < at);
                    self.note(6);
                }
                self.verify(at, &data, BLOCK as usize);
                self.note(7);
                self.had(who, at..range.end.min(at.saturating_add(max)));
                true
            }
            Some(None) => {
                let position = seen.first_gap();
                assert!(self.is_at_end(position), "{position} is not the end");
                self.note(8);
                false
            }
            None => {
                assert_eq!(self.handed_in.first_outside(seen), None);
                let first = self.arrived.first_outside(seen);
                assert!(first.is_none_or(|at| !self.is_within_reach(at)));
                self.note(9);
                false
            }
        }
    }

    fn verify(&self, at: u64, data: &[u8], max: usize) {
        assert!(!data.is_empty() && data.len() <= max);
        let range = at..at + data.len() as u64;
        assert_eq!(
            self.handed_in.first_missing(range.clone()),
            None,
            "invented"
        );
        assert!(self.declared.is_none_or(|declared| range.end <= declared));
        assert!(data == payload_bytes(&range), "other bytes at {range:?}");
    }

    /// What holds at any time.
    fn check(&mut self) {
        for reader in &self.readers {
            assert_eq!(self.payload.position(reader.id), reader.seen.first_gap());
        }
        let (pieces, bytes) = self.payload.held();
        self.most_pieces = self.most_pieces.max(pieces);
        assert!(pieces <= MAX_MESSAGE_PIECES, "{pieces} pieces");
        // The lowest piece may begin before the slowest reader.
        assert!(
            bytes as u64 <= MAX_MESSAGE_BUFFER + BLOCK,
            "{bytes} bytes held"
        );
        // Half a block is wanted of each of those but a few.
        let live = self.live.load(Ordering::Relaxed);
        let most = MAX_LOOSE_PIECES as u64 + 2 * (MAX_MESSAGE_BUFFER / BLOCK + 1);
        assert!(live as u64 <= most, "{live} receive blocks held");
        // Nothing more is taken only while somebody who takes what is here has not.
        if self.payload.room_below(u64::MAX) == 0 && !self.readers.is_empty() {
            self.note(10);
            assert!(self.readers.iter().any(|reader| {
                !reader.ordered && self.handed_in.first_outside(&reader.seen).is_some()
            }));
        }
        if self.readers.is_empty() {
            assert_eq!((pieces, live), (0, 0), "held for nobody");
        }
    }

    /// The rest arrives, and every reader reads to the end, in turns: all of them get there.
    fn read_out(&mut self) {
        let size = self.final_size.unwrap_or(self.arrived.end());
        if self.over || size > READ_OUT {
            return;
        }
        self.final_size = Some(size);
        // In one piece, or the bound of the gaps would leave some out.
        self.arrive(0, size);
        self.cut = BLOCK;
        loop {
            let mut more = false;
            for who in 0..self.readers.len() {
                // Some rounds each, so that they are apart.
                for _ in 0..=who {
                    more |= !self.over
                        && if self.readers[who].ordered {
                            self.next(who, BLOCK as usize)
                        } else {
                            self.fragment(who, BLOCK)
                        };
                }
            }
            if !more {
                break;
            }
            self.check();
        }
        if self.over || self.readers.is_empty() {
            return;
        }
        assert!(self.declared.is_none_or(|declared| declared == size));
        for reader in &self.readers {
            assert!(reader.seen.first_gap() >= size, "a reader is stuck");
        }
        assert_eq!(self.payload.held(), (0, 0));
        self.note(11);
    }

    fn note(&mut self, outcome: u32) {
        self.outcomes |= 1 << outcome;
    }

    fn signature(&self) -> u64 {
        let size = |n: usize| u64::from(n.checked_ilog2().map_or(0, |log| log + 1));
        let scales = [
            size(self.most_pieces),
            size(self.arrived.ranges.len()),
            self.readers.len() as u64,
            u64::from(self.over) << 1 | u64::from(self.declared.is_some()),
        ];
        scales.iter().fold(self.outcomes, |sum, n| sum << 4 | n)
    }
}

/// Disjoint ranges in ascending order, as plainly as can be.
#[derive(Clone, Default)]
struct Set {
    ranges: Vec<Range<u64>>,
    total: u64,
}

impl Set {
    fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let touched = self.touched(&range);
        let mut all = range;
        for had in self.ranges.drain(touched.clone()) {
            all = all.start.min(had.start)..all.end.max(had.end);
            self.total -= had.end - had.start;
        }
        self.total += all.end - all.start;
        self.ranges.insert(touched.start, all);
    }

    fn touched(&self, range: &Range<u64>) -> Range<usize> {
        let from = self.ranges.partition_point(|had| had.end < range.start);
        let to = self.ranges.partition_point(|had| had.start <= range.end);
        from..to.max(from)
    }

    fn touches(&self, range: &Range<u64>) -> bool {
        !self.touched(range).is_empty()
    }

    fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |last| last.end)
    }

    fn first_gap(&self) -> u64 {
        let first = self.ranges.first().filter(|first| first.start == 0);
        first.map_or(0, |first| first.end)
    }

    fn contains(&self, at: u64) -> bool {
        self.first_missing(at..at.saturating_add(1)).is_none()
    }

    fn first_missing(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut start = range.start;
        let from = self.ranges.partition_point(|had| had.end <= start);
        for had in &self.ranges[from..] {
            if had.start > start {
                break;
            }
            start = had.end;
        }
        let next = self.ranges.iter().skip(from).find(|had| had.start > start);
        let end = next.map_or(range.end, |next| range.end.min(next.start));
        (start < end).then_some(start..end)
    }

    /// The first member that is none of `other`.
    fn first_outside(&self, other: &Self) -> Option<u64> {
        let missing = |range: &Range<u64>| other.first_missing(range.clone());
        self.ranges
            .iter()
            .find_map(missing)
            .map(|range| range.start)
    }

    /// Takes up to `max` members below `below` from the lowest range.
    fn take_front(&mut self, below: u64, max: u64) -> Option<Range<u64>> {
        let first = self
            .ranges
            .first_mut()
            .filter(|first| first.start < below)?;
        let end = first.end.min(below).min(first.start.saturating_add(max));
        let taken = first.start..end;
        first.start = end;
        self.total -= end - taken.start;
        if first.is_empty() {
            self.ranges.remove(0);
        }
        Some(taken)
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// A variable-length integer; 0 where the input ends.
    fn number(&mut self) -> u64 {
        let first = self.byte();
        let rest = (1u32 << (first >> 6)) - 1;
        let start = u64::from(first & 0x3f);
        (0..rest).fold(start, |n, _| n << 8 | u64::from(self.byte()))
    }
}

//! [`Encoder`] and [`Decoder`]: a stream of batches, of which any may be lost, late or come twice.
//!
//! Both ends learn the same batches in the same order, from the first on without a gap. The encoder codes a
//! batch in the light of those that it knows to have arrived, and says which ones these are. Whatever
//! happens to the batches that are on their way, the decoder has what this one needs.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::Corrupt;
use super::lines::{self, MAX_LINES, MAX_LINES_NODES};
use super::memory::Changes;
use super::message::{Coding, Head};
use super::model::Model;
use super::record::Record;

/// Cap: batches that may be on their way at once: sent, and not known to have been decoded.
pub const MAX_IN_FLIGHT: usize = 5_000;
/// Batches that an encoder learns at once.
const MAX_LEARNED_AT_ONCE: usize = 64;
/// Cap: batches that a decoder goes back for one that comes late, and bytes of what it would undo.
const MAX_UNDONE: usize = 64;
const MAX_UNDONE_BYTES: usize = 4 << 20;
/// Cap: bytes of batches that came and wait for one before them; a gap is filled all the same.
const MAX_WAITING: usize = 64 << 20;
/// A batch that the model codes in more bytes is tried as lines, too.
const MOST_UNTRIED: usize = 512;
/// Batches of which a dictionary is made.
const IN_DICTIONARY: usize = 4;

type Batch = Arc<[Record]>;

/// What both ends have learned.
#[derive(Debug)]
struct Known {
    model: Model,
    /// The newest batches that the model took.
    newest: VecDeque<Batch>,
    /// Batches learned: those below this number.
    count: u64,
    /// A sum of all of them.
    sum: u64,
}

impl Known {
    fn new() -> Self {
        Self {
            model: Model::new(),
            newest: VecDeque::new(),
            count: 0,
            sum: 0,
        }
    }

    /// A batch that the model does not take is counted alone.
    fn learn(&mut self, batch: &Batch) -> Changes {
        self.count += 1;
        self.sum = mix(self.sum, sum_of(batch));
        let is_taken = Model::takes(batch);
        self.newest.push_back(match is_taken {
            true => Arc::clone(batch),
            false => Arc::default(),
        });
        if self.newest.len() > IN_DICTIONARY + MAX_UNDONE {
            self.newest.pop_front();
        }
        match is_taken {
            true => self.model.learn(batch),
            false => Changes::default(),
        }
    }

    fn check(&self, batch: &[Record]) -> u16 {
        let sum = mix(self.sum, sum_of(batch));
        (sum >> 48) as u16
    }

    /// What a dictionary is made of when the last `back` batches are not counted.
    fn dictionary(&self, back: usize) -> impl Iterator<Item = &[Record]> {
        let end = self.newest.len().saturating_sub(back);
        let start = end.saturating_sub(IN_DICTIONARY);
        self.newest.range(start..end).map(|batch| &**batch)
    }
}

/// No batch may be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// [`MAX_IN_FLIGHT`] batches are on their way.
    #[error("{MAX_IN_FLIGHT} batches are on their way; one has to arrive first")]
    Full,
    /// As JSON it is larger than a batch may be.
    #[error("the batch has {0} bytes of JSON; {MAX_LINES} are taken: push fewer records at once")]
    TooLarge(usize),
    /// It has more values than a batch may.
    #[error("the batch has {0} values; {MAX_LINES_NODES} are taken: push fewer records at once")]
    TooMany(usize),
}

/// Codes batches.
#[derive(Debug)]
pub struct Encoder {
    known: Known,
    /// Those from `known.count` on, and whether each is known to have been decoded.
    sent: VecDeque<(Batch, bool)>,
    in_flight: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// One that nothing has been decoded of.
    #[must_use]
    pub fn new() -> Self {
        Self {
            known: Known::new(),
            sent: VecDeque::new(),
            in_flight: 0,
        }
    }

    /// Takes a batch; its number, counted from 0.
    ///
    /// # Errors
    /// When too many are on their way, or it is too large.
    pub fn push(&mut self, records: impl Into<Arc<[Record]>>) -> Result<u64, PushError> {
        let records = records.into();
        if self.is_full() {
            return Err(PushError::Full);
        }
        if !Model::takes(&records) {
            let nodes = records.iter().map(|record| record.size().0).sum();
            if nodes > MAX_LINES_NODES {
                return Err(PushError::TooMany(nodes));
            }
            let len = lines::lines(&records).len();
            if len > MAX_LINES {
                return Err(PushError::TooLarge(len));
            }
        }
        self.sent.push_back((records, false));
        self.in_flight += 1;
        Ok(self.known.count + self.sent.len() as u64 - 1)
    }

    /// Appends the batch of this number, coded; again, and otherwise, when it was lost. False when it is known
    /// to have arrived, or was never pushed.
    pub fn encode(&mut self, number: u64, out: &mut Vec<u8>) -> bool {
        let Some((batch, false)) = self.entry(number).map(|at| self.sent[at].clone()) else {
            return false;
        };
        let mut coded = Vec::new();
        let mut coding = Coding::Lines;
        if Model::takes(&batch) {
            coding = Coding::Model;
            self.known.model.write(&batch, &mut coded);
        }
        // The model has no memory of long texts.
        if coding == Coding::Lines || coded.len() > MOST_UNTRIED {
            let mut other = Vec::new();
            let is_written = lines::write(&batch, self.known.dictionary(0), &mut other).is_ok();
            match coding {
                Coding::Lines if !is_written => return false,
                Coding::Model if !is_written || other.len() >= coded.len() => {}
                _ => (coded, coding) = (other, Coding::Lines),
            }
        }
        let head = Head {
            number,
            base: self.known.count,
            coding,
            check: self.known.check(&batch),
        };
        head.write(out);
        out.append(&mut coded);
        true
    }

    /// The decoder has these batches.
    pub fn on_decoded(&mut self, numbers: Range<u64>) {
        let first = self.known.count;
        let from = numbers.start.saturating_sub(first);
        let to = numbers
            .end
            .saturating_sub(first)
            .min(self.sent.len() as u64);
        for at in from..to {
            let is_decoded = &mut self.sent[at as usize].1;
            self.in_flight -= usize::from(!*is_decoded);
            *is_decoded = true;
        }
        // The rest is learned when more arrives.
        for _ in 0..MAX_LEARNED_AT_ONCE {
            let Some((batch, true)) = self.sent.front() else {
                return;
            };
            self.known.learn(batch);
            self.sent.pop_front();
        }
    }

    /// Whether [`MAX_IN_FLIGHT`] batches are on their way, or wait for one that is.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.sent.len() >= MAX_IN_FLIGHT
    }

    /// The batches below this are what the next one is coded in the light of.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.known.count
    }

    /// Batches that are not known to have arrived.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn entry(&self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.known.count)?).ok()?;
        (at < self.sent.len()).then_some(at)
    }
}

/// Why a message gave no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The batch came before; all is well.
    #[error("batch {0} came before")]
    Duplicate(u64),
    /// It came so late that what it refers to is gone; the encoder sends it again.
    #[error("a batch that came too late")]
    TooLate,
    /// It refers to batches that never came, or is too far ahead: no encoder of ours does that.
    #[error("the peer refers to batches that never arrived here")]
    Ahead,
    /// The bytes are no batch.
    #[error("the peer's batch is malformed: {0}")]
    Corrupt(#[from] Corrupt),
    /// Too much waits for a batch that is missing; the encoder sends it again.
    #[error("more than {MAX_WAITING} bytes wait for a batch that is missing")]
    Full,
    /// The two ends do not know the same.
    #[error("the two ends have learned different things: the link has to begin anew")]
    Diverged,
}

/// A batch that came.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// Its number.
    pub number: u64,
    /// It was coded in the light of the batches below this.
    pub base: u64,
    /// What was pushed.
    pub records: Arc<[Record]>,
}

/// Decodes batches.
#[derive(Debug)]
pub struct Decoder {
    known: Known,
    /// What the last batches changed, the sums before them, and the batches.
    undone: VecDeque<(Changes, u64)>,
    undone_bytes: usize,
    /// Those that came and were not learned yet.
    came: BTreeMap<u64, Batch>,
    /// Bytes of those.
    waiting: usize,
    /// 1 more than the largest number.
    expected: u64,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// One that nothing has come to.
    #[must_use]
    pub fn new() -> Self {
        Self {
            known: Known::new(),
            undone: VecDeque::new(),
            undone_bytes: 0,
            came: BTreeMap::new(),
            waiting: 0,
            expected: 0,
        }
    }

    /// Takes a message.
    ///
    /// # Errors
    /// When there is no new batch in it. A message that is refused changes nothing.
    pub fn decode(&mut self, message: &[u8]) -> Result<Decoded, DecodeError> {
        let mut bytes = message;
        let head = Head::read(&mut bytes, self.expected)?;
        let number = head.number;
        if number < self.known.count || self.came.contains_key(&number) {
            return Err(DecodeError::Duplicate(number));
        }
        if number >= head.base + MAX_IN_FLIGHT as u64 {
            return Err(DecodeError::Ahead);
        }
        if head.base > self.known.count {
            self.learn_up_to(head.base)?;
        }
        if self.waiting > MAX_WAITING && number != self.decoded_below() {
            return Err(DecodeError::Full);
        }
        let back = (self.known.count - head.base) as usize;
        if back > self.undone.len() {
            return Err(DecodeError::TooLate);
        }
        let decoded = self.decode_at(back, &head, bytes);
        let records: Batch = decoded?.into();
        self.waiting += size_of_batch(&records);
        self.came.insert(number, Arc::clone(&records));
        self.expected = self.expected.max(number + 1);
        Ok(Decoded {
            number,
            base: head.base,
            records,
        })
    }

    /// Decodes in the light of all but the last `back` batches learned.
    fn decode_at(
        &mut self,
        back: usize,
        head: &Head,
        bytes: &[u8],
    ) -> Result<Vec<Record>, DecodeError> {
        let first = self.undone.len() - back;
        let sum = self.known.sum;
        for (changes, before) in self.undone.range_mut(first..).rev() {
            self.known.model.undo(changes);
            self.known.sum = *before;
        }
        let read = match head.coding {
            Coding::Model => self.known.model.read(bytes),
            Coding::Lines => lines::read(bytes, self.known.dictionary(back)),
        };
        let is_sound = read
            .as_ref()
            .is_ok_and(|records| self.known.check(records) == head.check);
        for (changes, _) in self.undone.range_mut(first..) {
            self.known.model.redo(changes);
        }
        self.known.sum = sum;
        match is_sound {
            true => Ok(read?),
            false => Err(read
                .err()
                .map_or(DecodeError::Diverged, DecodeError::Corrupt)),
        }
    }

    /// Learns the batches below this number.
    fn learn_up_to(&mut self, base: u64) -> Result<(), DecodeError> {
        let has_all =
            (self.known.count..base).eq(self.came.range(..base).map(|(number, _)| *number));
        if !has_all {
            return Err(DecodeError::Ahead);
        }
        while self.known.count < base {
            let Some((_, batch)) = self.came.pop_first() else {
                return Err(DecodeError::Ahead);
            };
            self.waiting -= size_of_batch(&batch);
            let before = self.known.sum;
            let changes = self.known.learn(&batch);
            self.undone_bytes += changes.size();
            self.undone.push_back((changes, before));
            while self.undone.len() > MAX_UNDONE
                || self.undone_bytes > MAX_UNDONE_BYTES && self.undone.len() > 1
            {
                if let Some((changes, _)) = self.undone.pop_front() {
                    self.undone_bytes -= changes.size();
                }
            }
        }
        Ok(())
    }

    /// No message that can be decoded has a base below this.
    #[must_use]
    pub fn oldest_base(&self) -> u64 {
        self.known.count - self.undone.len() as u64
    }

    /// All batches below this have been decoded.
    #[must_use]
    pub fn decoded_below(&self) -> u64 {
        let mut below = self.known.count;
        for number in self.came.keys() {
            if *number != below {
                break;
            }
            below += 1;
        }
        below
    }

    /// The batches that have been decoded, as ranges from the oldest that counts.
    pub fn decoded(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut numbers = self.came.keys().copied().peekable();
        let mut next = Some(0..self.known.count);
        std::iter::from_fn(move || {
            let mut range = next
                .take()
                .or_else(|| numbers.next().map(|first| first..first + 1))?;
            while numbers.next_if_eq(&range.end).is_some() {
                range.end += 1;
            }
            Some(range)
        })
        .filter(|range| !range.is_empty())
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// A sum of all that is in a batch.
fn sum_of(batch: &[Record]) -> u64 {
    let records = batch.iter().map(Record::sum);
    records.fold(batch.len() as u64, mix)
}

fn size_of_batch(batch: &[Record]) -> usize {
    batch.iter().map(Record::memory).sum()
}

#[cfg(test)]
mod tests;

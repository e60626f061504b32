//! Messages without I/O: the head of one as it arrives, and its payload for several readers.
//!
//! A message is one unidirectional stream. Its owner reads the stream and hands what came first to
//! [`HeadReader`], then to [`Payload`], which says what may be read next. Called by
//! `towline::message` and by the fuzzers; never touches a stream, a connection or a waker.
#![forbid(unsafe_code)]

mod buffer;
mod head;

use std::ops::Range;

use bytes::Bytes;
use towline_wire::RangeSet;

use buffer::Buffer;
pub use buffer::{MAX_LOOSE_PIECES, MAX_MESSAGE_BUFFER, MAX_MESSAGE_PIECES};
pub use head::{Head, HeadReader};

/// The sender broke its own declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthError {
    /// It sent more than it had declared.
    TooLong {
        /// Bytes of payload it had declared.
        declared: u64,
    },
    /// It ended the message before all it had declared.
    TooShort {
        /// Bytes of payload it had declared.
        declared: u64,
        /// Bytes of payload it sent.
        received: u64,
    },
}

/// One of the readers of a [`Payload`]. Asked about one that has left, a payload answers as to a
/// reader that has had nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderId(u64);

/// What a reader found in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// What it looked for.
    This(T),
    /// Nothing; what lies below this offset may help.
    More {
        /// Offset in the payload.
        below: u64,
    },
    /// Something, but what lies below this offset would be better.
    Unless {
        /// Offset in the payload.
        below: u64,
        /// What is here.
        otherwise: T,
    },
}

/// What of a message is buffered, and who still needs what.
#[derive(Debug)]
pub struct Payload {
    buffer: Buffer,
    readers: Vec<Reader>,
    next: u64,
    declared: Option<u64>,
    /// Bytes handed in.
    received: u64,
    /// Its length, once all of it was handed in.
    end: Option<u64>,
}

#[derive(Debug)]
struct Reader {
    id: ReaderId,
    /// What it has had.
    seen: RangeSet,
}

impl Payload {
    /// A payload of which nothing has arrived, and its first reader.
    pub fn new(declared: Option<u64>) -> (Self, ReaderId) {
        let id = ReaderId(0);
        let first = Reader {
            id,
            seen: RangeSet::default(),
        };
        let payload = Self {
            buffer: Buffer::default(),
            readers: vec![first],
            next: 1,
            declared,
            received: 0,
            end: None,
        };
        (payload, id)
    }

    /// A further reader, that has had as much as `like`.
    pub fn join(&mut self, like: ReaderId) -> ReaderId {
        let id = ReaderId(self.next);
        self.next += 1;
        let seen = self.seen(like).cloned().unwrap_or_default();
        self.readers.push(Reader { id, seen });
        id
    }

    /// `reader` needs nothing any more.
    pub fn leave(&mut self, reader: ReaderId) {
        self.readers.retain(|known| known.id != reader);
        self.release(0..u64::MAX);
    }

    /// Readers there are.
    pub fn readers(&self) -> usize {
        self.readers.len()
    }

    /// All of it was handed in.
    pub fn is_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The first byte `reader` has not had.
    pub fn position(&self, reader: ReaderId) -> u64 {
        self.seen(reader).map_or(0, first_gap)
    }

    /// The offset below which bytes may be handed in now, for a reader that wants those below
    /// `below`: within [`MAX_MESSAGE_BUFFER`] of the slowest reader, and none while there are
    /// [`MAX_MESSAGE_PIECES`]. Then some reader has left out what is here, and can have it.
    pub fn room_below(&self, below: u64) -> u64 {
        if self.buffer.is_full() {
            return 0;
        }
        below.min(self.floor().saturating_add(MAX_MESSAGE_BUFFER))
    }

    /// Takes bytes of the payload, each handed in once, from below [`Payload::room_below`].
    ///
    /// # Errors
    /// When they lie beyond the declared length; nothing is buffered any more.
    pub fn handle_data(&mut self, offset: u64, data: Bytes) -> Result<(), LengthError> {
        let end = offset.saturating_add(data.len() as u64);
        self.received += data.len() as u64;
        if let Some(declared) = self.declared.filter(|declared| end > *declared) {
            self.clear();
            return Err(LengthError::TooLong { declared });
        }
        self.buffer.insert(offset, data);
        // A reader may have skipped what had not arrived.
        self.release(offset..end);
        Ok(())
    }

    /// All bytes of the stream were handed in.
    ///
    /// # Errors
    /// When fewer came than were declared; nothing is buffered any more.
    pub fn handle_end(&mut self) -> Result<(), LengthError> {
        let received = self.received;
        self.end = Some(received);
        if let Some(declared) = self.declared.filter(|declared| received < *declared) {
            self.clear();
            return Err(LengthError::TooShort { declared, received });
        }
        Ok(())
    }

    /// Forgets all bytes: nobody shall read on.
    pub fn clear(&mut self) {
        self.buffer = Buffer::default();
    }

    /// The next bytes in order for `reader` and where they lie, at most `max`; `None` at the end.
    pub fn find_next(&self, reader: ReaderId, max: usize) -> Found<Option<(u64, Bytes)>> {
        let position = self.position(reader);
        match self.find_at(position, max) {
            Found::This(data) => Found::This(data.map(|data| (position, data))),
            Found::More { below } | Found::Unless { below, .. } => Found::More { below },
        }
    }

    /// Bytes at `offset`, at most `max`; `None` at the end.
    pub fn find_at(&self, offset: u64, max: usize) -> Found<Option<Bytes>> {
        if let Some(mut data) = self.buffer.at(offset) {
            data.truncate(max);
            return Found::This(Some(data));
        }
        self.end_or_more(offset)
    }

    /// The lowest bytes that are here and that `reader` has not had, and where they lie; `None`
    /// when it had all.
    pub fn find_fragment(&self, reader: ReaderId) -> Found<Option<(u64, Bytes)>> {
        let position = self.position(reader);
        let missing = |piece| match self.seen(reader) {
            Some(seen) => seen.first_missing(piece),
            None => Some(piece),
        };
        let unseen = self.buffer.ranges(position).find_map(missing);
        let Some(unseen) = unseen else {
            return self.end_or_more(position);
        };
        let Some(mut data) = self.buffer.at(unseen.start) else {
            return Found::More { below: u64::MAX };
        };
        data.truncate(usize::try_from(unseen.end - unseen.start).unwrap_or(usize::MAX));
        let fragment = Some((unseen.start, data));
        if unseen.start == position || self.is_ended() {
            return Found::This(fragment);
        }
        Found::Unless {
            below: unseen.start,
            otherwise: fragment,
        }
    }

    /// `reader` has had `range`, or does not need it. Returns whether that made room, for which
    /// others may have waited.
    pub fn on_had(&mut self, reader: ReaderId, range: Range<u64>) -> bool {
        let room = self.room_below(u64::MAX);
        if let Some(reader) = self.readers.iter_mut().find(|known| known.id == reader) {
            reader.seen.insert(range.clone());
        }
        self.release(range);
        self.room_below(u64::MAX) > room
    }

    /// Pieces buffered, and the bytes in them.
    pub fn held(&self) -> (usize, usize) {
        self.buffer.held()
    }

    fn seen(&self, reader: ReaderId) -> Option<&RangeSet> {
        let known = self.readers.iter().find(|known| known.id == reader);
        known.map(|known| &known.seen)
    }

    /// The position of the slowest reader.
    fn floor(&self) -> u64 {
        let positions = self.readers.iter().map(|reader| first_gap(&reader.seen));
        positions.min().unwrap_or(u64::MAX)
    }

    /// For a reader that finds nothing at `position`.
    fn end_or_more<T>(&self, position: u64) -> Found<Option<T>> {
        match self.end {
            Some(end) if position >= end => Found::This(None),
            _ => Found::More { below: u64::MAX },
        }
    }

    /// Drops what no reader needs of the pieces in `range`.
    fn release(&mut self, range: Range<u64>) {
        let readers = &self.readers;
        self.buffer.release(range, |piece| {
            readers
                .iter()
                .any(|reader| reader.seen.first_missing(piece.clone()).is_some())
        });
    }
}

/// The first number that is not a member.
fn first_gap(seen: &RangeSet) -> u64 {
    let first = seen.front().filter(|first| first.start == 0);
    first.map_or(0, |first| first.end)
}

#[cfg(test)]
mod tests;

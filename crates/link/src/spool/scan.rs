//! [`Scan`]: the records of a segment one after another, past whatever is damaged.
//!
//! A damaged payload costs its own record: the prefix before it has a sum of its own. Where a prefix is damaged,
//! the next one is looked for byte by byte. It has to carry our id in its sum and a number that may stand there:
//! higher than those before it, and by no more than there is room for records between them.

use super::Disk;
use super::format::{HEAD, PREFIX, Prefix, double};

/// Bytes read at a time while a whole segment is looked at.
pub(super) const AHEAD: usize = 256 << 10;

/// A part of a segment in memory.
#[derive(Debug)]
struct Window {
    segment: u64,
    /// Where the segment ends.
    end: u64,
    /// Bytes read at a time.
    ahead: usize,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// So many bytes from `offset` on; `None` if the segment ends before.
    fn get<D: Disk>(
        &mut self,
        disk: &mut D,
        offset: u64,
        len: usize,
    ) -> Result<Option<&[u8]>, D::Error> {
        if offset.saturating_add(len as u64) > self.end {
            return Ok(None);
        }
        if offset < self.start || offset + len as u64 > self.start + self.bytes.len() as u64 {
            let known = offset.checked_sub(self.start);
            match known.filter(|known| *known <= self.bytes.len() as u64) {
                Some(known) => drop(self.bytes.drain(..known as usize)),
                None => self.bytes.clear(),
            }
            self.start = offset;
            let had = self.bytes.len();
            let room = usize::try_from(self.end - offset).unwrap_or(usize::MAX);
            self.bytes.resize(len.max(self.ahead).min(room), 0);
            let read = disk.read(self.segment, offset + had as u64, &mut self.bytes[had..]);
            let read = read.inspect_err(|_| self.bytes.clear())?;
            self.bytes.truncate(had + read);
            if self.bytes.len() < len {
                self.end = self.start + self.bytes.len() as u64;
            }
        }
        Ok(self.held(offset, len))
    }

    fn held(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(at..at.checked_add(len)?)
    }
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// A record; its prefix is at `offset`.
    Record { seq: u64, offset: u64, len: usize },
    /// Records below `trimmed` were, when `seq` was the next.
    Trimmed { trimmed: u64, seq: u64 },
}

/// Goes through a segment.
#[derive(Debug)]
pub(super) struct Scan {
    id: u64,
    window: Window,
    /// Where to look next.
    offset: u64,
    /// The lowest number that may come.
    expected: u64,
    /// How much higher it may be, not counting the room that was skipped.
    slack: u64,
    /// Up to where everything is known.
    known: u64,
    /// Numbers from here on are another segment's.
    below: u64,
}

impl Scan {
    /// Through the `end` bytes of a segment, from its first record on, `ahead` bytes at a time. `first` is that
    /// record's number, or where that `is_known` not to be so, no more than it.
    pub(super) fn new(
        id: u64,
        (segment, end): (u64, u64),
        (first, is_known): (u64, bool),
        below: u64,
        ahead: usize,
    ) -> Self {
        Self {
            id,
            window: Window {
                segment,
                end,
                ahead,
                start: 0,
                bytes: Vec::new(),
            },
            offset: HEAD as u64,
            expected: first,
            slack: if is_known { 0 } else { u64::MAX },
            known: HEAD as u64,
            below,
        }
    }

    /// Goes on from the place of a record.
    pub(super) fn from(mut self, (seq, offset): (u64, u64)) -> Self {
        (self.expected, self.slack) = (seq, 0);
        (self.offset, self.known) = (offset, offset);
        self
    }

    /// Up to where the last item went that was found.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next item that is whole; `None` at the end.
    pub(super) fn next<D: Disk>(&mut self, disk: &mut D) -> Result<Option<Found>, D::Error> {
        while let Some(bytes) = self.window.get(disk, self.offset, PREFIX)? {
            let prefix = bytes
                .first_chunk()
                .and_then(|bytes| Prefix::parse(bytes, self.id));
            let prefix = match prefix {
                Some(prefix) if self.may_stand_here(prefix.seq) => prefix,
                _ => {
                    self.offset += 1;
                    continue;
                }
            };
            if prefix.seq + u64::from(!prefix.is_trimmed) > self.below {
                break;
            }
            let offset = self.offset;
            let payload = offset + PREFIX as u64;
            let Some(bytes) = self.window.get(disk, payload, prefix.len)? else {
                break;
            };
            let is_whole = prefix.is_of(bytes);
            let trimmed = double(bytes);
            self.offset = payload + prefix.len as u64;
            self.known = self.offset;
            self.slack = 0;
            self.expected = prefix.seq + u64::from(!prefix.is_trimmed);
            match (is_whole, prefix.is_trimmed) {
                (false, _) => {}
                (true, true) => {
                    let (seq, trimmed) = (prefix.seq, trimmed.min(prefix.seq));
                    return Ok(Some(Found::Trimmed { trimmed, seq }));
                }
                (true, false) => {
                    return Ok(Some(Found::Record {
                        seq: prefix.seq,
                        offset,
                        len: prefix.len,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// The payload of the record that [`next`](Self::next) found last.
    pub(super) fn payload(&self, offset: u64, len: usize) -> &[u8] {
        let payload = self.window.held(offset + PREFIX as u64, len);
        debug_assert!(payload.is_some(), "its sum was just taken");
        payload.unwrap_or_default()
    }

    fn may_stand_here(&self, seq: u64) -> bool {
        let room = (self.offset - self.known) / PREFIX as u64;
        seq.checked_sub(self.expected)
            .is_some_and(|gap| gap <= self.slack.saturating_add(room))
    }
}

//! [`Spool`]: records in order, durable, until whoever they are for has them.
//!
//! Store and forward: [`append`](Spool::append), [`commit`](Spool::commit), and what was committed may be
//! acknowledged to its source and sent; [`read`](Spool::read) gives it again after a loss or a restart;
//! [`trim`](Spool::trim) forgets what the other end has made durable. It is a log in segments that are only
//! appended to, over files that the caller lends ([`Disk`]); it knows no clock.
//!
//! What holds, whatever fails:
//!
//! - A number that [`commit`](Spool::commit) returned belongs to its record for good. It is read back, or reported
//!   as lost or dropped; no other record ever gets it while the [`id`](Spool::id) is the same.
//! - What was trimmed or dropped may come again after a loss of power. Whoever receives records tells by id and number.
//! - What is damaged costs the records that it hits. [`Recovered`] and [`Batch::missing`] say which.
//!
//! `docs/spool-format.md` has the layout, and what each failure does.

mod crc;
mod disk;
mod error;
mod format;
mod open;
mod scan;
mod segment;

use std::collections::VecDeque;
use std::ops::Range;

pub use disk::Disk;
pub use error::{AppendError, DiskFailed, OpenError};
pub use format::MAX_RECORD;
pub use open::{MAX_LOST_RANGES, Recovered};

use format::{HEAD, Head, PREFIX, TRIMMED_LEN, emit_record, emit_trimmed, record_len};
use scan::{AHEAD, Found, Scan};
use segment::Segment;

/// Cap: segments of one spool: more count as full.
const MAX_SEGMENTS: usize = 1 << 14;
/// The least that a spool may be told to hold, in bytes.
pub const MIN_SPOOL: u64 = 64 << 10;
/// The least that a segment has room for, in bytes.
const MIN_SEGMENT: u64 = 4 << 10;
/// Memory that is kept for records to be committed, in bytes; one that needed more gives it back.
const KEPT: usize = 1 << 20;

/// What a full spool does with another record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The oldest segment goes, and [`Appended::dropped`] says so.
    DropOldest,
    /// It is refused: [`AppendError::Full`].
    Refuse,
}

/// How much a spool holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolConfig {
    /// Bytes on the disk, and of what waits for a commit, at most; at least [`MIN_SPOOL`].
    pub max_bytes: u64,
    /// Bytes of one segment, at most: what is trimmed, or dropped, at a time. It is brought into the range from
    /// 4 KiB to a quarter of `max_bytes`.
    pub segment_bytes: u64,
    /// What happens when it is full.
    pub full: Full,
}

impl Default for SpoolConfig {
    /// 256 MiB in segments of 4 MiB; the oldest go.
    fn default() -> Self {
        Self {
            max_bytes: 256 << 20,
            segment_bytes: 4 << 20,
            full: Full::DropOldest,
        }
    }
}

/// What became of a record that was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its number.
    pub seq: u64,
    /// Numbers of records that had to go for it.
    pub dropped: Option<Range<u64>>,
}

/// Records that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// They, with their numbers, which ascend.
    pub records: Vec<(u64, Vec<u8>)>,
    /// Numbers below [`next`](Self::next) that never come: damaged, dropped, trimmed or skipped.
    pub missing: Vec<Range<u64>>,
    /// Where to go on; the end of what was asked for, or of what is durable, when all was read.
    pub next: u64,
}

impl Batch {
    /// Everything from the next number to `seq` is missing.
    fn miss(&mut self, seq: u64) {
        if seq <= self.next {
            return;
        }
        match self.missing.last_mut() {
            Some(last) if last.end == self.next => last.end = seq,
            _ => self.missing.push(self.next..seq),
        }
        self.next = seq;
    }
}

/// A durable queue of records over a [`Disk`].
#[derive(Debug)]
pub struct Spool<D> {
    disk: D,
    id: u64,
    config: SpoolConfig,
    /// Oldest first. The last holds the id and the highest number, so it stays until there is another.
    segments: VecDeque<Segment>,
    /// Whether the last of them takes more.
    is_open: bool,
    /// Of the next segment.
    number: u64,
    /// Records below are durable.
    durable: u64,
    /// The number after the last record that can be read.
    follows: u64,
    /// The number of the next record.
    next: u64,
    /// Records below are done with.
    trimmed: u64,
    /// What the disk says of that.
    noted: u64,
    /// Records from `durable` on, as they go into a segment.
    pending: Vec<u8>,
    /// A segment of a commit that failed, which could not be removed.
    leftover: Option<u64>,
    /// Of all segments.
    bytes: u64,
    dropped: u64,
    /// Numbers that were dropped, which nobody was told.
    untold: Option<Range<u64>>,
    /// Where the last [`read`](Self::read) stopped: a segment, and the number and offset of its next record.
    place: Option<(u64, (u64, u64))>,
}

impl<D: Disk> Spool<D> {
    /// Which sequence space the numbers belong to: no two spools have the same one, and one that lost all it had
    /// gets another.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The number of the next record that is appended.
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// Records below are durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The lowest number that may still be read; [`next_seq`](Self::next_seq) when there is none.
    pub fn oldest_seq(&self) -> u64 {
        let first = self.segments.front().map_or(0, |segment| segment.first);
        self.trimmed.max(first).min(self.next)
    }

    /// Bytes on the disk and of what waits for a commit. What was trimmed counts until its segment goes.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.pending.len() as u64
    }

    /// About how many records there are, those that wait for a commit included; damage that was not met yet is not
    /// taken off.
    pub fn len(&self) -> u64 {
        let oldest = self.oldest_seq();
        let durable: u64 = (self.segments.iter())
            .map(|segment| segment.records_from(oldest))
            .sum();
        durable + (self.next - self.durable)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records that were dropped since it was opened, because it was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The most bytes that it takes as one record.
    pub fn max_record(&self) -> usize {
        let part = self.config.max_bytes / 4 - (HEAD + TRIMMED_LEN + PREFIX) as u64;
        usize::try_from(part).map_or(MAX_RECORD, |part| part.min(MAX_RECORD))
    }

    /// Takes a record. It is in memory only until [`commit`](Self::commit). What was appended before is committed at
    /// once where the record needs another segment.
    ///
    /// # Errors
    /// Where the record is too large, the spool is full and keeps what it has, or the disk fails. The record is not
    /// taken then, and its number goes to the next one.
    pub fn append(&mut self, payload: &[u8]) -> Result<Appended, AppendError<D::Error>> {
        let max = self.max_record();
        if payload.len() > max {
            let len = payload.len();
            return Err(AppendError::TooLarge { len, max });
        }
        let need = (PREFIX + payload.len()) as u64;
        let has = self.newest_len() + self.pending.len() as u64;
        if has > HEAD as u64 && has + need > self.config.segment_bytes {
            self.commit()?;
            self.is_open = false;
        }
        self.make_room(need + TRIMMED_LEN as u64)?;
        let seq = self.next;
        emit_record(self.id, seq, payload, &mut self.pending);
        self.next += 1;
        let dropped = self.untold.take();
        Ok(Appended { seq, dropped })
    }

    /// Makes all that was appended durable, with one write and one sync. Returns the number below which everything is:
    /// that may be acknowledged and sent.
    ///
    /// # Errors
    /// Where the disk fails, or is full. What was committed before stays. What was not stays in memory, and the next
    /// commit writes it into a new segment: what a disk did with bytes that it failed to sync is not known.
    pub fn commit(&mut self) -> Result<u64, DiskFailed<D::Error>> {
        if !self.pending.is_empty() {
            self.write()?;
        }
        Ok(self.durable)
    }

    /// As [`commit`](Self::commit), and makes durable how far was trimmed even if nothing was appended, as before the
    /// program ends: so nothing comes again after that.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn flush(&mut self) -> Result<u64, DiskFailed<D::Error>> {
        if !self.pending.is_empty() || self.trimmed > self.noted {
            self.write()?;
        }
        Ok(self.durable)
    }

    /// Forgets the records below `below`, as far as they are durable. Segments that hold nothing else are removed; how
    /// far was trimmed is written with the next commit.
    ///
    /// # Errors
    /// Where a segment cannot be removed. It is tried again next time.
    pub fn trim(&mut self, below: u64) -> Result<(), DiskFailed<D::Error>> {
        self.trimmed = self.trimmed.max(below.min(self.durable));
        self.remove_trimmed()
    }

    /// The records of `range` that are durable, from the first on, until they have `max_bytes`; one at least. A record
    /// that is damaged is left out and told in [`Batch::missing`]. Costs what it reads; going on where the last call
    /// stopped costs nothing else.
    ///
    /// # Errors
    /// Where the disk cannot be read.
    pub fn read(
        &mut self,
        range: Range<u64>,
        max_bytes: usize,
    ) -> Result<Batch, DiskFailed<D::Error>> {
        let end = range.end.min(self.durable);
        let mut batch = Batch {
            next: range.start,
            ..Batch::default()
        };
        batch.miss(self.oldest_seq().min(end));
        let ahead = max_bytes.saturating_add(MIN_SEGMENT as usize).min(AHEAD);
        let mut bytes = 0;
        let from = self
            .segments
            .partition_point(|segment| segment.end <= batch.next);
        for segment in self.segments.range(from..) {
            if segment.first >= end {
                break;
            }
            let place = segment.place(batch.next);
            let place = match self.place {
                Some((number, known))
                    if number == segment.number && (place.0..=batch.next).contains(&known.0) =>
                {
                    known
                }
                _ => place,
            };
            let whole = (segment.number, segment.len);
            let mut scan =
                Scan::new(self.id, whole, (place.0, true), segment.end, ahead).from(place);
            while let Some(found) = (scan.next(&mut self.disk))
                .map_err(DiskFailed::new("read its records from the disk"))?
            {
                let Found::Record { seq, offset, len } = found else {
                    continue;
                };
                if seq < batch.next {
                    continue;
                }
                let is_enough = !batch.records.is_empty() && bytes + len > max_bytes;
                if is_enough || seq >= end {
                    self.place = Some((segment.number, (seq, offset)));
                    batch.miss(seq.min(end));
                    return Ok(batch);
                }
                batch.miss(seq);
                (batch.records).push((seq, scan.payload(offset, len).to_vec()));
                batch.next = seq + 1;
                bytes += len;
                self.place = Some((segment.number, (batch.next, scan.offset())));
            }
            batch.miss(segment.end.min(end));
            // One segment in which nothing can be read is enough work for a call.
            if batch.records.is_empty() && batch.next < end {
                return Ok(batch);
            }
        }
        batch.miss(end);
        Ok(batch)
    }

    /// Bytes of the segment that the next commit writes to.
    fn newest_len(&self) -> u64 {
        match self.segments.back() {
            Some(segment) if self.is_open => segment.len,
            _ => HEAD as u64,
        }
    }

    /// Makes room for so many bytes.
    fn make_room(&mut self, need: u64) -> Result<(), AppendError<D::Error>> {
        loop {
            let head = if self.is_open { 0 } else { HEAD as u64 };
            // The last goes as soon as there is another.
            let done = (self.segments.back())
                .filter(|segment| !self.is_open && segment.end <= self.trimmed)
                .map_or(0, |segment| segment.len);
            let bytes = self.bytes() - done;
            let is_full =
                bytes + head + need > self.config.max_bytes || self.segments.len() >= MAX_SEGMENTS;
            if !is_full {
                return Ok(());
            }
            if self.config.full == Full::Refuse {
                let max_bytes = self.config.max_bytes;
                return Err(AppendError::Full { bytes, max_bytes });
            }
            let Some(end) = self.segments.get(1).map(|segment| segment.first) else {
                // It was larger once: what it has left goes when there is another segment.
                self.commit()?;
                self.is_open = false;
                return Ok(());
            };
            let start = self.oldest_seq();
            let records = self.segments[0].records_from(start);
            self.remove_oldest()?;
            self.dropped += records;
            self.trimmed = self.trimmed.max(end);
            if start < end {
                // What goes is the oldest, so it follows what went before.
                let start = self.untold.take().map_or(start, |untold| untold.start);
                self.untold = Some(start..end);
            }
        }
    }

    fn remove_trimmed(&mut self) -> Result<(), DiskFailed<D::Error>> {
        while self.segments.len() > 1 && self.segments[0].end <= self.trimmed {
            self.remove_oldest()?;
        }
        Ok(())
    }

    fn remove_oldest(&mut self) -> Result<(), DiskFailed<D::Error>> {
        if let Some(segment) = self.segments.front() {
            (self.disk.remove(segment.number))
                .map_err(DiskFailed::new("remove a segment from its disk"))?;
            self.bytes -= segment.len;
            self.segments.pop_front();
        }
        Ok(())
    }

    /// Writes what waits, and makes it durable.
    fn write(&mut self) -> Result<(), DiskFailed<D::Error>> {
        let doing = "remove a segment that was begun in vain from its disk";
        if let Some(number) = self.leftover {
            self.disk.remove(number).map_err(DiskFailed::new(doing))?;
            self.leftover = None;
        }
        let records = self.pending.len();
        if self.is_open && self.trimmed > self.noted {
            emit_trimmed(self.id, self.next, self.trimmed, &mut self.pending);
        }
        match self.try_write() {
            Ok(()) => {
                self.on_written(records);
                Ok(())
            }
            Err(error) => {
                self.pending.truncate(records);
                self.on_failed();
                Err(error)
            }
        }
    }

    fn try_write(&mut self) -> Result<(), DiskFailed<D::Error>> {
        let number = match self.segments.back() {
            Some(segment) if self.is_open => segment.number,
            _ => {
                let head = Head {
                    id: self.id,
                    first: self.durable,
                    follows: self.follows,
                    trimmed: self.trimmed,
                };
                begin(&mut self.disk, self.number, &head)?;
                self.number
            }
        };
        (self.disk.append(number, &self.pending)).map_err(DiskFailed::new("write to its disk"))?;
        (self.disk.sync(number)).map_err(DiskFailed::new("make durable what it wrote"))
    }

    fn on_written(&mut self, records: usize) {
        let begins = !self.is_open;
        if begins {
            let segment = Segment::new(self.number, self.durable);
            self.bytes += segment.len;
            self.segments.push_back(segment);
            self.number += 1;
            self.is_open = true;
        }
        if let Some(segment) = self.segments.back_mut() {
            let mut at = 0;
            for seq in self.durable..self.next {
                segment.on_record(seq, segment.len + at as u64);
                at += record_len(&self.pending[at..]);
            }
            debug_assert_eq!(at, records);
            segment.len += self.pending.len() as u64;
        }
        self.bytes += self.pending.len() as u64;
        self.pending.clear();
        self.pending.shrink_to(KEPT);
        if records > 0 {
            self.follows = self.next;
        }
        self.durable = self.next;
        self.noted = self.trimmed;
        if begins {
            // What cannot be removed now is tried again when something is trimmed, which says so.
            let _ = self.remove_trimmed();
        }
    }

    /// A segment whose bytes may be anything from here on gets no others.
    fn on_failed(&mut self) {
        match self.segments.back() {
            Some(segment) if self.is_open => {
                // Only to give back its space: behind the records that were committed nothing is read.
                let _ = self.disk.truncate(segment.number, segment.len);
            }
            _ => {
                if self.disk.remove(self.number).is_err() {
                    self.leftover = Some(self.number);
                }
                self.number += 1;
            }
        }
        self.is_open = false;
    }
}

/// Makes a segment with its head.
fn begin<D: Disk>(disk: &mut D, number: u64, head: &Head) -> Result<(), DiskFailed<D::Error>> {
    disk.create(number)
        .map_err(DiskFailed::new("begin a segment on its disk"))?;
    disk.append(number, &head.emit())
        .map_err(DiskFailed::new("write to its disk"))
}

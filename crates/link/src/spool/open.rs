//! Opening a spool: what its segments hold, and what of them was lost.
//!
//! 1. The heads of all segments say which spool it is.
//! 2. Each segment is read once. It ends where the next one says that it follows.
//! 3. What the newest has behind its last whole record was cut by a loss of power, or damaged. Nobody can tell, so
//!    the numbers that may have been there are skipped, and a new segment says so.
//! 4. Segments of which nothing is left, or all was trimmed, are removed.

use std::collections::VecDeque;
use std::ops::Range;

use super::format::{HEAD, Head, MAX_NEXT, NoHead, PREFIX};
use super::scan::{AHEAD, Found, Scan};
use super::segment::Segment;
use super::{
    Disk, DiskFailed, MAX_SEGMENTS, MIN_SEGMENT, MIN_SPOOL, OpenError, Spool, SpoolConfig, begin,
};

/// Cap: ranges of lost numbers that are listed when a spool is opened; all are counted.
pub const MAX_LOST_RANGES: usize = 1 << 12;

/// What was found when a spool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// There was no spool, or nothing of it could be read: it has the new id, and its numbers begin with 0.
    pub is_new: bool,
    /// Records that can be read.
    pub records: u64,
    /// Numbers whose records are damaged or gone, in order: the first [`MAX_LOST_RANGES`] ranges. Those of the last
    /// commit before a loss of power may be among them, which never returned.
    pub lost: Vec<Range<u64>>,
    /// How many these are, with those beyond what is listed.
    pub lost_records: u64,
    /// Numbers that are never used: bytes at the end of the newest segment could not be read, and these may
    /// have been theirs. After a loss of power that is what had not been committed.
    pub skipped: Range<u64>,
    /// Bytes that were cut off there, and of segments of which nothing could be read.
    pub cut_bytes: u64,
}

impl Recovered {
    fn lose(&mut self, lost: Range<u64>) {
        if lost.is_empty() {
            return;
        }
        self.lost_records += lost.end - lost.start;
        let has_room = self.lost.len() < MAX_LOST_RANGES;
        match self.lost.last_mut() {
            Some(last) if last.end == lost.start => last.end = lost.end,
            _ if has_room => self.lost.push(lost),
            _ => {}
        }
    }

    /// What was trimmed is not lost.
    fn on_trimmed(&mut self, trimmed: u64) {
        for range in &mut self.lost {
            let start = range.start.max(trimmed.min(range.end));
            self.lost_records -= start - range.start;
            range.start = start;
        }
        self.lost.retain(|range| !range.is_empty());
    }
}

/// A segment that has not been read.
struct Unread {
    number: u64,
    len: u64,
    head: Option<Head>,
}

impl<D: Disk> Spool<D> {
    /// Opens the spool that `disk` holds. `new_id` is 64 random bits, for one that has none yet.
    ///
    /// Reads everything once: about a second for each GiB, or what the disk needs.
    ///
    /// # Errors
    /// Where the disk fails, or holds what this program must not touch.
    pub fn open(
        mut disk: D,
        config: SpoolConfig,
        new_id: u64,
    ) -> Result<(Self, Recovered), OpenError<D::Error>> {
        if config.max_bytes < MIN_SPOOL {
            let (max_bytes, least) = (config.max_bytes, MIN_SPOOL);
            return Err(OpenError::TooSmall { max_bytes, least });
        }
        let unread = heads(&mut disk)?;
        let head = unread.iter().find_map(|unread| unread.head);
        let last = unread.last().map(|unread| unread.number);
        let least = MIN_SEGMENT.max(config.max_bytes / (MAX_SEGMENTS as u64 / 4));
        let most = config.max_bytes / 4;
        let mut spool = Self {
            disk,
            id: head.map_or(new_id, |head| head.id),
            config: SpoolConfig {
                segment_bytes: config.segment_bytes.clamp(least, most),
                ..config
            },
            segments: VecDeque::new(),
            is_open: false,
            number: last.map_or(0, |last| last + 1),
            durable: 0,
            follows: 0,
            next: 0,
            trimmed: 0,
            noted: 0,
            pending: Vec::new(),
            leftover: None,
            bytes: 0,
            dropped: 0,
            untold: None,
            place: None,
        };
        let mut recovered = Recovered::default();
        if head.is_some() {
            spool.recover(&unread, &mut recovered)?;
        } else {
            recovered.is_new = true;
            for unread in &unread {
                recovered.cut_bytes += unread.len;
                // Without the id no record can be told from what is none.
                (spool.disk.set_aside(unread.number))
                    .map_err(DiskFailed::new("set aside a damaged segment"))?;
            }
        }
        Ok((spool, recovered))
    }

    fn recover(
        &mut self,
        unread: &[Unread],
        recovered: &mut Recovered,
    ) -> Result<(), OpenError<D::Error>> {
        // A later segment says where those before it end.
        let mut below = u64::MAX;
        let mut ends: Vec<u64> = (unread.iter().rev())
            .map(|unread| {
                let end = below;
                below = unread.head.map_or(below, |head| below.min(head.follows));
                end
            })
            .collect();
        ends.reverse();
        // Bytes behind the last thing that can be read, and those of segments of which nothing can.
        let (mut tail, mut dead_tail) = (0, 0);
        let mut end = None;
        let mut dead = Vec::new();
        for (unread, below) in unread.iter().zip(ends) {
            let (segment, read) = self.read_segment(unread, below, &mut end, recovered)?;
            if read > 0 {
                (tail, dead_tail) = (0, 0);
            }
            tail += unread.len - read;
            if segment.records > 0 || unread.head.is_some() {
                self.bytes += segment.len;
                self.segments.push_back(segment);
            } else {
                recovered.cut_bytes += unread.len;
                dead_tail += unread.len - read;
                dead.push(unread.number);
            }
        }
        let end = end.unwrap_or(0);
        if end > MAX_NEXT {
            return Err(OpenError::UsedUp { next: end });
        }
        self.noted = self.trimmed;
        recovered.on_trimmed(self.trimmed);
        if let Some(newest) = self.segments.back() {
            // A program that was killed leaves bytes that can be read and are not durable.
            (self.disk.sync(newest.number))
                .map_err(DiskFailed::new("make durable what it found"))?;
            self.is_open = newest.len < self.config.segment_bytes;
        }
        self.next = end + tail.div_ceil(PREFIX as u64);
        self.durable = self.next;
        self.follows = end;
        // Nothing is added to a segment that has no head, or one that those before it gainsay.
        let first = self.segments.back().map(|newest| newest.first);
        let head = unread.last().and_then(|unread| unread.head);
        if tail > 0 || head.map(|head| head.first) != first {
            recovered.skipped = end..self.next;
            recovered.cut_bytes += tail - dead_tail;
            let head = Head {
                id: self.id,
                first: self.next,
                follows: end,
                trimmed: self.trimmed,
            };
            begin(&mut self.disk, self.number, &head)?;
            (self.disk.sync(self.number)).map_err(DiskFailed::new("make durable what it skips"))?;
            let segment = Segment::new(self.number, self.next);
            self.bytes += segment.len;
            self.segments.push_back(segment);
            self.number += 1;
            self.is_open = true;
        }
        for number in dead {
            self.remove_dead(number)?;
        }
        self.remove_empty()?;
        self.remove_trimmed()?;
        recovered.records = self.len();
        Ok(())
    }

    /// Reads a segment; returns it, and up to where it could be read.
    fn read_segment(
        &mut self,
        unread: &Unread,
        below: u64,
        end: &mut Option<u64>,
        recovered: &mut Recovered,
    ) -> Result<(Segment, u64), DiskFailed<D::Error>> {
        let before = end.unwrap_or(0);
        let mut read = 0;
        if let Some(head) = unread.head {
            if end.is_some() {
                recovered.lose(before..head.follows);
            }
            self.trimmed = self.trimmed.max(head.trimmed);
            *end = Some(before.max(head.first));
            read = HEAD as u64;
        }
        // Without a head, what was before the first segment is not known either.
        let mut expected = end.unwrap_or(0);
        let is_known = unread.head.is_some_and(|head| head.first == expected);
        let mut segment = Segment::new(unread.number, expected);
        segment.len = unread.len;
        let whole = (unread.number, unread.len);
        let mut scan = Scan::new(self.id, whole, (expected, is_known), below, AHEAD);
        while let Some(found) = scan
            .next(&mut self.disk)
            .map_err(DiskFailed::new("read what its disk holds"))?
        {
            read = scan.offset();
            match found {
                Found::Trimmed { trimmed, seq } => {
                    self.trimmed = self.trimmed.max(trimmed);
                    recovered.lose(expected..seq);
                    expected = seq;
                }
                Found::Record { seq, offset, .. } => {
                    recovered.lose(expected..seq);
                    expected = seq + 1;
                    segment.on_record(seq, offset);
                }
            }
        }
        segment.end = expected;
        *end = Some(expected);
        Ok((segment, read))
    }

    fn remove_dead(&mut self, number: u64) -> Result<(), DiskFailed<D::Error>> {
        (self.disk.remove(number)).map_err(DiskFailed::new("remove a damaged segment"))
    }

    /// Segments without a record, apart from the newest.
    fn remove_empty(&mut self) -> Result<(), DiskFailed<D::Error>> {
        let newest = self.segments.back().map(|segment| segment.number);
        let is_empty = |segment: &Segment| segment.records == 0 && Some(segment.number) != newest;
        let empty: Vec<u64> = (self.segments.iter())
            .filter(|segment| is_empty(segment))
            .map(|segment| segment.number)
            .collect();
        for number in empty {
            self.remove_dead(number)?;
        }
        self.segments.retain(|segment| !is_empty(segment));
        self.bytes = self.segments.iter().map(|segment| segment.len).sum();
        Ok(())
    }
}

/// The segments of a disk, in order, with their heads.
fn heads<D: Disk>(disk: &mut D) -> Result<Vec<Unread>, OpenError<D::Error>> {
    let listed = disk.list();
    let mut numbers = listed.map_err(DiskFailed::new("list its segments"))?;
    numbers.sort_unstable();
    numbers.dedup();
    if let Some(segment) = numbers.last().copied()
        && segment > u64::MAX / 2
    {
        return Err(OpenError::LastNumber { segment });
    }
    let mut known: Option<(u64, u64)> = None;
    let mut unread = Vec::with_capacity(numbers.len());
    for number in numbers {
        let mut bytes = [0; HEAD];
        let read = disk.read(number, 0, &mut bytes);
        let read = read.map_err(DiskFailed::new("read what its disk holds"))?;
        let len = disk.len(number);
        let len = len.map_err(DiskFailed::new("read what its disk holds"))?;
        let head = match Head::parse(&bytes[..read]) {
            Ok(head) => Some(head),
            Err(NoHead::Damaged) => None,
            Err(NoHead::Version(version)) => {
                let segment = number;
                return Err(OpenError::Version { segment, version });
            }
        };
        match (head, known) {
            (Some(head), None) => known = Some((number, head.id)),
            (Some(head), Some((one, id))) if head.id != id => {
                let other = number;
                return Err(OpenError::Mixed { one, other });
            }
            _ => {}
        }
        unread.push(Unread { number, len, head });
    }
    Ok(unread)
}

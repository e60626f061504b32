//! The link's messages: what stands in a datagram, a stream, or a frame over TLS.
//!
//! Integers are varints (RFC 9000 §16) unless a width is given. `docs/link-protocol.md` has the layouts.

use std::ops::Range;

use towline_wire::{MAX_VARINT, Reader, UnexpectedEnd, emit_varint};

/// The version of the protocol that is spoken here.
pub const VERSION: u64 = 1;
/// Cap: bytes of a message on the control stream.
pub const MAX_CONTROL: usize = 64 << 10;
/// Cap: bytes of a sender's name.
pub const MAX_NAME: usize = 64;
/// Cap: ranges of numbers in a message.
pub(crate) const MAX_RANGES: usize = 4_096;
/// Ranges of batches in a report.
pub(crate) const RANGES_IN_REPORT: usize = 16;

const HELLO: u8 = 0x00;
const ACCOUNT: u8 = 0x01;
const REPORT: u8 = 0x02;
const FORGET: u8 = 0x03;
const BATCH: u8 = 0x40;
const SCATTERED: u8 = 0x01;
const ALARM: u8 = 0x02;
const BACKFILL: u8 = 0x04;
const REPLACED: u8 = 0x08;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedMessage {
    /// It ends too early.
    #[error("it ends too early")]
    Short,
    /// Bytes are left over.
    #[error("bytes are left over")]
    Rest,
    /// Nobody knows this kind of message.
    #[error("its kind {0:#04x} is not known")]
    Kind(u8),
    /// Ranges that are empty, out of order, too many or too large.
    #[error("its ranges make no sense")]
    Ranges,
    /// A name that is empty, too long or no text.
    #[error("its name is empty, longer than {MAX_NAME} bytes or no text")]
    Name,
}

impl From<UnexpectedEnd> for MalformedMessage {
    fn from(_: UnexpectedEnd) -> Self {
        Self::Short
    }
}

/// The first message of a sender, on the control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What it speaks; another version is refused.
    pub version: u64,
    /// The sender's name.
    pub name: String,
    /// Which sequence its numbers belong to: that of one spool.
    pub stream: u64,
    /// The oldest record that it has.
    pub oldest: u64,
    /// The number of the next record.
    pub next: u64,
}

/// What the receiver has, on the control stream: after a hello, and whenever it gave something up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Only live data, please: what is durable would have no place.
    pub(crate) is_on_hold: bool,
    /// Before this connection it had records that the hello does not know of.
    pub(crate) is_ahead: bool,
    /// The batches that were decoded by then.
    pub(crate) decoded: Vec<Range<u64>>,
    /// The records that are durable or will be.
    pub(crate) has: Vec<Range<u64>>,
}

/// What the receiver decoded and made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// All records below are durable.
    pub(crate) durable: u64,
    /// The batches that were decoded, the first of them from 0 on.
    pub(crate) decoded: Vec<Range<u64>>,
}

/// What stands before a coded batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchHead {
    /// It has an alarm: tell at once.
    pub(crate) is_alarm: bool,
    /// It is old: for logs alone.
    pub(crate) is_backfill: bool,
    /// How far its first record lies behind the end of the batch before its base.
    pub(crate) offset: i64,
    /// How many records follow each other, and how many numbers are left out before the next do. `None`
    /// where all follow each other.
    pub(crate) runs: Option<Vec<(u64, u64)>>,
    /// Indexes of the values that newer ones have replaced. They run on through all records, in the order of
    /// [`delta::parts`](crate::delta::parts).
    pub(crate) replaced: Vec<Range<u64>>,
}

/// A message as it is read.
#[derive(Debug, PartialEq)]
pub(crate) enum Message<'a> {
    Hello(Hello),
    Account(Account),
    Report(Report),
    /// These records are gone.
    Forget(Range<u64>),
    Batch(BatchHead, &'a [u8]),
}

impl Hello {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = vec![HELLO];
        emit_varint(&mut out, self.version);
        emit_varint(&mut out, self.name.len() as u64);
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(&self.stream.to_be_bytes());
        emit_varint(&mut out, self.oldest);
        emit_varint(&mut out, self.next);
        out
    }
}

impl Account {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let flags = u8::from(self.is_on_hold) | u8::from(self.is_ahead) << 1;
        let mut out = vec![ACCOUNT, flags];
        emit_ranges(&mut out, &self.decoded);
        emit_ranges(&mut out, &self.has);
        out
    }
}

impl Report {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = vec![REPORT];
        emit_varint(&mut out, self.durable);
        // The first begins at 0, and the last ends where the message does: both go without saying.
        let mut end = 0;
        for (at, range) in self.decoded.iter().take(RANGES_IN_REPORT).enumerate() {
            debug_assert!(at > 0 || range.start == 0);
            if at > 0 {
                emit_varint(&mut out, range.start - end);
            }
            emit_varint(&mut out, range.end - range.start);
            end = range.end;
        }
        out
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        let durable = reader.varint()?;
        let mut decoded: Vec<Range<u64>> = Vec::new();
        while !reader.is_empty() {
            let start = match decoded.last() {
                None => 0,
                Some(last) => last.end + reader.varint()?,
            };
            let len = reader.varint()?;
            if len == 0 && start > 0 || decoded.len() == RANGES_IN_REPORT {
                return Err(MalformedMessage::Ranges);
            }
            decoded.push(start..bounded(start + len)?);
        }
        Ok(Self { durable, decoded })
    }
}

pub(crate) fn emit_forget(seqs: &Range<u64>) -> Vec<u8> {
    let mut out = vec![FORGET];
    emit_varint(&mut out, seqs.start);
    emit_varint(&mut out, seqs.end - seqs.start);
    out
}

impl BatchHead {
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        let flags = flag(self.is_alarm, ALARM)
            | flag(self.is_backfill, BACKFILL)
            | flag(self.runs.is_some(), SCATTERED)
            | flag(!self.replaced.is_empty(), REPLACED);
        out.push(BATCH | flags);
        // Zigzag: the small ones of either sign are short.
        emit_varint(out, ((self.offset << 1) ^ (self.offset >> 63)) as u64);
        if let Some(runs) = &self.runs {
            emit_varint(out, runs.len() as u64);
            for (len, gap) in runs {
                emit_varint(out, *len);
                emit_varint(out, *gap);
            }
        }
        if !self.replaced.is_empty() {
            emit_ranges(out, &self.replaced);
        }
    }

    fn read(flags: u8, reader: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        let zigzag = reader.varint()?;
        let offset = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let runs = match flags & SCATTERED {
            0 => None,
            _ => {
                let count = reader.varint()? as usize;
                if count == 0 || count > MAX_RANGES {
                    return Err(MalformedMessage::Ranges);
                }
                let mut runs = Vec::new();
                for _ in 0..count {
                    runs.push((reader.varint()?, reader.varint()?));
                }
                Some(runs)
            }
        };
        let replaced = match flags & REPLACED {
            0 => Vec::new(),
            _ => read_ranges(reader)?,
        };
        Ok(Self {
            is_alarm: flags & ALARM != 0,
            is_backfill: flags & BACKFILL != 0,
            offset,
            runs,
            replaced,
        })
    }

    /// The head of a batch of these records, of which the last before its base ends at `end`.
    pub(crate) fn of(seqs: &[Range<u64>], end: u64, is_alarm: bool, is_backfill: bool) -> Self {
        let first = seqs.first().map_or(end, |range| range.start);
        let runs = (seqs.len() > 1).then(|| {
            let lens = seqs.iter().map(|range| range.end - range.start);
            let gaps = seqs.windows(2).map(|pair| pair[1].start - pair[0].end);
            lens.zip(gaps.chain([0])).collect()
        });
        Self {
            is_alarm,
            is_backfill,
            offset: first.wrapping_sub(end) as i64,
            runs,
            replaced: Vec::new(),
        }
    }

    /// The numbers of `count` records.
    pub(crate) fn seqs(&self, end: u64, count: u64) -> Result<Vec<Range<u64>>, MalformedMessage> {
        let mut next = end
            .checked_add_signed(self.offset)
            .ok_or(MalformedMessage::Ranges)?;
        let all = [(count, 0)];
        let mut seqs = Vec::new();
        let mut left = count;
        for (len, gap) in self.runs.as_deref().unwrap_or(&all) {
            left = left.checked_sub(*len).ok_or(MalformedMessage::Ranges)?;
            let range = next..bounded(next.saturating_add(*len))?;
            next = bounded(range.end.saturating_add(*gap))?;
            seqs.push(range);
        }
        match left {
            0 => Ok(seqs),
            _ => Err(MalformedMessage::Ranges),
        }
    }
}

impl<'a> Message<'a> {
    /// Reads a whole message.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, MalformedMessage> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let message = match kind {
            HELLO => {
                let version = reader.varint()?;
                let len = reader.varint()? as usize;
                if len == 0 || len > MAX_NAME {
                    return Err(MalformedMessage::Name);
                }
                let name = String::from_utf8(reader.bytes(len)?.to_vec());
                Self::Hello(Hello {
                    version,
                    name: name.map_err(|_| MalformedMessage::Name)?,
                    stream: u64::from_be_bytes(reader.array()?),
                    oldest: reader.varint()?,
                    next: reader.varint()?,
                })
            }
            ACCOUNT => {
                let flags = reader.u8()?;
                Self::Account(Account {
                    is_on_hold: flags & 1 != 0,
                    is_ahead: flags & 2 != 0,
                    decoded: read_ranges(&mut reader)?,
                    has: read_ranges(&mut reader)?,
                })
            }
            REPORT => Self::Report(Report::read(&mut reader)?),
            FORGET => {
                let start = reader.varint()?;
                Self::Forget(start..bounded(start + reader.varint()?)?)
            }
            kind if kind & !(SCATTERED | ALARM | BACKFILL | REPLACED) == BATCH => {
                let head = BatchHead::read(kind, &mut reader)?;
                return Ok(Self::Batch(head, reader.rest()));
            }
            kind => return Err(MalformedMessage::Kind(kind)),
        };
        match reader.is_empty() {
            true => Ok(message),
            false => Err(MalformedMessage::Rest),
        }
    }
}

/// Whether one of these ranges, which are in order, has a number.
pub(crate) fn is_within(ranges: &[Range<u64>], number: u64) -> bool {
    let after = ranges.partition_point(|range| range.start <= number);
    after > 0 && ranges[after - 1].contains(&number)
}

/// A number that a varint can carry.
fn bounded(number: u64) -> Result<u64, MalformedMessage> {
    match number <= MAX_VARINT {
        true => Ok(number),
        false => Err(MalformedMessage::Ranges),
    }
}

fn emit_ranges(out: &mut Vec<u8>, ranges: &[Range<u64>]) {
    debug_assert!(ranges.len() <= MAX_RANGES);
    emit_varint(out, ranges.len() as u64);
    let mut end = 0;
    for range in ranges {
        emit_varint(out, range.start - end);
        emit_varint(out, range.end - range.start);
        end = range.end;
    }
}

fn read_ranges(reader: &mut Reader<'_>) -> Result<Vec<Range<u64>>, MalformedMessage> {
    let count = reader.varint()? as usize;
    if count > MAX_RANGES {
        return Err(MalformedMessage::Ranges);
    }
    let mut ranges = Vec::new();
    let mut end = 0;
    for _ in 0..count {
        let start = bounded(end + reader.varint()?)?;
        end = bounded(start + reader.varint()?)?;
        ranges.push(start..end);
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of ranges is meant")]
    fn messages_are_read_as_they_were_written() {
        let hello = Hello {
            version: VERSION,
            name: "vela".into(),
            stream: u64::MAX,
            oldest: 3,
            next: 700_000,
        };
        assert_eq!(Message::read(&hello.emit()), Ok(Message::Hello(hello)));
        let account = Account {
            is_on_hold: true,
            is_ahead: true,
            decoded: vec![0..5, 9..10],
            has: vec![],
        };
        assert_eq!(
            Message::read(&account.emit()),
            Ok(Message::Account(account))
        );
        for decoded in [
            vec![],
            vec![0..7],
            vec![0..7, 9..12, 15..16],
            vec![0..0, 4..5],
        ] {
            let report = Report {
                durable: 1_000,
                decoded,
            };
            assert_eq!(Message::read(&report.emit()), Ok(Message::Report(report)));
        }
        let gone = 77..80;
        assert_eq!(
            Message::read(&emit_forget(&gone)),
            Ok(Message::Forget(gone))
        );
        let mut out = Vec::new();
        let seqs = [90..93, 95..96, 100..102];
        let mut head = BatchHead::of(&seqs, 100, true, false);
        head.replaced = vec![0..2, 7..8];
        head.emit(&mut out);
        out.extend_from_slice(b"batch");
        let Ok(Message::Batch(head, b"batch")) = Message::read(&out) else {
            panic!("no batch");
        };
        assert_eq!(head.seqs(100, 6).unwrap(), seqs);
        assert_eq!(head.seqs(100, 7), Err(MalformedMessage::Ranges));
        assert_eq!(head.seqs(3, 6), Err(MalformedMessage::Ranges));
        assert!(head.is_alarm && !head.is_backfill);
        assert_eq!(head.replaced, [0..2, 7..8]);
    }

    /// `docs/link-protocol.md` has these bytes.
    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of ranges is meant")]
    fn the_bytes_of_the_page_are_those_of_the_code() {
        let page = include_str!("../../../docs/link-protocol.md");
        let holds = |what: &str, bytes: &[u8]| {
            let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let hex = format!("`{}`", hex.join(" "));
            let line = page.lines().find(|line| line.starts_with(what));
            assert!(
                line.is_some_and(|line| line.contains(&hex)),
                "{what}: {hex}"
            );
        };
        let hello = Hello {
            version: VERSION,
            name: "vela".into(),
            stream: 0x0123_4567_89ab_cdef,
            oldest: 3,
            next: 700,
        };
        holds("| hello: ", &hello.emit());
        let account = Account {
            is_on_hold: false,
            is_ahead: false,
            decoded: vec![0..5, 9..10],
            has: vec![0..690, 695..700],
        };
        holds("| account: ", &account.emit());
        let report = Report {
            durable: 700,
            decoded: vec![0..7, 9..12],
        };
        holds("| report: ", &report.emit());
        holds("| forget: ", &emit_forget(&(77..80)));
        let head = |seqs: &[Range<u64>], is_alarm, is_backfill| {
            let mut out = Vec::new();
            BatchHead::of(seqs, 700, is_alarm, is_backfill).emit(&mut out);
            out
        };
        holds("| batch: ", &head(&[700..701], false, false));
        holds(
            "| batch with an alarm: ",
            &head(&[700..703, 705..706], true, false),
        );
        holds("| backfill: ", &head(&[650..660], false, true));
        let mut again = BatchHead::of(&[690..693], 700, false, false);
        again.replaced = vec![1..3];
        let mut out = Vec::new();
        again.emit(&mut out);
        holds("| batch after a break: ", &out);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(Message::read(&[]), Err(MalformedMessage::Short));
        assert_eq!(Message::read(&[9]), Err(MalformedMessage::Kind(9)));
        assert_eq!(Message::read(&[3, 0, 0, 0]), Err(MalformedMessage::Rest));
        assert_eq!(Message::read(&[0, 1, 0]), Err(MalformedMessage::Name));
        assert_eq!(
            Message::read(&[0, 1, 0x40, 65]),
            Err(MalformedMessage::Name)
        );
        let mut many = vec![1, 0, 0];
        emit_varint(&mut many, MAX_RANGES as u64 + 1);
        many.extend(std::iter::repeat_n(1, 2 * MAX_RANGES + 2));
        assert_eq!(Message::read(&many), Err(MalformedMessage::Ranges));
        // Empty ranges would make a report without end.
        assert_eq!(
            Message::read(&[2, 0, 1, 1, 0]),
            Err(MalformedMessage::Ranges)
        );
        let largest = [0xff; 8];
        let mut far = vec![2, 0, 1];
        far.extend_from_slice(&largest);
        far.extend_from_slice(&largest);
        assert_eq!(Message::read(&far), Err(MalformedMessage::Ranges));
    }
}

//! What a segment's bytes mean: the head of a segment, and the head before each record.
//!
//! `docs/spool-format.md` has the tables. Everything is big-endian.

use super::crc::crc32c;

/// The first bytes of a segment.
const MAGIC: [u8; 4] = *b"TwSp";
/// The one version there is.
const VERSION: u32 = 1;
/// Bytes of a segment's head.
pub(super) const HEAD: usize = 44;
/// Bytes before each payload.
pub(super) const PREFIX: usize = 20;
/// Bytes that say how far was trimmed.
pub(super) const TRIMMED_LEN: usize = PREFIX + 8;

/// Cap: bytes of one record: the JSON of the largest batch.
pub const MAX_RECORD: usize = 8 << 20;

/// Numbers from here on are no spool's: all fit a QUIC varint.
const MAX_SEQ: u64 = 1 << 62;
/// A spool that is to be continued from here on has used up its numbers; the rest is for one that is open.
pub(super) const MAX_NEXT: u64 = 1 << 61;
/// Set in the length of what is no record but says how far was trimmed.
const TRIMMED: u32 = 1 << 31;

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The spool's id.
    pub(super) id: u64,
    /// The number of the first record.
    pub(super) first: u64,
    /// The number after the last record before this segment; those up to `first` were never given to a
    /// record that can be read.
    pub(super) follows: u64,
    /// Records below were trimmed when the segment began.
    pub(super) trimmed: u64,
}

/// Why the head of a segment is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHead {
    /// It is damaged, or never was one.
    Damaged,
    /// It is whole and of this version, which is not ours.
    Version(u32),
}

impl Head {
    /// As bytes.
    pub(super) fn emit(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.id.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.follows.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.trimmed.to_be_bytes());
        let sum = crc32c(0, &bytes[..40]);
        bytes[40..].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Reads the first [`HEAD`] bytes of a segment, or what there is of them.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, NoHead> {
        let bytes: &[u8; HEAD] = bytes.first_chunk().ok_or(NoHead::Damaged)?;
        if bytes[..4] != MAGIC || crc32c(0, &bytes[..40]) != word(&bytes[40..]) {
            return Err(NoHead::Damaged);
        }
        match word(&bytes[4..]) {
            VERSION => {}
            version => return Err(NoHead::Version(version)),
        }
        let head = Self {
            id: double(&bytes[8..]),
            first: double(&bytes[16..]),
            follows: double(&bytes[24..]),
            trimmed: double(&bytes[32..]),
        };
        let in_order = head.trimmed <= head.first && head.follows <= head.first;
        match in_order && head.first < MAX_SEQ {
            true => Ok(head),
            false => Err(NoHead::Damaged),
        }
    }
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Whether the payload is how far was trimmed.
    pub(super) is_trimmed: bool,
    /// The record's number, or that of the next.
    pub(super) seq: u64,
    /// Bytes of payload.
    pub(super) len: usize,
    /// The sum of the payload.
    pub(super) sum: u32,
}

impl Prefix {
    /// Reads one; `None` if its bytes are not one of the spool of this id.
    pub(super) fn parse(bytes: &[u8; PREFIX], id: u64) -> Option<Self> {
        // Nearly every place that is none says so in its first byte.
        let len = word(bytes) & !TRIMMED;
        if len as usize > MAX_RECORD || prefix_sum(id, &bytes[..16]) != word(&bytes[16..]) {
            return None;
        }
        let prefix = Self {
            is_trimmed: word(bytes) & TRIMMED != 0,
            seq: double(&bytes[4..]),
            len: len as usize,
            sum: word(&bytes[12..]),
        };
        (prefix.seq < MAX_SEQ && (!prefix.is_trimmed || prefix.len == 8)).then_some(prefix)
    }

    /// Whether `payload` is the one that it was written before.
    pub(super) fn is_of(&self, payload: &[u8]) -> bool {
        payload.len() == self.len && crc32c(0, payload) == self.sum
    }
}

/// Appends a record.
pub(super) fn emit_record(id: u64, seq: u64, payload: &[u8], out: &mut Vec<u8>) {
    emit(id, payload.len() as u32, seq, payload, out);
}

/// Bytes of the record that [`emit_record`] wrote at the beginning of `bytes`.
pub(super) fn record_len(bytes: &[u8]) -> usize {
    PREFIX + word(bytes) as usize
}

/// Appends how far was trimmed, before the record `seq`.
pub(super) fn emit_trimmed(id: u64, seq: u64, trimmed: u64, out: &mut Vec<u8>) {
    emit(id, TRIMMED | 8, seq, &trimmed.to_be_bytes(), out);
}

fn emit(id: u64, len: u32, seq: u64, payload: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&seq.to_be_bytes());
    out.extend_from_slice(&crc32c(0, payload).to_be_bytes());
    let sum = prefix_sum(id, &out[at..]);
    out.extend_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The id is part of the sum: records of another spool are not taken for ours.
fn prefix_sum(id: u64, bytes: &[u8]) -> u32 {
    crc32c(crc32c(0, &id.to_be_bytes()), bytes)
}

fn word(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Eight bytes as a number.
pub(super) fn double(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_a_segment() {
        let head = Head {
            id: 0x0123_4567_89ab_cdef,
            first: 7,
            follows: 7,
            trimmed: 5,
        };
        let mut bytes = head.emit().to_vec();
        emit_record(head.id, 7, b"{}", &mut bytes);
        emit_trimmed(head.id, 8, 6, &mut bytes);
        let hex = |bytes: &[u8]| {
            let bytes = bytes.iter().map(|byte| format!("{byte:02x}"));
            bytes.collect::<String>()
        };
        let page = include_str!("../../../../docs/spool-format.md");
        let shown: String = page
            .split("```text")
            .nth(1)
            .and_then(|rest| rest.split("```").next())
            .unwrap_or_default()
            .lines()
            .filter_map(|line| line.split_once("  ").map(|(bytes, _)| bytes))
            .flat_map(str::split_whitespace)
            .collect();
        assert_eq!(shown, hex(&bytes));
        assert_eq!(Head::parse(&bytes), Ok(head));
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let head = Head {
            id: 3,
            first: 20,
            follows: 19,
            trimmed: 5,
        };
        for bit in 0..HEAD * 8 {
            let mut bytes = head.emit();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::parse(&bytes), Err(NoHead::Damaged), "bit {bit}");
        }
        let mut record = Vec::new();
        emit_record(3, 20, b"payload", &mut record);
        let whole = |bytes: &[u8]| {
            let prefix = bytes
                .first_chunk()
                .and_then(|bytes| Prefix::parse(bytes, 3));
            prefix.is_some_and(|prefix| prefix.is_of(&bytes[PREFIX..]))
        };
        assert!(whole(&record));
        for bit in 0..record.len() * 8 {
            record[bit / 8] ^= 1 << (bit % 8);
            assert!(!whole(&record), "bit {bit}");
            record[bit / 8] ^= 1 << (bit % 8);
        }
        let prefix: &[u8; PREFIX] = record.first_chunk().unwrap();
        assert_eq!(Prefix::parse(prefix, 4), None, "of another spool");
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut bytes = Head {
            id: 1,
            first: 0,
            follows: 0,
            trimmed: 0,
        }
        .emit();
        bytes[7] = 9;
        let sum = crc32c(0, &bytes[..40]);
        bytes[40..].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Head::parse(&bytes), Err(NoHead::Version(9)));
    }
}

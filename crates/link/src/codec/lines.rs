//! Batches as JSON lines, compressed with zstd (RFC 8878): for those that are too large for the model.
//!
//! The newest batches that both ends have are the dictionary, as JSON lines (RFC 8878 §5, raw content).

use zstd::bulk::{Compressor, Decompressor};

use super::Corrupt;
pub(super) use super::record::MAX_LINES;
use super::record::Record;

/// Cap: values of such a batch: each takes more memory than it has bytes.
pub(super) const MAX_LINES_NODES: usize = 1 << 18;
/// Cap: bytes of lines for each compressed byte, where they are more than [`FREE_LINES`]: what a datagram may cost.
pub(super) const MAX_RATIO: usize = 100;
/// Bytes of lines that any message may have.
const FREE_LINES: usize = 64 << 10;
/// A frame that is skipped (RFC 8878 §3.1.2): its magic number, and what it takes before its content.
const SKIPPED: u32 = 0x184D_2A50;
const SKIPPED_HEAD: usize = 8;
/// Bytes of the dictionary: the newest of those that are there.
const MAX_DICTIONARY: usize = 32 << 10;
/// A tenth smaller than level 3 on documents, and hardly larger than 19.
const LEVEL: i32 = 9;

/// The records as lines.
pub(super) fn lines(records: &[Record]) -> Vec<u8> {
    let mut lines = Vec::new();
    for record in records {
        record.write_json(&mut lines);
        lines.push(b'\n');
    }
    lines
}

fn dictionary<'a>(known: impl Iterator<Item = &'a [Record]>) -> Vec<u8> {
    let mut all: Vec<u8> = known.flat_map(lines).collect();
    let surplus = all.len().saturating_sub(MAX_DICTIONARY);
    all.drain(..surplus);
    all
}

/// Appends the lines, compressed.
///
/// # Errors
/// What zstd says; it says so only where memory is short.
pub(super) fn write<'a>(
    records: &[Record],
    known: impl Iterator<Item = &'a [Record]>,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let mut compressor = Compressor::with_dictionary(LEVEL, &dictionary(known))?;
    let lines = lines(records);
    let compressed = compressor.compress(&lines)?;
    out.extend_from_slice(&compressed);
    // What is small beyond all measure is made larger, so that nobody has to take its like.
    if lines.len() > most(compressed.len()) {
        let missing = lines.len().div_ceil(MAX_RATIO) - compressed.len();
        let content = missing.saturating_sub(SKIPPED_HEAD);
        out.extend_from_slice(&SKIPPED.to_le_bytes());
        out.extend_from_slice(&(content as u32).to_le_bytes());
        out.resize(out.len() + content, 0);
    }
    Ok(())
}

/// Bytes of lines that so many compressed ones may be.
fn most(compressed: usize) -> usize {
    compressed
        .saturating_mul(MAX_RATIO)
        .clamp(FREE_LINES, MAX_LINES)
}

/// What [`write`] was given.
pub(super) fn read<'a>(
    bytes: &[u8],
    known: impl Iterator<Item = &'a [Record]>,
) -> Result<Vec<Record>, Corrupt> {
    let lines = Decompressor::with_dictionary(&dictionary(known))
        .and_then(|mut decompressor| decompressor.decompress(bytes, most(bytes.len())))
        .map_err(|_| Corrupt::Lines)?;
    let lines = lines.strip_suffix(b"\n").unwrap_or(&lines);
    let lines = lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let mut room = MAX_LINES_NODES;
    lines
        .map(|line| {
            let record = Record::parse_bounded(line, MAX_LINES).map_err(|_| Corrupt::Lines)?;
            let (nodes, _) = record.size();
            room = room.checked_sub(nodes).ok_or(Corrupt::TooMuch)?;
            Ok(record)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_more_values_than_a_batch_may_have_is_refused() {
        let record = Record::parse(b"{}").unwrap();
        let frame = |count: usize| {
            let mut out = Vec::new();
            write(&vec![record.clone(); count], std::iter::empty(), &mut out).unwrap();
            out
        };
        let most = read(&frame(MAX_LINES_NODES), std::iter::empty()).unwrap();
        assert_eq!(most.len(), MAX_LINES_NODES);
        let more = frame(MAX_LINES_NODES + 1);
        assert_eq!(read(&more, std::iter::empty()), Err(Corrupt::TooMuch));
    }

    #[test]
    fn a_message_gives_so_many_lines_for_its_bytes_and_no_more() {
        let bomb = |len: usize| {
            let text = format!("{{\"a\":\"{}\"}}\n", "a".repeat(len - 9));
            let mut compressor = Compressor::with_dictionary(LEVEL, &[]).unwrap();
            compressor.compress(text.as_bytes()).unwrap()
        };
        let small = bomb(FREE_LINES);
        assert!(small.len() < 100 && read(&small, std::iter::empty()).is_ok());
        let large = bomb(FREE_LINES + 1);
        assert!(large.len() < 100);
        assert_eq!(read(&large, std::iter::empty()), Err(Corrupt::Lines));
        // Ours are as large as they have to be, whatever is in them.
        for count in [1, 7, 8, 9, 200] {
            let text = format!("{{\"a\":\"{}\"}}", "a".repeat(15_000));
            let records = vec![Record::parse(text.as_bytes()).unwrap(); count];
            let mut out = Vec::new();
            write(&records, std::iter::empty(), &mut out).unwrap();
            assert_eq!(read(&out, std::iter::empty()), Ok(records));
        }
    }
}

//! Batches as JSON lines, compressed with zstd (RFC 8878): for those that are too large for the model.
//!
//! The newest batches that both ends have are the dictionary, as JSON lines (RFC 8878 §5, raw content).

use zstd::bulk::{Compressor, Decompressor};

use super::Corrupt;
pub(super) use super::record::MAX_LINES;
use super::record::Record;

/// Cap: values of such a batch: each takes more memory than it has bytes.
pub(super) const MAX_LINES_NODES: usize = 1 << 18;
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
    out.extend_from_slice(&compressor.compress(&lines(records))?);
    Ok(())
}

/// What [`write`] was given.
pub(super) fn read<'a>(
    bytes: &[u8],
    known: impl Iterator<Item = &'a [Record]>,
) -> Result<Vec<Record>, Corrupt> {
    let lines = Decompressor::with_dictionary(&dictionary(known))
        .and_then(|mut decompressor| decompressor.decompress(bytes, MAX_LINES))
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
        assert!(more.len() < 1200, "it fits a datagram");
        assert_eq!(read(&more, std::iter::empty()), Err(Corrupt::TooMuch));
    }
}

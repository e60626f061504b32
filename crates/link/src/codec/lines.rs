//! Batches as JSON lines, compressed with zstd (RFC 8878): for those that are too large for the model.
//!
//! The newest batches that both ends have are the dictionary, as JSON lines (RFC 8878 §5, raw content).

use zstd::bulk::{Compressor, Decompressor};

use super::Corrupt;
use super::record::Record;

/// Cap: bytes of a batch's JSON. One record always fits: a number of four letters becomes 18 at most.
pub(super) const MAX_LINES: usize = 8 << 20;
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
    lines
        .map(|line| Record::parse_bounded(line, MAX_LINES).map_err(|_| Corrupt::Lines))
        .collect()
}

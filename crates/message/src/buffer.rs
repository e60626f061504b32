//! The pieces of a message that some reader still needs.
//!
//! Filled by `Payload` with what the stream gives, by offset; knows neither stream nor readers. A
//! piece as it comes may be a small part of a large receive block, which it keeps from being used
//! again: a few may, then they are copied to what they need. Many small neighbours are joined, so
//! that a peer that sends byte by byte costs no more memory than one that does not.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// Cap: bytes of one message, from its slowest reader's position on, that are taken out of the
/// stream's window and buffered for the readers.
pub const MAX_MESSAGE_BUFFER: u64 = 1 << 20;

/// Cap: buffered pieces of one message that may keep a whole receive block (64 KiB) in memory.
pub const MAX_LOOSE_PIECES: usize = 16;

/// Cap: buffered pieces of one message. The engine bounds the gaps between what arrived at half of
/// that; with more pieces than that, neighbours are joined. Readers that left out more than they
/// took make gaps of their own: at the cap nothing more is taken out of the stream.
pub const MAX_MESSAGE_PIECES: usize = 1024;

/// A piece of at least this size may keep its block: half of it is data.
const LARGE: usize = 32 << 10;

/// Joined pieces are at most this large.
const JOINED: usize = 64 << 10;

#[derive(Debug)]
struct Piece {
    data: Bytes,
    /// May keep more memory than its length says.
    loose: bool,
}

#[derive(Debug, Default)]
pub(super) struct Buffer {
    pieces: BTreeMap<u64, Piece>,
    loose: usize,
}

impl Buffer {
    /// No more pieces are taken.
    pub(super) fn is_full(&self) -> bool {
        self.pieces.len() >= MAX_MESSAGE_PIECES
    }

    /// Pieces here, and the bytes in them.
    pub(super) fn held(&self) -> (usize, usize) {
        let bytes = self.pieces.values().map(|piece| piece.data.len()).sum();
        (self.pieces.len(), bytes)
    }

    /// Adds bytes that are not here yet.
    pub(super) fn insert(&mut self, offset: u64, data: Bytes) {
        let loose = data.len() < LARGE;
        self.loose += usize::from(loose);
        self.pieces.insert(offset, Piece { data, loose });
        if self.loose > MAX_LOOSE_PIECES {
            self.tidy();
        }
    }

    /// What is here from `offset` on without a gap, in one piece.
    pub(super) fn at(&self, offset: u64) -> Option<Bytes> {
        let (start, piece) = self.pieces.range(..=offset).next_back()?;
        let skip = usize::try_from(offset - start).ok()?;
        (skip < piece.data.len()).then(|| piece.data.slice(skip..))
    }

    /// Offsets of the pieces that reach beyond `from`.
    pub(super) fn ranges(&self, from: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.pieces.range(..=from).next_back();
        let start = first.map_or(from, |(start, _)| *start);
        self.pieces
            .range(start..)
            .map(|(start, piece)| *start..start + piece.data.len() as u64)
            .filter(move |range| range.end > from)
    }

    /// Drops the pieces that overlap `range` and that `needed` does not ask for.
    pub(super) fn release(&mut self, range: Range<u64>, needed: impl Fn(Range<u64>) -> bool) {
        let over: Vec<u64> = self
            .ranges(range.start)
            .take_while(|piece| piece.start < range.end)
            .filter(|piece| !needed(piece.clone()))
            .map(|piece| piece.start)
            .collect();
        for start in over {
            if let Some(piece) = self.pieces.remove(&start) {
                self.loose -= usize::from(piece.loose);
            }
        }
    }

    /// Copies loose pieces, joined with what lies beside them.
    fn tidy(&mut self) {
        let mut joined: Vec<(u64, BytesMut)> = Vec::new();
        let pieces = std::mem::take(&mut self.pieces);
        let crowded = pieces.len() > MAX_MESSAGE_PIECES / 2;
        for (start, piece) in pieces {
            let len = piece.data.len();
            let copy = piece.loose || (crowded && len < LARGE);
            if !copy {
                self.pieces.insert(start, piece);
                continue;
            }
            match joined.last_mut() {
                Some((at, run)) if *at + run.len() as u64 == start && run.len() + len <= JOINED => {
                    run.extend_from_slice(&piece.data);
                }
                _ => joined.push((start, BytesMut::from(&piece.data[..]))),
            }
        }
        for (start, run) in joined {
            // Exactly as much as it needs: a run grows by doubling.
            let data = Bytes::copy_from_slice(&run);
            self.pieces.insert(start, Piece { data, loose: false });
        }
        self.loose = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(buffer: &Buffer) -> Vec<(u64, u64)> {
        buffer.ranges(0).map(|r| (r.start, r.end)).collect()
    }

    #[test]
    fn bytes_sent_one_by_one_in_any_order_are_joined_and_keep_no_blocks() {
        let forwards = (0..20_000).collect::<Vec<u64>>();
        let backwards = forwards.iter().copied().rev().collect();
        // As many gaps as the engine permits, filled in afterwards.
        let gaps = MAX_MESSAGE_PIECES as u64 / 2;
        let islands = (0..gaps).map(|i| 40 * i + 1);
        let between = (0..40 * gaps).filter(|i| i % 40 != 1);
        let comb = islands.chain(between).collect();
        for order in [forwards, backwards, comb] {
            let mut buffer = Buffer::default();
            let len = order.len() as u64;
            for offset in order {
                // A large block of which one byte is wanted.
                let block = Bytes::from(vec![offset as u8; 4096]);
                buffer.insert(offset, block.slice(7..8));
                assert!(buffer.loose <= MAX_LOOSE_PIECES);
                assert!(buffer.pieces.len() <= MAX_MESSAGE_PIECES);
            }
            let mut at = 0;
            while let Some(bytes) = buffer.at(at) {
                let expected = (at..).map(|i| i as u8);
                assert!(bytes.iter().copied().eq(expected.take(bytes.len())));
                at += bytes.len() as u64;
            }
            assert_eq!(at, len);
        }
    }

    #[test]
    fn pieces_go_when_nobody_needs_them() {
        let mut buffer = Buffer::default();
        for start in [0, 100, 300] {
            buffer.insert(start, Bytes::from(vec![1; 100]));
        }
        assert_eq!(buffer.at(150).unwrap().len(), 50);
        assert_eq!(buffer.at(200), None);
        buffer.release(0..350, |piece| piece.contains(&120));
        assert_eq!(held(&buffer), [(100, 200)]);
        assert_eq!(buffer.ranges(200).count(), 0);
        buffer.release(199..200, |_| false);
        assert_eq!((held(&buffer), buffer.loose), (vec![], 0));
    }
}

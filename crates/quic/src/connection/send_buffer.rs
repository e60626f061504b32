//! Bytes handed to us for sending, kept until the peer acknowledged them.
//!
//! Used by the streams and by the CRYPTO streams of the handshake. Chunks are the
//! reference-counted `Bytes` of the application, of which nothing is copied, or blocks of
//! a pool filled from slices; retransmission reads the same chunk again. A writer that forwards
//! what arrives out of order may leave holes and fill them in later. It never decides how much
//! may be sent; flow control is its caller's.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use towline_wire::RangeSet;

use super::blocks::{Block, BlockPool};

/// Bytes that lie together in memory.
#[derive(Debug)]
enum Chunk {
    Shared(Bytes),
    Owned(Block),
}

impl std::ops::Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Owned(block) => block,
        }
    }
}

/// A byte stream, appended to as a rule, with a cursor for new data and sets of acknowledged
/// ranges and of ranges to be sent although the cursor is past them.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    /// Retained chunks as they were appended, with the stream offset of their first byte.
    chunks: VecDeque<(u64, Chunk)>,
    /// The chunk that was read last, where the next read most likely begins.
    cursor: usize,
    /// Everything below is acknowledged.
    base: u64,
    /// First offset never sent.
    unsent: u64,
    /// End of what was written.
    end: u64,
    acked: RangeSet,
    lost: RangeSet,
    /// `None` until the writer leaves something out.
    left_out: Option<Box<LeftOut>>,
    /// Bytes of the blocks that data was copied into.
    blocks: usize,
}

/// What was left out by a writer that is ahead of itself. Whoever chooses the order of its writes
/// may be the peer of another connection, so none of them may move many others.
#[derive(Debug, Default)]
struct LeftOut {
    /// Below the end, to be filled in.
    holes: RangeSet,
    /// Retained chunks that were filled in, by the offset of their first byte.
    filled: BTreeMap<u64, Bytes>,
}

impl SendBuffer {
    pub(crate) fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let start = self.end;
        self.end += data.len() as u64;
        self.chunks.push_back((start, Chunk::Shared(data)));
    }

    /// As [`Self::push`], copying into blocks of `pool`.
    pub(crate) fn push_slice(&mut self, mut data: &[u8], pool: &mut BlockPool) {
        while !data.is_empty() {
            let room = match self.chunks.back() {
                Some((_, Chunk::Owned(block))) => block.capacity() - block.len(),
                _ => 0,
            };
            if room == 0 {
                let block = pool.take(data.len());
                self.blocks += block.size();
                self.chunks.push_back((self.end, Chunk::Owned(block)));
                continue;
            }
            let (head, rest) = data.split_at(room.min(data.len()));
            if let Some((_, Chunk::Owned(block))) = self.chunks.back_mut() {
                block.extend_from_slice(head);
            }
            self.end += head.len() as u64;
            data = rest;
        }
    }

    /// As [`Self::push`], leaving a hole of `skipped` bytes before `data`.
    pub(crate) fn push_beyond(&mut self, skipped: u64, data: Bytes) {
        debug_assert!(!data.is_empty());
        if skipped > 0 {
            let left_out = self.left_out.get_or_insert_default();
            left_out.holes.insert(self.end..self.end + skipped);
        }
        self.end += skipped;
        self.push(data);
    }

    /// Takes the front of `data`, which belongs at `offset` below the end, into a hole. Bytes that
    /// were written before are dropped. Returns how many were taken or dropped.
    pub(crate) fn fill_in(&mut self, offset: u64, data: &mut Bytes) -> usize {
        let until = (offset + data.len() as u64).min(self.end);
        let left_out = self.left_out.get_or_insert_default();
        let hole = left_out.holes.within(offset..until).next();
        let Some(hole) = hole else {
            let dealt = (until - offset) as usize;
            let _ = data.split_to(dealt);
            return dealt;
        };
        let range = hole.start.max(offset)..hole.end.min(until);
        let before = (range.start - offset) as usize;
        let _ = data.split_to(before);
        let piece = data.split_to((range.end - range.start) as usize);
        let dealt = before + piece.len();
        left_out.filled.insert(range.start, piece);
        left_out.holes.remove(range.clone());
        // What the cursor went past is sent like what was lost.
        self.lost.insert(range.start..range.end.min(self.unsent));
        dealt
    }

    /// Whether bytes below the end were left out.
    pub(crate) fn has_holes(&self) -> bool {
        !self.is_whole(self.end)
    }

    /// Whether all bytes below `at` were written.
    pub(crate) fn is_whole(&self, at: u64) -> bool {
        let no_hole = |l: &LeftOut| l.holes.within(0..at).next().is_none();
        at <= self.end && self.left_out.as_deref().is_none_or(no_hole)
    }

    /// What was never sent and may be, up to the next hole.
    #[inline]
    fn fresh(&self, limit: u64) -> Option<Range<u64>> {
        let range = self.unsent..self.end.min(limit);
        match &self.left_out {
            None => (range.start < range.end).then_some(range),
            Some(left_out) => left_out.fresh_between_holes(range),
        }
    }

    /// The highest offset written.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// First offset never sent.
    pub(crate) fn unsent_offset(&self) -> u64 {
        self.unsent
    }

    /// Bytes written and never sent, holes among them included.
    pub(crate) fn unsent_len(&self) -> u64 {
        self.end - self.unsent
    }

    /// Bytes held in memory: written and not yet acknowledged from the front; holes count.
    pub(crate) fn retained(&self) -> u64 {
        self.end - self.base
    }

    /// Bytes of memory held here. The application's own `Bytes` are not among them: it decides how
    /// many it hands over, `TransportConfig::send_buffer` bounds them, and others may share them.
    pub(crate) fn held(&self) -> usize {
        self.blocks
            + self.chunks.capacity() * size_of::<(u64, Chunk)>()
            + self.acked.held()
            + self.lost.held()
            + self.left_out.as_ref().map_or(0, |l| l.held())
    }

    /// Gives back what gaps of busier times left behind.
    pub(crate) fn trim(&mut self) {
        self.acked.trim();
        self.lost.trim();
        if let Some(left_out) = &mut self.left_out {
            left_out.holes.trim();
        }
    }

    pub(crate) fn all_acked(&self) -> bool {
        self.base == self.end
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether something could be sent if new data may go up to `limit`.
    pub(crate) fn has_pending(&self, limit: u64) -> bool {
        self.has_lost() || self.fresh(limit).is_some()
    }

    /// Length of the next range, retransmissions first, new data only below `limit`.
    pub(crate) fn peek_next(&self, limit: u64) -> Option<Range<u64>> {
        self.lost.front().or_else(|| self.fresh(limit))
    }

    /// Takes up to `max` bytes of what [`Self::peek_next`] named.
    pub(crate) fn take_next(&mut self, max: u64, limit: u64) -> Option<Range<u64>> {
        if max == 0 {
            return None;
        }
        if let Some(lost) = self.lost.take_front(max) {
            return Some(lost);
        }
        let fresh = self.fresh(limit)?;
        let range = fresh.start..fresh.end.min(fresh.start.saturating_add(max));
        self.unsent = range.end;
        Some(range)
    }

    /// Copies `offset..offset + out.len()` into `out`; the range is still retained.
    pub(crate) fn copy_to(&mut self, offset: u64, mut out: &mut [u8]) {
        debug_assert!(offset >= self.base && offset + out.len() as u64 <= self.end);
        let mut i = self.chunk_at(offset);
        let mut offset = offset;
        while !out.is_empty() {
            let found = match self.chunks.get(i) {
                Some((start, chunk)) if *start <= offset => {
                    self.cursor = i;
                    i += 1;
                    Some((*start, &**chunk))
                }
                // Filled in before that one.
                _ => self.left_out.as_ref().and_then(|l| l.filled_at(offset)),
            };
            let Some((start, chunk)) = found else {
                return;
            };
            let skip = (offset - start) as usize;
            let n = (chunk.len() - skip).min(out.len());
            let (head, rest) = out.split_at_mut(n);
            head.copy_from_slice(&chunk[skip..skip + n]);
            out = rest;
            offset += n as u64;
        }
    }

    /// The index of the first chunk that ends behind `offset`: the one read last or the next that
    /// was, as a rule.
    fn chunk_at(&self, offset: u64) -> usize {
        for i in [self.cursor, self.cursor + 1] {
            if let Some((start, chunk)) = self.chunks.get(i)
                && (*start..start + chunk.len() as u64).contains(&offset)
            {
                return i;
            }
        }
        self.chunks
            .partition_point(|(start, chunk)| start + chunk.len() as u64 <= offset)
    }

    /// Marks a range delivered; returns the number of bytes newly released from the front.
    pub(crate) fn on_acked(&mut self, range: Range<u64>, pool: &mut BlockPool) -> u64 {
        if !self.lost.is_empty() {
            self.lost.remove(range.clone());
        }
        let before = self.base;
        if range.start <= self.base {
            self.base = self.base.max(range.end);
            while let Some(front) = self.acked.front() {
                if front.start > self.base {
                    break;
                }
                self.base = self.base.max(front.end);
                self.acked.pop_front();
            }
            self.release(pool);
        } else {
            self.acked.insert(range);
        }
        self.base - before
    }

    /// Lets go of chunks that are acknowledged to their end.
    fn release(&mut self, pool: &mut BlockPool) {
        while let Some((start, chunk)) = self.chunks.front() {
            if start + chunk.len() as u64 > self.base {
                break;
            }
            if let Some((_, Chunk::Owned(block))) = self.chunks.pop_front() {
                self.blocks -= block.size();
                pool.give(block);
            }
            self.cursor = self.cursor.saturating_sub(1);
        }
        if let Some(left_out) = &mut self.left_out {
            left_out.release(self.base);
        }
    }

    /// Queues a range for retransmission, except what was acknowledged meanwhile.
    pub(crate) fn on_lost(&mut self, range: Range<u64>) {
        let start = range.start.max(self.base);
        if start >= range.end {
            return;
        }
        self.lost.insert(start..range.end);
        // Acknowledged pieces inside the range are cut out again.
        for acked in self.acked.within(start..range.end) {
            self.lost.remove(acked);
        }
    }

    /// Forgets what was written from offset `at` on (after a reset): what was written ends there.
    /// Returns the bytes released from memory.
    pub(crate) fn cut(&mut self, at: u64) -> u64 {
        let before = self.retained();
        let at = at.min(self.end);
        while let Some((start, chunk)) = self.chunks.back_mut() {
            if *start >= at {
                if let Some((_, Chunk::Owned(block))) = self.chunks.pop_back() {
                    self.blocks -= block.size();
                }
                continue;
            }
            let keep = (at - *start) as usize;
            match chunk {
                Chunk::Shared(bytes) => bytes.truncate(keep),
                Chunk::Owned(block) => block.truncate(keep),
            }
            break;
        }
        self.cursor = 0;
        self.lost.remove(at..self.end);
        self.acked.remove(at..self.end);
        if let Some(left_out) = &mut self.left_out {
            left_out.holes.remove(at..self.end);
            let _ = left_out.filled.split_off(&at);
        }
        self.end = at;
        self.unsent = self.unsent.min(at);
        self.base = self.base.min(at);
        if self.all_acked() {
            self.chunks = VecDeque::new();
            self.blocks = 0;
            self.lost = RangeSet::default();
            self.acked = RangeSet::default();
            self.left_out = None;
        }
        before - self.retained()
    }
}

impl LeftOut {
    /// The first part of `range` that is there.
    #[cold]
    fn fresh_between_holes(&self, range: Range<u64>) -> Option<Range<u64>> {
        self.holes.first_missing(range)
    }

    /// Bytes of memory held; the chunks' in a tree whose nodes are two thirds full.
    fn held(&self) -> usize {
        let chunks = self.filled.len() * size_of::<(u64, Bytes)>() * 3 / 2;
        size_of::<Self>() + self.holes.held() + chunks
    }

    /// The chunk that was filled in where `offset` lies.
    fn filled_at(&self, offset: u64) -> Option<(u64, &[u8])> {
        let (start, chunk) = self.filled.range(..=offset).next_back()?;
        (offset < start + chunk.len() as u64).then_some((*start, &**chunk))
    }

    /// Lets go of chunks that end at `base` or before.
    fn release(&mut self, base: u64) {
        while let Some(first) = self.filled.first_entry()
            && first.key() + first.get().len() as u64 <= base
        {
            first.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmits_exactly_what_was_lost_and_not_acked() {
        let mut b = SendBuffer::default();
        let mut pool = BlockPool::default();
        b.push(Bytes::from_static(b"hello "));
        b.push(Bytes::from_static(b"wide world"));
        assert_eq!(b.take_next(4, u64::MAX), Some(0..4));
        assert_eq!(b.take_next(100, 12), Some(4..12));
        assert_eq!(b.take_next(100, 12), None);
        assert_eq!(b.on_acked(6..8, &mut pool), 0);
        b.on_lost(4..12);
        assert_eq!(b.take_next(100, u64::MAX), Some(4..6));
        assert_eq!(b.take_next(100, u64::MAX), Some(8..12));
        let mut out = [0; 6];
        b.copy_to(4, &mut out);
        assert_eq!(&out, b"o wide");
        assert_eq!(b.on_acked(0..6, &mut pool), 8);
        assert_eq!(b.retained(), 8);
        b.on_lost(0..8);
        assert!(!b.has_lost());
    }

    #[test]
    fn what_is_cut_off_is_neither_sent_nor_kept() {
        let mut b = SendBuffer::default();
        let mut pool = BlockPool::default();
        b.push(Bytes::from_static(b"hello "));
        b.push_slice(b"wide ", &mut pool);
        b.push_beyond(3, Bytes::from_static(b"world"));
        b.take_next(16, u64::MAX);
        b.on_lost(4..12);
        b.on_acked(9..10, &mut pool);
        assert!(b.is_whole(11) && !b.is_whole(12) && !b.is_whole(20));
        assert_eq!(b.cut(8), 11);
        assert!(!b.has_holes());
        assert_eq!((b.end(), b.unsent_len(), b.retained()), (8, 0, 8));
        assert_eq!(b.take_next(100, u64::MAX), Some(4..8));
        assert_eq!(b.take_next(100, u64::MAX), None);
        let mut out = [0; 8];
        b.copy_to(0, &mut out);
        assert_eq!(&out, b"hello wi");
        assert_eq!(b.on_acked(0..5, &mut pool), 5);
        assert_eq!(b.cut(9), 0, "there is no more");
        assert_eq!(b.cut(3), 3, "less than was delivered");
        assert!(b.all_acked());
        assert_eq!((b.held(), b.end()), (0, 3));
    }

    #[test]
    fn small_writes_share_a_block_that_is_used_again_when_all_is_acknowledged() {
        let mut b = SendBuffer::default();
        let mut pool = BlockPool::default();
        let mut expected = Vec::new();
        for round in 0..50u64 {
            let start = b.end();
            for i in 0..20u8 {
                b.push_slice(&[i; 61], &mut pool);
                expected.extend_from_slice(&[i; 61]);
            }
            assert_eq!(b.chunks.len(), 1);
            let range = b.take_next(u64::MAX, u64::MAX).unwrap();
            assert_eq!(range, start..b.end());
            let mut out = vec![0; 20 * 61];
            b.copy_to(range.start, &mut out);
            assert_eq!(out, expected[range.start as usize..]);
            assert_eq!(b.on_acked(range, &mut pool), 20 * 61, "round {round}");
            assert!(b.chunks.is_empty());
        }
    }

    #[test]
    fn random_writes_read_back_whatever_the_chunks_and_whatever_is_read_first() {
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        for round in 0..100 {
            let mut b = SendBuffer::default();
            let mut pool = BlockPool::default();
            let mut model = Vec::new();
            let mut acked = 0;
            for _ in 0..60 {
                let data: Vec<u8> = (0..next(9000)).map(|_| next(256) as u8).collect();
                model.extend_from_slice(&data);
                match next(2) {
                    0 => b.push(data.into()),
                    _ => b.push_slice(&data, &mut pool),
                }
                // Now and then some is left out, and filled in before it is sent or after.
                if round % 2 == 0 && next(3) == 0 {
                    let left_out: Vec<u8> = (0..next(4000)).map(|_| next(256) as u8).collect();
                    let at = b.end();
                    b.push_beyond(left_out.len() as u64, Bytes::from_static(b"!"));
                    if next(2) == 0 {
                        while b.take_next(1200, u64::MAX).is_some() {}
                    }
                    while b.has_holes() {
                        let from = next(left_out.len() as u64) as usize;
                        let len = (1 + next(900) as usize).min(left_out.len() - from);
                        let mut piece = Bytes::from(left_out[from..from + len].to_vec());
                        let mut offset = at + from as u64;
                        while !piece.is_empty() {
                            offset += b.fill_in(offset, &mut piece) as u64;
                        }
                    }
                    model.extend_from_slice(&left_out);
                    model.push(b'!');
                }
                while b.take_next(1200, u64::MAX).is_some() {}
                for _ in 0..3 {
                    let start = acked + next(b.end() - acked + 1);
                    let len = next(b.end() - start + 1).min(1500);
                    let mut out = vec![0; len as usize];
                    b.copy_to(start, &mut out);
                    assert_eq!(out, model[start as usize..(start + len) as usize]);
                }
                let until = acked + next(b.end() - acked + 1);
                b.on_acked(acked..until, &mut pool);
                acked = until;
            }
        }
    }
}

//! Puts received stream bytes back in order.
//!
//! Used by the receiving half of streams and by the CRYPTO streams. In-order data is
//! appended to blocks of a pool the reader takes slices from; data ahead of a gap
//! waits in sorted pieces. The first copy of a byte wins (RFC 9000 §2.2). How many bytes
//! may arrive is flow control's business; the number of gaps is bounded here.
//!
//! A reader that does not care for order takes pieces from behind gaps too; what it took there is
//! remembered as ranges, so that each byte is handed out once.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

use super::blocks::{Block, BlockPool, MAX_BLOCK};
use super::range_set::RangeSet;

/// Cap: pieces of out-of-order data one stream may hold (CVE-2026-25800 class), and the ranges
/// it remembers of what was read out of order. Pieces of [`MIN_PIECE`] bytes on average may be more.
pub(crate) const MAX_STREAM_GAPS: usize = 512;

/// Pieces this large cost little beside their data, which flow control bounds. A queue that
/// overflows on a long path loses every second packet of thousands.
const MIN_PIECE: usize = 512;

/// What the allocator adds to a piece's own allocation, bytes.
const PIECE_OVERHEAD: usize = 16;

/// More gaps than [`MAX_STREAM_GAPS`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyGaps;

#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// Stream offset of the next byte the reader gets.
    read_offset: u64,
    /// What the reader may have, oldest first; only the last block may have room or be empty.
    ready: VecDeque<Block>,
    ready_len: usize,
    /// Bytes of memory of those blocks, what the reader took of them included.
    ready_held: usize,
    /// Size of the next block: small streams stay small, large ones get full blocks.
    next_block: usize,
    /// Sorted, disjoint pieces beyond `read_offset + ready_len`.
    pending: VecDeque<(u64, BytesMut)>,
    /// Bytes in them.
    pending_len: usize,
    /// Read from beyond `read_offset`; present once the reader gave up order.
    taken: Option<Box<RangeSet>>,
}

impl Assembler {
    /// Offset of the next byte to read.
    pub(crate) fn read_offset(&self) -> u64 {
        self.read_offset
    }

    /// The reader gave up order.
    pub(crate) fn is_unordered(&self) -> bool {
        self.taken.is_some()
    }

    /// Bytes handed to the reader.
    pub(crate) fn consumed_len(&self) -> u64 {
        self.read_offset + self.taken.as_ref().map_or(0, |taken| total(taken))
    }

    /// Whether every byte below `size` has arrived.
    pub(crate) fn has_all(&self, size: u64) -> bool {
        if self.taken.is_none() {
            return self.contiguous_end() == size;
        }
        self.consumed_len() + (self.ready_len + self.pending_len) as u64 == size
    }

    /// First offset not yet received in order.
    pub(crate) fn contiguous_end(&self) -> u64 {
        self.read_offset + self.ready_len as u64
    }

    /// Whether the reader can have something now.
    pub(crate) fn has_ready(&self) -> bool {
        self.ready_len > 0 || (self.taken.is_some() && !self.pending.is_empty())
    }

    /// Whether data is held that no reader can have yet because bytes before it are missing.
    pub(crate) fn has_gap(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Adds `data` at `offset`.
    pub(crate) fn insert(
        &mut self,
        offset: u64,
        data: &[u8],
        pool: &mut BlockPool,
    ) -> Result<(), TooManyGaps> {
        let Some(taken) = self.taken.take() else {
            return self.insert_new(offset, data, pool);
        };
        let result = self.insert_untaken(offset, data, &taken, pool);
        self.taken = Some(taken);
        result
    }

    /// Adds what of `data` no reader has had.
    fn insert_untaken(
        &mut self,
        offset: u64,
        data: &[u8],
        taken: &RangeSet,
        pool: &mut BlockPool,
    ) -> Result<(), TooManyGaps> {
        let room = MAX_STREAM_GAPS.saturating_sub(taken.len());
        if self.is_crowded(room) && offset > self.contiguous_end() {
            return Err(TooManyGaps);
        }
        let end = offset + data.len() as u64;
        let part = |range: Range<u64>| &data[(range.start - offset) as usize..][..len(&range)];
        let mut start = offset;
        for had in taken.within(offset..end) {
            if start < had.start {
                self.insert_new(start, part(start..had.start), pool)?;
            }
            start = had.end;
        }
        if start < end {
            self.insert_new(start, part(start..end), pool)?;
        }
        Ok(())
    }

    fn insert_new(
        &mut self,
        offset: u64,
        data: &[u8],
        pool: &mut BlockPool,
    ) -> Result<(), TooManyGaps> {
        let (mut offset, mut data) = (offset, data);
        loop {
            let contiguous = self.contiguous_end();
            if offset + data.len() as u64 <= contiguous {
                return Ok(());
            }
            if offset > contiguous {
                return self.insert_pending(offset, data);
            }
            data = &data[(contiguous - offset) as usize..];
            let Some((piece, _)) = self.pending.front() else {
                self.append(data, pool);
                return Ok(());
            };
            // Up to the first piece held, which wins over what overlaps it.
            let n = data.len().min((piece - contiguous) as usize);
            self.append(&data[..n], pool);
            offset = contiguous + n as u64;
            data = &data[n..];
            self.join(pool);
        }
    }

    /// Appends to the ready data.
    fn append(&mut self, mut data: &[u8], pool: &mut BlockPool) {
        self.ready_len += data.len();
        while !data.is_empty() {
            let room = match self.ready.back() {
                Some(block) => block.capacity() - block.len(),
                None => 0,
            };
            if room == 0 {
                let block = pool.take(data.len().max(self.next_block));
                self.next_block = (2 * block.size()).min(MAX_BLOCK);
                self.ready_held += block.size();
                self.ready.push_back(block);
                continue;
            }
            let (head, rest) = data.split_at(room.min(data.len()));
            if let Some(block) = self.ready.back_mut() {
                block.extend_from_slice(head);
            }
            data = rest;
        }
    }

    /// Moves pieces that have become contiguous behind the ready data.
    fn join(&mut self, pool: &mut BlockPool) {
        while let Some((offset, _)) = self.pending.front() {
            let contiguous = self.contiguous_end();
            if *offset > contiguous {
                break;
            }
            if let Some((offset, piece)) = self.pending.pop_front() {
                self.pending_len -= piece.len();
                let skip = (contiguous - offset) as usize;
                if skip < piece.len() {
                    self.append(&piece[skip..], pool);
                }
            }
        }
    }

    fn insert_pending(&mut self, mut offset: u64, mut data: &[u8]) -> Result<(), TooManyGaps> {
        let mut i = self
            .pending
            .partition_point(|(start, piece)| start + piece.len() as u64 <= offset);
        while !data.is_empty() {
            let (next_start, next_end) = match self.pending.get(i) {
                Some((start, piece)) => (*start, start + piece.len() as u64),
                None => (u64::MAX, u64::MAX),
            };
            if offset >= next_start {
                // Bytes already held win.
                let held = (next_end - offset).min(data.len() as u64);
                data = &data[held as usize..];
                offset += held;
                i += 1;
                continue;
            }
            let n = (next_start - offset).min(data.len() as u64) as usize;
            let (fresh, rest) = data.split_at(n);
            match i.checked_sub(1).and_then(|p| self.pending.get_mut(p)) {
                Some((start, piece)) if *start + piece.len() as u64 == offset => {
                    piece.extend_from_slice(fresh);
                }
                _ => {
                    if self.is_crowded(MAX_STREAM_GAPS) {
                        return Err(TooManyGaps);
                    }
                    self.pending.insert(i, (offset, BytesMut::from(fresh)));
                    i += 1;
                }
            }
            self.pending_len += n;
            offset += n as u64;
            data = rest;
        }
        Ok(())
    }

    /// Whether there are `room` pieces, and next to nothing in them.
    fn is_crowded(&self, room: usize) -> bool {
        let pieces = self.pending.len();
        pieces >= room && self.pending_len <= pieces * MIN_PIECE
    }

    /// Takes up to `max` contiguous bytes without copying, at most one block of them.
    pub(crate) fn read(&mut self, max: usize, pool: &mut BlockPool) -> Option<Bytes> {
        if self.ready_len == 0 || max == 0 {
            return None;
        }
        let front = self.ready.front_mut()?;
        let n = front.len().min(max);
        let taken = front.split_to(n).freeze();
        self.consumed(n, pool);
        Some(taken)
    }

    /// Takes up to `max` bytes from below offset `below` without copying, the lowest there are,
    /// gaps before them or not. From then on there is no order to be had.
    pub(crate) fn read_unordered(
        &mut self,
        below: u64,
        max: usize,
        pool: &mut BlockPool,
    ) -> Option<(u64, Bytes)> {
        self.taken.get_or_insert_default();
        let room = |start: u64| {
            let below = usize::try_from(below.saturating_sub(start)).unwrap_or(usize::MAX);
            below.min(max)
        };
        if self.ready_len > 0 {
            let offset = self.read_offset;
            let chunk = self.read(room(offset), pool)?;
            self.skip_taken(pool);
            return Some((offset, chunk));
        }
        let (start, piece) = self.pending.front_mut()?;
        let offset = *start;
        let n = piece.len().min(room(offset));
        if n == 0 {
            return None;
        }
        let chunk = piece.split_to(n).freeze();
        self.pending_len -= n;
        *start += n as u64;
        if piece.is_empty() {
            self.pending.pop_front();
        }
        if let Some(taken) = &mut self.taken {
            taken.insert(offset..offset + n as u64);
        }
        Some((offset, chunk))
    }

    /// Moves the read offset over what was read before, once all before that is read.
    fn skip_taken(&mut self, pool: &mut BlockPool) {
        if self.ready_len > 0 {
            return;
        }
        let read_offset = self.read_offset;
        let Some(taken) = &mut self.taken else { return };
        let Some(had) = taken.front().filter(|had| had.start <= read_offset) else {
            return;
        };
        self.read_offset = had.end;
        taken.pop_front();
        self.join(pool);
    }

    /// Copies up to `out.len()` contiguous bytes; returns how many.
    pub(crate) fn read_slice(&mut self, out: &mut [u8], pool: &mut BlockPool) -> usize {
        let mut filled = 0;
        while filled < out.len()
            && let Some(front) = self.ready.front_mut().filter(|block| !block.is_empty())
        {
            let n = front.len().min(out.len() - filled);
            front.copy_to_slice(&mut out[filled..filled + n]);
            filled += n;
            self.consumed(n, pool);
        }
        filled
    }

    /// `n` bytes of the front block were taken; an empty one goes back to the pool.
    fn consumed(&mut self, n: usize, pool: &mut BlockPool) {
        self.read_offset += n as u64;
        self.ready_len -= n;
        if self.ready.front().is_some_and(|block| block.is_empty())
            && let Some(block) = self.ready.pop_front()
        {
            self.ready_held -= block.size();
            pool.give(block);
        }
    }

    /// Bytes of memory held, blocks of which the reader had a part included.
    pub(crate) fn held(&self) -> usize {
        self.ready_held
            + self.ready.capacity() * size_of::<Block>()
            + self.pending_len
            + self.pending.capacity() * (size_of::<(u64, BytesMut)>() + PIECE_OVERHEAD)
            + self.taken.as_ref().map_or(0, |taken| taken.held())
    }

    /// Drops everything held.
    pub(crate) fn clear(&mut self) {
        self.ready = VecDeque::new();
        self.ready_len = 0;
        self.ready_held = 0;
        self.pending = VecDeque::new();
        self.pending_len = 0;
    }
}

fn len(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

fn total(set: &RangeSet) -> u64 {
    set.iter_descending().map(|r| r.end - r.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_without_order_gets_each_byte_once_wherever_it_arrives() {
        let mut state = 3u64;
        let mut next = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        for round in 0..400 {
            let len = 1 + next(600);
            let mut sent: Vec<Option<u8>> = vec![None; len as usize];
            let mut got: Vec<Option<u8>> = sent.clone();
            let mut a = Assembler::default();
            let mut pool = BlockPool::default();
            // Some start in order.
            let mut in_order = if round % 2 == 0 { 0 } else { next(len) };
            while got.iter().any(Option::is_none) {
                let start = next(len);
                let end = (start + 1 + next(60)).min(len);
                let data: Vec<u8> = (start..end).map(|_| next(256) as u8).collect();
                a.insert(start, &data, &mut pool).unwrap();
                for (i, byte) in (start..end).zip(&data) {
                    sent[i as usize].get_or_insert(*byte);
                }
                while in_order > 0
                    && let Some(chunk) = a.read(in_order as usize, &mut pool)
                {
                    in_order -= chunk.len() as u64;
                    for byte in chunk {
                        let at = got.iter().position(Option::is_none).unwrap();
                        got[at] = Some(byte);
                    }
                }
                let below = if next(2) == 0 { u64::MAX } else { next(len) };
                for _ in 0..next(4) * u64::from(in_order == 0) {
                    let max = 1 + next(80) as usize;
                    let Some((offset, chunk)) = a.read_unordered(below, max, &mut pool) else {
                        let left = (0..below.min(len)).find(|&i| {
                            let i = i as usize;
                            sent[i].is_some() && got[i].is_none()
                        });
                        assert_eq!(left, None, "round {round}: more had arrived");
                        break;
                    };
                    assert!(chunk.len() <= max && offset + chunk.len() as u64 <= below);
                    for (i, byte) in (offset as usize..).zip(chunk) {
                        assert_eq!(got[i].replace(byte), None, "round {round}: twice");
                    }
                }
                let consumed = got.iter().filter(|byte| byte.is_some()).count();
                assert_eq!(a.consumed_len(), consumed as u64);
                assert_eq!(a.has_all(len), sent.iter().all(Option::is_some));
            }
            assert_eq!(got, sent);
            assert_eq!(a.read_offset, len);
            assert!(!a.has_ready() && !a.has_gap());
            assert_eq!(a.taken.map(|taken| taken.len()).unwrap_or_default(), 0);
        }
    }

    #[test]
    fn what_was_read_out_of_order_counts_as_gaps() {
        let mut a = Assembler::default();
        let mut pool = BlockPool::default();
        for i in 0..MAX_STREAM_GAPS as u64 {
            a.insert(2 * i + 1, b"x", &mut pool).unwrap();
            let (offset, _) = a.read_unordered(u64::MAX, 10, &mut pool).unwrap();
            assert_eq!(offset, 2 * i + 1);
        }
        assert_eq!(a.insert(5000, b"x", &mut pool), Err(TooManyGaps));
        a.insert(0, b"y", &mut pool).unwrap();
        assert_eq!(a.read_unordered(1, 10, &mut pool).unwrap().0, 0);
        assert_eq!(a.consumed_len(), MAX_STREAM_GAPS as u64 + 1);
        a.insert(5000, b"x", &mut pool).unwrap();
    }

    #[test]
    fn random_fragments_read_back_in_order_and_first_copy_wins() {
        let mut state = 99u64;
        let mut next = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..300 {
            let len = 1 + next(400);
            let mut model: Vec<Option<u8>> = vec![None; len as usize];
            let mut a = Assembler::default();
            let mut pool = BlockPool::default();
            let mut read = Vec::new();
            while model.iter().any(Option::is_none) {
                let start = next(len);
                let end = (start + 1 + next(40)).min(len);
                let data: Vec<u8> = (start..end).map(|_| next(256) as u8).collect();
                a.insert(start, &data, &mut pool).unwrap();
                for (i, byte) in (start..end).zip(&data) {
                    model[i as usize].get_or_insert(*byte);
                }
                if next(4) == 0
                    && let Some(chunk) = a.read(1 + next(30) as usize, &mut pool)
                {
                    read.extend_from_slice(&chunk);
                }
            }
            while let Some(chunk) = a.read(usize::MAX, &mut pool) {
                read.extend_from_slice(&chunk);
            }
            assert_eq!(read, model.into_iter().flatten().collect::<Vec<_>>());
            assert!(!a.has_gap());
        }
    }

    #[test]
    fn gap_flood_is_refused_at_the_cap() {
        let mut a = Assembler::default();
        let mut pool = BlockPool::default();
        for i in 0..MAX_STREAM_GAPS as u64 {
            a.insert(2 * i + 1, b"x", &mut pool).unwrap();
        }
        assert_eq!(a.insert(5000, b"x", &mut pool), Err(TooManyGaps));
        // Filling a gap is still possible.
        a.insert(0, b"y", &mut pool).unwrap();
        assert_eq!(a.contiguous_end(), 2);
    }

    #[test]
    fn every_second_packet_of_thousands_may_be_missing() {
        let mut a = Assembler::default();
        let mut pool = BlockPool::default();
        let packet = [7; 1000];
        let packets = 8 * MAX_STREAM_GAPS as u64;
        for i in 0..packets {
            a.insert(2000 * i + 1000, &packet, &mut pool).unwrap();
        }
        for i in 0..packets {
            a.insert(2000 * i, &packet, &mut pool).unwrap();
        }
        assert_eq!(a.contiguous_end(), 2000 * packets);
        // What was held then does not count for ever.
        for i in 0..MAX_STREAM_GAPS as u64 {
            let offset = 2000 * packets + 2 * i + 1;
            a.insert(offset, b"x", &mut pool).unwrap();
        }
        let beyond = 2000 * packets + 5000;
        assert_eq!(a.insert(beyond, b"x", &mut pool), Err(TooManyGaps));
    }
}

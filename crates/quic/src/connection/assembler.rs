//! Puts received stream bytes back in order.
//!
//! Used by the receiving half of streams and by the CRYPTO streams. In-order data is
//! appended to blocks of a pool the reader takes slices from; data ahead of a gap
//! waits in sorted pieces. The first copy of a byte wins (RFC 9000 §2.2). How many bytes
//! may arrive is flow control's business; the number of gaps is bounded here.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use super::blocks::{BlockPool, MAX_BLOCK};

/// Cap: pieces of out-of-order data one stream may hold (CVE-2026-25800 class).
pub(crate) const MAX_STREAM_GAPS: usize = 512;

/// More gaps than [`MAX_STREAM_GAPS`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyGaps;

#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// Stream offset of the next byte the reader gets.
    read_offset: u64,
    /// What the reader may have, oldest first; only the last block may have room or be empty.
    ready: VecDeque<BytesMut>,
    ready_len: usize,
    /// Size of the next block: small streams stay small, large ones get full blocks.
    next_block: usize,
    /// Sorted, disjoint pieces beyond `read_offset + ready_len`.
    pending: VecDeque<(u64, BytesMut)>,
}

impl Assembler {
    /// Offset of the next byte to read.
    pub(crate) fn read_offset(&self) -> u64 {
        self.read_offset
    }

    /// First offset not yet received.
    pub(crate) fn contiguous_end(&self) -> u64 {
        self.read_offset + self.ready_len as u64
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.ready_len > 0
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
                self.next_block = (2 * block.capacity()).min(MAX_BLOCK);
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
                    if self.pending.len() >= MAX_STREAM_GAPS {
                        return Err(TooManyGaps);
                    }
                    self.pending.insert(i, (offset, BytesMut::from(fresh)));
                    i += 1;
                }
            }
            offset += n as u64;
            data = rest;
        }
        Ok(())
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
            pool.give(block);
        }
    }

    /// Drops everything held.
    pub(crate) fn clear(&mut self) {
        self.ready = VecDeque::new();
        self.ready_len = 0;
        self.pending = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

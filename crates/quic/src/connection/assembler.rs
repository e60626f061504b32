//! Puts received stream bytes back in order.
//!
//! Used by the receiving half of streams and by the CRYPTO streams. In-order data is
//! appended to blocks of a pool the reader takes slices from; data ahead of a gap
//! waits in pieces, from which the reader takes it once its turn has come. The first copy of a
//! byte wins (RFC 9000 §2.2). How many bytes may arrive is flow control's business; the number of
//! gaps is bounded here.
//!
//! The peer chooses the order of arrival, so no order may cost much: the pieces stand in a tree,
//! none is moved when those before it arrive, and none grows beyond [`MAX_PIECE`].
//!
//! A reader that does not care for order takes pieces from behind gaps too; what it took there is
//! remembered as ranges, so that each byte is handed out once.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use towline_wire::RangeSet;

use super::blocks::{Block, BlockPool, MAX_BLOCK};

/// Cap: pieces of out-of-order data one stream may hold (CVE-2026-25800 class), and the ranges
/// it remembers of what was read out of order. Pieces of [`MIN_PIECE`] bytes on average may be more.
pub(crate) const MAX_STREAM_GAPS: usize = 512;

/// Pieces this large cost little beside their data, which flow control bounds. A queue that
/// overflows on a long path loses every second packet of thousands.
pub(crate) const MIN_PIECE: usize = 512;

/// Bytes up to which a piece grows by what arrives behind it: most that one frame makes us copy
/// beside its own data.
const MAX_PIECE: usize = 16 << 10;

/// Bytes of a piece that are worth copying so that there is one piece less.
const TINY_PIECE: usize = 64;

/// What a piece costs beside its capacity, bytes: its place in a tree whose nodes are two thirds
/// full, and what the allocator adds.
pub(crate) const PIECE_OVERHEAD: usize = size_of::<(u64, BytesMut)>() * 3 / 2 + 16;

/// A block is at most so many times as large as what waits in it when it is taken: a peer that
/// leaves a byte on each of many streams shall not hold a train's worth of memory with each.
const MOST_ROOM: usize = 16;

/// Of a block this is little: it moves to a smaller one.
const LITTLE: usize = 32;

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
    /// Disjoint pieces by the offset of their first byte, none before the end of `ready`. The
    /// first may follow on it: what has waited here is read from here.
    pending: BTreeMap<u64, BytesMut>,
    /// Bytes in them.
    pending_len: usize,
    /// Bytes of memory of those pieces.
    pending_held: usize,
    /// Present once the reader gave up order.
    taken: Option<Box<Taken>>,
}

/// What was read from beyond `read_offset`.
#[derive(Debug, Default)]
struct Taken {
    ranges: RangeSet,
    /// Bytes in them.
    len: u64,
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
        self.read_offset + self.taken.as_ref().map_or(0, |taken| taken.len)
    }

    /// Bytes below `at` handed to the reader.
    pub(crate) fn consumed_below(&self, at: u64) -> u64 {
        let Some(taken) = self.taken.as_ref().filter(|_| at > self.read_offset) else {
            return self.read_offset.min(at);
        };
        let beyond = taken.ranges.within(self.read_offset..at);
        self.read_offset + beyond.map(|r| r.end.min(at) - r.start).sum::<u64>()
    }

    /// Whether every byte below `size` has arrived, where nothing above is held.
    pub(crate) fn has_all_below(&self, size: u64) -> bool {
        self.consumed_below(size) + (self.ready_len + self.pending_len) as u64 == size
    }

    /// Whether every byte below `size` has arrived.
    pub(crate) fn has_all(&self, size: u64) -> bool {
        self.consumed_len() + (self.ready_len + self.pending_len) as u64 == size
    }

    /// End of the ready data. What follows without a gap may wait behind it.
    pub(crate) fn ready_end(&self) -> u64 {
        self.read_offset + self.ready_len as u64
    }

    /// Whether the reader can have something now.
    pub(crate) fn has_ready(&self) -> bool {
        let first = || self.pending.first_key_value().map(|(offset, _)| *offset);
        self.ready_len > 0
            || first().is_some_and(|first| self.is_unordered() || first == self.read_offset)
    }

    /// Whether data is held behind the ready data.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Adds `data` at `offset`.
    pub(crate) fn insert(
        &mut self,
        mut offset: u64,
        mut data: &[u8],
        pool: &mut BlockPool,
    ) -> Result<(), TooManyGaps> {
        // Without what the reader has had already.
        let end = offset + data.len() as u64;
        while let Some(had) = self.first_taken(offset..end) {
            let fresh = had.start.saturating_sub(offset) as usize;
            let dealt = (had.end.min(end) - offset) as usize;
            self.insert_new(offset, &data[..fresh], pool)?;
            data = &data[dealt..];
            offset += dealt as u64;
        }
        self.insert_new(offset, data, pool)
    }

    /// The first range that was read already of those with members in `range`.
    fn first_taken(&self, range: Range<u64>) -> Option<Range<u64>> {
        let taken = self.taken.as_ref().filter(|_| !range.is_empty())?;
        taken.ranges.within(range).next()
    }

    fn insert_new(
        &mut self,
        mut offset: u64,
        mut data: &[u8],
        pool: &mut BlockPool,
    ) -> Result<(), TooManyGaps> {
        let ready = self.ready_end();
        if offset + data.len() as u64 <= ready {
            return Ok(());
        }
        if offset <= ready {
            data = &data[(ready - offset) as usize..];
            // Up to the first piece held, which wins over what overlaps it.
            let n = match self.pending.first_key_value() {
                Some((piece, _)) => data.len().min((piece - ready) as usize),
                None => data.len(),
            };
            self.append(&data[..n], pool);
            data = &data[n..];
            offset = ready + n as u64;
        }
        self.insert_pending(offset, data)
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
                let most = MOST_ROOM * self.ready_len;
                let block = pool.take(data.len().max(self.next_block.min(most)));
                let next = (2 * block.size()).min(MAX_BLOCK);
                self.next_block = self.next_block.max(next);
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

    fn insert_pending(&mut self, mut offset: u64, mut data: &[u8]) -> Result<(), TooManyGaps> {
        while !data.is_empty() {
            let mut before = self.pending.range_mut(..=offset).next_back();
            let mut follows_full = false;
            if let Some((start, piece)) = &mut before {
                let end = **start + piece.len() as u64;
                if end > offset {
                    // Bytes already held win.
                    let held = (end - offset).min(data.len() as u64);
                    data = &data[held as usize..];
                    offset += held;
                    continue;
                }
                follows_full = end == offset && piece.len() >= MAX_PIECE / 2;
            }
            let before = before.map(|(start, piece)| (*start, piece.len()));
            let next = self.pending.range(offset..).next().map(|(start, _)| *start);
            let room = next.map_or(u64::MAX, |next| next - offset);
            let n = room.min(data.len() as u64) as usize;
            let (fresh, rest) = data.split_at(n);
            let at = self.add_piece(before, offset, fresh, follows_full)?;
            self.pending_len += n;
            offset += n as u64;
            data = rest;
            if next == Some(offset) {
                self.merge(at, offset);
            }
        }
        Ok(())
    }

    /// Adds to the piece `before`, its offset and length, or begins one. Returns its offset.
    fn add_piece(
        &mut self,
        before: Option<(u64, usize)>,
        offset: u64,
        fresh: &[u8],
        follows_full: bool,
    ) -> Result<u64, TooManyGaps> {
        if let Some((start, len)) = before
            && start + len as u64 == offset
            && len + fresh.len() <= MAX_PIECE
            && let Some(piece) = self.pending.get_mut(&start)
        {
            let before = piece.capacity();
            piece.extend_from_slice(fresh);
            self.pending_held += piece.capacity() - before;
            return Ok(start);
        }
        if self.is_crowded() {
            return Err(TooManyGaps);
        }
        // More of the same run is likely to come.
        let capacity = if follows_full { MAX_PIECE } else { 0 };
        let mut piece = BytesMut::with_capacity(capacity.max(fresh.len()));
        piece.extend_from_slice(fresh);
        self.pending_held += piece.capacity();
        self.pending.insert(offset, piece);
        Ok(offset)
    }

    /// Joins the piece at `next` to the one at `start`, which it follows, if it is the smaller one
    /// or tiny. Small pieces would be walked over by every frame that covers them.
    fn merge(&mut self, start: u64, next: u64) {
        let len = |offset: u64| self.pending.get(&offset).map_or(0, BytesMut::len);
        let (first, second) = (len(start), len(next));
        if second > first.max(TINY_PIECE) || first + second > MAX_PIECE {
            return;
        }
        if let Some(piece) = self.pending.remove(&next)
            && let Some(joined) = self.pending.get_mut(&start)
        {
            let before = joined.capacity() + piece.capacity();
            joined.extend_from_slice(&piece);
            self.pending_held = self.pending_held + joined.capacity() - before;
        }
    }

    /// Whether there are [`MAX_STREAM_GAPS`] pieces and ranges, and next to nothing in the pieces;
    /// or as many ranges, of which nothing is held.
    fn is_crowded(&self) -> bool {
        let ranges = self.taken.as_ref().map_or(0, |taken| taken.ranges.len());
        let pieces = self.pending.len();
        let small = self.pending_len <= pieces * MIN_PIECE;
        ranges >= MAX_STREAM_GAPS || (pieces + ranges >= MAX_STREAM_GAPS && small)
    }

    /// Takes up to `max` contiguous bytes without copying, at most one block of them.
    pub(crate) fn read(&mut self, max: usize, pool: &mut BlockPool) -> Option<Bytes> {
        if max == 0 {
            return None;
        }
        if self.ready_len == 0 {
            return self.read_piece(self.read_offset, max);
        }
        let front = self.ready.front_mut()?;
        let n = front.len().min(max);
        let chunk = front.split_to(n).freeze();
        self.consumed(n, pool);
        Some(chunk)
    }

    /// Takes up to `max` bytes of the first piece if it begins at `offset`. Nothing is ready.
    fn read_piece(&mut self, offset: u64, max: usize) -> Option<Bytes> {
        let mut first = self.pending.first_entry().filter(|p| *p.key() == offset)?;
        self.pending_held -= first.get().capacity();
        let chunk = if first.get().len() <= max {
            first.remove().freeze()
        } else {
            let chunk = first.get_mut().split_to(max).freeze();
            let rest = first.remove();
            self.pending_held += rest.capacity();
            self.pending.insert(offset + max as u64, rest);
            chunk
        };
        self.pending_len -= chunk.len();
        if offset == self.read_offset {
            self.read_offset += chunk.len() as u64;
        }
        Some(chunk)
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
        let offset = match self.pending.first_key_value() {
            _ if self.ready_len > 0 => self.read_offset,
            Some((first, _)) => *first,
            None => return None,
        };
        let below = usize::try_from(below.saturating_sub(offset)).unwrap_or(usize::MAX);
        let max = below.min(max);
        if max == 0 {
            return None;
        }
        let in_order = offset == self.read_offset;
        let chunk = if in_order {
            self.read(max, pool)?
        } else {
            self.read_piece(offset, max)?
        };
        let taken = self.taken.get_or_insert_default();
        if !in_order {
            taken.ranges.insert(offset..offset + chunk.len() as u64);
            taken.len += chunk.len() as u64;
        } else if self.ready_len == 0
            && let Some(had) = taken.ranges.front().filter(|h| h.start <= self.read_offset)
        {
            // All before what was read out of order is read now.
            self.read_offset = had.end;
            taken.len -= had.end - had.start;
            taken.ranges.pop_front();
        }
        Some((offset, chunk))
    }

    /// Copies up to `out.len()` contiguous bytes; returns how many.
    pub(crate) fn read_slice(&mut self, out: &mut [u8], pool: &mut BlockPool) -> usize {
        let mut filled = 0;
        while filled < out.len() {
            let room = &mut out[filled..];
            if let Some(front) = self.ready.front_mut().filter(|block| !block.is_empty()) {
                let n = front.len().min(room.len());
                front.copy_to_slice(&mut room[..n]);
                filled += n;
                self.consumed(n, pool);
            } else if let Some(chunk) = self.read_piece(self.read_offset, room.len()) {
                room[..chunk.len()].copy_from_slice(&chunk);
                filled += chunk.len();
            } else {
                break;
            }
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
        } else if let Some(front) = self.ready.front_mut()
            && front.len() * LITTLE <= front.size()
            && front.size() > MIN_PIECE * LITTLE
        {
            let mut small = pool.take(front.len());
            small.extend_from_slice(front);
            self.ready_held = self.ready_held - front.size() + small.size();
            pool.give(std::mem::replace(front, small));
        }
    }

    /// Bytes of memory held, blocks of which the reader had a part included.
    pub(crate) fn held(&self) -> usize {
        self.ready_held
            + self.ready.capacity() * size_of::<Block>()
            + self.pending_held
            + self.pending.len() * PIECE_OVERHEAD
            + self.taken.as_ref().map_or(0, |taken| taken.ranges.held())
    }

    /// Gives back what gaps of busier times left behind.
    pub(crate) fn trim(&mut self) {
        if let Some(taken) = &mut self.taken {
            taken.ranges.trim();
        }
    }

    /// Drops what is held of offset `at` and beyond.
    pub(crate) fn truncate(&mut self, at: u64) {
        if at <= self.read_offset {
            return self.clear();
        }
        for (_, piece) in self.pending.split_off(&at) {
            self.pending_len -= piece.len();
            self.pending_held -= piece.capacity();
        }
        if let Some(mut last) = self.pending.last_entry() {
            let keep = (at - last.key()) as usize;
            let cut = last.get().len().saturating_sub(keep);
            last.get_mut().truncate(keep);
            self.pending_len -= cut;
        }
        let mut cut = self.ready_end().saturating_sub(at) as usize;
        self.ready_len -= cut;
        while let Some(block) = self.ready.back_mut().filter(|_| cut > 0) {
            let keep = block.len().saturating_sub(cut);
            cut -= block.len() - keep;
            block.truncate(keep);
            if keep == 0 {
                self.ready_held -= block.size();
                self.ready.pop_back();
            }
        }
    }

    /// Drops everything held.
    pub(crate) fn clear(&mut self) {
        self.ready = VecDeque::new();
        self.ready_len = 0;
        self.ready_held = 0;
        self.pending = BTreeMap::new();
        self.pending_len = 0;
        self.pending_held = 0;
    }
}

#[cfg(test)]
mod tests;

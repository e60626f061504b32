//! Bytes handed to us for sending, kept until the peer acknowledged them.
//!
//! Used by the streams and by the CRYPTO streams of the handshake. Chunks are
//! reference-counted `Bytes`: writing copies nothing, retransmission reads the same
//! chunk again. It never decides how much may be sent; flow control is its caller's.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use super::range_set::RangeSet;

/// An append-only byte stream with a cursor for new data and sets of acknowledged and lost ranges.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    /// Retained chunks with the stream offset of their first byte.
    chunks: VecDeque<(u64, Bytes)>,
    /// Everything below is acknowledged.
    base: u64,
    /// First offset never sent.
    unsent: u64,
    /// End of what was written.
    end: u64,
    acked: RangeSet,
    lost: RangeSet,
}

impl SendBuffer {
    pub(crate) fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let start = self.end;
        self.end += data.len() as u64;
        self.chunks.push_back((start, data));
    }

    /// Total bytes ever written.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// First offset never sent.
    pub(crate) fn unsent_offset(&self) -> u64 {
        self.unsent
    }

    /// Bytes written and never sent.
    pub(crate) fn unsent_len(&self) -> u64 {
        self.end - self.unsent
    }

    /// Bytes held in memory: written and not yet acknowledged from the front.
    pub(crate) fn retained(&self) -> u64 {
        self.end - self.base
    }

    pub(crate) fn all_acked(&self) -> bool {
        self.base == self.end
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether something could be sent if new data may go up to `limit`.
    pub(crate) fn has_pending(&self, limit: u64) -> bool {
        self.has_lost() || self.unsent < self.end.min(limit)
    }

    /// Length of the next range, retransmissions first, new data only below `limit`.
    pub(crate) fn peek_next(&self, limit: u64) -> Option<Range<u64>> {
        if let Some(lost) = self.lost.front() {
            return Some(lost.clone());
        }
        let end = self.end.min(limit);
        (self.unsent < end).then_some(self.unsent..end)
    }

    /// Takes up to `max` bytes of what [`Self::peek_next`] named.
    pub(crate) fn take_next(&mut self, max: u64, limit: u64) -> Option<Range<u64>> {
        if max == 0 {
            return None;
        }
        if let Some(lost) = self.lost.take_front(max) {
            return Some(lost);
        }
        let end = self.end.min(limit).min(self.unsent.saturating_add(max));
        if self.unsent >= end {
            return None;
        }
        let range = self.unsent..end;
        self.unsent = end;
        Some(range)
    }

    /// Copies `offset..offset + out.len()` into `out`; the range is still retained.
    pub(crate) fn copy_to(&self, offset: u64, mut out: &mut [u8]) {
        debug_assert!(offset >= self.base && offset + out.len() as u64 <= self.end);
        let mut i = self
            .chunks
            .partition_point(|(start, chunk)| start + chunk.len() as u64 <= offset);
        let mut offset = offset;
        while !out.is_empty() {
            let Some((start, chunk)) = self.chunks.get(i) else {
                return;
            };
            let skip = (offset - start) as usize;
            let n = (chunk.len() - skip).min(out.len());
            let (head, rest) = out.split_at_mut(n);
            head.copy_from_slice(&chunk[skip..skip + n]);
            out = rest;
            offset += n as u64;
            i += 1;
        }
    }

    /// Marks a range delivered; returns the number of bytes newly released from the front.
    pub(crate) fn on_acked(&mut self, range: Range<u64>) -> u64 {
        self.lost.remove(range.clone());
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
            while let Some((start, chunk)) = self.chunks.front() {
                if start + chunk.len() as u64 > self.base {
                    break;
                }
                self.chunks.pop_front();
            }
        } else {
            self.acked.insert(range);
        }
        self.base - before
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

    /// Forgets all data (after a reset); offsets stay.
    pub(crate) fn clear(&mut self) -> u64 {
        let released = self.retained();
        self.chunks.clear();
        self.lost = RangeSet::default();
        self.acked = RangeSet::default();
        self.base = self.end;
        self.unsent = self.end;
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmits_exactly_what_was_lost_and_not_acked() {
        let mut b = SendBuffer::default();
        b.push(Bytes::from_static(b"hello "));
        b.push(Bytes::from_static(b"wide world"));
        assert_eq!(b.take_next(4, u64::MAX), Some(0..4));
        assert_eq!(b.take_next(100, 12), Some(4..12));
        assert_eq!(b.take_next(100, 12), None);
        assert_eq!(b.on_acked(6..8), 0);
        b.on_lost(4..12);
        assert_eq!(b.take_next(100, u64::MAX), Some(4..6));
        assert_eq!(b.take_next(100, u64::MAX), Some(8..12));
        let mut out = [0; 6];
        b.copy_to(4, &mut out);
        assert_eq!(&out, b"o wide");
        assert_eq!(b.on_acked(0..6), 8);
        assert_eq!(b.retained(), 8);
        b.on_lost(0..8);
        assert!(!b.has_lost());
    }
}

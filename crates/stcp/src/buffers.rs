//! Room for records, shared by the sessions of one thread.
//!
//! A session holds a large buffer only while there is something in it: ten thousand quiet sessions
//! hold none, and busy ones work in the same few, which stay in the processor's cache.

use crate::limits::MAX_PLAINTEXT;
use crate::record::{HEADER_LEN, MAX_BODY, OVERHEAD};

/// Room for five full records, so that 64 KiB with a header of the application's go at once.
pub(crate) const BUFFER_LEN: usize = 5 * (MAX_PLAINTEXT + OVERHEAD) + CONTROL_ROOM;

/// Kept free by data for key updates and alerts.
pub(crate) const CONTROL_ROOM: usize = 1024;

/// Spare buffers kept.
const MAX_SPARE: usize = 4;

/// Spare buffers; one of these serves any number of sessions.
#[derive(Debug, Default)]
pub struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// Without any yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| vec![0; BUFFER_LEN])
    }

    fn give_back(&mut self, buffer: Vec<u8>) {
        if buffer.len() == BUFFER_LEN && self.0.len() < MAX_SPARE {
            self.0.push(buffer);
        }
    }
}

/// A queue of bytes in one piece: written at its end, taken from its front.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Always as long as it can be, so that nothing is zeroed twice.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Queue {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            start: 0,
            end: bytes.len(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// Takes the first bytes off, and says where they were: [`taken`](Self::taken) has them until
    /// there is a call for room or an end of it.
    pub(crate) fn consume(&mut self, len: usize) -> usize {
        debug_assert!(len <= self.len(), "what is there");
        let at = self.start;
        self.start += len;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        at
    }

    pub(crate) fn taken(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Where to write next, after [`lend`](Self::lend) or [`grow`](Self::grow).
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    /// So many bytes were written there.
    pub(crate) fn on_written(&mut self, len: usize) {
        self.end = (self.end + len).min(self.bytes.len());
    }

    /// Room for many records: a large buffer, and in it a full record's room at least.
    pub(crate) fn lend(&mut self, buffers: &mut Buffers) {
        if self.bytes.len() < BUFFER_LEN {
            let mut bytes = buffers.take();
            let len = self.len().min(BUFFER_LEN);
            bytes[..len].copy_from_slice(&self.filled()[..len]);
            *self = Self {
                bytes,
                start: 0,
                end: len,
            };
        } else if self.bytes.len() - self.end < HEADER_LEN + MAX_BODY {
            self.move_to_front();
        }
    }

    /// Room for so many bytes more.
    pub(crate) fn grow(&mut self, more: usize) {
        if self.bytes.len() - self.end < more {
            self.move_to_front();
            if self.bytes.len() < self.end + more {
                self.bytes.resize(self.end + more, 0);
            }
        }
    }

    fn move_to_front(&mut self) {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.len());
    }

    /// Gives the buffer back if there is nothing in it.
    pub(crate) fn release(&mut self, buffers: &mut Buffers) {
        if self.is_empty() && !self.bytes.is_empty() {
            buffers.give_back(std::mem::take(&mut self.bytes));
            (self.start, self.end) = (0, 0);
        }
    }

    /// The same, and a few bytes don't hold room for many.
    pub(crate) fn trim(&mut self, buffers: &mut Buffers) {
        self.release(buffers);
        if self.len() < self.bytes.len() / 4 {
            let small = Self::of(self.filled());
            buffers.give_back(std::mem::replace(self, small).bytes);
        }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.bytes.capacity()
    }
}

//! Datagrams received and not yet read.
//!
//! A full queue drops its oldest entry. They share blocks of memory: one allocation serves many.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Cap: datagrams received and not read, whatever their size. A driver takes in some thousands in one
/// turn, before the application can read any.
pub(crate) const MAX_UNREAD_DATAGRAMS: usize = 16_384;

/// Most bytes allocated at once for received datagrams that share them.
const MAX_BLOCK: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Incoming {
    queue: VecDeque<Bytes>,
    bytes: usize,
    cap: usize,
    dropped: u64,
    /// Where the next one is put.
    block: BytesMut,
}

impl Incoming {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            cap,
            dropped: 0,
            block: BytesMut::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn push(&mut self, data: &[u8]) {
        while self.queue.len() >= MAX_UNREAD_DATAGRAMS
            || (self.bytes + data.len() > self.cap && !self.queue.is_empty())
        {
            if let Some(oldest) = self.queue.pop_front() {
                self.bytes -= oldest.len();
                self.dropped += 1;
            }
        }
        let datagram = self.keep(data);
        self.bytes += data.len();
        self.queue.push_back(datagram);
    }

    fn keep(&mut self, data: &[u8]) -> Bytes {
        if self.block.capacity() < data.len() {
            // More while datagrams pile up; a lone one gets no more than it needs.
            let wanted = (16 * self.bytes).min(MAX_BLOCK);
            self.block.reserve(wanted.max(data.len()));
        }
        self.block.extend_from_slice(data);
        self.block.split().freeze()
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let data = self.queue.pop_front()?;
        self.bytes -= data.len();
        Some(data)
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        self.bytes + self.block.capacity() + self.queue.capacity() * size_of::<Bytes>()
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.queue = VecDeque::new();
        self.bytes = 0;
        self.trim();
    }

    /// Gives back the memory that busier times left behind.
    pub(super) fn trim(&mut self) {
        self.block = BytesMut::new();
        self.queue.shrink_to_fit();
    }

    /// Bytes reserved for the next datagrams, and entries reserved.
    #[cfg(test)]
    pub(super) fn reserved(&self) -> (usize, usize) {
        (self.block.capacity(), self.queue.capacity())
    }
}

//! A hash of everything that happens in a world: equal hashes, equal runs.
//!
//! Datagrams go in with time, sender and every byte; events with their debug text, which names all
//! their fields. Not cryptographic, and stable across builds.

use std::fmt::Write as _;

use towline_quic::Event;
use towline_wire::Time;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A running hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    state: u64,
    entries: u64,
}

impl Trace {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: seed ^ MULTIPLIER,
            entries: 0,
        }
    }

    /// The hash so far.
    pub fn value(self) -> u64 {
        self.state ^ self.state >> 29
    }

    /// Entries so far.
    pub fn entries(self) -> u64 {
        self.entries
    }

    pub(crate) fn word(&mut self, word: u64) {
        self.entries += 1;
        self.mix(word);
    }

    pub(crate) fn datagram(&mut self, now: Time, sender: usize, payload: &[u8]) {
        self.word(now.as_nanos());
        self.mix(sender as u64);
        self.bytes(payload);
    }

    pub(crate) fn event(&mut self, host: usize, event: &Event) {
        self.word(host as u64);
        // Formatting into the hash itself; it cannot fail.
        let _ = write!(self, "{event:?}");
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn mix(&mut self, word: u64) {
        self.state = (self.state.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }
}

impl std::fmt::Write for Trace {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

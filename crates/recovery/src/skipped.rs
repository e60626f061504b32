//! Which application packet numbers are never sent (RFC 9000 §21.4): one of every 256, where a
//! keyed hash says.
//!
//! A peer that acknowledges what it did not receive gives itself away by one of them. Because their
//! places follow from the key alone, nothing has to be remembered for a claim to be judged however
//! late it comes, and because every block has one, a peer that claims all it missed is caught
//! within 511 numbers. `Space` asks after each packet and for each range of each ACK.

use core::hash::Hasher;
use core::ops::RangeInclusive;
use std::hash::DefaultHasher;

/// One number is left out of each block of so many.
const BLOCK: u64 = 256;

/// Blocks whose hash is kept: as many as ranges an honest peer's ACK may have.
const KEPT: u64 = 64;

/// The schedule of one connection.
#[derive(Clone, Debug)]
pub(crate) struct SkippedNumbers {
    key: u64,
    /// The block of the next number to be left out, the newest whose place is kept.
    block: u64,
    /// That number.
    upcoming: u64,
    places: [u8; KEPT as usize],
}

impl SkippedNumbers {
    pub(crate) fn new(key: u64) -> Self {
        let mut schedule = Self {
            key,
            block: 0,
            upcoming: 0,
            places: [0; KEPT as usize],
        };
        schedule.keep(0);
        schedule
    }

    /// The next number to be left out.
    pub(crate) fn upcoming(&self) -> u64 {
        self.upcoming
    }

    /// Whether `next`, the number the next packet would get, is left out. Numbers must ascend.
    pub(crate) fn leaves_out(&mut self, next: u64) -> bool {
        while next > self.upcoming {
            self.keep(self.block + 1);
        }
        next == self.upcoming
    }

    /// The lowest number in `range` that is never sent. Ranges must end below the next number.
    pub(crate) fn first_in(&self, range: &RangeInclusive<u64>) -> Option<u64> {
        let block = range.start() / BLOCK;
        let in_first = self.number(block);
        let number = match in_first >= *range.start() {
            true => in_first,
            false => self.number(block + 1),
        };
        (number <= *range.end()).then_some(number)
    }

    /// The number left out of `block` is the next.
    fn keep(&mut self, block: u64) {
        self.places[(block % KEPT) as usize] = self.place(block);
        self.block = block;
        self.upcoming = self.number(block);
    }

    /// The number left out of a block.
    fn number(&self, block: u64) -> u64 {
        let is_kept = block <= self.block && block + KEPT > self.block;
        let place = match is_kept {
            true => self.places[(block % KEPT) as usize],
            false => self.place(block),
        };
        (block * BLOCK).saturating_add(u64::from(place))
    }

    fn place(&self, block: u64) -> u8 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.key);
        hasher.write_u64(block);
        let place = (hasher.finish() % BLOCK) as u8;
        // A space begins with number 0 (RFC 9000 §12.3).
        match block {
            0 => place.max(1),
            _ => place,
        }
    }
}

/// A key by which `number`, below the size of a block, is left out.
#[cfg(test)]
pub(crate) fn key_that_leaves_out(number: u64) -> u64 {
    let mut keys = 0..;
    keys.find(|key| SkippedNumbers::new(*key).number(0) == number)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;

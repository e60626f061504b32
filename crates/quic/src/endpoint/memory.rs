//! The memory account: what each connection of the shard holds, and which go when it is too much.
//!
//! `Endpoint` tells it the new figure of a connection after each change, and asks it what to do
//! before it goes on. A connection's worth is how its memory moves: what holds much that nobody
//! has read or acknowledged for long goes first. Candidates are drawn at random, so that relief
//! costs the same whatever the number of connections; that which just grew is always among them.

use std::time::Duration;

use towline_wire::Time;

use crate::connection::Holding;

/// Connections looked at to find one that can go.
pub(super) const CANDIDATES: usize = 16;

/// Slots looked at to find those candidates.
pub(super) const LOOKS: usize = 4 * CANDIDATES;

/// Of the limit, the last part (one in so many) is kept for connections that are there already.
const RESERVE: u64 = 16;

/// Least time between lines of the log about connections that were ended.
const SAY_SHED_EVERY: Duration = Duration::from_secs(1);

/// One connection in the account.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// Bytes.
    pub(super) bytes: u64,
    /// What had moved in all, and when that last changed.
    moved: u64,
    moved_at: Time,
}

impl Held {
    /// Of an admitted connection.
    pub(super) fn new(now: Time) -> Self {
        Self {
            bytes: 0,
            moved: 0,
            moved_at: now,
        }
    }

    /// How little use it is: byte-seconds of memory that does not move.
    pub(super) fn idle_bytes(&self, now: Time) -> u128 {
        let still = now.saturating_duration_since(self.moved_at);
        u128::from(self.bytes) * (1 + still.as_millis())
    }
}

/// What all connections of a shard hold.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    total: u64,
    most: u64,
    /// Connections ended since the log said so.
    shed_suppressed: u64,
    shed_said: Option<Time>,
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            total: 0,
            most: 0,
            shed_suppressed: 0,
            shed_said: None,
        }
    }

    /// Bytes held now.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The most there ever were.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// What a connection holds now.
    pub(super) fn update(&mut self, now: Time, held: &mut Held, holding: Holding) {
        let Holding { bytes, moved } = holding;
        self.set(held, bytes);
        if moved != held.moved {
            held.moved = moved;
            held.moved_at = now;
        }
    }

    /// As [`Self::update`], of a connection in which nothing moves any more.
    pub(super) fn set(&mut self, held: &mut Held, bytes: usize) {
        let bytes = bytes as u64;
        self.total = self.total - held.bytes + bytes;
        self.most = self.most.max(self.total);
        held.bytes = bytes;
    }

    /// What stands above a connection holds another number of bytes.
    pub(super) fn set_above(&mut self, held: &mut Held, before: usize, after: usize) {
        let bytes = (held.bytes + after as u64).saturating_sub(before as u64);
        self.set(held, usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// A connection is gone.
    pub(super) fn remove(&mut self, held: &mut Held) {
        self.total -= held.bytes;
        *held = Held::default();
    }

    /// A connection was ended. What the log should say, at most once a second: how many others were
    /// since it last did.
    pub(super) fn may_log_shed(&mut self, now: Time) -> Option<u64> {
        let quiet = |said| now.saturating_duration_since(said) < SAY_SHED_EVERY;
        if self.shed_said.is_some_and(quiet) {
            self.shed_suppressed += 1;
            return None;
        }
        self.shed_said = Some(now);
        Some(std::mem::take(&mut self.shed_suppressed))
    }

    /// More is held than may be.
    pub(super) fn is_over(&self) -> bool {
        self.total > self.limit
    }

    /// What is left is for those that are there.
    pub(super) fn refuses_new(&self) -> bool {
        self.total >= self.limit - self.limit / RESERVE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_connections_take_one_line_a_second_however_many_they_are() {
        let mut memory = Memory::new(0);
        let mut lines = Vec::new();
        // One a millisecond for two seconds, and one a minute later.
        for millis in (0..2000).chain([62_000]) {
            lines.extend(memory.may_log_shed(Time::from_nanos(millis * 1_000_000)));
        }
        assert_eq!(lines, [0, 999, 999]);
    }
}

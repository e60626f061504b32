//! Which connection wants to be woken next: a hierarchical timer wheel.
//!
//! A deadline is filed by the highest group of six bits in which it differs from `base`, the time
//! of the last expiry: level by the group's place, slot by its value. Slots are linked through
//! one record a connection, so that nothing is allocated per update. A deadline that moves later
//! stays where it is filed and is looked at again when that time comes; only one that moves
//! earlier is filed anew. `next` is therefore never late. It is early at most once for each
//! filing and, in a slot of more than [`EXACT_BELOW`] entries, once for each level it sinks.

use towline_wire::Time;

use super::slots::ConnectionHandle;

/// Bits of a time that one level looks at.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Enough levels for every bit of a time.
const LEVELS: usize = 11;

/// In a slot with fewer entries the earliest is looked for; else the slot's start stands for all.
const EXACT_BELOW: usize = 16;

/// A connection that nobody touched for this long, and that waits for as long again, has gone quiet.
const QUIET_NANOS: u64 = 1_000_000_000;

/// End of a list.
const NIL: u32 = u32::MAX;
/// `Record::list` of a connection that is filed nowhere.
const UNFILED: u16 = u16::MAX;
/// `Record::list` of a connection to be handed out.
const DUE: u16 = UNFILED - 1;
/// `Record::deadline` of a connection that has none.
const NEVER: u64 = u64::MAX;

/// Why a connection comes out of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// Its deadline has passed.
    Due(ConnectionHandle),
    /// Nobody touched it for a second, and it waits for something far away: a time to tidy it up.
    Quiet(ConnectionHandle),
}

/// One connection; 32 bytes, kept for its slot's next connection.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// The true deadline.
    deadline: u64,
    /// The time it is filed under, not later than `deadline`.
    filed: u64,
    next: u32,
    previous: u32,
    generation: u32,
    list: u16,
    /// Its time was reached, it waits for something far away, and nobody has touched it since.
    untouched: bool,
}

impl Record {
    const EMPTY: Self = Self {
        deadline: NEVER,
        filed: NEVER,
        next: NIL,
        previous: NIL,
        generation: 0,
        list: UNFILED,
        untouched: false,
    };

    /// Its deadline is far away at `now`.
    fn waits_long(&self, now: u64) -> bool {
        self.deadline.saturating_sub(now) >= QUIET_NANOS
    }
}

#[derive(Debug)]
pub(super) struct DeadlineQueue {
    records: Vec<Record>,
    /// First entry of each slot, level by level.
    heads: Box<[u32; LEVELS * SLOTS]>,
    /// The slots of each level that hold something.
    occupied: [u64; LEVELS],
    /// The levels that hold something.
    levels: u16,
    /// First entry to be handed out.
    due: u32,
    /// No time below is filed.
    base: u64,
    /// Not later than any deadline.
    next: u64,
}

impl Default for DeadlineQueue {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            heads: Box::new([NIL; LEVELS * SLOTS]),
            occupied: [0; LEVELS],
            levels: 0,
            due: NIL,
            base: 0,
            next: NEVER,
        }
    }
}

impl DeadlineQueue {
    pub(super) fn set(&mut self, handle: ConnectionHandle, deadline: Option<Time>) {
        let index = handle.index as usize;
        if index >= self.records.len() {
            if deadline.is_none() {
                return;
            }
            self.records.resize(index + 1, Record::EMPTY);
        }
        let record = &mut self.records[index];
        record.generation = handle.generation;
        record.untouched = false;
        let Some(deadline) = deadline else {
            record.deadline = NEVER;
            if record.list != UNFILED {
                let filed = record.filed;
                self.unlink(handle.index);
                if filed <= self.next {
                    self.find_next();
                }
            }
            return;
        };
        // The last instant there is stands for "never" in the records.
        let deadline = deadline.as_nanos().min(NEVER - 1);
        record.deadline = deadline;
        if record.list == UNFILED {
            self.file(handle.index, deadline);
        } else if deadline < record.filed {
            self.unlink(handle.index);
            self.file(handle.index, deadline);
        }
    }

    /// After it was due at `now`: what waits for something far away is looked at again soon.
    pub(super) fn look_again(&mut self, handle: ConnectionHandle, now: Time) {
        let soon = now.as_nanos().saturating_add(QUIET_NANOS);
        let Some(record) = self.records.get(handle.index as usize) else {
            return;
        };
        if record.list != UNFILED && record.filed > soon && record.waits_long(soon) {
            self.unlink(handle.index);
            self.watch(handle.index, soon);
        }
    }

    /// Files it before its deadline, to see whether anybody touches it until then.
    fn watch(&mut self, index: u32, at: u64) {
        self.file(index, at);
        self.records[index as usize].untouched = true;
    }

    /// A time not later than the earliest deadline; `None` if there is none.
    pub(super) fn next(&self) -> Option<Time> {
        (self.next != NEVER).then(|| Time::from_nanos(self.next))
    }

    /// Takes one connection whose deadline has passed, or shows one that has gone quiet.
    pub(super) fn pop(&mut self, now: Time) -> Option<Expired> {
        let now = now.as_nanos();
        if self.next > now {
            return None;
        }
        loop {
            if self.due != NIL {
                let index = self.due;
                self.unlink(index);
                let record = &mut self.records[index as usize];
                let handle = ConnectionHandle {
                    index,
                    generation: record.generation,
                };
                let deadline = record.deadline;
                if deadline <= now {
                    record.deadline = NEVER;
                    return Some(Expired::Due(handle));
                }
                record.untouched = false;
                self.file(index, deadline);
                return Some(Expired::Quiet(handle));
            }
            match self.first_slot() {
                Some((start, list)) if start <= now => self.open(start, list, now),
                _ => break,
            }
        }
        // Nothing filed lies between: see `file`.
        self.base = self.base.max(now);
        self.find_next();
        None
    }

    /// Empties a slot whose time has come: what `pop` hands out is listed, the rest filed anew.
    fn open(&mut self, start: u64, list: usize, now: u64) {
        self.base = self.base.max(start);
        let mut index = std::mem::replace(&mut self.heads[list], NIL);
        self.mark_empty(list);
        while index != NIL {
            let record = &mut self.records[index as usize];
            let following = record.next;
            record.list = UNFILED;
            let (deadline, filed) = (record.deadline, record.filed);
            let idle = deadline > filed && record.waits_long(now);
            if deadline <= now || (idle && record.untouched) {
                self.link(index, DUE);
            } else if idle && record.waits_long(now.saturating_add(QUIET_NANOS)) {
                // Memory is given back once nobody needs it, not between two messages.
                self.watch(index, now + QUIET_NANOS);
            } else {
                self.file(index, deadline);
            }
            index = following;
        }
    }

    /// Files a record that is in no list.
    ///
    /// A slot holds times that agree with `base` in all higher groups of bits, and lies ahead of
    /// it in its own. This stays true when `base` moves, as long as no slot begins in between.
    fn file(&mut self, index: u32, at: u64) {
        let filed = at.max(self.base);
        let level = match (filed ^ self.base).checked_ilog2() {
            Some(bit) => bit / BITS,
            None => 0,
        };
        let slot = (filed >> (level * BITS)) as usize % SLOTS;
        self.records[index as usize].filed = filed;
        self.occupied[level as usize] |= 1 << slot;
        self.levels |= 1 << level;
        self.link(index, (level as usize * SLOTS + slot) as u16);
        self.next = self.next.min(filed);
    }

    fn head(&mut self, list: u16) -> &mut u32 {
        match list {
            DUE => &mut self.due,
            _ => &mut self.heads[usize::from(list)],
        }
    }

    fn link(&mut self, index: u32, list: u16) {
        let following = std::mem::replace(self.head(list), index);
        if following != NIL {
            self.records[following as usize].previous = index;
        }
        let record = &mut self.records[index as usize];
        record.next = following;
        record.previous = NIL;
        record.list = list;
    }

    fn unlink(&mut self, index: u32) {
        let record = &mut self.records[index as usize];
        let (previous, following) = (record.previous, record.next);
        let list = std::mem::replace(&mut record.list, UNFILED);
        if following != NIL {
            self.records[following as usize].previous = previous;
        }
        if previous != NIL {
            self.records[previous as usize].next = following;
            return;
        }
        *self.head(list) = following;
        if following == NIL && list != DUE {
            self.mark_empty(usize::from(list));
        }
    }

    fn mark_empty(&mut self, list: usize) {
        let level = list / SLOTS;
        self.occupied[level] &= !(1 << (list % SLOTS));
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// The slot of the earliest times: when it begins, and which it is.
    fn first_slot(&self) -> Option<(u64, usize)> {
        let level = self.levels.trailing_zeros();
        let slot = self.occupied.get(level as usize)?.trailing_zeros();
        let above = self.base.checked_shr((level + 1) * BITS).unwrap_or(0);
        let start =
            above.checked_shl((level + 1) * BITS).unwrap_or(0) | u64::from(slot) << (level * BITS);
        Some((start, level as usize * SLOTS + slot as usize))
    }

    /// Works `next` out anew.
    fn find_next(&mut self) {
        if self.due != NIL {
            self.next = self.base;
            return;
        }
        let Some((start, list)) = self.first_slot() else {
            self.next = NEVER;
            return;
        };
        let mut earliest = NEVER;
        let mut index = self.heads[list];
        for _ in 0..EXACT_BELOW {
            if index == NIL {
                self.next = earliest;
                return;
            }
            let record = &self.records[index as usize];
            earliest = earliest.min(record.filed);
            index = record.next;
        }
        self.next = start;
    }
}

#[cfg(test)]
mod tests;

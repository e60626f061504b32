//! The dynamic table (RFC 9204 §3.2): one of the encoder, one of the decoder.
//!
//! Entries have absolute indices: the first ever inserted has 0. An entry's text is shared, so that
//! a duplicate costs a record and no copy.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

/// What an entry counts beside its name and value (RFC 9204 §3.2.1).
const OVERHEAD: u64 = 32;

/// Name and value of an entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    text: Bytes,
    name_len: usize,
}

impl Entry {
    pub(super) fn new(name: &[u8], value: &[u8]) -> Self {
        let mut text = BytesMut::with_capacity(name.len() + value.len());
        text.put_slice(name);
        text.put_slice(value);
        Self {
            text: text.freeze(),
            name_len: name.len(),
        }
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.text[..self.name_len]
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.text[self.name_len..]
    }

    fn size(&self) -> u64 {
        size(self.name(), self.value())
    }
}

/// What a field counts, in a table and in a section (RFC 9204 §3.2.1, RFC 9114 §4.2.2).
pub(super) const fn size(name: &[u8], value: &[u8]) -> u64 {
    name.len() as u64 + value.len() as u64 + OVERHEAD
}

/// How many entries a table of this capacity can have: MaxEntries (RFC 9204 §4.5.1.1).
pub(super) const fn max_entries(capacity: u64) -> u64 {
    capacity / OVERHEAD
}

/// The entries that are there, the oldest first.
#[derive(Default, Debug)]
pub(super) struct Table {
    entries: VecDeque<Entry>,
    /// Entries that were evicted: the absolute index of the oldest that is there.
    evicted: u64,
    size: u64,
    capacity: u64,
}

impl Table {
    /// Bytes of its entries, as RFC 9204 §3.2.1 counts them: what they take is hardly more.
    pub(super) fn held(&self) -> usize {
        self.size as usize
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Entries inserted so far: the absolute index that the next one gets.
    pub(super) fn insert_count(&self) -> u64 {
        self.evicted + self.entries.len() as u64
    }

    pub(super) fn get(&self, absolute: u64) -> Option<&Entry> {
        let at = absolute.checked_sub(self.evicted)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// The entry that was inserted last but `relative`.
    pub(super) fn newest_but(&self, relative: u64) -> Option<&Entry> {
        let next = self.insert_count().checked_sub(relative)?;
        self.get(next.checked_sub(1)?)
    }

    /// Evicts what a smaller capacity has no room for (RFC 9204 §3.2.2).
    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.make_room(0);
    }

    /// Evicts what is in the way and inserts. `false` for an entry larger than the table.
    pub(super) fn insert(&mut self, entry: Entry) -> bool {
        let size = entry.size();
        if size > self.capacity {
            return false;
        }
        self.make_room(size);
        self.size += size;
        self.entries.push_back(entry);
        true
    }

    /// Whether an entry of this size can be inserted and all from `keep` on stay.
    pub(super) fn has_room(&self, size: u64, keep: u64) -> bool {
        size <= self.capacity && self.first_kept(size) <= keep
    }

    /// The absolute index of the oldest entry that stays if `size` bytes are needed.
    pub(super) fn first_kept(&self, size: u64) -> u64 {
        let mut free = self.capacity - self.size;
        let mut first = self.evicted;
        for entry in &self.entries {
            if free >= size {
                break;
            }
            free += entry.size();
            first += 1;
        }
        first
    }

    fn make_room(&mut self, size: u64) {
        while self.size + size > self.capacity {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.size -= oldest.size();
            self.evicted += 1;
        }
    }

    /// The newest entry with this field, or else the newest with its name.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Option<Match> {
        let mut same_name = None;
        for (at, entry) in self.entries.iter().enumerate().rev() {
            if entry.name() != name {
                continue;
            }
            let absolute = self.evicted + at as u64;
            if entry.value() == value {
                return Some(Match::Whole(absolute));
            }
            same_name.get_or_insert(Match::Name(absolute));
        }
        same_name
    }
}

/// What a table has of a field, at which absolute index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Match {
    Whole(u64),
    Name(u64),
}

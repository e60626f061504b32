//! Whose turn it is: group after group, inside a group the highest order first, equals in turn.
//!
//! Used by the streams that can send, by the writers that wait for memory, and by the senders of
//! datagrams. An entry knows nothing of what is behind it. A turn lasts for a number of bytes, so
//! that what is sent of one entry arrives together. Whoever uses neither groups nor orders has one
//! queue and touches nothing else.

use std::collections::{BTreeMap, VecDeque};

/// Where an entry stands among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Groups share alike, whatever is in them.
    pub(crate) group: u32,
    /// Higher goes first in its group.
    pub(crate) order: i64,
}

/// Entries of one group.
#[derive(Debug)]
struct Group<K> {
    /// Entries of the highest order present.
    first: VecDeque<K>,
    /// That order, while `first` has an entry.
    order: i64,
    /// The others; no queue is empty.
    later: BTreeMap<i64, VecDeque<K>>,
    /// Whose turn began last, and the bytes it has left.
    turn: Option<(K, u64)>,
}

impl<K> Default for Group<K> {
    fn default() -> Self {
        Self {
            first: VecDeque::new(),
            order: 0,
            later: BTreeMap::new(),
            turn: None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Turns<K> {
    /// Made with the first entry: most connections never need some of theirs.
    groups: Option<Box<Groups<K>>>,
    /// Two answers as of the last change: many ask, and the groups of a quiet connection are no longer in
    /// a processor's cache.
    is_busy: bool,
    held: usize,
}

#[derive(Debug)]
struct Groups<K> {
    /// The group whose turn it is; empty only where all are.
    front: Group<K>,
    id: u32,
    /// The other groups that have entries.
    others: BTreeMap<u32, Group<K>>,
    /// Those in the order of their turns.
    waiting: VecDeque<u32>,
    /// Bytes that the front group's turn has left.
    left: Option<u64>,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self {
            groups: None,
            is_busy: false,
            held: 0,
        }
    }
}

impl<K> Default for Groups<K> {
    fn default() -> Self {
        Self {
            front: Group::default(),
            id: 0,
            others: BTreeMap::new(),
            waiting: VecDeque::new(),
            left: None,
        }
    }
}

impl<K: Copy + PartialEq> Turns<K> {
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_busy
    }

    /// The entry whose turn it is.
    pub(crate) fn front(&self) -> Option<K> {
        self.groups.as_ref()?.front.first.front().copied()
    }

    /// Lists an entry behind its equals.
    pub(crate) fn push(&mut self, entry: K, place: Place) {
        self.groups.get_or_insert_default();
        self.act(|groups| groups.push(entry, place));
    }

    /// The front sent `len` bytes. With nothing more to send it goes; at the end of its turn, which
    /// is `turn` bytes long, it goes behind its equals, and so does its group.
    pub(crate) fn spend(&mut self, len: u64, has_more: bool, turn: impl Fn() -> u64) {
        self.act(|groups| groups.spend(len, has_more, turn));
    }

    /// Takes the front out, without a turn of its own.
    pub(crate) fn remove_front(&mut self) {
        self.act(Groups::remove_front);
    }

    /// Takes the front out, which ends the turn of its group.
    pub(crate) fn pop(&mut self) -> Option<K> {
        self.act(Groups::pop)?
    }

    /// Moves an entry, if it is listed, behind those of its new place.
    pub(crate) fn change(&mut self, entry: K, before: Place, after: Place) {
        if self.remove(entry, before) {
            self.push(entry, after);
        }
    }

    /// Takes an entry out; `false` if it was not listed.
    pub(crate) fn remove(&mut self, entry: K, place: Place) -> bool {
        self.act(|groups| groups.remove(entry, place)) == Some(true)
    }

    /// Bytes of memory reserved for the highest order of the front group; the others are few where
    /// there are many.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
        self.act(Groups::trim);
    }

    fn act<R>(&mut self, f: impl FnOnce(&mut Groups<K>) -> R) -> Option<R> {
        let groups = self.groups.as_deref_mut()?;
        let result = f(groups);
        self.is_busy = !groups.is_empty();
        self.held = size_of::<Groups<K>>() + groups.held();
        Some(result)
    }
}

impl<K: Copy + PartialEq> Groups<K> {
    fn is_empty(&self) -> bool {
        // The next group, and the highest order, are promoted whenever `first` runs empty.
        self.front.first.is_empty()
    }

    fn push(&mut self, entry: K, place: Place) {
        if self.is_empty() {
            self.id = place.group;
        }
        if place.group == self.id {
            return self.front.push(entry, place.order);
        }
        let group = self.others.entry(place.group).or_insert_with(|| {
            self.waiting.push_back(place.group);
            Group::default()
        });
        group.push(entry, place.order);
    }

    fn spend(&mut self, len: u64, has_more: bool, turn: impl Fn() -> u64) {
        if has_more {
            self.front.spend(len, &turn);
        } else {
            self.front.pop();
        }
        if self.waiting.is_empty() {
            // With nobody to share with, turns neither begin nor end.
            self.left = None;
            return;
        }
        let left = self.left.unwrap_or_else(turn).saturating_sub(len);
        self.left = Some(left);
        if left == 0 || self.is_empty() {
            self.next_group();
        }
    }

    fn remove_front(&mut self) {
        self.front.pop();
        if self.is_empty() {
            self.next_group();
        }
    }

    fn pop(&mut self) -> Option<K> {
        let front = self.front.pop();
        self.next_group();
        front
    }

    /// The front group goes behind the others, if it has entries.
    fn next_group(&mut self) {
        self.left = None;
        let Some(next) = self.waiting.pop_front() else {
            return;
        };
        let before = std::mem::take(&mut self.front);
        let id = std::mem::replace(&mut self.id, next);
        // Put in before the other is taken out, the tree keeps its memory.
        if !before.first.is_empty() {
            self.others.insert(id, before);
            self.waiting.push_back(id);
        }
        self.front = self.others.remove(&next).unwrap_or_default();
    }

    fn remove(&mut self, entry: K, place: Place) -> bool {
        if place.group == self.id {
            let found = self.front.remove(entry, place.order);
            if self.is_empty() {
                self.next_group();
            }
            return found;
        }
        let Some(group) = self.others.get_mut(&place.group) else {
            return false;
        };
        let found = group.remove(entry, place.order);
        if group.first.is_empty() {
            self.others.remove(&place.group);
            self.waiting.retain(|id| *id != place.group);
        }
        found
    }

    fn held(&self) -> usize {
        self.front.first.capacity() * size_of::<K>() + self.waiting.capacity() * size_of::<u32>()
    }

    fn trim(&mut self) {
        self.front.trim();
        self.waiting.shrink_to_fit();
        self.others.values_mut().for_each(Group::trim);
    }
}

impl<K: Copy + PartialEq> Group<K> {
    fn push(&mut self, entry: K, order: i64) {
        if self.first.is_empty() {
            self.order = order;
        } else if order < self.order {
            self.later.entry(order).or_default().push_back(entry);
            return;
        } else if order > self.order {
            let overtaken = std::mem::take(&mut self.first);
            self.later.insert(self.order, overtaken);
            self.order = order;
        }
        self.first.push_back(entry);
    }

    fn spend(&mut self, len: u64, turn: impl Fn() -> u64) {
        let Some(front) = self.first.front().copied() else {
            return;
        };
        if self.first.len() == 1 {
            self.turn = None;
            return;
        }
        let left = match self.turn {
            Some((entry, left)) if entry == front => left,
            _ => turn(),
        };
        let left = left.saturating_sub(len);
        self.turn = Some((front, left));
        if left == 0 {
            self.first.rotate_left(1);
            self.turn = None;
        }
    }

    fn pop(&mut self) -> Option<K> {
        let front = self.first.pop_front();
        if self.first.is_empty() {
            self.promote();
        }
        front
    }

    fn promote(&mut self) {
        if let Some((order, queue)) = self.later.pop_last() {
            self.order = order;
            self.first = queue;
        }
    }

    fn remove(&mut self, entry: K, order: i64) -> bool {
        let is_first = !self.first.is_empty() && order == self.order;
        let queue = if is_first {
            Some(&mut self.first)
        } else {
            self.later.get_mut(&order)
        };
        let Some(queue) = queue else { return false };
        let Some(at) = queue.iter().position(|listed| *listed == entry) else {
            return false;
        };
        queue.remove(at);
        if queue.is_empty() {
            if is_first {
                self.promote();
            } else {
                self.later.remove(&order);
            }
        }
        true
    }

    fn trim(&mut self) {
        self.first.shrink_to_fit();
        if !self.later.is_empty() {
            self.later.values_mut().for_each(VecDeque::shrink_to_fit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of numbers below `n`.
    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |n| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        }
    }

    fn place(group: u32, order: i64) -> Place {
        Place { group, order }
    }

    #[test]
    fn random_operations_on_one_group_agree_with_a_sorted_list() {
        let mut next = numbers(5);
        for _ in 0..200 {
            let mut turns = Turns::default();
            // Order, when it arrived, entry.
            let mut model: Vec<(i64, u64, u64)> = Vec::new();
            for step in 0..100 {
                let front = |model: &Vec<(i64, u64, u64)>| {
                    let of = |(i, (p, at, _)): (usize, &(i64, u64, u64))| (-p, *at, i);
                    model.iter().enumerate().map(of).min().map(|(_, _, i)| i)
                };
                let order = next(5) as i64 - 2;
                match next(4) {
                    0 | 1 => {
                        turns.push(step, place(7, order));
                        model.push((order, step, step));
                    }
                    2 => {
                        let expected = front(&model).map(|i| model.remove(i).2);
                        assert_eq!(turns.pop(), expected);
                    }
                    _ if model.is_empty() => {}
                    3 if next(2) == 0 => {
                        let has_more = next(2) == 0;
                        turns.spend(1, has_more, || 1);
                        let i = front(&model).unwrap();
                        model[i].1 = step;
                        if !has_more {
                            model.remove(i);
                        }
                    }
                    _ => {
                        let i = next(model.len() as u64) as usize;
                        turns.change(model[i].2, place(7, model[i].0), place(7, order));
                        (model[i].0, model[i].1) = (order, step);
                    }
                }
                assert_eq!(turns.front(), front(&model).map(|i| model[i].2));
                assert_eq!(turns.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn groups_share_alike_whatever_is_in_them_and_no_order_reaches_beyond_its_own() {
        let mut turns = Turns::default();
        // One entry alone, a hundred equals, and ten of rising order.
        turns.push(0u32, place(1, -5));
        (1..=100).for_each(|i| turns.push(i, place(2, 0)));
        (101..=110).for_each(|i| turns.push(i, place(3, i64::from(i) << 40)));
        let mut sent = [0u64; 111];
        for _ in 0..30_000 {
            let front = turns.front().unwrap();
            sent[front as usize] += 1200;
            turns.spend(1200, true, || 6_000);
        }
        let of = |range: std::ops::RangeInclusive<usize>| sent[range].iter().sum::<u64>();
        assert_eq!([of(0..=0), of(1..=100), of(101..=110)], [12_000_000; 3]);
        assert!(sent[1..=100].iter().all(|bytes| *bytes == 120_000));
        assert_eq!(sent[110], 12_000_000, "the others starve");
    }

    #[test]
    fn a_group_of_many_small_entries_has_no_more_than_one_of_few_large_ones() {
        let mut turns = Turns::default();
        turns.push(0u32, place(1, 0));
        let mut sent = [0u64; 2];
        for next in 1..10_000u32 {
            turns.push(next, place(2, 0));
            let front = turns.front().unwrap();
            sent[usize::from(front > 0)] += 1000;
            turns.spend(1000, front == 0, || 3_000);
        }
        assert!(sent[0].abs_diff(sent[1]) <= 3_000, "{sent:?}");
    }

    #[test]
    fn whatever_is_done_to_groups_no_entry_is_lost_or_doubled() {
        let mut next = numbers(11);
        for _ in 0..100 {
            let mut turns = Turns::default();
            let mut model: BTreeMap<u64, Place> = BTreeMap::new();
            for step in 0..200 {
                let at = place(next(4) as u32, next(3) as i64);
                let some = |n| model.iter().nth(n as usize).map(|(e, p)| (*e, *p));
                match next(6) {
                    0..=2 => {
                        turns.push(step, at);
                        model.insert(step, at);
                    }
                    3 => {
                        if let Some(entry) = turns.pop() {
                            assert!(model.remove(&entry).is_some());
                        }
                    }
                    4 => {
                        if let Some((entry, before)) = some(next(model.len() as u64 + 1)) {
                            turns.change(entry, before, at);
                            model.insert(entry, at);
                        }
                    }
                    _ => {
                        if let Some(entry) = turns.front() {
                            let has_more = next(2) == 0;
                            turns.spend(next(3), has_more, || 2);
                            if !has_more {
                                model.remove(&entry);
                            }
                        }
                    }
                }
                let front = turns.front();
                assert_eq!(front.is_none(), model.is_empty());
                if let Some(place) = front.and_then(|entry| model.get(&entry)) {
                    let in_group = model.values().filter(|p| p.group == place.group);
                    assert_eq!(in_group.map(|p| p.order).max(), Some(place.order));
                }
            }
            while let Some(entry) = turns.pop() {
                assert!(model.remove(&entry).is_some());
            }
            assert!(model.is_empty());
        }
    }
}

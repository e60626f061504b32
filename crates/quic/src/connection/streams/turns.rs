//! Whose turn it is: the highest priority first, round robin among equals.
//!
//! Used by `Streams` for the streams that can send and for the writers that wait for memory. The
//! highest priority present has a queue of its own, so that a connection whose streams are all
//! equally urgent never touches the others. An entry knows nothing of the stream behind it. A turn
//! lasts for a number of bytes, so that its data arrives together.

use std::collections::{BTreeMap, VecDeque};

use towline_wire::StreamId;

#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Streams of the highest priority present.
    first: VecDeque<StreamId>,
    /// That priority, while `first` has an entry.
    priority: i32,
    /// The others; no queue is empty.
    later: BTreeMap<i32, VecDeque<StreamId>>,
    /// Whose turn began last, and the bytes it has left.
    turn: Option<(StreamId, u64)>,
}

impl Turns {
    pub(crate) fn is_empty(&self) -> bool {
        // The highest is promoted whenever `first` runs empty.
        self.first.is_empty()
    }

    /// The stream whose turn it is.
    pub(crate) fn front(&self) -> Option<StreamId> {
        self.first.front().copied()
    }

    /// Lists a stream behind its equals.
    pub(crate) fn push(&mut self, id: StreamId, priority: i32) {
        if self.first.is_empty() {
            self.priority = priority;
        } else if priority < self.priority {
            self.later.entry(priority).or_default().push_back(id);
            return;
        } else if priority > self.priority {
            let overtaken = std::mem::take(&mut self.first);
            self.later.insert(self.priority, overtaken);
            self.priority = priority;
        }
        self.first.push_back(id);
    }

    /// The front sent `len` bytes and has more: at the end of its turn, which is `turn` bytes
    /// long, it goes behind its equals.
    pub(crate) fn spend(&mut self, len: u64, turn: impl FnOnce() -> u64) {
        let Some(front) = self.front() else { return };
        if self.first.len() == 1 {
            // With nobody to share with, turns neither begin nor end.
            self.turn = None;
            return;
        }
        let left = match self.turn {
            Some((id, left)) if id == front => left,
            _ => turn(),
        };
        let left = left.saturating_sub(len);
        self.turn = Some((front, left));
        if left == 0 {
            self.first.rotate_left(1);
            self.turn = None;
        }
    }

    /// Takes the front out.
    pub(crate) fn pop(&mut self) -> Option<StreamId> {
        let front = self.first.pop_front();
        if self.first.is_empty() {
            self.promote();
        }
        front
    }

    fn promote(&mut self) {
        if let Some((priority, queue)) = self.later.pop_last() {
            self.priority = priority;
            self.first = queue;
        }
    }

    /// Moves a stream, if it is listed, behind those of its new priority.
    pub(crate) fn change(&mut self, id: StreamId, before: i32, after: i32) {
        if self.remove(id, before) {
            self.push(id, after);
        }
    }

    fn remove(&mut self, id: StreamId, priority: i32) -> bool {
        let is_first = !self.first.is_empty() && priority == self.priority;
        let queue = if is_first {
            Some(&mut self.first)
        } else {
            self.later.get_mut(&priority)
        };
        let Some(queue) = queue else { return false };
        let Some(at) = queue.iter().position(|listed| *listed == id) else {
            return false;
        };
        queue.remove(at);
        if queue.is_empty() {
            if is_first {
                self.promote();
            } else {
                self.later.remove(&priority);
            }
        }
        true
    }

    /// Bytes of memory reserved for the highest priority; the others are few where there are many.
    pub(crate) fn held(&self) -> usize {
        self.first.capacity() * size_of::<StreamId>()
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.first.shrink_to_fit();
        if !self.later.is_empty() {
            self.later.values_mut().for_each(VecDeque::shrink_to_fit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_wire::{Direction, Side};

    #[test]
    fn random_operations_agree_with_a_sorted_list() {
        let mut state = 5u64;
        let mut next = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        let id = |n| StreamId::new(Side::Client, Direction::Unidirectional, n);
        for _ in 0..200 {
            let mut turns = Turns::default();
            // Priority, order of arrival, stream.
            let mut model: Vec<(i32, u64, u64)> = Vec::new();
            for step in 0..100 {
                let front = |model: &Vec<(i32, u64, u64)>| {
                    let of = |(i, (p, at, _)): (usize, &(i32, u64, u64))| (-p, *at, i);
                    model.iter().enumerate().map(of).min().map(|(_, _, i)| i)
                };
                let priority = next(5) as i32 - 2;
                match next(4) {
                    0 | 1 => {
                        turns.push(id(step), priority);
                        model.push((priority, step, step));
                    }
                    2 => {
                        let expected = front(&model).map(|i| id(model.remove(i).2));
                        assert_eq!(turns.pop(), expected);
                    }
                    _ if model.is_empty() => {}
                    3 if next(2) == 0 => {
                        turns.spend(1, || 1);
                        let i = front(&model).unwrap();
                        model[i].1 = step;
                    }
                    _ => {
                        let i = next(model.len() as u64) as usize;
                        turns.change(id(model[i].2), model[i].0, priority);
                        (model[i].0, model[i].1) = (priority, step);
                    }
                }
                assert_eq!(turns.front(), front(&model).map(|i| id(model[i].2)));
                assert_eq!(turns.is_empty(), model.is_empty());
            }
        }
    }
}

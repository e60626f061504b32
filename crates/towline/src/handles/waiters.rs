//! Tasks that wait in a queue for one thing, each cancellable.
//!
//! Owned by the sessions, always under the shard's lock. Where one event is for all, a wake
//! empties the queue. Where there are so many of something (streams to open, datagrams to read),
//! as many tasks are *called* as there are, in the order they came: a called task keeps its place
//! until it has taken its share or left, and a newcomer takes nothing that others wait for. Finding
//! a place costs a binary search, whatever the number of tasks. Wakers taken out are returned and
//! not dropped here: dropping one may drop a task, and that task's handles want the lock.

use std::collections::VecDeque;
use std::task::Waker;

/// Names one place, so that a cancelled future can leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterKey(u64);

#[derive(Debug)]
enum State {
    Waiting(Waker),
    /// It was woken to take its share.
    Called,
    Left,
}

#[derive(Debug)]
struct Place {
    key: WaiterKey,
    state: State,
}

/// Places left empty in the middle of a queue before it closes up.
const MOST_EMPTY: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// In the order of their keys.
    places: VecDeque<Place>,
    next_key: u64,
    /// No place before this one is waiting.
    first_waiting: u64,
    waiting: usize,
    called: usize,
}

impl Waiters {
    /// Takes a place at the end, or stays in the one that `key` names and waits there, again if it
    /// was called. Returns a waker that was replaced.
    #[must_use = "drop it when the lock has been released"]
    pub(crate) fn register(&mut self, key: &mut Option<WaiterKey>, waker: &Waker) -> Option<Waker> {
        let known = key.and_then(|key| self.find(key));
        if let (Some(key), Some(at)) = (*key, known) {
            let state = &mut self.places[at].state;
            match state {
                State::Waiting(old) => return replace(old, waker),
                State::Called => {
                    *state = State::Waiting(waker.clone());
                    self.called -= 1;
                    self.waiting += 1;
                    self.first_waiting = self.first_waiting.min(key.0);
                    return None;
                }
                State::Left => {}
            }
        }
        let new = WaiterKey(self.next_key);
        self.next_key += 1;
        if self.places.is_empty() {
            // A connection that idles for hours has one waiter, and not room for four.
            self.places.reserve_exact(1);
        }
        self.places.push_back(Place {
            key: new,
            state: State::Waiting(waker.clone()),
        });
        self.waiting += 1;
        *key = Some(new);
        None
    }

    /// Nobody waits and nobody was called: whoever comes may try, whatever there is.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.called == 0
    }

    /// Whether the task of `key`, or a newcomer, may try to take one of `supply` now.
    pub(super) fn may_take(&self, key: Option<WaiterKey>, supply: usize) -> bool {
        let place = key.and_then(|key| self.find(key));
        match place.map(|at| &self.places[at].state) {
            Some(State::Called) => true,
            Some(State::Waiting(_)) => false,
            Some(State::Left) | None => {
                self.waiting == 0 && (self.called == 0 || supply > self.called)
            }
        }
    }

    /// Calls the first that wait, so many that those called are not more than `supply`.
    pub(super) fn call(&mut self, supply: usize, wake: &mut Vec<Waker>) {
        if self.waiting == 0 || self.called >= supply {
            return;
        }
        let first = WaiterKey(self.first_waiting);
        let from = self.places.partition_point(|place| place.key < first);
        for place in self.places.range_mut(from..) {
            if self.waiting == 0 || self.called >= supply {
                self.first_waiting = place.key.0;
                return;
            }
            if let State::Waiting(_) = place.state
                && let State::Waiting(waker) = std::mem::replace(&mut place.state, State::Called)
            {
                self.waiting -= 1;
                self.called += 1;
                wake.push(waker);
            }
        }
        self.first_waiting = self.next_key;
    }

    /// Gives a place up: its task has its share, or wants none any more. If it was called, another
    /// may have to be.
    #[must_use = "drop it when the lock has been released"]
    pub(crate) fn leave(&mut self, key: WaiterKey) -> Option<Waker> {
        let at = self.find(key)?;
        let waker = match std::mem::replace(&mut self.places[at].state, State::Left) {
            State::Waiting(waker) => {
                self.waiting -= 1;
                Some(waker)
            }
            State::Called => {
                self.called -= 1;
                None
            }
            State::Left => None,
        };
        while let Some(Place {
            state: State::Left, ..
        }) = self.places.front()
        {
            self.places.pop_front();
        }
        let empty = self.places.len() - self.waiting - self.called;
        if empty > MOST_EMPTY.max(self.places.len() / 2) {
            let taken = |place: &Place| !matches!(place.state, State::Left);
            self.places.retain(taken);
        }
        waker
    }

    /// Ends all waiting.
    pub(crate) fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        (self.waiting, self.called) = (0, 0);
        wake.extend(self.places.drain(..).filter_map(|place| match place.state {
            State::Waiting(waker) => Some(waker),
            State::Called | State::Left => None,
        }));
    }

    /// Nobody waits; some may have been called.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    fn find(&self, key: WaiterKey) -> Option<usize> {
        self.places
            .binary_search_by_key(&key, |place| place.key)
            .ok()
    }
}

/// Puts `waker` in the place of `old`, which is returned if it was another task's.
#[must_use = "drop it when the lock has been released"]
fn replace(old: &mut Waker, waker: &Waker) -> Option<Waker> {
    (!old.will_wake(waker)).then(|| std::mem::replace(old, waker.clone()))
}

/// Wakes tasks once the lock has been released.
#[inline]
pub(super) fn wake_all(wake: Vec<Waker>) {
    for waker in wake {
        waker.wake();
    }
}

#[cfg(test)]
mod tests;

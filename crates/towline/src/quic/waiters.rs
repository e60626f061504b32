//! Tasks that wait for one thing, any number of them, each cancellable.
//!
//! Owned by the registry, always under the shard's lock. A wake empties the list:
//! a task that still finds nothing registers again.

use std::task::Waker;

/// Names one registration, so that a cancelled future can take it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterKey(u64);

#[derive(Debug, Default)]
pub(super) struct Waiters {
    list: Vec<(WaiterKey, Waker)>,
    next: u64,
}

impl Waiters {
    /// Registers `waker`, or renews the registration that `key` names.
    pub(super) fn register(&mut self, key: &mut Option<WaiterKey>, waker: &Waker) {
        let known = key.and_then(|key| self.list.iter_mut().find(|(known, _)| *known == key));
        if let Some((_, old)) = known {
            old.clone_from(waker);
            return;
        }
        let new = WaiterKey(self.next);
        self.next += 1;
        self.list.push((new, waker.clone()));
        *key = Some(new);
    }

    /// Takes a registration back; one that was woken already is not there any more.
    pub(super) fn remove(&mut self, key: WaiterKey) {
        if let Some(at) = self.list.iter().position(|(known, _)| *known == key) {
            self.list.swap_remove(at);
        }
    }

    pub(super) fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        wake.extend(self.list.drain(..).map(|(_, waker)| waker));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

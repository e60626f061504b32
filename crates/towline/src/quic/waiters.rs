//! Tasks that wait for one thing, any number of them, each cancellable.
//!
//! Owned by the registry, always under the shard's lock. A wake empties the list:
//! a task that still finds nothing registers again. Wakers taken out are returned and
//! not dropped here: dropping one may drop a task, and that task's handles want the lock.

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
    /// Registers `waker`, or renews the registration that `key` names and returns what
    /// it replaced.
    #[must_use = "drop it when the lock has been released"]
    pub(super) fn register(&mut self, key: &mut Option<WaiterKey>, waker: &Waker) -> Option<Waker> {
        let known = key.and_then(|key| self.list.iter_mut().find(|(known, _)| *known == key));
        if let Some((_, old)) = known {
            return replace(old, waker);
        }
        let new = WaiterKey(self.next);
        self.next += 1;
        self.list.push((new, waker.clone()));
        *key = Some(new);
        None
    }

    /// Takes a registration back; one that was woken already is not there any more.
    #[must_use = "drop it when the lock has been released"]
    pub(super) fn remove(&mut self, key: WaiterKey) -> Option<Waker> {
        let at = self.list.iter().position(|(known, _)| *known == key)?;
        Some(self.list.swap_remove(at).1)
    }

    pub(super) fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        wake.extend(self.list.drain(..).map(|(_, waker)| waker));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Puts `waker` in the place of `old`, which is returned if it was another task's.
#[must_use = "drop it when the lock has been released"]
pub(super) fn replace(old: &mut Waker, waker: &Waker) -> Option<Waker> {
    (!old.will_wake(waker)).then(|| std::mem::replace(old, waker.clone()))
}

//! One waker for a stream, many for the readers of its message.
//!
//! The registry keeps one waiting task for each stream; this stands there for all of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use towline_message::ReaderId;

#[derive(Debug, Default)]
pub(super) struct Fan {
    waiting: Mutex<Vec<(ReaderId, Waker)>>,
}

impl Fan {
    fn lock(&self) -> MutexGuard<'_, Vec<(ReaderId, Waker)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes `waker` for reader `key` when something arrives; replaces its former one.
    pub(super) fn register(&self, key: ReaderId, waker: &Waker) {
        let mut waiting = self.lock();
        let old = match waiting.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) if old.will_wake(waker) => None,
            Some((_, old)) => Some(std::mem::replace(old, waker.clone())),
            None => {
                waiting.push((key, waker.clone()));
                None
            }
        };
        // Dropping a waker may drop a task and its readers, which want the lock.
        drop(waiting);
        drop(old);
    }

    /// Forgets reader `key`.
    pub(super) fn remove(&self, key: ReaderId) {
        let mut waiting = self.lock();
        let at = waiting.iter().position(|(known, _)| *known == key);
        let old = at.map(|at| waiting.swap_remove(at));
        drop(waiting);
        drop(old);
    }

    /// Takes the wakers of all readers but `key`, to be woken when no lock is held.
    pub(super) fn take_others(&self, key: ReaderId) -> Vec<Waker> {
        let mut waiting = self.lock();
        let others = waiting.extract_if(.., |(known, _)| *known != key);
        others.map(|(_, waker)| waker).collect()
    }
}

impl Wake for Fan {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waiting = std::mem::take(&mut *self.lock());
        for (_, waker) in waiting {
            waker.wake();
        }
    }
}

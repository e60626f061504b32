//! [`lock`]: a mutex whose owner may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What happens under the lock cannot fail, so a poisoned one is as good.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

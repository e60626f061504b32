//! [`Wakers`]: tasks that wait for one thing.

use std::task::Waker;

/// Tasks of which all are woken at once.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Waits with the others.
    pub(crate) fn wait(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Calls all of them.
    pub(crate) fn wake(&mut self, wake: &mut Vec<Waker>) {
        wake.append(&mut self.0);
    }
}

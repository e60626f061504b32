//! Which connection wants to be woken next.
//!
//! An ordered set with one entry a connection, touched only when its deadline changes.

use std::collections::{BTreeSet, HashMap};

use towline_wire::Time;

use super::ConnectionHandle;

#[derive(Debug, Default)]
pub(super) struct DeadlineQueue {
    order: BTreeSet<(Time, ConnectionHandle)>,
    current: HashMap<ConnectionHandle, Time>,
}

impl DeadlineQueue {
    pub(super) fn set(&mut self, handle: ConnectionHandle, deadline: Option<Time>) {
        let old = match deadline {
            Some(at) => self.current.insert(handle, at),
            None => self.current.remove(&handle),
        };
        if old == deadline {
            return;
        }
        if let Some(old) = old {
            self.order.remove(&(old, handle));
        }
        if let Some(at) = deadline {
            self.order.insert((at, handle));
        }
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes one connection whose deadline has passed.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<ConnectionHandle> {
        let &(at, handle) = self.order.first()?;
        if at > now {
            return None;
        }
        self.set(handle, None);
        Some(handle)
    }
}

//! [`Waiter`]: one task's turn among those that wait for the same thing.
//!
//! Made by whoever polls, kept between polls, and dropped with the task: then the turn is the next
//! one's. It holds what it waits on alive, as the future of an `async fn` would. Costs nothing until a
//! poll has to wait.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use towline_quic::Connection as Engine;
use towline_wire::StreamId;

use super::entry::{Entry, Interest};
use super::reference::Reference;
use super::shards::{Queue, Shards};
use super::waiters::{WaiterKey, wake_all};
use crate::io::Change;

/// A task's turn among those that wait for the same thing.
///
/// Tasks are served in the order in which they came: pass the same waiter to every poll until one is
/// ready. Drop it to give up, or use it for something else, which gives the old turn up.
///
/// ```
/// # use std::task::{Context, Poll};
/// # use towline::{Connection, RecvStream};
/// # use towline::handles::Waiter;
/// struct Accepting {
///     connection: Connection,
///     waiter: Waiter,
/// }
///
/// impl Accepting {
///     fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<RecvStream>> {
///         let accepted = self.connection.poll_accept_uni(&mut self.waiter, cx);
///         accepted.map(Result::ok)
///     }
/// }
/// ```
#[derive(Default)]
pub struct Waiter(Option<On>);

/// What it waits for.
enum On {
    Connection {
        reference: Arc<Reference>,
        interest: Interest,
        key: WaiterKey,
    },
    Stream {
        reference: Arc<Reference>,
        id: StreamId,
        key: WaiterKey,
    },
    Endpoint {
        shards: Shards,
        queue: Queue,
        /// One for each shard.
        keys: Vec<Option<WaiterKey>>,
    },
}

impl Waiter {
    /// One that waits for nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One attempt to get what several may wait for at the connection, if it is this waiter's turn.
    /// Pending: whoever has a waker is woken when it is worth another.
    pub(super) fn poll_connection<R>(
        &mut self,
        of: &Arc<Reference>,
        interest: Interest,
        waker: Option<&Waker>,
        attempt: impl FnOnce(Option<&mut Engine>, &mut Entry) -> Poll<(R, Change)>,
    ) -> Poll<R> {
        let mut key = self.on_connection(of, interest);
        // Wakers are woken and dropped once the lock has been released.
        let mut wake = Vec::new();
        let mut replaced = None;
        let result = of.with(|mut engine, entry| {
            let mut change = Change::None;
            if entry.may_take(interest, key, engine.as_deref()) {
                match attempt(engine.as_deref_mut(), entry) {
                    Poll::Ready((result, change)) => {
                        if let Some(key) = key.take() {
                            replaced = entry.leave(interest, key, engine, &mut wake);
                        }
                        return (Poll::Ready(result), change);
                    }
                    // A refused stream makes the engine ask the peer for more (RFC 9000 §19.14).
                    Poll::Pending if interest.is_open() => change = Change::Made,
                    Poll::Pending => {}
                }
            }
            if let Some(waker) = waker {
                replaced = entry.register(interest, &mut key, waker);
            }
            (Poll::Pending, change)
        });
        self.keep_on_connection(of, interest, key);
        wake_all(wake);
        result
    }

    /// Its key among those who want `wanted` of the connection. Any other turn is given up.
    fn on_connection(&mut self, of: &Arc<Reference>, wanted: Interest) -> Option<WaiterKey> {
        match &self.0 {
            Some(On::Connection {
                reference,
                interest,
                key,
            }) if Arc::ptr_eq(reference, of) && *interest == wanted => Some(*key),
            _ => {
                self.leave();
                None
            }
        }
    }

    /// The turn on the connection is this one from now on; `None` if it is over.
    fn keep_on_connection(
        &mut self,
        of: &Arc<Reference>,
        interest: Interest,
        now: Option<WaiterKey>,
    ) {
        match (&mut self.0, now) {
            (held, None) => *held = None,
            (Some(On::Connection { key, .. }), Some(now)) => *key = now,
            (held, Some(key)) => {
                *held = Some(On::Connection {
                    reference: Arc::clone(of),
                    interest,
                    key,
                });
            }
        }
    }

    /// Its key among those who watch a stream of the connection.
    pub(super) fn on_stream(&mut self, of: &Arc<Reference>, stream: StreamId) -> Option<WaiterKey> {
        match &self.0 {
            Some(On::Stream { reference, id, key })
                if Arc::ptr_eq(reference, of) && *id == stream =>
            {
                Some(*key)
            }
            _ => {
                self.leave();
                None
            }
        }
    }

    /// As [`keep_on_connection`](Self::keep_on_connection), of a stream's watchers.
    pub(super) fn keep_on_stream(
        &mut self,
        of: &Arc<Reference>,
        id: StreamId,
        now: Option<WaiterKey>,
    ) {
        match (&mut self.0, now) {
            // A watcher that is woken is no watcher any more; its key leads nowhere.
            (held, None) => *held = None,
            (Some(On::Stream { key, .. }), Some(now)) => *key = now,
            (held, Some(key)) => {
                *held = Some(On::Stream {
                    reference: Arc::clone(of),
                    id,
                    key,
                });
            }
        }
    }

    /// Its keys in a queue of each shard.
    pub(super) fn on_endpoint(&mut self, of: &Shards, wanted: Queue) -> &mut [Option<WaiterKey>] {
        let is_same = matches!(
            &self.0,
            Some(On::Endpoint { shards, queue, .. })
                if Arc::ptr_eq(shards, of) && *queue == wanted
        );
        if !is_same {
            self.leave();
            self.0 = Some(On::Endpoint {
                shards: Arc::clone(of),
                queue: wanted,
                keys: vec![None; of.len()],
            });
        }
        match &mut self.0 {
            Some(On::Endpoint { keys, .. }) => keys,
            _ => &mut [],
        }
    }

    /// Gives the turn up, which may be another task's then.
    pub(super) fn leave(&mut self) {
        let Some(on) = self.0.take() else { return };
        // Wakers are woken and dropped once the lock has been released.
        let mut wake: Vec<Waker> = Vec::new();
        match on {
            On::Connection {
                reference,
                interest,
                key,
            } => {
                let _left = reference.with(|engine, entry| {
                    let left = entry.leave(interest, key, engine, &mut wake);
                    (left, Change::None)
                });
            }
            On::Stream { reference, id, key } => {
                let _left = reference.with(|_, entry| {
                    let slot = entry.send.get_mut(&id);
                    (slot.and_then(|slot| slot.watchers.leave(key)), Change::None)
                });
            }
            On::Endpoint {
                shards,
                queue,
                keys,
            } => {
                for (shard, key) in shards.iter().zip(keys) {
                    if let Some(key) = key {
                        let _left = shard.with(|endpoint, sessions| {
                            let left = queue.leave(endpoint, sessions, key, &mut wake);
                            (left, Change::None)
                        });
                    }
                }
            }
        }
        wake_all(wake);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiter").field(&self.0.is_some()).finish()
    }
}

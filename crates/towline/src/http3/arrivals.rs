//! [`Arrivals`]: what arrives on all connections of a door, one after the other.
//!
//! Each connection has a waker of its own, so that one that has something is found without asking the
//! others. No task and no runtime is needed: whoever asks is the one who is woken.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::connection::Connection;
use crate::handles::{Door, Waiter};

/// Takes what one connection has; `None` when nothing more will come on it.
pub(crate) type Take<T> = fn(&Connection, &mut Context<'_>) -> Poll<Option<T>>;

/// The connections of a door, and which of them have something.
pub(crate) struct Arrivals<T> {
    door: Door,
    waiter: Waiter,
    take: Take<T>,
    /// The door gives no more connections.
    is_closed: bool,
    /// By number; one that is over is taken out.
    members: BTreeMap<u64, Member>,
    next: u64,
    calls: Arc<Calls>,
}

struct Member {
    connection: Connection,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<T> Arrivals<T> {
    pub(crate) fn new(door: Door, take: Take<T>) -> Self {
        Self {
            door,
            waiter: Waiter::new(),
            take,
            is_closed: false,
            members: BTreeMap::new(),
            next: 0,
            calls: Arc::default(),
        }
    }

    /// The next thing, of the connections by turns; `None` when the endpoint is closed and every
    /// connection is over.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.take_connections(cx);
        // Who called before stands in the queue, who calls later is heard.
        self.calls.wait(cx.waker());
        while let Some(number) = self.calls.next() {
            // A late call of one that is over means nothing.
            let Some(member) = self.members.get(&number) else {
                continue;
            };
            member.bell.rung.store(false, Ordering::SeqCst);
            let mut cx = Context::from_waker(&member.waker);
            match (self.take)(&member.connection, &mut cx) {
                Poll::Ready(Some(item)) => {
                    // It may have more, and the others come first.
                    self.calls.add(&member.bell);
                    return Poll::Ready(Some(item));
                }
                Poll::Ready(None) => drop(self.members.remove(&number)),
                Poll::Pending => {}
            }
        }
        match self.is_closed && self.members.is_empty() {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }

    fn take_connections(&mut self, cx: &mut Context<'_>) {
        while !self.is_closed {
            match self.door.poll_accept(&mut self.waiter, cx) {
                Poll::Ready(Some(transport)) => {
                    if let Some(connection) = Connection::new(transport) {
                        self.add(connection);
                    }
                }
                Poll::Ready(None) => self.is_closed = true,
                Poll::Pending => return,
            }
        }
    }

    fn add(&mut self, connection: Connection) {
        let bell = Arc::new(Bell {
            number: self.next,
            rung: AtomicBool::new(false),
            calls: Arc::downgrade(&self.calls),
        });
        // It may have something already.
        self.calls.add(&bell);
        let member = Member {
            connection,
            waker: Waker::from(Arc::clone(&bell)),
            bell,
        };
        self.members.insert(self.next, member);
        self.next += 1;
    }
}

/// Connections that called, in the order in which they did, and who is to hear of it.
#[derive(Default)]
struct Calls(Mutex<(VecDeque<u64>, Option<Waker>)>);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<u64>, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, waker: &Waker) {
        let mut calls = self.lock();
        let old = match &calls.1 {
            Some(old) if old.will_wake(waker) => None,
            _ => calls.1.replace(waker.clone()),
        };
        // Dropping a waker may drop a task, and with it this.
        drop(calls);
        drop(old);
    }

    /// Puts a connection into the queue, unless it stands there; who waits is to be woken for it.
    fn add(&self, bell: &Bell) -> Option<Waker> {
        if bell.rung.swap(true, Ordering::SeqCst) {
            return None;
        }
        let mut calls = self.lock();
        calls.0.push_back(bell.number);
        calls.1.take()
    }

    fn next(&self) -> Option<u64> {
        self.lock().0.pop_front()
    }
}

/// One connection's way to call. It keeps nothing alive.
struct Bell {
    number: u64,
    /// It called, and was not asked since: each connection stands in the queue once.
    rung: AtomicBool,
    calls: Weak<Calls>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(calls) = self.calls.upgrade() else {
            return;
        };
        if let Some(waker) = calls.add(self) {
            waker.wake();
        }
    }
}

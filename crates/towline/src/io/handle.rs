//! The lock between a shard and everyone who uses its connections.
//!
//! A [`Handle`] gives short, synchronous access to the engine from any thread. A
//! change marks the shard dirty, and only the first change since its last turn
//! wakes it. Nothing here makes a system call or waits for anything but the lock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use towline_quic::{DatagramMeta, Endpoint};
use towline_wire::Time;

use super::clock::Clock;
use super::socket::SocketInfo;
use super::stats::SocketStats;

/// Cap: bytes that datagrams handed over by other shards may take until the shard handles them.
pub(super) const MAX_MAIL_BYTES: usize = 1 << 20;
/// What a train handed over counts beside its bytes.
const MAIL_OVERHEAD: usize = 128;

/// Hands the engine's events to whoever waits for them.
///
/// Called with the lock held after everything that may raise an event. Wakers go
/// into `wake`, and are woken when the lock has been released.
pub trait Dispatch: Send {
    /// Takes events from `endpoint` with `poll_event` until none is left, or leaves
    /// them for [`Shard::poll_event`](super::Shard::poll_event).
    fn dispatch(&mut self, endpoint: &mut Endpoint, now: Time, wake: &mut Vec<Waker>);

    /// The shard is gone: nobody must wait for it any more.
    fn on_shard_gone(&mut self, wake: &mut Vec<Waker>) {
        let _ = wake;
    }

    /// When to dispatch next, if nothing else happens before: its own deadlines.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// Whether nothing is left that the shard should be driven for.
    fn is_over(&self, endpoint: &Endpoint) -> bool {
        let _ = endpoint;
        false
    }
}

/// Leaves all events in the engine, for [`Shard::poll_event`](super::Shard::poll_event).
impl Dispatch for () {
    fn dispatch(&mut self, _: &mut Endpoint, _: Time, _: &mut Vec<Waker>) {}
}

/// Whether a use of the engine gave the shard something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something may have to be sent, timed or told: the shard takes a turn.
    Made,
    /// Nothing that the shard needs to look at.
    None,
}

/// Access to the engine of one shard, from any thread. Clones are the same shard.
pub struct Handle<D> {
    shared: Arc<Shared<D>>,
}

struct Shared<D> {
    state: Mutex<State<D>>,
    clock: Clock,
}

pub(super) struct State<D> {
    pub(super) endpoint: Endpoint,
    pub(super) dispatch: D,
    /// A handle changed something since the last turn began.
    pub(super) dirty: bool,
    /// Wakes whoever drives the shard.
    pub(super) waker: Option<Waker>,
    pub(super) info: SocketInfo,
    pub(super) stats: SocketStats,
    pub(super) mail: Mail,
    /// The shard is to go on on this socket.
    pub(super) next_socket: Option<std::net::UdpSocket>,
    /// The shard is no more.
    pub(super) gone: bool,
}

/// Trains that came to another shard's socket, the oldest first.
pub(super) type Trains = VecDeque<(DatagramMeta, Vec<u8>)>;

/// Where other shards leave trains.
#[derive(Default)]
pub(super) struct Mail {
    trains: Trains,
    /// What all trains take that the shard has not handled, taken out or not.
    bytes: usize,
}

impl Mail {
    /// Moves what waits into `taken`, once that is used up.
    pub(super) fn take_into(&mut self, taken: &mut Trains) {
        if taken.is_empty() {
            std::mem::swap(&mut self.trains, taken);
        }
    }

    /// A train that was taken out has been handled.
    pub(super) fn on_handled(&mut self, train: &[u8]) {
        self.bytes -= train.len() + MAIL_OVERHEAD;
    }
}

/// What became of datagrams handed to another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Taken,
    /// It has too many waiting already: dropped.
    Full,
    /// The shard has ended.
    Gone,
}

impl<D> Handle<D> {
    pub(super) fn new(endpoint: Endpoint, dispatch: D, clock: Clock, info: SocketInfo) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    endpoint,
                    dispatch,
                    dirty: false,
                    waker: None,
                    info,
                    stats: SocketStats::default(),
                    mail: Mail::default(),
                    next_socket: None,
                    gone: false,
                }),
                clock,
            }),
        }
    }

    /// The shard's clock; `now` of all calls into its engine comes from it.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Runs `f` on the engine and the dispatcher, and wakes the shard if `f` says so.
    ///
    /// `f` must be short: the shard waits for it. It must not use this handle again.
    pub fn with<R>(&self, f: impl FnOnce(&mut Endpoint, &mut D) -> (R, Change)) -> R {
        let mut state = self.lock();
        let State {
            endpoint, dispatch, ..
        } = &mut *state;
        let (result, change) = f(endpoint, dispatch);
        let waker = if change == Change::Made && !state.dirty {
            state.dirty = true;
            state.waker.clone()
        } else {
            None
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// Gives the shard datagrams that came to another one's socket, for its next turns.
    pub(super) fn deliver(&self, meta: DatagramMeta, train: &[u8]) -> Delivery {
        let mut state = self.lock();
        if state.gone {
            return Delivery::Gone;
        }
        let bytes = state.mail.bytes + train.len() + MAIL_OVERHEAD;
        if bytes > MAX_MAIL_BYTES {
            return Delivery::Full;
        }
        state.mail.bytes = bytes;
        state.mail.trains.push_back((meta, train.to_vec()));
        let waker = if std::mem::replace(&mut state.dirty, true) {
            None
        } else {
            state.waker.clone()
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Delivery::Taken
    }

    /// Has the shard go on on another socket, which is bound already: its clients tell their servers
    /// in its next turn. The newest one that is given before that counts.
    pub fn rebind(&self, socket: std::net::UdpSocket) {
        let mut state = self.lock();
        let replaced = state.next_socket.replace(socket);
        let waker = if std::mem::replace(&mut state.dirty, true) {
            None
        } else {
            state.waker.clone()
        };
        drop(state);
        drop(replaced);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Runs `f` on the engine and the dispatcher without changing either.
    pub fn read<R>(&self, f: impl FnOnce(&Endpoint, &D) -> R) -> R {
        let state = self.lock();
        f(&state.endpoint, &state.dispatch)
    }

    /// What the shard's socket is bound to and was granted.
    pub fn socket_info(&self) -> SocketInfo {
        self.lock().info
    }

    /// The shard's socket counters as of its last turn.
    pub fn socket_stats(&self) -> SocketStats {
        self.lock().stats
    }

    /// A poisoned lock means that a caller's closure panicked, not that the engine did
    /// half of its work: every engine call leaves the engine whole.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Dispatch> Handle<D> {
    /// For the shard itself: lets `f` act on the engine, and hands the events that come of it to
    /// whoever waits for them. Whom that wakes is left in `wake`, until the lock is released.
    pub(super) fn act<R>(
        &self,
        now: Time,
        wake: &mut Vec<Waker>,
        f: impl FnOnce(&mut State<D>) -> R,
    ) -> R {
        let mut state = self.lock();
        let state = &mut *state;
        let result = f(state);
        state.dispatch.dispatch(&mut state.endpoint, now, wake);
        result
    }
}

impl<D> Clone for Handle<D> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<D> fmt::Debug for Handle<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

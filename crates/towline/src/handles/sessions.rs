//! Who waits for what: the handles' side of the shard's lock.
//!
//! Owns one [`Entry`] per connection that a handle refers to or that waits to be
//! accepted, takes the engine's events and turns them into wakers. Where a protocol stands before the
//! handles, it is shown each event first, and called when its time comes. Called by the
//! shard after every engine call ([`Dispatch`]) and by the handles.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use towline_quic::{ConnectionError, ConnectionHandle, Endpoint, Event};
use towline_wire::Time;

use super::accept_queue::{AcceptQueue, Plans};
use super::entry::Entry;
use super::protocol::{Seat, Turn};
use super::waiters::{WaiterKey, Waiters};
use crate::io::Dispatch;

/// Finished handshakes that may wait for `accept`, or at a door; a further one is closed at once.
pub const MAX_ACCEPT_QUEUE: usize = 1024;

/// A protocol that asks for a time that has passed gets this later one: it cannot keep the shard busy.
const LEAST_PROTOCOL_WAIT: Duration = Duration::from_millis(1);

/// When what is left of an endpoint is closed, and with what words.
#[derive(Debug)]
struct Shutdown {
    at: Time,
    code: u64,
    reason: Vec<u8>,
}

/// The connections of one shard as their handles know them: a shard with this dispatcher has
/// [`Endpoint`](super::Endpoint)s. Made by
/// [`EndpointBuilder::on_sockets`](super::EndpointBuilder::on_sockets).
#[derive(Debug)]
pub struct Sessions {
    by_handle: HashMap<ConnectionHandle, usize>,
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    plans: Plans,
    /// One for each of `plans`, and one for connections of other protocols.
    accepting: Vec<AcceptQueue>,
    /// When protocols want to be called, and of which entry.
    protocol_timers: BTreeSet<(Time, usize)>,
    /// Tasks that decide about clients.
    pub(super) deciders: Waiters,
    pub(super) idlers: Waiters,
    /// Nobody is accepted any more, and what is left will be closed.
    shutdown: Option<Shutdown>,
    /// The endpoint was closed with this code and reason: nothing new comes or goes.
    pub(super) closed: Option<(u64, Vec<u8>)>,
    /// No endpoint handle is left: the driver ends with the last connection.
    pub(super) orphaned: bool,
    /// The driver has ended; nothing moves any more.
    pub(super) stopped: bool,
}

impl Default for Sessions {
    fn default() -> Self {
        Self::new(Plans::default())
    }
}

impl Sessions {
    pub(super) fn new(plans: Plans) -> Self {
        Self {
            by_handle: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            accepting: (0..plans.queues())
                .map(|_| AcceptQueue::default())
                .collect(),
            plans,
            protocol_timers: BTreeSet::new(),
            deciders: Waiters::default(),
            idlers: Waiters::default(),
            shutdown: None,
            closed: None,
            orphaned: false,
            stopped: false,
        }
    }

    /// The entry of a slot that a live handle refers to.
    pub(super) fn entry(&mut self, slot: usize) -> &mut Entry {
        self.entries[slot]
            .as_mut()
            .expect("a slot lives as long as a handle refers to it")
    }

    pub(super) fn entry_ref(&self, slot: usize) -> &Entry {
        self.entries[slot]
            .as_ref()
            .expect("a slot lives as long as a handle refers to it")
    }

    /// Makes an entry with one reference.
    pub(super) fn insert(&mut self, handle: ConnectionHandle, remote: SocketAddr) -> usize {
        let slot = self.add(handle, remote);
        self.entry(slot).references = 1;
        slot
    }

    fn add(&mut self, handle: ConnectionHandle, remote: SocketAddr) -> usize {
        let entry = Some(Entry::new(handle, remote));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.by_handle.insert(handle, slot);
        slot
    }

    /// Gives one reference back. The last one closes the connection, if it still lives,
    /// with application code 0; `true` if the engine was told so. An entry that is no
    /// longer needed is returned, to be dropped outside the lock.
    pub(super) fn release(
        &mut self,
        slot: usize,
        endpoint: &mut Endpoint,
        now: Time,
    ) -> (Option<Entry>, bool) {
        let entry = self.entry(slot);
        entry.references -= 1;
        if entry.references > 0 || entry.queued {
            return (None, false);
        }
        self.discard(slot, endpoint, now, 0, b"")
    }

    /// Takes an entry out, for its slot to be another's.
    fn take(&mut self, slot: usize) -> Option<Entry> {
        let entry = self.entries[slot].take()?;
        self.free.push(slot);
        if let Some(at) = entry.protocol.as_ref().and_then(|seat| seat.at) {
            self.protocol_timers.remove(&(at, slot));
        }
        Some(entry)
    }

    /// Forgets an entry and closes its connection, if it still lives.
    fn discard(
        &mut self,
        slot: usize,
        endpoint: &mut Endpoint,
        now: Time,
        code: u64,
        reason: &[u8],
    ) -> (Option<Entry>, bool) {
        let Some(entry) = self.take(slot) else {
            return (None, false);
        };
        let mut told = false;
        if let Some(handle) = entry.handle {
            self.by_handle.remove(&handle);
            let engine = endpoint.connection_mut(handle);
            if let (Some(engine), None) = (engine, &entry.error) {
                engine.close(now, code, reason);
                told = true;
            }
            endpoint.forget(handle);
        }
        (Some(entry), told)
    }

    /// The next connection of a queue for the acceptor of `key`, now referred to once; `None` if there
    /// is none but for others who came before.
    pub(super) fn pop_accepted(&mut self, queue: usize, key: Option<WaiterKey>) -> Option<usize> {
        let slot = self.accepting[queue].pop_for(key)?;
        let entry = self.entry(slot);
        entry.queued = false;
        entry.references = 1;
        Some(slot)
    }

    /// Closes every connection nobody accepted.
    pub(super) fn drop_unclaimed(&mut self, endpoint: &mut Endpoint, now: Time) {
        let (code, reason) = self.closed.clone().unwrap_or_default();
        while let Some(slot) = self.accepting.iter_mut().find_map(AcceptQueue::pop) {
            // Nobody has waited on it yet: its entry holds no waker.
            let _ = self.discard(slot, endpoint, now, code, &reason);
        }
    }

    /// Closes every connection of the endpoint, unfinished handshakes included, with the same code and reason.
    pub(super) fn close_all(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        code: u64,
        reason: &[u8],
    ) {
        self.closed.get_or_insert_with(|| (code, reason.to_vec()));
        self.shutdown = None;
        endpoint.set_server_config(now, None);
        self.drop_unclaimed(endpoint, now);
        let handles: Vec<_> = endpoint.handles().collect();
        for handle in handles {
            if let Some(engine) = endpoint.connection_mut(handle) {
                engine.close(now, code, reason);
            }
        }
    }

    /// Accepts nobody any more, and closes at `at` what is left then. The earliest of several ends counts.
    pub(super) fn begin_shutdown(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        at: Time,
        code: u64,
        reason: &[u8],
    ) {
        endpoint.set_server_config(now, None);
        if self.shutdown.as_ref().is_none_or(|end| at < end.at) {
            let reason = reason.to_vec();
            self.shutdown = Some(Shutdown { at, code, reason });
        }
    }

    /// New clients get no connection, whatever else is set.
    pub(super) fn takes_nobody(&self) -> bool {
        self.closed.is_some() || self.stopped || self.shutdown.is_some()
    }

    /// No connection waits to be accepted, and none will.
    pub(super) fn accepts_no_more(&self, queue: usize, endpoint: &Endpoint) -> bool {
        let closed = self.closed.is_some() || self.stopped;
        self.accepting[queue].len() == 0
            && (closed || (self.shutdown.is_some() && endpoint.stats().handshakes == 0))
    }

    fn on_accepted(
        &mut self,
        handle: ConnectionHandle,
        endpoint: &mut Endpoint,
        now: Time,
        wake: &mut Vec<Waker>,
    ) {
        let Some(engine) = endpoint.connection_mut(handle) else {
            return;
        };
        let queue = self.plans.queue_of(engine.alpn());
        let full = self.accepting[queue].len() >= MAX_ACCEPT_QUEUE;
        if self.closed.is_some() || self.orphaned || full {
            let (code, reason) = match &self.closed {
                Some((code, reason)) => (*code, reason.as_slice()),
                None => (0, b"not accepted".as_slice()),
            };
            tracing::debug!(?handle, "nobody accepts this connection; closing it");
            engine.close(now, code, reason);
            return;
        }
        let remote = engine.remote();
        let slot = self.add(handle, remote);
        self.seat_protocol(slot, endpoint);
        self.filter(slot, endpoint, now, wake, Event::Accepted);
        let entry = self.entry(slot);
        entry.queued = true;
        entry.established = true;
        self.accepting[queue].push(slot, wake);
    }

    /// Those who accept: from connections without a door on, and at each door.
    pub(super) fn acceptors(&mut self, queue: usize) -> &mut AcceptQueue {
        &mut self.accepting[queue]
    }

    /// Wakes everybody who accepts.
    pub(super) fn wake_acceptors(&mut self, wake: &mut Vec<Waker>) {
        for queue in &mut self.accepting {
            queue.acceptors.wake_all(wake);
        }
    }

    // ---- protocols ----

    /// Has the protocol that a new connection agreed on stand before its handles.
    fn seat_protocol(&mut self, slot: usize, endpoint: &Endpoint) {
        let handle = self.entry(slot).handle;
        let Some(engine) = handle.and_then(|handle| endpoint.connection(handle)) else {
            return;
        };
        if let Some(factory) = self.plans.factory_of(engine.alpn()) {
            let seat = Seat::new(factory(engine));
            self.entry(slot).protocol = Some(Box::new(seat));
        }
    }

    /// Shows an event to the connection's protocol; what of it the handles are told.
    fn filter(
        &mut self,
        slot: usize,
        endpoint: &mut Endpoint,
        now: Time,
        wake: &mut Vec<Waker>,
        event: Event,
    ) -> Option<Event> {
        let entry = self.entry(slot);
        let (Some(seat), Some(handle)) = (entry.protocol.as_deref_mut(), entry.handle) else {
            return Some(event);
        };
        let mut notes = Vec::new();
        let event = endpoint.visit(handle, |engine| match engine {
            None => Some(event),
            Some(connection) => {
                let mut turn = Turn {
                    now,
                    connection,
                    wake,
                    notes: &mut notes,
                };
                seat.on_event(&mut turn, event)
            }
        });
        entry.tell_handles(notes, wake);
        self.rearm(slot, None);
        event
    }

    /// Notes when the protocol of an entry wants to be called, not before `least`; whether that has
    /// changed.
    pub(super) fn rearm(&mut self, slot: usize, least: Option<Time>) -> bool {
        let entry = self.entry(slot);
        let live = entry.error.is_none();
        let Some(seat) = entry.protocol.as_deref_mut() else {
            return false;
        };
        let wanted = seat.next_timeout().filter(|_| live);
        let wanted = wanted.map(|at| least.map_or(at, |least| at.max(least)));
        let before = std::mem::replace(&mut seat.at, wanted);
        if before == wanted {
            return false;
        }
        if let Some(at) = before {
            self.protocol_timers.remove(&(at, slot));
        }
        if let Some(at) = wanted {
            self.protocol_timers.insert((at, slot));
        }
        true
    }

    /// Calls the protocols whose time has come.
    fn run_protocols(&mut self, endpoint: &mut Endpoint, now: Time, wake: &mut Vec<Waker>) {
        while let Some((at, slot)) = self.protocol_timers.first().copied()
            && at <= now
        {
            self.protocol_timers.pop_first();
            let entry = self.entry(slot);
            let live = entry.handle.filter(|_| entry.error.is_none());
            if let (Some(seat), Some(handle)) = (entry.protocol.as_deref_mut(), live) {
                seat.at = None;
                let mut notes = Vec::new();
                endpoint.visit(handle, |engine| {
                    if let Some(connection) = engine {
                        let mut turn = Turn {
                            now,
                            connection,
                            wake,
                            notes: &mut notes,
                        };
                        seat.on_timeout(&mut turn);
                    }
                });
                entry.tell_handles(notes, wake);
            }
            self.rearm(slot, Some(now + LEAST_PROTOCOL_WAIT));
        }
    }

    /// The engine keeps a connection that is over for those who still read; without them it goes.
    fn on_drained(
        &mut self,
        handle: ConnectionHandle,
        endpoint: &mut Endpoint,
        wake: &mut Vec<Waker>,
    ) {
        let Some(slot) = self.by_handle.remove(&handle) else {
            return endpoint.forget(handle);
        };
        let entry = self.entry(slot);
        entry.end(ConnectionError::ClosedLocally, wake);
        if entry.references == 0 && !entry.queued {
            endpoint.forget(handle);
            self.take(slot);
        } else if endpoint.connection(handle).is_none() {
            entry.handle = None;
        }
    }
}

impl Dispatch for Sessions {
    fn dispatch(&mut self, endpoint: &mut Endpoint, now: Time, wake: &mut Vec<Waker>) {
        if let Some(end) = self.shutdown.take_if(|end| end.at <= now) {
            self.close_all(endpoint, now, end.code, &end.reason);
        }
        self.run_protocols(endpoint, now, wake);
        while let Some((handle, event)) = endpoint.poll_event() {
            match event {
                // Who was accepted before its handshake has an entry, and somebody who waits.
                Event::Accepted if !self.by_handle.contains_key(&handle) => {
                    self.on_accepted(handle, endpoint, now, wake);
                    continue;
                }
                Event::Drained => {
                    self.on_drained(handle, endpoint, wake);
                    continue;
                }
                _ => {}
            }
            let Some(slot) = self.by_handle.get(&handle).copied() else {
                continue;
            };
            if matches!(event, Event::Connected | Event::Accepted) {
                self.seat_protocol(slot, endpoint);
            }
            let Some(event) = self.filter(slot, endpoint, now, wake, event) else {
                continue;
            };
            self.entry(slot).tell(event, handle, endpoint, wake);
        }
        self.deciders.call(endpoint.unpolled_incoming(), wake);
        for queue in 0..self.accepting.len() {
            if !self.accepting[queue].acceptors.is_empty() && self.accepts_no_more(queue, endpoint)
            {
                self.accepting[queue].acceptors.wake_all(wake);
            }
        }
        if !self.idlers.is_empty() && endpoint.is_idle() {
            self.idlers.wake_all(wake);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let shutdown = self.shutdown.as_ref().map(|end| end.at);
        let protocol = self.protocol_timers.first().map(|(at, _)| *at);
        [shutdown, protocol].into_iter().flatten().min()
    }

    fn on_shard_gone(&mut self, wake: &mut Vec<Waker>) {
        self.stopped = true;
        for entry in self.entries.iter_mut().flatten() {
            // What arrived can still be read.
            entry.end(ConnectionError::ClosedLocally, wake);
        }
        self.by_handle.clear();
        self.protocol_timers.clear();
        self.wake_acceptors(wake);
        self.deciders.wake_all(wake);
        self.idlers.wake_all(wake);
    }

    fn is_over(&self, endpoint: &Endpoint) -> bool {
        self.orphaned && endpoint.is_idle()
    }
}

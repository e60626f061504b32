//! Who waits for what: the handles' side of the shard's lock.
//!
//! Owns one [`Entry`] per connection that a handle refers to or that waits to be
//! accepted, takes the engine's events and turns them into wakers. Called by the
//! shard after every engine call ([`Dispatch`]) and by the handles. It never holds
//! stream data, and costs nothing for a stream nobody waits for.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;

use rustls::{CipherSuite, NamedGroup};
use towline_quic::{
    Connection as Engine, ConnectionError, ConnectionHandle, DatagramFate, Endpoint, Event,
    PeerIdentity, Stats,
};
use towline_wire::{Direction, StreamId, Time};

use super::waiters::{WaiterKey, Waiters};
use crate::io::Dispatch;

/// Finished handshakes that may wait for `accept`; a further one is closed at once.
pub const MAX_ACCEPT_QUEUE: usize = 1024;

/// Cap: fates of datagrams that may wait to be asked for, each connection; beyond it the oldest go.
pub const MAX_DATAGRAM_FATES: usize = 4096;

/// What a task can wait for on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    Established,
    Closed,
    OpenBi,
    OpenUni,
    AcceptBi,
    AcceptUni,
    DatagramIn,
    DatagramOut,
    DatagramFate,
}

impl Interest {
    pub(super) fn open(direction: Direction) -> Self {
        match direction {
            Direction::Bidirectional => Self::OpenBi,
            Direction::Unidirectional => Self::OpenUni,
        }
    }

    pub(super) fn accept(direction: Direction) -> Self {
        match direction {
            Direction::Bidirectional => Self::AcceptBi,
            Direction::Unidirectional => Self::AcceptUni,
        }
    }

    /// Whether it is for a stream of ours.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::OpenBi | Self::OpenUni)
    }

    /// How many tasks can have it now; `None` where one event is for all of them.
    pub(super) fn supply(self, engine: &Engine) -> Option<usize> {
        let streams = match self {
            Self::Established | Self::Closed | Self::DatagramFate => return None,
            Self::OpenBi => engine.openable(Direction::Bidirectional),
            Self::OpenUni => engine.openable(Direction::Unidirectional),
            Self::AcceptBi => engine.acceptable(Direction::Bidirectional),
            Self::AcceptUni => engine.acceptable(Direction::Unidirectional),
            Self::DatagramIn => return Some(engine.received_datagrams()),
            Self::DatagramOut => return Some(engine.queueable_datagrams()),
        };
        Some(usize::try_from(streams).unwrap_or(usize::MAX))
    }

    /// Has the engine tell when there is more of it.
    fn await_more(self, engine: &mut Engine) {
        match self {
            Self::OpenBi => engine.await_streams(Direction::Bidirectional),
            Self::OpenUni => engine.await_streams(Direction::Unidirectional),
            Self::DatagramOut => engine.await_datagram_room(),
            // What arrives is told whenever nothing waited to be taken before.
            _ => {}
        }
    }
}

/// What is kept of a connection after the engine forgot it.
#[derive(Clone, Debug)]
pub(super) struct LastState {
    pub(super) stats: Stats,
    pub(super) peer_identity: Option<PeerIdentity>,
    pub(super) alpn: Option<Vec<u8>>,
    pub(super) cipher_suite: Option<CipherSuite>,
    pub(super) key_exchange: Option<NamedGroup>,
    pub(super) resumed: bool,
    pub(super) remote: SocketAddr,
    pub(super) local_ip: Option<IpAddr>,
    pub(super) server_name: Option<String>,
}

impl LastState {
    pub(super) fn of(engine: &Engine) -> Self {
        Self {
            stats: engine.stats(),
            peer_identity: engine.peer_identity(),
            alpn: engine.alpn().map(<[u8]>::to_vec),
            cipher_suite: engine.cipher_suite(),
            key_exchange: engine.key_exchange(),
            resumed: engine.is_resumed(),
            remote: engine.remote(),
            local_ip: engine.local_ip(),
            server_name: engine.server_name().map(str::to_owned),
        }
    }
}

/// The sending half of a stream that has a handle.
#[derive(Debug, Default)]
pub(super) struct SendSlot {
    pub(super) writable: Option<Waker>,
    /// Tasks in `finished` or `stopped`.
    pub(super) watchers: Waiters,
    /// Everything and the FIN was acknowledged.
    pub(super) finished: bool,
    /// The peer's code, once it asked to stop.
    pub(super) stopped: Option<u64>,
}

/// One connection as its handles see it.
#[derive(Debug)]
pub(super) struct Entry {
    /// The engine's name for it; `None` when the engine has forgotten it. A connection that is over has one
    /// while something in it can be read.
    pub(super) handle: Option<ConnectionHandle>,
    /// Handles that refer to it: connections, streams, futures.
    pub(super) references: usize,
    /// The peer's address when the entry was made.
    pub(super) remote: SocketAddr,
    queued: bool,
    pub(super) established: bool,
    pub(super) error: Option<ConnectionError>,
    pub(super) last_state: Option<Box<LastState>>,
    /// Tasks that wait, by what for; most connections have one kind or two.
    queues: Vec<(Interest, Waiters)>,
    /// Bidirectional streams of the peer's that were accepted.
    pub(super) accepted_bi: u64,
    /// What became of datagrams that were asked about, the oldest first.
    pub(super) fates: VecDeque<(u64, DatagramFate)>,
    pub(super) send: HashMap<StreamId, SendSlot>,
    /// Readers that found nothing.
    pub(super) recv: HashMap<StreamId, Waker>,
}

impl Entry {
    fn new(handle: ConnectionHandle, remote: SocketAddr) -> Self {
        Self {
            handle: Some(handle),
            references: 0,
            remote,
            queued: false,
            established: false,
            error: None,
            last_state: None,
            queues: Vec::new(),
            accepted_bi: 0,
            fates: VecDeque::new(),
            send: HashMap::new(),
            recv: HashMap::new(),
        }
    }

    /// Whether the task of `key`, or a newcomer, may try to take what it waits for now.
    #[inline]
    pub(super) fn may_take(
        &self,
        interest: Interest,
        key: Option<WaiterKey>,
        engine: Option<&Engine>,
    ) -> bool {
        // How much there is, is asked only where somebody else might have a claim to it.
        let queue = self.queues.iter().find(|(of, _)| *of == interest);
        let Some((_, queue)) = queue.filter(|(_, queue)| !queue.is_idle()) else {
            return true;
        };
        let supply = engine.and_then(|engine| interest.supply(engine));
        supply.is_none_or(|supply| queue.may_take(key, supply))
    }

    /// Takes a place in the queue for `interest`, or stays in the one that `key` names.
    #[must_use = "drop it when the lock has been released"]
    pub(super) fn register(
        &mut self,
        interest: Interest,
        key: &mut Option<WaiterKey>,
        waker: &Waker,
    ) -> Option<Waker> {
        if self.queue(interest).is_none() {
            // A connection that idles for hours has one queue, and not room for four.
            self.queues.reserve_exact(1);
            self.queues.push((interest, Waiters::default()));
        }
        self.queue(interest)?.register(key, waker)
    }

    /// Gives a place in a queue up, which may be another's turn then.
    #[must_use = "drop it when the lock has been released"]
    pub(super) fn leave(
        &mut self,
        interest: Interest,
        key: WaiterKey,
        engine: Option<&mut Engine>,
        wake: &mut Vec<Waker>,
    ) -> Option<Waker> {
        let waker = self.queue(interest)?.leave(key);
        if let Some(engine) = engine {
            self.call(interest, engine, wake);
        }
        waker
    }

    fn queue(&mut self, interest: Interest) -> Option<&mut Waiters> {
        let queue = self.queues.iter_mut().find(|(of, _)| *of == interest);
        queue.map(|(_, queue)| queue)
    }

    /// Calls as many of those who wait for `interest` as can have it now.
    fn call(&mut self, interest: Interest, engine: &mut Engine, wake: &mut Vec<Waker>) {
        let Some(queue) = self.queue(interest).filter(|queue| !queue.is_empty()) else {
            return;
        };
        match interest.supply(engine) {
            None => queue.wake_all(wake),
            Some(supply) => {
                queue.call(supply, wake);
                if !queue.is_empty() {
                    interest.await_more(engine);
                }
            }
        }
    }

    /// As [`Self::call`], on an event.
    fn on_event(
        &mut self,
        interest: Interest,
        handle: ConnectionHandle,
        endpoint: &mut Endpoint,
        wake: &mut Vec<Waker>,
    ) {
        if self.queue(interest).is_some_and(|queue| !queue.is_empty()) {
            endpoint.visit(handle, |engine| {
                if let Some(engine) = engine {
                    self.call(interest, engine, wake);
                }
            });
        }
    }

    /// In the order of the streams: what comes of it must not depend on a hash.
    fn wake_everyone(&mut self, wake: &mut Vec<Waker>) {
        for (_, queue) in &mut self.queues {
            queue.wake_all(wake);
        }
        let mut senders: Vec<_> = self.send.iter_mut().collect();
        senders.sort_unstable_by_key(|(id, _)| **id);
        for (_, slot) in senders {
            wake.extend(slot.writable.take());
            slot.watchers.wake_all(wake);
        }
        let mut readers: Vec<_> = std::mem::take(&mut self.recv).into_iter().collect();
        readers.sort_unstable_by_key(|(id, _)| *id);
        wake.extend(readers.into_iter().map(|(_, waker)| waker));
    }

    /// Ends the connection for its handles; the first reason stays.
    fn end(&mut self, error: ConnectionError, wake: &mut Vec<Waker>) {
        self.error.get_or_insert(error);
        self.wake_everyone(wake);
    }
}

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
#[derive(Debug, Default)]
pub struct Sessions {
    by_handle: HashMap<ConnectionHandle, usize>,
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    accept_queue: VecDeque<usize>,
    pub(super) acceptors: Waiters,
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

impl Sessions {
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

    /// Forgets an entry and closes its connection, if it still lives.
    fn discard(
        &mut self,
        slot: usize,
        endpoint: &mut Endpoint,
        now: Time,
        code: u64,
        reason: &[u8],
    ) -> (Option<Entry>, bool) {
        let Some(entry) = self.entries[slot].take() else {
            return (None, false);
        };
        self.free.push(slot);
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

    /// The next connection for the acceptor of `key`, now referred to once; `None` if there is none
    /// but for others who came before.
    pub(super) fn pop_accepted(&mut self, key: Option<WaiterKey>) -> Option<usize> {
        if !self.acceptors.may_take(key, self.accept_queue.len()) {
            return None;
        }
        let slot = self.accept_queue.pop_front()?;
        let entry = self.entry(slot);
        entry.queued = false;
        entry.references = 1;
        Some(slot)
    }

    /// Closes every connection nobody accepted.
    pub(super) fn drop_unclaimed(&mut self, endpoint: &mut Endpoint, now: Time) {
        let (code, reason) = self.closed.clone().unwrap_or_default();
        while let Some(slot) = self.accept_queue.pop_front() {
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
    pub(super) fn accepts_no_more(&self, endpoint: &Endpoint) -> bool {
        let closed = self.closed.is_some() || self.stopped;
        self.accept_queue.is_empty()
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
        if self.closed.is_some() || self.orphaned || self.accept_queue.len() >= MAX_ACCEPT_QUEUE {
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
        let entry = self.entry(slot);
        entry.queued = true;
        entry.established = true;
        self.accept_queue.push_back(slot);
        self.call_acceptors(wake);
    }

    /// Calls as many of those who accept as connections wait for them.
    pub(super) fn call_acceptors(&mut self, wake: &mut Vec<Waker>) {
        self.acceptors.call(self.accept_queue.len(), wake);
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
            self.entries[slot] = None;
            self.free.push(slot);
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
            let entry = self.entry(slot);
            match event {
                Event::Connected | Event::Accepted => {
                    entry.established = true;
                    if let Some(queue) = entry.queue(Interest::Established) {
                        queue.wake_all(wake);
                    }
                }
                Event::Readable(id) => wake.extend(entry.recv.remove(&id)),
                Event::Writable(id) => {
                    wake.extend(
                        entry
                            .send
                            .get_mut(&id)
                            .and_then(|slot| slot.writable.take()),
                    );
                }
                Event::Opened(direction) => {
                    entry.on_event(Interest::accept(direction), handle, endpoint, wake);
                }
                Event::StreamsAvailable(direction) => {
                    entry.on_event(Interest::open(direction), handle, endpoint, wake);
                }
                Event::Finished(id) => {
                    if let Some(slot) = entry.send.get_mut(&id) {
                        slot.finished = true;
                        slot.watchers.wake_all(wake);
                    }
                }
                Event::Stopped { id, error_code } => {
                    let side = endpoint.connection(handle).map(Engine::side);
                    if side != Some(id.initiator()) && id.index() >= entry.accepted_bi {
                        // Told again when it is accepted, when the engine may have forgotten it.
                        entry.send.entry(id).or_default();
                    }
                    if let Some(slot) = entry.send.get_mut(&id) {
                        slot.stopped.get_or_insert(error_code);
                        wake.extend(slot.writable.take());
                        slot.watchers.wake_all(wake);
                    }
                }
                Event::DatagramReceived => {
                    entry.on_event(Interest::DatagramIn, handle, endpoint, wake);
                }
                Event::DatagramSendable => {
                    entry.on_event(Interest::DatagramOut, handle, endpoint, wake);
                }
                Event::DatagramFate { id, fate } => {
                    if entry.fates.len() == MAX_DATAGRAM_FATES {
                        entry.fates.pop_front();
                    }
                    entry.fates.push_back((id, fate));
                    entry.on_event(Interest::DatagramFate, handle, endpoint, wake);
                }
                Event::Closed(error) => {
                    tracing::debug!(?handle, %error, "connection closed");
                    if let Some(engine) = endpoint.connection(handle) {
                        entry.last_state = Some(Box::new(LastState::of(engine)));
                    }
                    entry.end(error, wake);
                }
                _ => {}
            }
        }
        self.deciders.call(endpoint.unpolled_incoming(), wake);
        if !self.acceptors.is_empty() && self.accepts_no_more(endpoint) {
            self.acceptors.wake_all(wake);
        }
        if !self.idlers.is_empty() && endpoint.is_idle() {
            self.idlers.wake_all(wake);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.shutdown.as_ref().map(|end| end.at)
    }

    fn on_shard_gone(&mut self, wake: &mut Vec<Waker>) {
        self.stopped = true;
        for entry in self.entries.iter_mut().flatten() {
            // What arrived can still be read.
            entry.end(ConnectionError::ClosedLocally, wake);
        }
        self.by_handle.clear();
        self.acceptors.wake_all(wake);
        self.deciders.wake_all(wake);
        self.idlers.wake_all(wake);
    }

    fn is_over(&self, endpoint: &Endpoint) -> bool {
        self.orphaned && endpoint.is_idle()
    }
}

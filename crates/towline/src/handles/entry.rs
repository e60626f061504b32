//! One connection as its handles see it: who waits for what.
//!
//! Sessions own the entries; handles reach theirs under the shard's lock. It never holds stream data,
//! and costs nothing for a stream nobody waits for.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;

use rustls::{CipherSuite, NamedGroup};
use towline_quic::{
    Connection as Engine, ConnectionError, ConnectionHandle, DatagramFate, Endpoint, Event,
    PeerIdentity, Stats,
};
use towline_wire::{Direction, StreamId};

use super::protocol::{Note, Seat};
use super::waiters::{WaiterKey, Waiters};

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
    /// Data takes another path, or packets have another size.
    Path,
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
            Self::Established | Self::Closed | Self::DatagramFate | Self::Path => {
                return None;
            }
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
    /// The connection's protocol ended the stream: the engine tells nothing more of it.
    pub(super) ended: bool,
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
    /// It waits to be accepted.
    pub(super) queued: bool,
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
    /// What stands between the engine and the handles.
    pub(super) protocol: Option<Box<Seat>>,
}

impl Entry {
    pub(super) fn new(handle: ConnectionHandle, remote: SocketAddr) -> Self {
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
            protocol: None,
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

    /// What the protocol says to handles of streams.
    pub(super) fn tell_handles(&mut self, notes: Vec<Note>, wake: &mut Vec<Waker>) {
        for note in notes {
            let (id, ended) = match note {
                Note::Call(id) => (id, false),
                Note::End(id) => (id, true),
                Note::Expect(id) => {
                    self.send.entry(id).or_default();
                    continue;
                }
            };
            wake.extend(self.recv.remove(&id));
            if let Some(slot) = self.send.get_mut(&id) {
                slot.ended |= ended;
                wake.extend(slot.writable.take());
                slot.watchers.wake_all(wake);
            }
        }
    }

    /// Ends the connection for its handles; the first reason stays.
    pub(super) fn end(&mut self, error: ConnectionError, wake: &mut Vec<Waker>) {
        let is_first = self.error.is_none();
        let error = self.error.get_or_insert(error);
        if is_first && let Some(protocol) = &mut self.protocol {
            protocol.on_end(error, wake);
        }
        self.wake_everyone(wake);
    }

    /// Wakes who waits for what has happened.
    pub(super) fn tell(
        &mut self,
        event: Event,
        handle: ConnectionHandle,
        endpoint: &mut Endpoint,
        wake: &mut Vec<Waker>,
    ) {
        match event {
            Event::Connected | Event::Accepted => {
                self.established = true;
                if let Some(queue) = self.queue(Interest::Established) {
                    queue.wake_all(wake);
                }
            }
            Event::Readable(id) => wake.extend(self.recv.remove(&id)),
            Event::Writable(id) => {
                wake.extend(self.send.get_mut(&id).and_then(|slot| slot.writable.take()));
            }
            Event::Opened(direction) => {
                self.on_event(Interest::accept(direction), handle, endpoint, wake);
            }
            Event::StreamsAvailable(direction) => {
                self.on_event(Interest::open(direction), handle, endpoint, wake);
            }
            Event::Finished(id) => {
                if let Some(slot) = self.send.get_mut(&id) {
                    slot.finished = true;
                    slot.watchers.wake_all(wake);
                }
            }
            Event::Stopped { id, error_code } => {
                let side = endpoint.connection(handle).map(Engine::side);
                let is_new = side != Some(id.initiator()) && id.index() >= self.accepted_bi;
                if is_new && self.protocol.is_none() {
                    // Told again when it is accepted, when the engine may have forgotten it.
                    self.send.entry(id).or_default();
                }
                if let Some(slot) = self.send.get_mut(&id) {
                    slot.stopped.get_or_insert(error_code);
                    wake.extend(slot.writable.take());
                    slot.watchers.wake_all(wake);
                }
            }
            Event::DatagramReceived => {
                self.on_event(Interest::DatagramIn, handle, endpoint, wake);
            }
            Event::DatagramSendable => {
                self.on_event(Interest::DatagramOut, handle, endpoint, wake);
            }
            Event::PathChanged | Event::MtuChanged => {
                if let Some(queue) = self.queue(Interest::Path) {
                    queue.wake_all(wake);
                }
            }
            Event::DatagramFate { id, fate } => {
                if self.fates.len() == MAX_DATAGRAM_FATES {
                    self.fates.pop_front();
                }
                self.fates.push_back((id, fate));
                self.on_event(Interest::DatagramFate, handle, endpoint, wake);
            }
            Event::Closed(error) => {
                tracing::debug!(?handle, %error, "connection closed");
                if let Some(engine) = endpoint.connection(handle) {
                    self.last_state = Some(Box::new(LastState::of(engine)));
                }
                self.end(error, wake);
                if let Some(seat) = &self.protocol {
                    endpoint.visit(handle, |engine| {
                        if let Some(engine) = engine {
                            seat.note_held(engine);
                        }
                    });
                }
            }
            _ => {}
        }
    }
}

//! One shard: routes datagrams to connections, admits clients, owns the connections.
//!
//! Parts: `route` (connection-ID table), `admit` (Initial, Retry, refusals), `doors` (what may be
//! done for strangers), `memory` (the account), `reset` (stateless reset), `timers`. A turn of
//! `poll_transmit` gives every ready connection one train in round robin. It opens no socket and
//! reads no clock.

mod admit;
mod budget;
mod doors;
mod handshakes;
mod memory;
mod reset;
mod route;
mod rtt_memory;
mod timers;
mod token;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use towline_wire::{ConnectionId, Time, peek_dcid};

use crate::config::{CidGenerator, ClientConfig, EndpointConfig, ServerConfig};
use crate::connection::assemble::TrainBuf;
use crate::connection::component::Ecn;
use crate::connection::events::Event;
use crate::connection::output::Train;
use crate::connection::{Connection, NewConnection};
use crate::error::ConnectError;
use doors::{Doors, Reply};
use handshakes::Place;
use memory::{CANDIDATES, Held, LOOKS, Memory};
use reset::Resets;
use route::{KeyedState, Routes};
use rtt_memory::RttMemory;
use timers::{DeadlineQueue, Expired};
use token::Tokens;

/// Cap: connections of one endpoint, clients included.
pub(crate) const MAX_CONNECTIONS: usize = 1 << 20;

/// Names a connection of one endpoint until its `Event::Drained`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle {
    index: u32,
    generation: u32,
}

/// What the socket said about a datagram, or a train of equal ones.
#[derive(Clone, Copy, Debug)]
pub struct DatagramMeta {
    /// The sender.
    pub remote: SocketAddr,
    /// The address it was sent to, where known.
    pub local_ip: Option<IpAddr>,
    /// ECN codepoint of all of them.
    pub ecn: Option<Ecn>,
    /// Size of each datagram but the last, bytes; the length for a single one.
    pub stride: usize,
}

/// Where the datagrams of a [`TrainBuf`] go, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The connection they are of; `None` for answers that belong to none.
    pub connection: Option<ConnectionHandle>,
    /// The peer.
    pub remote: SocketAddr,
    /// The local address to send from, where the peer's packets told it.
    pub local_ip: Option<IpAddr>,
    /// ECN codepoint for all datagrams.
    pub ecn: Option<Ecn>,
    /// Size of each datagram but the last, bytes.
    pub segment_size: usize,
    /// Bytes in the buffer.
    pub len: usize,
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Connections at present, closing ones included.
    pub connections: usize,
    /// Server handshakes in progress.
    pub handshakes: usize,
    /// Connections a server admitted.
    pub admitted: u64,
    /// Initial packets refused for a limit or an invalid token.
    pub refused: u64,
    /// Of these, the ones with an invalid Retry token of ours.
    pub invalid_tokens: u64,
    /// Of those refused, the ones that were told so with a CONNECTION_CLOSE.
    pub refusals: u64,
    /// Retry packets sent.
    pub retries: u64,
    /// Version Negotiation packets sent.
    pub version_negotiations: u64,
    /// Stateless resets sent.
    pub resets: u64,
    /// Datagrams that belonged to nothing.
    pub unroutable: u64,
    /// Bytes that the connections hold, by the account that `EndpointConfig::memory_limit` bounds.
    pub memory: u64,
    /// The most they ever held.
    pub memory_most: u64,
    /// Connections ended because the limit was reached.
    pub shed: u64,
    /// Work for strangers that was not done, and replies that were not sent, because their prefix
    /// had its share.
    pub over_budget: u64,
    /// Work done for strangers before a handshake, in units of about a microsecond.
    pub stranger_work: u64,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
    /// In the `ready` queue.
    ready: bool,
    /// In the `eventful` queue.
    eventful: bool,
    /// A server's handshake in progress, and the place it holds.
    handshake: Option<Place>,
    /// Destination of the client's first Initials, routed while it may still be used.
    original: Option<ConnectionId>,
    reset_token: Option<[u8; 16]>,
    held: Held,
}

/// One shard of an endpoint.
pub struct Endpoint {
    rng: ChaCha20Rng,
    cid_generator: Box<dyn CidGenerator>,
    cid_len: usize,
    server: Option<Arc<ServerConfig>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    routes: Routes,
    resets: Resets,
    tokens: Tokens,
    doors: Doors,
    deadlines: DeadlineQueue,
    ready: VecDeque<ConnectionHandle>,
    eventful: VecDeque<ConnectionHandle>,
    /// A copy of the Initial packet that is being opened.
    scratch: Vec<u8>,
    accepting: bool,
    rtts: RttMemory,
    memory: Memory,
    stats: EndpointStats,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// A shard; a server if `server` is given.
    pub fn new(config: EndpointConfig, server: Option<Arc<ServerConfig>>) -> Self {
        let mut rng = ChaCha20Rng::from_seed(config.seed);
        let route_keys = (rng.next_u64(), rng.next_u64());
        Self {
            rng,
            cid_len: config.cid_generator.cid_len(),
            cid_generator: config.cid_generator,
            accepting: server.is_some(),
            server,
            slots: Vec::new(),
            free: Vec::new(),
            routes: Routes::new(route_keys),
            resets: Resets::new(&config.reset_key, route_keys),
            tokens: Tokens::new(&config.token_key),
            doors: Doors::new(KeyedState(route_keys.1, route_keys.0)),
            deadlines: DeadlineQueue::default(),
            ready: VecDeque::new(),
            eventful: VecDeque::new(),
            rtts: RttMemory::default(),
            memory: Memory::new(config.memory_limit),
            scratch: Vec::new(),
            stats: EndpointStats::default(),
        }
    }

    /// Starts a connection to `remote`.
    ///
    /// # Errors
    /// For an unusable name, address or TLS configuration, or when the endpoint is full.
    pub fn connect(
        &mut self,
        now: Time,
        config: &ClientConfig,
        remote: SocketAddr,
        server_name: &str,
    ) -> Result<ConnectionHandle, ConnectError> {
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(ConnectError::InvalidRemote(remote));
        }
        if self.stats.connections >= MAX_CONNECTIONS {
            return Err(ConnectError::TooManyConnections);
        }
        // RFC 9000 §7.2: at least 8 unpredictable bytes.
        let mut random = [0; 16];
        self.rng.fill_bytes(&mut random);
        let original = ConnectionId::new(&random).unwrap_or(ConnectionId::EMPTY);
        let new = self.prepare(remote, None, original);
        let known_rtt = self.rtts.get(remote);
        let connection = Connection::client(now, config, server_name, &new, known_rtt)?;
        let handle = self.insert(now, connection, new.local, None);
        self.after(now, handle);
        Ok(handle)
    }

    /// Fresh IDs and secrets of a connection.
    fn prepare(
        &mut self,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        original: ConnectionId,
    ) -> NewConnection {
        let local = self.new_cid();
        NewConnection {
            remote,
            local_ip,
            original,
            local,
            reset_token: self.resets.token(&local),
            skip_key: self.rng.next_u64(),
        }
    }

    /// An ID that no observer can link to another, and that no connection has (RFC 9000 §5.1).
    fn new_cid(&mut self) -> ConnectionId {
        let mut random = [0; 20];
        loop {
            self.rng.fill_bytes(&mut random);
            let cid = self.cid_generator.generate(&random[..self.cid_len]);
            if self.routes.get(&cid).is_none() {
                return cid;
            }
        }
    }

    fn insert(
        &mut self,
        now: Time,
        connection: Connection,
        local: ConnectionId,
        handshake: Option<(ConnectionId, Place)>,
    ) -> ConnectionHandle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let handle = ConnectionHandle {
            index,
            generation: slot.generation,
        };
        slot.connection = Some(Box::new(connection));
        slot.held = Held::new(now);
        slot.handshake = handshake.map(|(_, place)| place);
        slot.original = handshake.map(|(original, _)| original);
        self.routes.insert(local, handle);
        if let Some((original, _)) = handshake {
            self.routes.insert(original, handle);
            self.stats.handshakes += 1;
        }
        self.stats.connections += 1;
        handle
    }

    fn slot(&mut self, handle: ConnectionHandle) -> Option<&mut Slot> {
        self.slots
            .get_mut(handle.index as usize)
            .filter(|s| s.generation == handle.generation && s.connection.is_some())
    }

    // ---- input ----

    /// Takes a datagram, or a train of equal ones from one sender. The bytes are overwritten.
    pub fn handle_datagrams(&mut self, now: Time, meta: DatagramMeta, train: &mut [u8]) {
        let stride = if meta.stride == 0 {
            train.len()
        } else {
            meta.stride
        };
        if stride == 0 {
            return;
        }
        let mut rest = train;
        while !rest.is_empty() {
            let len = rest.len().min(stride);
            let Ok(dcid) = peek_dcid(&rest[..len], self.cid_len) else {
                let (datagram, others) = rest.split_at_mut(len);
                self.handle_unroutable(now, meta, datagram);
                rest = others;
                continue;
            };
            let handle =
                ConnectionId::new(dcid).and_then(|cid| Some((cid, self.routes.get(&cid)?)));
            let found = handle.and_then(|(cid, handle)| {
                let slot = self.slots.get_mut(handle.index as usize)?;
                Some((cid, handle, slot.connection.as_mut()?))
            });
            let Some((dcid, handle, connection)) = found else {
                let (datagram, others) = rest.split_at_mut(len);
                self.handle_unroutable(now, meta, datagram);
                rest = others;
                continue;
            };
            // The table is asked again only where the connection ID changes inside the train.
            let run = run_length(rest, stride, &dcid, self.cid_len);
            let (datagrams, others) = rest.split_at_mut(run);
            connection.handle_datagrams(now, meta.remote, meta.ecn, &dcid, stride, datagrams);
            self.after(now, handle);
            rest = others;
        }
    }

    fn handle_unroutable(&mut self, now: Time, meta: DatagramMeta, datagram: &mut [u8]) {
        if let Some(handle) = self.resets.find(meta.remote, datagram)
            && let Some(connection) = self.slot(handle).and_then(|s| s.connection.as_mut())
        {
            connection.check_stateless_reset(now, datagram);
            self.after(now, handle);
            return;
        }
        self.admit(now, meta, datagram);
    }

    // ---- time ----

    /// The next time `handle_timeout` is wanted.
    pub fn next_timeout(&self) -> Option<Time> {
        self.deadlines.next()
    }

    /// Runs every deadline that has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(expired) = self.deadlines.pop(now) {
            let (Expired::Due(handle) | Expired::Quiet(handle)) = expired;
            let Some(connection) = self.slot(handle).and_then(|s| s.connection.as_mut()) else {
                continue;
            };
            match expired {
                Expired::Due(_) => {
                    connection.handle_timeout(now);
                    self.after(now, handle);
                    self.deadlines.look_again(handle, now);
                }
                Expired::Quiet(_) => {
                    connection.trim();
                    self.note(now, handle);
                }
            }
        }
    }

    // ---- output ----

    /// Builds the next train of datagrams to send, one for each ready connection in turn.
    pub fn poll_transmit(&mut self, now: Time, buf: &mut TrainBuf) -> Option<Transmit> {
        if let Some(reply) = self.doors.next_reply() {
            let Reply {
                remote,
                local_ip,
                packet,
                ..
            } = reply;
            buf.set_single(&packet);
            return Some(Transmit {
                connection: None,
                remote,
                local_ip,
                ecn: None,
                segment_size: packet.len(),
                len: packet.len(),
            });
        }
        while let Some(handle) = self.ready.pop_front() {
            let Some(slot) = self.slot(handle) else {
                continue;
            };
            slot.ready = false;
            let Some(connection) = slot.connection.as_mut() else {
                continue;
            };
            let train = connection.poll_transmit(now, buf);
            // More may be waiting behind the end of this train.
            self.after_transmit(now, handle, train.is_some());
            if let Some(train) = train {
                let Train {
                    remote,
                    local_ip,
                    ecn,
                    segment_size,
                    len,
                } = train;
                return Some(Transmit {
                    connection: Some(handle),
                    remote,
                    local_ip,
                    ecn,
                    segment_size,
                    len,
                });
            }
        }
        None
    }

    /// The system refuses to send datagrams of `len` bytes of this connection (EMSGSIZE): it goes
    /// on with the smallest size there is, 1200 bytes (RFC 9000 §14).
    pub fn handle_datagram_too_big(&mut self, handle: ConnectionHandle, len: usize) {
        if let Some(connection) = self.slot(handle).and_then(|s| s.connection.as_mut()) {
            connection.handle_datagram_too_big(len);
            self.mark_ready(handle);
            self.mark_eventful(handle);
        }
    }

    /// The next event of any connection.
    pub fn poll_event(&mut self) -> Option<(ConnectionHandle, Event)> {
        while let Some(&handle) = self.eventful.front() {
            let event = self
                .slot(handle)
                .and_then(|s| s.connection.as_mut())
                .and_then(|c| c.poll_event());
            match event {
                Some(Event::Drained) => {
                    self.eventful.pop_front();
                    self.remove(handle);
                    return Some((handle, Event::Drained));
                }
                Some(event) => return Some((handle, event)),
                None => {
                    self.eventful.pop_front();
                    if let Some(slot) = self.slot(handle) {
                        slot.eventful = false;
                    }
                }
            }
        }
        None
    }

    // ---- access ----

    /// A connection, to look at.
    pub fn connection(&self, handle: ConnectionHandle) -> Option<&Connection> {
        self.slots
            .get(handle.index as usize)
            .filter(|s| s.generation == handle.generation)
            .and_then(|s| s.connection.as_deref())
    }

    /// A connection, to act on; it gets its turn in `poll_transmit`.
    pub fn connection_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.slot(handle)?;
        self.mark_ready(handle);
        self.mark_eventful(handle);
        self.slot(handle).and_then(|s| s.connection.as_deref_mut())
    }

    /// Lets `f` act on a connection, if it is there. It gets its turn in `poll_transmit` only if it
    /// has something to send then: not after a read that found nothing.
    pub fn visit<R>(
        &mut self,
        handle: ConnectionHandle,
        f: impl FnOnce(Option<&mut Connection>) -> R,
    ) -> R {
        let Some(slot) = self.slot(handle) else {
            return f(None);
        };
        let Some(connection) = slot.connection.as_mut() else {
            return f(None);
        };
        let result = f(Some(connection));
        let sends = !slot.ready && connection.may_send();
        let tells = !slot.eventful && connection.has_events();
        if sends {
            self.mark_ready(handle);
        }
        if tells {
            self.mark_eventful(handle);
        }
        result
    }

    /// Handles of all connections, in no particular order of age.
    pub fn handles(&self) -> impl Iterator<Item = ConnectionHandle> + '_ {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            slot.connection.as_ref().map(|_| ConnectionHandle {
                index: index as u32,
                generation: slot.generation,
            })
        })
    }

    /// Counters.
    pub fn stats(&self) -> EndpointStats {
        EndpointStats {
            memory: self.memory.total(),
            memory_most: self.memory.most(),
            ..self.stats
        }
    }

    /// Length of our connection IDs, bytes.
    pub fn cid_len(&self) -> usize {
        self.cid_len
    }

    /// A server stops admitting clients; existing connections go on.
    pub fn refuse_new(&mut self) {
        self.accepting = false;
    }

    // ---- bookkeeping after every mutation ----

    fn mark_ready(&mut self, handle: ConnectionHandle) {
        if let Some(slot) = self.slot(handle)
            && !std::mem::replace(&mut slot.ready, true)
        {
            self.ready.push_back(handle);
        }
    }

    fn mark_eventful(&mut self, handle: ConnectionHandle) {
        if let Some(slot) = self.slot(handle)
            && !std::mem::replace(&mut slot.eventful, true)
        {
            self.eventful.push_back(handle);
        }
    }

    fn after(&mut self, now: Time, handle: ConnectionHandle) {
        self.exchange_cids(handle);
        self.give_turn(now, handle);
        self.note(now, handle);
    }

    fn after_transmit(&mut self, now: Time, handle: ConnectionHandle, sent: bool) {
        if sent {
            self.give_turn(now, handle);
        }
        let connection = self.slot(handle).and_then(|s| s.connection.as_ref());
        match sent || connection.is_some_and(|c| c.may_send()) {
            // Also where nothing left: what the application wrote into a full window is held.
            true => self.note(now, handle),
            false => self.file(handle),
        }
    }

    /// The connection gets a turn if it can use one.
    fn give_turn(&mut self, now: Time, handle: ConnectionHandle) {
        if let Some(connection) = self.slot(handle).and_then(|s| s.connection.as_mut())
            && connection.wants_turn(now)
        {
            self.mark_ready(handle);
        }
    }

    /// More is held than may be: the least useful of some connections is trimmed, and ended if
    /// that does not do. At most one goes for each change, and each change asks.
    #[cold]
    fn relieve(&mut self, now: Time, grown: ConnectionHandle) {
        let mut worst = None;
        let mut candidates = 0;
        let first = self.rng.next_u64() as usize;
        let others = (0..self.slots.len().min(LOOKS)).map(|i| (first + i) % self.slots.len());
        for index in std::iter::once(grown.index as usize).chain(others) {
            let slot = &self.slots[index];
            if slot.connection.as_ref().is_none_or(|c| c.is_closed()) {
                continue;
            }
            let idle_bytes = slot.held.idle_bytes(now);
            if worst.is_none_or(|(most, _)| idle_bytes > most) {
                worst = Some((idle_bytes, index));
            }
            candidates += 1;
            if candidates > CANDIDATES {
                break;
            }
        }
        let Some((_, index)) = worst else { return };
        let handle = ConnectionHandle {
            index: index as u32,
            generation: self.slots[index].generation,
        };
        if let Some(connection) = self.slots[index].connection.as_mut() {
            connection.trim();
        }
        self.account(now, handle);
        if !self.memory.is_over() {
            return;
        }
        if let Some(connection) = self.slots[index].connection.as_mut() {
            connection.shed(now);
            self.stats.shed += 1;
            if let Some(unsaid) = self.memory.say_shed(now) {
                let remote = connection.remote();
                tracing::warn!(
                    %remote,
                    unsaid,
                    all = self.stats.shed,
                    "memory limit: a connection ended; `unsaid` more have since the last such line"
                );
            }
        }
        self.mark_ready(handle);
        self.account(now, handle);
        self.file(handle);
    }

    /// What a connection holds may have changed.
    fn account(&mut self, now: Time, handle: ConnectionHandle) {
        if let Some(slot) = self.slots.get_mut(handle.index as usize)
            && let Some(connection) = slot.connection.as_deref()
        {
            let (bytes, moved) = (connection.held(), connection.moved());
            self.memory.update(now, &mut slot.held, bytes, moved);
        }
    }

    /// Memory, events and deadlines of a connection that may have changed.
    fn note(&mut self, now: Time, handle: ConnectionHandle) {
        // Before the account, for a handshake that ends gives memory back.
        self.file(handle);
        self.account(now, handle);
        if self.memory.is_over() {
            self.relieve(now, handle);
        }
    }

    /// Files deadline and events of a connection.
    fn file(&mut self, handle: ConnectionHandle) {
        let Some(slot) = self.slot(handle) else {
            return;
        };
        let Some(connection) = slot.connection.as_deref_mut() else {
            return;
        };
        let events = connection.has_events();
        let deadline = connection.next_timeout().map(|(at, _)| at);
        if !connection.is_handshaking()
            && let Some(place) = slot.handshake.take()
        {
            // What a handshake needed serves the next one, instead of waiting for a quiet second.
            connection.trim();
            self.stats.handshakes -= 1;
            self.doors.handshakes.give_back(place);
        }
        self.deadlines.set(handle, deadline);
        if events {
            self.mark_eventful(handle);
        }
    }

    /// Gives the connection the IDs it wants, forgets those the peer retired, and learns the
    /// peer's reset token.
    fn exchange_cids(&mut self, handle: ConnectionHandle) {
        let Some(connection) = self.slot(handle).and_then(|s| s.connection.as_mut()) else {
            return;
        };
        let wanted = connection.local_cids().wanted();
        let retired = connection.local_cids().take_retired();
        let token = connection.reset_token().map(|t| *t.as_bytes());
        let remote = connection.remote();
        for cid in retired {
            self.routes.remove(&cid);
        }
        for _ in 0..wanted {
            let cid = self.new_cid();
            let reset_token = self.resets.token(&cid);
            self.routes.insert(cid, handle);
            if let Some(c) = self.slot(handle).and_then(|s| s.connection.as_mut()) {
                c.local_cids().issue(cid, reset_token);
            }
        }
        let Some(slot) = self.slot(handle) else {
            return;
        };
        if slot.reset_token != token {
            let old = std::mem::replace(&mut slot.reset_token, token);
            self.resets.replace(remote, old, token, handle);
        }
    }

    fn remove(&mut self, handle: ConnectionHandle) {
        let Some(slot) = self.slot(handle) else {
            return;
        };
        let Some(connection) = slot.connection.take() else {
            return;
        };
        slot.generation = slot.generation.wrapping_add(1);
        let original = slot.original.take();
        let token = slot.reset_token.take();
        slot.ready = false;
        slot.eventful = false;
        let mut held = std::mem::take(&mut slot.held);
        if let Some(place) = slot.handshake.take() {
            self.stats.handshakes -= 1;
            self.doors.handshakes.forfeit(place);
        }
        if let Some(rtt) = connection.rtt_to_remember() {
            self.rtts.set(connection.remote(), rtt);
        }
        for cid in connection.local_cid_list() {
            self.routes.remove(&cid);
        }
        if let Some(original) = original {
            self.routes.remove(&original);
        }
        self.resets
            .replace(connection.remote(), token, None, handle);
        self.deadlines.set(handle, None);
        self.memory.remove(&mut held);
        self.stats.connections -= 1;
        self.free.push(handle.index);
    }
}

/// Bytes of the leading datagrams of `train` that are addressed to `dcid`; at least the first.
fn run_length(train: &[u8], stride: usize, dcid: &ConnectionId, cid_len: usize) -> usize {
    let same =
        |datagram: &&[u8]| peek_dcid(datagram, cid_len).is_ok_and(|other| other == dcid.as_slice());
    let others = train.chunks(stride).skip(1).take_while(same).count();
    train.len().min((1 + others) * stride)
}

#[cfg(test)]
mod tests;

//! One shard: routes datagrams to connections, admits clients, owns the connections.
//!
//! Parts: `route` (connection-ID table), `slots` (the connections and their turns), `admit`
//! (Initial, Retry, refusals), `incoming` (clients that wait for a decision), `doors` (what may be
//! done for strangers), `memory` (the account), `reset` (stateless reset), `timers`. A turn of
//! `poll_transmit` gives every ready connection one train in round robin. It opens no socket and
//! reads no clock.

mod admit;
mod budget;
mod doors;
mod handshakes;
mod incoming;
mod keyed;
mod memory;
mod reset;
mod route;
mod rtt_memory;
mod slots;
mod stats;
mod timers;
mod token;

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
use crate::connection::{Aftermath, Arrival, CidChanges, Connection, NewConnection, Status};
use crate::error::ConnectError;
use crate::observe::ObserverFactory;
use crate::stats::Totals;
use doors::{Doors, Reply};
use handshakes::Place;
use incoming::Requests;
pub use incoming::{Incoming, IncomingHandle, MAX_INCOMING_WAIT};
use keyed::KeyedState;
use memory::{CANDIDATES, Held, LOOKS, Memory};
use reset::Resets;
use route::Routes;
use rtt_memory::RttMemory;
pub use slots::ConnectionHandle;
use slots::{Resident, Slots};
pub use stats::EndpointStats;
use timers::{DeadlineQueue, Expired};
use token::Tokens;

/// Cap: connections of one endpoint, clients included.
pub(crate) const MAX_CONNECTIONS: usize = 1 << 20;

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

impl DatagramMeta {
    fn arrival(&self) -> Arrival {
        Arrival {
            remote: self.remote,
            local_ip: self.local_ip,
            ecn: self.ecn,
        }
    }
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

/// One shard of an endpoint.
pub struct Endpoint {
    rng: ChaCha20Rng,
    cid_generator: Box<dyn CidGenerator>,
    cid_len: usize,
    server: Option<Arc<ServerConfig>>,
    slots: Slots,
    routes: Routes,
    resets: Resets,
    tokens: Tokens,
    doors: Doors,
    deadlines: DeadlineQueue,
    /// A copy of the Initial packet that is being opened.
    scratch: Vec<u8>,
    accepting: bool,
    /// The application decides about each client before TLS.
    hold_incoming: bool,
    requests: Requests,
    rtts: RttMemory,
    memory: Memory,
    observers: Option<Arc<dyn ObserverFactory>>,
    stats: EndpointStats,
    /// Counters of the connections that are gone.
    ended: Totals,
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
            slots: Slots::default(),
            routes: Routes::new(route_keys),
            resets: Resets::new(&config.reset_key, route_keys),
            tokens: Tokens::new(&config.token_key),
            doors: Doors::new(KeyedState(route_keys.1, route_keys.0)),
            deadlines: DeadlineQueue::default(),
            hold_incoming: config.hold_incoming,
            requests: Requests::new(KeyedState(route_keys.0, route_keys.1)),
            rtts: RttMemory::default(),
            memory: Memory::new(config.memory_limit),
            scratch: Vec::new(),
            observers: None,
            stats: EndpointStats::default(),
            ended: Totals::default(),
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
        let mut connection = Connection::client(now, config, server_name, &new, known_rtt)?;
        connection.observe(now, &new, self.observers.as_deref());
        let aftermath = connection.aftermath(now);
        let handle = self.insert(now, connection, new.local, None);
        self.settle(now, handle, aftermath);
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
        let mut resident = Resident::new(connection, Held::new(now));
        resident.handshake = handshake.map(|(_, place)| place);
        resident.original = handshake.map(|(original, _)| original);
        let handle = self.slots.insert(resident);
        self.routes.insert(local, handle);
        if let Some((original, _)) = handshake {
            self.routes.insert(original, handle);
            self.stats.handshakes += 1;
        }
        self.stats.connections += 1;
        handle
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
            let found =
                handle.and_then(|(cid, handle)| Some((cid, handle, self.slots.get_mut(handle)?)));
            let Some((dcid, handle, resident)) = found else {
                let (datagram, others) = rest.split_at_mut(len);
                self.handle_unroutable(now, meta, datagram);
                rest = others;
                continue;
            };
            // The table is asked again only where the connection ID changes inside the train.
            let run = run_length(rest, stride, &dcid, self.cid_len);
            let (datagrams, others) = rest.split_at_mut(run);
            let (connection, arrival) = (&mut resident.connection, meta.arrival());
            let aftermath = connection.handle_datagrams(now, arrival, &dcid, stride, datagrams);
            self.settle(now, handle, aftermath);
            rest = others;
        }
    }

    fn handle_unroutable(&mut self, now: Time, meta: DatagramMeta, datagram: &mut [u8]) {
        if let Some(handle) = self.resets.find(meta.remote, datagram)
            && let Some(resident) = self.slots.get_mut(handle)
        {
            resident.connection.check_stateless_reset(now, datagram);
            let aftermath = resident.connection.aftermath(now);
            self.settle(now, handle, aftermath);
            return;
        }
        self.admit(now, meta, datagram);
    }

    // ---- time ----

    /// The next time `handle_timeout` is wanted.
    pub fn next_timeout(&self) -> Option<Time> {
        match (self.deadlines.next(), self.requests.next_timeout()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Runs every deadline that has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire_incoming(now);
        while let Some(expired) = self.deadlines.pop(now) {
            let (Expired::Due(handle) | Expired::Quiet(handle)) = expired;
            let Some(resident) = self.slots.get_mut(handle) else {
                continue;
            };
            match expired {
                Expired::Due(_) => {
                    let aftermath = resident.connection.handle_timeout(now);
                    self.settle(now, handle, aftermath);
                    self.deadlines.look_again(handle, now);
                }
                Expired::Quiet(_) => {
                    resident.connection.trim();
                    let status = resident.connection.status();
                    self.note(now, handle, status);
                }
            }
        }
    }

    // ---- output ----

    /// Builds the next train of datagrams to send, one for each ready connection in turn.
    pub fn poll_transmit(&mut self, now: Time, buf: &mut TrainBuf) -> Option<Transmit> {
        if let Some(Reply { to, packet }) = self.doors.next_reply() {
            buf.set_single(&packet);
            return Some(Transmit {
                connection: None,
                remote: to.remote,
                local_ip: to.local_ip,
                ecn: None,
                segment_size: packet.len(),
                len: packet.len(),
            });
        }
        while let Some((handle, resident)) = self.slots.next_ready() {
            let train = resident.connection.poll_transmit(now, buf);
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
        if let Some(connection) = self.connection_mut(handle) {
            connection.handle_datagram_too_big(len);
        }
    }

    /// The next event of any connection.
    pub fn poll_event(&mut self) -> Option<(ConnectionHandle, Event)> {
        while let Some(handle) = self.slots.first_eventful() {
            let resident = self.slots.get_mut(handle);
            match resident.and_then(|r| r.connection.poll_event()) {
                Some(Event::Drained) => {
                    self.slots.pop_eventful();
                    self.remove(handle);
                    return Some((handle, Event::Drained));
                }
                Some(event) => return Some((handle, event)),
                None => self.slots.pop_eventful(),
            }
        }
        None
    }

    // ---- access ----

    /// A connection, to look at.
    pub fn connection(&self, handle: ConnectionHandle) -> Option<&Connection> {
        self.slots.get(handle).map(|resident| &resident.connection)
    }

    /// A connection, to act on; it gets its turn in `poll_transmit`.
    pub fn connection_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        let resident = self.slots.touch(handle)?;
        Some(&mut resident.connection)
    }

    /// Lets `f` act on a connection, if it is there. It gets its turn in `poll_transmit` only if it
    /// has something to send then: not after a read that found nothing.
    pub fn visit<R>(
        &mut self,
        handle: ConnectionHandle,
        f: impl FnOnce(Option<&mut Connection>) -> R,
    ) -> R {
        let Some(resident) = self.slots.get_mut(handle) else {
            return f(None);
        };
        let result = f(Some(&mut resident.connection));
        let (sends, tells) = (resident.wants_turn(), resident.wants_to_tell());
        if sends {
            self.slots.mark_ready(handle);
        }
        if tells {
            self.slots.mark_eventful(handle);
        }
        result
    }

    /// Handles of all connections, in no particular order of age.
    pub fn handles(&self) -> impl Iterator<Item = ConnectionHandle> + '_ {
        self.slots.handles()
    }

    /// Counters.
    pub fn stats(&self) -> EndpointStats {
        EndpointStats {
            incoming: self.requests.len(),
            memory: self.memory.total(),
            memory_most: self.memory.most(),
            ..self.stats
        }
    }

    /// Has `factory` make an observer for each connection that begins from now on. At first nobody
    /// watches.
    pub fn set_observers(&mut self, factory: Arc<dyn ObserverFactory>) {
        self.observers = Some(factory);
    }

    /// The statistics of all connections together, those that are gone included. Takes time in
    /// proportion to the connections there are, about a microsecond for each.
    pub fn connection_totals(&self) -> Totals {
        let mut totals = self.ended.clone();
        for connection in self.handles().filter_map(|handle| self.connection(handle)) {
            totals.add(&connection.stats());
        }
        totals
    }

    /// Length of our connection IDs, bytes.
    pub fn cid_len(&self) -> usize {
        self.cid_len
    }

    // ---- bookkeeping after every mutation ----

    /// Acts on what a connection wants and says of itself after a change.
    fn settle(&mut self, now: Time, handle: ConnectionHandle, aftermath: Aftermath) {
        if let Some(changes) = aftermath.cids {
            self.exchange_cids(handle, *changes);
        }
        if aftermath.wants_turn {
            self.slots.mark_ready(handle);
        }
        self.note(now, handle, aftermath.status);
    }

    /// Gives the connection the IDs it wants, forgets those the peer retired, and learns the
    /// peer's reset token.
    #[cold]
    fn exchange_cids(&mut self, handle: ConnectionHandle, changes: CidChanges) {
        for cid in changes.retired {
            self.routes.remove(&cid);
        }
        for _ in 0..changes.wanted {
            self.issue_cid(handle);
        }
        if let Some(resident) = self.slots.get_mut(handle) {
            let token = changes.reset_token.map(|t| *t.as_bytes());
            let old = std::mem::replace(&mut resident.reset_token, token);
            if old != token {
                let remote = resident.connection.remote();
                self.resets.replace(remote, old, token, handle);
            }
        }
    }

    /// Gives the connection another ID, which leads to it.
    fn issue_cid(&mut self, handle: ConnectionHandle) {
        let cid = self.new_cid();
        let reset_token = self.resets.token(&cid);
        self.routes.insert(cid, handle);
        if let Some(resident) = self.slots.get_mut(handle) {
            resident.connection.local_cids().issue(cid, reset_token);
        }
    }

    /// A connection had its turn.
    fn after_transmit(&mut self, now: Time, handle: ConnectionHandle, sent: bool) {
        let Some(resident) = self.slots.get_mut(handle) else {
            return;
        };
        let connection = &mut resident.connection;
        if sent {
            // More may be waiting behind the end of this train.
            let aftermath = connection.aftermath(now);
            self.settle(now, handle, aftermath);
        } else if connection.may_send() {
            // What the application wrote into a full window is held.
            let status = connection.status();
            self.note(now, handle, status);
        } else {
            let deadline = connection.next_timeout().map(|(at, _)| at);
            let has_events = connection.has_events();
            self.file(handle, deadline, has_events);
        }
    }

    /// Memory, events and deadline of a connection that may have changed.
    fn note(&mut self, now: Time, handle: ConnectionHandle, status: Status) {
        self.update(now, handle, status);
        if self.memory.is_over() {
            self.relieve(now, handle);
        }
    }

    /// As [`Self::note`], without relief where it is too much.
    fn update(&mut self, now: Time, handle: ConnectionHandle, status: Status) {
        let Some(resident) = self.slots.get_mut(handle) else {
            return;
        };
        let mut holding = status.holding;
        if !status.handshaking
            && let Some(place) = resident.handshake.take()
        {
            // What a handshake needed serves the next one, instead of waiting for a quiet second.
            resident.connection.trim();
            holding = resident.connection.holding();
            self.stats.handshakes -= 1;
            self.doors.handshakes.give_back(place);
        }
        self.memory.update(now, &mut resident.held, holding);
        self.file(handle, status.deadline, status.has_events);
    }

    /// Files deadline and events of a connection.
    fn file(&mut self, handle: ConnectionHandle, deadline: Option<Time>, has_events: bool) {
        self.deadlines.set(handle, deadline);
        if has_events {
            self.slots.mark_eventful(handle);
        }
    }

    /// More is held than may be: clients that wait for a decision are forgotten; if that does not
    /// do, the least useful of some connections is trimmed, and ended if that does not do either. At
    /// most one connection goes for each change, and each change asks.
    #[cold]
    fn relieve(&mut self, now: Time, grown: ConnectionHandle) {
        while self.drop_oldest_incoming() {
            if !self.memory.is_over() {
                return;
            }
        }
        let Some(handle) = self.least_useful(now, grown) else {
            return;
        };
        let Some(resident) = self.slots.get_mut(handle) else {
            return;
        };
        resident.connection.trim();
        let holding = resident.connection.holding();
        self.memory.update(now, &mut resident.held, holding);
        if !self.memory.is_over() {
            return;
        }
        resident.connection.shed(now);
        self.stats.shed += 1;
        if let Some(unsaid) = self.memory.say_shed(now) {
            let remote = resident.connection.remote();
            tracing::warn!(
                %remote,
                unsaid,
                all = self.stats.shed,
                "memory limit: a connection ended; `unsaid` more have since the last such line"
            );
        }
        let status = resident.connection.status();
        self.slots.mark_ready(handle);
        self.update(now, handle, status);
    }

    /// Of the connection that just grew and some others, the one whose memory moves least.
    fn least_useful(&mut self, now: Time, grown: ConnectionHandle) -> Option<ConnectionHandle> {
        let mut worst = None;
        let mut candidates = 0;
        let first = self.rng.next_u64() as usize;
        let others = (0..self.slots.len().min(LOOKS)).map(|i| (first + i) % self.slots.len());
        for index in std::iter::once(grown.index as usize).chain(others) {
            let Some((handle, resident)) = self.slots.at(index) else {
                continue;
            };
            if resident.connection.is_closed() {
                continue;
            }
            let idle_bytes = resident.held.idle_bytes(now);
            if worst.is_none_or(|(most, _)| idle_bytes > most) {
                worst = Some((idle_bytes, handle));
            }
            candidates += 1;
            if candidates > CANDIDATES {
                break;
            }
        }
        worst.map(|(_, handle)| handle)
    }

    fn remove(&mut self, handle: ConnectionHandle) {
        let Some(resident) = self.slots.remove(handle) else {
            return;
        };
        let Resident {
            connection,
            handshake,
            original,
            reset_token,
            mut held,
            ..
        } = *resident;
        if let Some(place) = handshake {
            self.stats.handshakes -= 1;
            self.doors.handshakes.forfeit(place);
        }
        self.ended.add_ended(&connection.stats());
        let remote = connection.remote();
        if let Some(rtt) = connection.rtt_to_remember() {
            self.rtts.set(remote, rtt);
        }
        for cid in connection.local_cid_list() {
            self.routes.remove(&cid);
        }
        if let Some(original) = original {
            self.routes.remove(&original);
        }
        self.resets.replace(remote, reset_token, None, handle);
        self.deadlines.set(handle, None);
        self.memory.remove(&mut held);
        self.stats.connections -= 1;
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

//! One shard: routes datagrams to connections, admits clients, owns the connections.
//!
//! Parts: `shard` (the struct), `route` (connection-ID table), `slots` (the connections and their
//! turns), `settle` (what is noted of them after every change), `admit` (Initial, Retry, refusals),
//! `incoming` (clients that wait for a decision), `stateless` (what may be done for datagrams of no
//! connection), `memory` (the account), `reset` (stateless reset), `too_big` (routers' notices), `timers`. A turn of
//! `poll_transmit` gives every ready connection one train in round robin. It opens no socket and
//! reads no clock.

mod admit;
mod budget;
mod datagram;
mod handshakes;
mod incoming;
mod keyed;
mod large_senders;
mod memory;
mod reset;
mod route;
mod rtt_memory;
mod settle;
mod shard;
mod slots;
mod stateless;
mod stats;
mod timers;
mod token;
mod too_big;

use std::net::SocketAddr;
use std::sync::Arc;

use rand_core::Rng;
use towline_wire::{ConnectionId, Time, peek_dcid};

use crate::config::ClientConfig;
use crate::connection::Connection;
use crate::connection::assemble::TrainBuf;
use crate::connection::events::Event;
use crate::connection::output::Train;
use crate::error::ConnectError;
use crate::observe::ObserverFactory;
use crate::stats::Totals;
pub use datagram::{DatagramMeta, Transmit};
pub use incoming::{Incoming, IncomingHandle, MAX_INCOMING_WAIT};
use large_senders::may_be_too_big;
pub use shard::Endpoint;
pub use slots::ConnectionHandle;
use stateless::Reply;
pub use stats::EndpointStats;
use timers::Expired;

/// Cap: connections of one endpoint, clients included.
pub(crate) const MAX_CONNECTIONS: usize = 1 << 20;

impl Endpoint {
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
        if self.cid_len == 0 && self.routes.nameless(remote).is_some() {
            return Err(ConnectError::AlreadyConnected(remote));
        }
        // RFC 9000 §7.2: at least 8 unpredictable bytes.
        let mut random = [0; 16];
        self.rng.fill_bytes(&mut random);
        let original = ConnectionId::new(&random).unwrap_or(ConnectionId::EMPTY);
        let new = self.prepare(remote, None, original);
        let new = new.ok_or(ConnectError::TooManyConnections)?;
        let known_rtt = self.rtts.get(remote);
        let mut connection = Connection::client(now, config, server_name, &new, known_rtt)?;
        connection.observe(now, &new, self.observers.as_deref());
        let aftermath = connection.aftermath(now);
        let handle = self.insert(now, connection, None);
        self.settle(now, handle, aftermath);
        Ok(handle)
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
            let route = ConnectionId::new(dcid)
                .and_then(|cid| Some((cid, self.routes.find(&cid, meta.remote)?)));
            let found =
                route.and_then(|(cid, handle)| Some((cid, handle, self.slots.get_mut(handle)?)));
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
        if let Some(Reply { to, packet }) = self.stateless.next_reply() {
            buf.set_single(&packet);
            return Some(Transmit {
                connection: None,
                remote: to.remote,
                local_ip: to.local_ip,
                ecn: None,
                segment_size: packet.len(),
                len: packet.len(),
                mtu_probe: false,
            });
        }
        while let Some((handle, resident)) = self.slots.next_ready() {
            let train = resident.connection.poll_transmit(now, buf);
            if let Some(train) = &train
                && may_be_too_big(train.segment_size)
                && resident.large_to != Some(train.remote)
            {
                let before = resident.large_to.replace(train.remote);
                self.large_senders
                    .replace(handle, before, Some(train.remote));
            }
            self.after_transmit(now, handle, train.is_some());
            if let Some(train) = train {
                let Train {
                    remote,
                    local_ip,
                    ecn,
                    segment_size,
                    len,
                    mtu_probe,
                } = train;
                return Some(Transmit {
                    connection: Some(handle),
                    remote,
                    local_ip,
                    ecn,
                    segment_size,
                    len,
                    mtu_probe,
                });
            }
        }
        None
    }

    /// The system refuses to send datagrams of `len` bytes of this connection (EMSGSIZE): it looks for
    /// none as large, and if it sent such it goes on with [`TransportConfig::min_mtu`] bytes, never less
    /// than 1200 (RFC 9000 §14).
    ///
    /// [`TransportConfig::min_mtu`]: crate::TransportConfig::min_mtu
    pub fn handle_datagram_too_big(&mut self, handle: ConnectionHandle, len: usize) {
        if let Some(connection) = self.connection_mut(handle) {
            connection.handle_datagram_too_big(len);
        }
    }

    /// The socket was replaced by another: clients go on from its address at once, which they tell
    /// their servers (RFC 9000 §9). Servers' connections stay as they are.
    pub fn rebind(&mut self, now: Time) {
        let handles: Vec<ConnectionHandle> = self.handles().collect();
        for handle in handles {
            if let Some(connection) = self.connection_mut(handle) {
                connection.rebind(now);
                let aftermath = connection.aftermath(now);
                self.settle(now, handle, aftermath);
            }
        }
    }

    /// The next event of any connection.
    pub fn poll_event(&mut self) -> Option<(ConnectionHandle, Event)> {
        while let Some(handle) = self.slots.first_eventful() {
            let resident = self.slots.get_mut(handle);
            match resident.and_then(|r| r.connection.poll_event()) {
                Some(Event::Drained) => {
                    self.slots.pop_eventful();
                    self.end(handle);
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
        let before = resident.connection.held_above();
        let result = f(Some(&mut resident.connection));
        let after = resident.connection.held_above();
        if after != before {
            self.memory.set_above(&mut resident.held, before, after);
        }
        if resident.over {
            self.note_read(handle);
            return result;
        }
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

    /// There is no connection and nothing to be sent.
    pub fn is_idle(&self) -> bool {
        self.stats.connections == 0 && !self.stateless.has_replies()
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

    /// Says whether the system may fragment what is sent (no way to forbid it there, or none known). Then
    /// connections that begin from now on look for no larger packets than
    /// [`initial_mtu`](crate::TransportConfig::initial_mtu): probes would arrive in pieces, and show
    /// nothing (RFC 9000 §14). At first it may not.
    pub fn set_may_fragment(&mut self, may_fragment: bool) {
        self.may_fragment = may_fragment;
    }

    /// Whether the system may fragment what is sent, as far as it was said.
    pub fn may_fragment(&self) -> bool {
        self.may_fragment
    }

    /// Has `factory` make an observer for each connection that begins from now on. At first nobody
    /// watches.
    pub fn set_observers(&mut self, factory: Arc<dyn ObserverFactory>) {
        self.observers = Some(factory);
    }

    /// The statistics of all connections together: counters of all there ever were, gauges of those
    /// that are established. Takes time in proportion to the connections there are, about a
    /// microsecond for each.
    pub fn connection_totals(&self) -> Totals {
        let mut totals = self.ended.clone();
        for connection in self.handles().filter_map(|handle| self.connection(handle)) {
            let stats = connection.stats();
            match connection.is_established() {
                true => totals.add(&stats),
                false => totals.add_ended(&stats),
            }
        }
        totals
    }

    /// Length of our connection IDs, bytes.
    pub fn cid_len(&self) -> usize {
        self.cid_len
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

//! What an endpoint notes of its connections: routes, turns, events, deadlines and memory.
//!
//! 1. `insert`: a connection comes.
//! 2. `settle`, `after_transmit`, `note`: it may have changed, which is asked after every mutation.
//! 3. `relieve`: all of them together hold too much, and something goes.
//! 4. `end`, `forget`: it is over, and it goes.
//! 5. `expire_incoming`, `take_request`: a client that waits for a decision goes.

use rand_core::Rng;
use towline_wire::{ConnectionId, Time};

use super::handshakes::Place;
use super::incoming::{IncomingHandle, Request};
use super::memory::{CANDIDATES, Held, LOOKS};
use super::shard::Endpoint;
use super::slots::{ConnectionHandle, Resident};
use crate::connection::{Aftermath, CidChanges, Connection, Status};

impl Endpoint {
    /// Takes a connection in, with routes to it; of a server's, its handshake is noted as well.
    pub(super) fn insert(
        &mut self,
        now: Time,
        connection: Connection,
        handshake: Option<(ConnectionId, Place)>,
    ) -> ConnectionHandle {
        let mut resident = Resident::new(connection, Held::new(now));
        resident.handshake = handshake.map(|(_, place)| place);
        let remote = resident.connection.remote();
        resident.original = handshake.map(|(original, _)| (original, remote));
        let own: Vec<ConnectionId> = resident.connection.local_cid_list().collect();
        let handle = self.slots.insert(resident);
        for cid in own {
            match cid.is_empty() {
                true => self.routes.insert_nameless(remote, handle),
                false => self.routes.insert(cid, handle),
            }
        }
        if let Some((original, _)) = handshake {
            self.routes.insert_original((original, remote), handle);
            self.stats.handshakes += 1;
        }
        self.stats.connections += 1;
        handle
    }

    /// Acts on what a connection wants and says of itself after a change.
    pub(super) fn settle(&mut self, now: Time, handle: ConnectionHandle, aftermath: Aftermath) {
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
            let remote = resident.connection.remote();
            let token = changes.reset_token.map(|t| (remote, *t.as_bytes()));
            let old = std::mem::replace(&mut resident.reset_token, token);
            if old != token {
                self.resets.replace(old, token, handle);
            }
        }
    }

    /// Gives the connection another ID, which leads to it.
    fn issue_cid(&mut self, handle: ConnectionHandle) {
        let Some(cid) = self.new_cid() else {
            return;
        };
        let reset_token = self.resets.token(&cid);
        self.routes.insert(cid, handle);
        if let Some(resident) = self.slots.get_mut(handle) {
            resident.connection.local_cids().issue(cid, reset_token);
        }
    }

    /// A connection had its turn.
    pub(super) fn after_transmit(&mut self, now: Time, handle: ConnectionHandle, sent: bool) {
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
    pub(super) fn note(&mut self, now: Time, handle: ConnectionHandle, status: Status) {
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
            self.stateless.handshakes.give_back(place);
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

    /// More is held than may be: connections that are over go, and clients that wait for a decision; if
    /// that does not do, the least useful of some connections is trimmed, and ended if that does not do either. At
    /// most one connection goes for each change, and each change asks.
    #[cold]
    fn relieve(&mut self, now: Time, grown: ConnectionHandle) {
        while self.drop_any_over() || self.drop_oldest_incoming() {
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
        if let Some(suppressed) = self.memory.may_log_shed(now) {
            let remote = resident.connection.remote();
            tracing::warn!(
                %remote,
                suppressed,
                all = self.stats.shed,
                "memory limit: a connection ended; `suppressed` others have since the last such line"
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

    /// A connection is over: it has no route, no deadline and no handshake any more. It goes as well,
    /// unless there is something in it to be read.
    pub(super) fn end(&mut self, handle: ConnectionHandle) {
        let keep = self.keep_unread;
        let Some(resident) = self.slots.get_mut(handle) else {
            return;
        };
        if let Some(place) = resident.handshake.take() {
            self.stats.handshakes -= 1;
            self.stateless.handshakes.forfeit(place);
        }
        let connection = &mut resident.connection;
        self.ended.add_ended(&connection.stats());
        let remote = connection.remote();
        if let Some(rtt) = connection.rtt_to_remember() {
            self.rtts.set(remote, rtt);
        }
        for cid in connection.local_cid_list() {
            self.routes.remove(&cid);
        }
        self.routes.remove_nameless(remote, handle);
        if let Some(original) = resident.original.take() {
            self.routes.remove_original(&original);
        }
        let reset_token = resident.reset_token.take();
        let large_to = resident.large_to.take();
        let kept = keep && connection.retire();
        self.resets.replace(reset_token, None, handle);
        self.large_senders.replace(handle, large_to, None);
        self.deadlines.set(handle, None);
        self.stats.connections -= 1;
        self.slots.retire(handle);
        if kept {
            self.note_read(handle);
        } else {
            self.forget(handle);
        }
    }

    /// Somebody may have read in a connection that is over: what is left counts, and it goes when nothing
    /// is left.
    pub(super) fn note_read(&mut self, handle: ConnectionHandle) {
        let Some(resident) = self.slots.get_mut(handle) else {
            return;
        };
        if resident.connection.has_unread() {
            // No block that was read will be filled again.
            resident.connection.trim();
            let holding = resident.connection.holding();
            self.memory.set(&mut resident.held, holding.bytes);
        } else {
            self.forget(handle);
        }
    }

    fn drop_any_over(&mut self) -> bool {
        let any = self.slots.any_over();
        any.inspect(|handle| self.forget(*handle)).is_some()
    }

    /// Nothing more will be read of a connection that is over and was kept for that
    /// ([`EndpointConfig::keep_unread`](crate::EndpointConfig::keep_unread)). Other connections stay.
    pub fn forget(&mut self, handle: ConnectionHandle) {
        if !self.slots.get(handle).is_some_and(|resident| resident.over) {
            return;
        }
        if let Some(mut resident) = self.slots.remove(handle) {
            self.memory.remove(&mut resident.held);
        }
    }

    /// Forgets clients that nobody decided about in time.
    pub(super) fn expire_incoming(&mut self, now: Time) {
        while let Some(late) = self.requests.expired(now) {
            self.drop_incoming(late);
        }
    }

    /// Forgets the client that has waited longest; `false` if none waits.
    fn drop_oldest_incoming(&mut self) -> bool {
        let oldest = self.requests.oldest();
        oldest.is_some_and(|oldest| self.drop_incoming(oldest))
    }

    fn drop_incoming(&mut self, incoming: IncomingHandle) -> bool {
        self.stats.incoming_dropped += 1;
        self.take_request(incoming).is_some()
    }

    /// Takes a client out that waits: it holds no memory and no place any more.
    pub(super) fn take_request(&mut self, incoming: IncomingHandle) -> Option<Request> {
        let mut request = self.requests.remove(incoming)?;
        self.memory.remove(&mut request.held);
        self.stateless.handshakes.give_back(request.place);
        Some(request)
    }
}

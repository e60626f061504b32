//! The connection-ID table.
//!
//! Peers choose some of the IDs looked up here, so the hash is keyed with a secret. The table
//! is never iterated: its order must not reach the wire. A client may do without IDs; its connections
//! are found by the address of their server. What a client sends before it has heard from us names an
//! ID that it chose itself, and counts only together with its address: answers to another one would
//! never reach it.

use std::collections::HashMap;
use std::net::SocketAddr;

use towline_wire::ConnectionId;

use super::keyed::KeyedState;
use super::slots::{ConnectionHandle, Original};

pub(super) struct Routes {
    table: HashMap<ConnectionId, ConnectionHandle, KeyedState>,
    /// Connections whose ID has no length, by the peer's address.
    nameless: HashMap<SocketAddr, ConnectionHandle, KeyedState>,
    /// Connections of clients that may not have heard from us yet.
    originals: HashMap<Original, ConnectionHandle, KeyedState>,
}

impl Routes {
    pub(super) fn new(keys: (u64, u64)) -> Self {
        Self {
            table: HashMap::with_hasher(KeyedState(keys.0, keys.1)),
            nameless: HashMap::with_hasher(KeyedState(keys.1, keys.0)),
            originals: HashMap::with_hasher(KeyedState(keys.1, !keys.0)),
        }
    }

    /// The connection that a datagram from `remote` to `cid` is of.
    #[inline]
    pub(super) fn find(&self, cid: &ConnectionId, remote: SocketAddr) -> Option<ConnectionHandle> {
        match cid.is_empty() {
            true => self.nameless(remote),
            false => self.get(cid).or_else(|| self.original(*cid, remote)),
        }
    }

    pub(super) fn get(&self, cid: &ConnectionId) -> Option<ConnectionHandle> {
        self.table.get(cid).copied()
    }

    pub(super) fn insert(&mut self, cid: ConnectionId, handle: ConnectionHandle) {
        self.table.insert(cid, handle);
    }

    pub(super) fn remove(&mut self, cid: &ConnectionId) {
        self.table.remove(cid);
    }

    /// The connection with this peer that has no ID.
    pub(super) fn nameless(&self, remote: SocketAddr) -> Option<ConnectionHandle> {
        self.nameless.get(&remote).copied()
    }

    pub(super) fn insert_nameless(&mut self, remote: SocketAddr, handle: ConnectionHandle) {
        self.nameless.insert(remote, handle);
    }

    /// Forgets a connection that may have had no ID.
    pub(super) fn remove_nameless(&mut self, remote: SocketAddr, handle: ConnectionHandle) {
        if self.nameless(remote) == Some(handle) {
            self.nameless.remove(&remote);
        }
    }

    /// The connection of a client that sends to an ID of its own choice.
    fn original(&self, cid: ConnectionId, remote: SocketAddr) -> Option<ConnectionHandle> {
        self.originals.get(&(cid, remote)).copied()
    }

    pub(super) fn insert_original(&mut self, original: Original, handle: ConnectionHandle) {
        self.originals.insert(original, handle);
    }

    pub(super) fn remove_original(&mut self, original: &Original) {
        self.originals.remove(original);
    }
}

//! The connection-ID table.
//!
//! Peers choose some of the IDs looked up here, so the hash is keyed with a secret. The table
//! is never iterated: its order must not reach the wire. A client may do without IDs; its connections
//! are found by the address of their server.

use std::collections::HashMap;
use std::net::SocketAddr;

use towline_wire::ConnectionId;

use super::keyed::KeyedState;
use super::slots::ConnectionHandle;

pub(super) struct Routes {
    table: HashMap<ConnectionId, ConnectionHandle, KeyedState>,
    /// Connections whose ID has no length, by the peer's address.
    nameless: HashMap<SocketAddr, ConnectionHandle, KeyedState>,
}

impl Routes {
    pub(super) fn new(keys: (u64, u64)) -> Self {
        Self {
            table: HashMap::with_hasher(KeyedState(keys.0, keys.1)),
            nameless: HashMap::with_hasher(KeyedState(keys.1, keys.0)),
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
}

//! The connection-ID table.
//!
//! Peers choose some of the IDs looked up here, so the hash is keyed with a secret. The table
//! is never iterated: its order must not reach the wire.

use std::collections::HashMap;

use towline_wire::ConnectionId;

use super::keyed::KeyedState;
use super::slots::ConnectionHandle;

pub(super) struct Routes {
    table: HashMap<ConnectionId, ConnectionHandle, KeyedState>,
}

impl Routes {
    pub(super) fn new(keys: (u64, u64)) -> Self {
        Self {
            table: HashMap::with_hasher(KeyedState(keys.0, keys.1)),
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
}

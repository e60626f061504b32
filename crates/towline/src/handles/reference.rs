//! [`Reference`]: what handles, streams and waiting futures of a connection hold.
//!
//! It names the connection's entry at its shard and reaches the engine under the shard's lock. When the
//! last one goes, the connection is closed. It knows neither handles nor who waits.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Waker;

use towline_quic::{Connection as Engine, ConnectionError, Endpoint};
use towline_wire::{Side, Time};

use super::entry::{Entry, LastState};
use super::sessions::Sessions;
use super::waiters::wake_all;
use crate::io::{Change, Handle};

/// One share in a connection; the last one to go closes it.
pub(super) struct Reference {
    shard: Handle<Sessions>,
    slot: usize,
    remote: SocketAddr,
    side: Side,
}

impl Reference {
    /// Takes over the one reference that `slot` was given when it was made or accepted.
    pub(super) fn adopt(
        shard: Handle<Sessions>,
        slot: usize,
        remote: SocketAddr,
        side: Side,
    ) -> Arc<Self> {
        Arc::new(Self {
            shard,
            slot,
            remote,
            side,
        })
    }

    /// The peer's address when the connection began.
    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Which end this is.
    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// The time that the connection's shard goes by.
    pub(super) fn now(&self) -> Time {
        self.shard.clock().now()
    }

    /// Runs `f` under the lock with the engine's connection, if it still has one.
    pub(super) fn with<R>(
        &self,
        f: impl FnOnce(Option<&mut Engine>, &mut Entry) -> (R, Change),
    ) -> R {
        self.shard.with(|endpoint, sessions| {
            let entry = sessions.entry(self.slot);
            match entry.handle {
                Some(handle) => endpoint.visit(handle, |engine| f(engine, entry)),
                None => f(None, entry),
            }
        })
    }

    /// As `with`, for calls that a protocol of the connection may hear of: what it wants woken is woken when
    /// the lock has been released.
    pub(super) fn with_hooks<R>(
        &self,
        f: impl FnOnce(Option<&mut Engine>, &mut Entry, &mut Vec<Waker>) -> (R, Change),
    ) -> R {
        let mut wake = Vec::new();
        let result = self.shard.with(|endpoint, sessions| {
            let entry = sessions.entry(self.slot);
            let hooked = entry.protocol.is_some();
            let (result, change) = match entry.handle {
                Some(handle) => endpoint.visit(handle, |engine| f(engine, entry, &mut wake)),
                None => f(None, entry, &mut wake),
            };
            match hooked && sessions.rearm(self.slot, None) {
                true => (result, Change::Made),
                false => (result, change),
            }
        });
        wake_all(wake);
        result
    }

    /// As `with`, with all sessions of the shard and the slot of this connection's entry.
    pub(super) fn with_sessions<R>(
        &self,
        f: impl FnOnce(&mut Endpoint, &mut Sessions, usize) -> (R, Change),
    ) -> R {
        self.shard
            .with(|endpoint, sessions| f(endpoint, sessions, self.slot))
    }

    /// As `with`, for calls that leave the engine as it is.
    pub(super) fn look<R>(&self, f: impl FnOnce(Option<&Engine>, &Entry) -> R) -> R {
        self.shard.read(|endpoint, sessions| {
            let entry = sessions.entry_ref(self.slot);
            f(
                entry.handle.and_then(|handle| endpoint.connection(handle)),
                entry,
            )
        })
    }

    /// What the engine says while it has the connection, and what is kept of it after the end.
    pub(super) fn last_state_or<R>(
        &self,
        live: impl FnOnce(&Engine) -> Option<R>,
        gone: impl FnOnce(&LastState) -> Option<R>,
    ) -> Option<R> {
        self.look(|engine, entry| match (&entry.last_state, engine) {
            (Some(last_state), _) => gone(last_state),
            (None, Some(engine)) => live(engine),
            (None, None) => None,
        })
    }

    /// The peer's address, as of the last packet.
    pub(super) fn remote_addr(&self) -> SocketAddr {
        self.last_state_or(|engine| Some(engine.remote()), |last| Some(last.remote))
            .unwrap_or(self.remote)
    }

    /// The address of ours that the peer's last packets were sent to.
    pub(super) fn local_ip(&self) -> Option<IpAddr> {
        self.last_state_or(Engine::local_ip, |last| last.local_ip)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let now = self.now();
        let slot = self.slot;
        let _entry = self.shard.with(|endpoint, sessions| {
            let (entry, told) = sessions.release(slot, endpoint, now);
            (entry, if told { Change::Made } else { Change::None })
        });
    }
}

/// Why the connection is over, as far as its entry knows.
pub(super) fn lost(entry: &Entry) -> ConnectionError {
    entry
        .error
        .clone()
        .unwrap_or(ConnectionError::ClosedLocally)
}

//! What a connection wants of the endpoint and says of itself after something was handed to it.
//!
//! Asked once after every change; the endpoint then acts, and the connection needs to know nothing
//! of routes, queues, deadlines or accounts.

use towline_wire::{ConnectionId, StatelessResetToken, Time};

use super::parts::Connection;

/// Bytes of heap that keys, tables and what is left of TLS take, 4.0 KiB as measured in a quiet connection,
/// and the small records that others have for a while: the next key, the peer's parameters, turns,
/// a validation, what a reduction undoes (2.4 KiB).
pub(super) const KEYS: usize = 7 << 10;

/// All that may have changed for the endpoint.
#[derive(Debug)]
pub(crate) struct Aftermath {
    /// What became of connection IDs; in most cases nothing.
    pub(crate) cids: Option<Box<CidChanges>>,
    /// `poll_transmit` is worth a call.
    pub(crate) wants_turn: bool,
    pub(crate) status: Status,
}

/// What leads to the connection from outside has changed.
#[derive(Debug)]
pub(crate) struct CidChanges {
    /// IDs of ours that the peer retired: they lead nowhere any more.
    pub(crate) retired: Vec<ConnectionId>,
    /// How many more of ours are wanted.
    pub(crate) wanted: usize,
    /// By which the peer may end the connection without its keys.
    pub(crate) reset_token: Option<StatelessResetToken>,
}

/// How a connection stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) deadline: Option<Time>,
    /// The application has something to hear.
    pub(crate) has_events: bool,
    /// TLS is not done. A connection that failed before counts until it is gone, or a flood of
    /// failing hellos would pass every handshake limit (RFC 9000 §21.2).
    pub(crate) handshaking: bool,
    pub(crate) holding: Holding,
}

/// What a connection has of the endpoint's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    /// Bytes of heap; the keys' part is an estimate.
    pub(crate) bytes: usize,
    /// Grows while the connection is of use: data read by the application or acknowledged.
    pub(crate) moved: u64,
}

impl Connection {
    /// What the endpoint has to know after a change.
    pub(crate) fn aftermath(&mut self, now: Time) -> Aftermath {
        if self.is_observed() {
            self.observe_changes(now);
        }
        let changed = self.local_cids.wants_exchange() || self.remote_cids.has_new_reset_token();
        let cids = changed.then(|| self.change_cids());
        // Each ID that it is given will have to be announced.
        let announces = cids.as_ref().is_some_and(|changes| changes.wanted > 0);
        Aftermath {
            cids,
            wants_turn: announces || self.wants_turn(now),
            status: self.status(),
        }
    }

    #[cold]
    fn change_cids(&mut self) -> Box<CidChanges> {
        Box::new(CidChanges {
            retired: self.local_cids.take_retired(),
            wanted: self.local_cids.wanted(),
            reset_token: self.remote_cids.take_reset_token(),
        })
    }

    /// How the connection stands.
    pub(crate) fn status(&self) -> Status {
        Status {
            deadline: self.next_timeout().map(|(at, _)| at),
            has_events: self.has_events(),
            handshaking: !self.handshake.is_complete(),
            holding: self.holding(),
        }
    }

    /// Has the connection answer for `bytes` more of the endpoint's memory: what a protocol above keeps of what
    /// the peer sent. It counts against [`EndpointConfig::memory_limit`](crate::EndpointConfig::memory_limit) until
    /// another figure is told.
    pub fn set_held_above(&mut self, bytes: usize) {
        self.received.held_above = bytes;
    }

    pub(crate) fn held_above(&self) -> usize {
        self.received.held_above
    }

    /// What the connection has of the endpoint's memory.
    pub(crate) fn holding(&self) -> Holding {
        let bytes = size_of::<Self>()
            + KEYS
            + self.received.held_above
            + self.recovery.held()
            + self.acks.held()
            + self.paths.held()
            + self.streams.held()
            + self.datagrams.held()
            + self.events.held()
            + self.handshake.held();
        Holding {
            bytes,
            moved: self.streams.moved(),
        }
    }
}

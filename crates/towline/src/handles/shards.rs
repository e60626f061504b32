//! [`Shards`] of an endpoint, and the [`Queue`]s in which tasks wait at each of them.
//!
//! Shared by the endpoint's handles and by the waiters, who keep a place in a queue of every shard.

use std::sync::Arc;
use std::task::Waker;

use towline_quic as engine;

use super::sessions::Sessions;
use super::waiters::{WaiterKey, Waiters};
use crate::io::Handle;

/// At least one.
pub(super) type Shards = Arc<[Handle<Sessions>]>;

/// What tasks wait for on an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// At one of the doors, or for connections without one (0).
    Acceptors(usize),
    /// For clients to decide about.
    Deciders,
    /// Until no connection is left.
    Idlers,
}

impl Queue {
    /// Who waits in it at one shard.
    pub(super) fn of(self, sessions: &mut Sessions) -> &mut Waiters {
        match self {
            Self::Acceptors(queue) => &mut sessions.acceptors(queue).acceptors,
            Self::Deciders => &mut sessions.deciders,
            Self::Idlers => &mut sessions.idlers,
        }
    }

    /// Gives a place up; adds who is called instead.
    pub(super) fn leave(
        self,
        endpoint: &engine::Endpoint,
        sessions: &mut Sessions,
        key: WaiterKey,
        wake: &mut Vec<Waker>,
    ) -> Option<Waker> {
        let left = self.of(sessions).leave(key);
        match self {
            Self::Acceptors(queue) => sessions.acceptors(queue).call(wake),
            Self::Deciders => sessions.deciders.call(endpoint.unpolled_incoming(), wake),
            Self::Idlers => {}
        }
        left
    }
}

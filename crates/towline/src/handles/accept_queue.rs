//! Where finished handshakes wait to be accepted: one queue for each protocol that has a door, and one
//! for all others.
//!
//! Each shard's sessions have these queues; which there are is the endpoint's plan.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;

use towline_quic::ServerConfig;

use super::protocol::ProtocolFactory;
use super::waiters::{WaiterKey, Waiters};

/// An application protocol that has a queue of its own.
pub(super) struct DoorPlan {
    pub(super) alpn: Vec<u8>,
    pub(super) factory: Option<ProtocolFactory>,
    /// What the protocol's parts in all connections share.
    #[cfg_attr(
        not(feature = "http3"),
        allow(dead_code, reason = "HTTP/3 shares its counters")
    )]
    pub(super) shared: Option<Arc<dyn Any + Send + Sync>>,
}

/// The doors of an endpoint; queue 0 is that of connections without a door.
#[derive(Clone, Default)]
pub(super) struct Plans(Arc<[DoorPlan]>);

impl Plans {
    /// Refuses doors that could not be told apart, or that nobody could come through.
    pub(super) fn new(plans: Vec<DoorPlan>, server: Option<&ServerConfig>) -> io::Result<Self> {
        let refuse = |alpn: &[u8], why| {
            let what = format!("the protocol `{}` {why}", alpn.escape_ascii());
            Err(io::Error::new(io::ErrorKind::InvalidInput, what))
        };
        for (index, DoorPlan { alpn, .. }) in plans.iter().enumerate() {
            if plans[..index].iter().any(|other| other.alpn == *alpn) {
                return refuse(alpn, "has two doors; give it one");
            }
            if server.is_some_and(|server| !server.speaks(alpn)) {
                let why = "has a door, and the server's configuration does not name it";
                return refuse(alpn, why);
            }
        }
        Ok(Self(plans.into()))
    }

    /// Queues there are.
    pub(super) fn queues(&self) -> usize {
        1 + self.0.len()
    }

    /// The queue for connections that agreed on `alpn`.
    pub(super) fn queue_of(&self, alpn: Option<&[u8]>) -> usize {
        let is_it = |plan: &DoorPlan| Some(plan.alpn.as_slice()) == alpn;
        self.0.iter().position(is_it).map_or(0, |index| index + 1)
    }

    /// What stands between those connections and their handles.
    pub(super) fn factory_of(&self, alpn: Option<&[u8]>) -> Option<&ProtocolFactory> {
        let index = self.queue_of(alpn).checked_sub(1)?;
        self.0[index].factory.as_ref()
    }

    /// What the protocol's parts share.
    #[cfg(feature = "http3")]
    pub(super) fn shared_of(&self, alpn: &[u8]) -> Option<Arc<dyn Any + Send + Sync>> {
        let index = self.queue_of(Some(alpn)).checked_sub(1)?;
        self.0[index].shared.clone()
    }

    /// The name of the protocol of a queue, but for queue 0.
    pub(super) fn alpn(&self, queue: usize) -> &[u8] {
        &self.0[queue - 1].alpn
    }
}

impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self
            .0
            .iter()
            .map(|plan| plan.alpn.escape_ascii().to_string());
        f.debug_list().entries(names).finish()
    }
}

/// Finished handshakes that wait to be accepted, and tasks that wait for one, at one shard.
#[derive(Debug, Default)]
pub(super) struct AcceptQueue {
    slots: VecDeque<usize>,
    pub(super) acceptors: Waiters,
}

impl AcceptQueue {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn push(&mut self, slot: usize, wake: &mut Vec<Waker>) {
        self.slots.push_back(slot);
        self.call(wake);
    }

    /// The next one, whoever asks.
    pub(super) fn pop(&mut self) -> Option<usize> {
        self.slots.pop_front()
    }

    /// The next one for the acceptor of `key`; `None` if there is none but for others who came before.
    pub(super) fn pop_for(&mut self, key: Option<WaiterKey>) -> Option<usize> {
        let may = self.acceptors.may_take(key, self.slots.len());
        may.then(|| self.slots.pop_front()).flatten()
    }

    /// Calls as many of those who accept as connections wait for them.
    pub(super) fn call(&mut self, wake: &mut Vec<Waker>) {
        self.acceptors.call(self.slots.len(), wake);
    }
}

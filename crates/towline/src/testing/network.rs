//! [`VirtualNetwork`]: what endpoints in virtual time share: the links, the clock, the sockets.
//!
//! A [`Simulation`](super::Simulation) drives the shards on its own; who has another loop takes this, makes
//! shards on its [sockets](VirtualNetwork::socket) and drives them: [`deliver`](VirtualNetwork::deliver), a
//! turn for every shard that has something to do, and when there is none,
//! [`advance_to`](VirtualNetwork::advance_to) the next moment.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_sim::{LinkConfig, LinkConfigError, LinkId, Network};
use towline_wire::Time;

use super::socket::{Sent, SimulatedSocket, Wire};
use crate::handles::EndpointBuilder;
use crate::io::ManualClock;

/// Where the clock stands at first: one second, so that nothing is mistaken for "unset".
const START: Time = Time::from_nanos(1_000_000_000);

/// A network in virtual time, its clock and its sockets. Clones are the same network.
#[derive(Clone)]
pub struct VirtualNetwork {
    seed: u64,
    clock: ManualClock,
    wire: Arc<Mutex<Wire>>,
}

impl VirtualNetwork {
    /// An empty network. `seed` decides what its links do and what endpoints choose.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            clock: ManualClock::new(START),
            wire: Arc::new(Mutex::new(Wire::new(seed))),
        }
    }

    /// The time, from an arbitrary origin.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Moves the time on; a time that has passed changes nothing.
    pub fn advance_to(&self, time: Time) {
        self.clock.advance_to(time);
    }

    pub(super) fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The links, to change them, look at their counters, or rebind addresses as a NAT does.
    pub fn with<R>(&self, f: impl FnOnce(&mut Network) -> R) -> R {
        f(&mut self.wire().network)
    }

    /// Joins two hosts by a link each way, `a` to `b` first: all ports share them. What they were
    /// joined by before carries no more. A host may be joined to itself.
    ///
    /// # Errors
    /// One of the configurations is impossible; nothing was joined.
    pub fn join_hosts(
        &self,
        a: IpAddr,
        b: IpAddr,
        a_to_b: LinkConfig,
        b_to_a: LinkConfig,
    ) -> Result<(LinkId, LinkId), LinkConfigError> {
        b_to_a.validate()?;
        let mut wire = self.wire();
        let there = wire.network.add_link(&format!("{a}>{b}"), a_to_b)?;
        let back = wire.network.add_link(&format!("{b}>{a}"), b_to_a)?;
        wire.set_link(b, a, back);
        wire.set_link(a, b, there);
        Ok((there, back))
    }

    /// A socket at `address`, which no other has.
    pub fn socket(&self, address: SocketAddr) -> SimulatedSocket {
        SimulatedSocket::new(address, Arc::clone(&self.wire), self.clock.clone())
    }

    /// Whether a socket has the address, or a NAT has taken it.
    pub fn is_bound(&self, address: SocketAddr) -> bool {
        let wire = self.wire();
        wire.is_bound(address) || wire.network.host_behind(address) != address
    }

    /// Has the endpoint go by this clock. Secrets that the builder was not given come from the seed.
    pub fn prepare(&self, builder: EndpointBuilder) -> EndpointBuilder {
        let mut wire = self.wire();
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_be_bytes());
        seed[8..16].copy_from_slice(&wire.endpoints.to_be_bytes());
        wire.endpoints += 1;
        builder.clock(self.clock.clock()).seeded(seed)
    }

    /// Gives the sockets what has arrived by now.
    pub fn deliver(&self) {
        self.wire().deliver(self.clock.now());
    }

    /// Whether the socket at `address` has something to read.
    pub fn is_readable(&self, address: SocketAddr) -> bool {
        self.wire().is_readable(address)
    }

    /// When `deliver` next has work, if anything is on its way.
    pub fn next_timeout(&self) -> Option<Time> {
        self.wire().network.next_timeout()
    }

    /// Whether datagrams are noted from now on, or no more. At first they are not.
    pub fn trace_datagrams(&self, on: bool) {
        let trace = &mut self.wire().trace;
        *trace = on.then(|| trace.take().unwrap_or_default());
    }

    /// What was sent while it was noted, in order.
    pub fn trace(&self) -> Vec<Sent> {
        self.wire().trace.clone().unwrap_or_default()
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for VirtualNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualNetwork")
            .field("seed", &self.seed)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

//! What is looked at whenever something happens in a world: the trace, and what must hold.
//!
//! The watch of a [`CheckedWorld`](super::CheckedWorld): each train that is built, each datagram that is sent
//! or delivered, each timer and event passes here. It decides nothing; `adversary` and `freeze`, whose
//! seats are here, change what goes by.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use towline_quic::{ConnectionHandle, Endpoint, Event};
use towline_sim::{Host as _, LinkId, Network, Outgoing, START, Train};
use towline_wire::Time;

use super::adversary::Adversary;
use super::books::{self, Books};
use super::freeze::Freezes;
use super::pulse::Pulse;
use super::trace::Trace;
use super::watch::Watch;
use super::work::Work;
use crate::host::Host;
use crate::violation::{Invariant, Violation};

/// A host of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub(super) usize);

/// What is known of a host besides its endpoint.
pub(super) struct Guest {
    pub(super) address: SocketAddr,
    /// The address the others see now.
    pub(super) public: SocketAddr,
    pub(super) has_nat: bool,
    pub(super) is_server: bool,
    pub(super) datagrams_sent: u64,
    pub(super) freezes: Freezes,
    /// When the next datagram came that is delivered, if it lay in the socket.
    pub(super) arrival: Option<(Time, SocketAddr)>,
}

impl Guest {
    pub(super) fn is_frozen(&self) -> bool {
        self.freezes.is_frozen()
    }
}

/// An adversary between two hosts.
pub(super) struct Seat {
    /// The host it sits before, and the host it lies to.
    pub(super) host: SocketAddr,
    pub(super) victim: SocketAddr,
    pub(super) adversary: Adversary,
}

impl Seat {
    /// Rewrites what goes on the network between these hosts' own addresses; `false` if nothing does.
    fn pass(&mut self, now: Time, way: [SocketAddr; 2], datagram: &mut Vec<u8>) -> bool {
        if way == [self.host, self.victim] {
            let Some(rewritten) = self.adversary.rewrite(now, datagram) else {
                return false;
            };
            *datagram = rewritten;
        } else if way == [self.victim, self.host] {
            self.adversary.on_victim_sent(datagram);
        }
        true
    }
}

/// The two links of a joined pair of hosts.
pub(super) struct Joint {
    pub(super) hosts: [HostId; 2],
    pub(super) links: [LinkId; 2],
    /// Datagrams lost, changed or held back so far, and when the newest was.
    harmed: u64,
    pub(super) last_harm: Option<Time>,
    /// When an authentic, new packet last came out at either host.
    pub(super) last_delivery: [Time; 2],
    /// Probe timeouts in a row of either host's connection, as of its newest timer.
    pub(super) probes: [u32; 2],
    /// When the newest datagram came that lay in either host's socket as it went on after a freeze.
    pub(super) kept_alive: [Option<Time>; 2],
}

impl Joint {
    pub(super) fn new(hosts: [HostId; 2], links: [LinkId; 2]) -> Self {
        Self {
            hosts,
            links,
            harmed: 0,
            last_harm: None,
            last_delivery: [START; 2],
            probes: [0; 2],
            kept_alive: [None; 2],
        }
    }

    pub(super) fn joins(&self, a: HostId, b: HostId) -> bool {
        self.hosts == [a, b] || self.hosts == [b, a]
    }
}

/// The books of a world.
pub(super) struct Checks {
    pub(super) guests: Vec<Guest>,
    /// Own addresses by those that NATs gave.
    own_addresses: BTreeMap<SocketAddr, SocketAddr>,
    pub(super) joints: Vec<Joint>,
    pub(super) events: VecDeque<(HostId, ConnectionHandle, Event)>,
    /// Who was accepted: a connection may be gone before its events are read.
    pub(super) accepted: Vec<(HostId, ConnectionHandle, SocketAddr)>,
    pub(super) trace: Trace,
    pub(super) watch: Watch,
    pub(super) pulse: Pulse,
    pub(super) seat: Option<Seat>,
    pub(super) work: Work,
    /// The first broken invariant.
    broken: Option<Violation>,
}

impl Checks {
    pub(super) fn new(seed: u64, plaintext: bool) -> Self {
        Self {
            guests: Vec::new(),
            own_addresses: BTreeMap::new(),
            joints: Vec::new(),
            events: VecDeque::new(),
            accepted: Vec::new(),
            trace: Trace::new(seed),
            watch: Watch::new(plaintext),
            pulse: Pulse::new(START),
            seat: None,
            work: Work::default(),
            broken: None,
        }
    }

    /// What was broken since the last call, if anything.
    pub(super) fn verdict(&mut self) -> Result<(), Violation> {
        self.broken.take().map_or(Ok(()), Err)
    }

    pub(super) fn host_at(&self, address: SocketAddr) -> Option<HostId> {
        let address = self.own_address(address);
        let mut guests = self.guests.iter();
        guests.position(|g| g.address == address).map(HostId)
    }

    /// The address a host gives itself, by one that the others see or saw.
    fn own_address(&self, address: SocketAddr) -> SocketAddr {
        self.own_addresses.get(&address).copied().unwrap_or(address)
    }

    pub(super) fn joint(&self, a: HostId, b: HostId) -> Option<&Joint> {
        self.joints.iter().find(|j| j.joins(a, b))
    }

    fn note_delivery(&mut self, now: Time, host: HostId, source: SocketAddr) {
        let Some(sender) = self.host_at(source) else {
            return;
        };
        for joint in &mut self.joints {
            if let Some(place) = joint.hosts.iter().position(|h| *h == host)
                && joint.hosts[1 - place] == sender
            {
                joint.last_delivery[place] = now;
            }
        }
    }

    /// Notes how often in a row each connection of a host has probed, before its timer runs.
    fn note_probes(&mut self, host: HostId, endpoint: &Endpoint) {
        for connection in endpoint.handles().filter_map(|h| endpoint.connection(h)) {
            let Some(peer) = self.host_at(connection.remote()) else {
                continue;
            };
            for joint in &mut self.joints {
                if joint.hosts == [host, peer] {
                    joint.probes[0] = connection.stats().pto_count;
                } else if joint.hosts == [peer, host] {
                    joint.probes[1] = connection.stats().pto_count;
                }
            }
        }
    }
}

impl Checks {
    /// The first broken invariant stops everything: nothing goes into a host any more, nor comes out.
    fn hold<T>(&mut self, result: Result<T, Violation>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(broken) => {
                self.broken.get_or_insert(broken);
                None
            }
        }
    }

    /// Stands still, or is past its first broken invariant.
    fn is_still(&self, at: usize) -> bool {
        self.broken.is_some() || self.guests[at].is_frozen()
    }

    fn delivered(
        &mut self,
        now: Time,
        host: &mut Host,
        at: usize,
        train: &mut Train,
    ) -> Result<(), Violation> {
        let public = self.guests[at].public;
        let waited = self.guests[at].arrival.take();
        let (arrival, reached) = waited.unwrap_or((now, public));
        self.pulse.on_progress();
        self.trace.word(0x5245_4356 ^ (at as u64) << 32);
        let seen_as = train.datagram.source;
        let source = self.own_address(seen_as);
        let payload = &train.datagram.payload;
        match self.guests[at].is_server {
            true => self.watch.on_delivered(seen_as, source, payload),
            false => self.watch.on_reached(reached, host.address),
        }
        let false_claim = self.seat.as_ref().is_some_and(|s| {
            [s.host, s.victim] == [source, host.address] && s.adversary.claims_unsent(payload)
        });
        let before = packets_received(&host.endpoint);
        let (len, is_short) = (payload.len(), is_short(payload));
        let recovery = Books::of(&host.endpoint);
        let work_before = self.work.total(&host.endpoint);
        host.handle(arrival, train);
        // A connection that is gone takes its count along.
        let work = self.work.total(&host.endpoint).saturating_sub(work_before);
        self.work.add([source, host.address], len, work);
        if packets_received(&host.endpoint) > before {
            if false_claim {
                books::check_objection(now, &host.endpoint, seen_as)?;
            }
            // An adversary's datagram may bring many samples, one of the handshake three.
            let one_packet = self.seat.is_none() && is_short;
            recovery.check_delivery(now, &host.endpoint, one_packet)?;
            self.note_delivery(now, HostId(at), source);
        }
        Ok(())
    }

    /// The others see a host at this address now.
    pub(super) fn on_public(&mut self, host: HostId, public: SocketAddr) {
        let guest = &mut self.guests[host.0];
        guest.public = public;
        if public != guest.address {
            // What goes to an address that is gone is dropped.
            guest.has_nat = true;
            self.own_addresses.insert(public, guest.address);
        }
    }

    /// Looks at what links and NATs dropped or changed since the last time.
    pub(super) fn note_harm(&mut self, now: Time, net: &Network, which: impl Fn(&Joint) -> bool) {
        let stats = net.stats();
        let by_nats = stats.dropped_unmapped + stats.dropped_stale_address + stats.rebindings;
        for joint in self.joints.iter_mut().filter(|joint| which(joint)) {
            let has_nat = joint.hosts.iter().any(|h| self.guests[h.0].has_nat);
            let harmed: u64 = joint
                .links
                .iter()
                .map(|id| {
                    let stats = net.link(*id).stats();
                    stats.drops.total() + stats.corrupted + stats.truncated
                })
                .sum();
            let harmed = harmed + if has_nat { by_nats } else { 0 };
            if harmed > joint.harmed {
                joint.harmed = harmed;
                joint.last_harm = Some(now);
            }
        }
    }

    fn built(&mut self, now: Time, host: &mut Host) -> Result<Option<Outgoing>, Violation> {
        let before = Books::of(&host.endpoint);
        let Some(train) = host.poll_transmit(now) else {
            return Ok(None);
        };
        self.pulse.on_progress();
        before.check_window(now, &host.endpoint)?;
        let len = host.train().len();
        if train.len != len || train.stride == 0 {
            let what = format!("a train of {len} bytes says {train:?}");
            return Err(Violation::new(Invariant::Pace, now, what));
        }
        Ok(Some(train))
    }
}

impl towline_sim::Watch<Host, Network> for Checks {
    fn deliver(&mut self, now: Time, hosts: &mut [Host], at: usize, train: &mut Train) {
        if self.guests[at].is_frozen() {
            let guest = &mut self.guests[at];
            guest
                .freezes
                .keep((now, guest.public), train.datagram.clone());
        } else if !self.is_still(at) {
            let delivered = self.delivered(now, &mut hosts[at], at, train);
            self.hold(delivered);
        }
    }

    fn handle_timeout(&mut self, now: Time, hosts: &mut [Host], at: usize) {
        if self.is_still(at) {
            return;
        }
        self.trace.word(0x5449_4d45 ^ (at as u64) << 32);
        self.note_probes(HostId(at), &hosts[at].endpoint);
        hosts[at].handle_timeout(now);
        let paced = self.pulse.on_timer(now);
        self.hold(paced);
    }

    fn poll_transmit(&mut self, now: Time, hosts: &mut [Host], at: usize) -> Option<Outgoing> {
        if self.is_still(at) {
            return None;
        }
        let built = self.built(now, &mut hosts[at]);
        self.hold(built).flatten()
    }

    fn send(&mut self, now: Time, _: &mut [Host], at: usize, train: &mut Train) -> bool {
        let guest = &mut self.guests[at];
        let (server, datagram) = (guest.is_server, &mut train.datagram);
        guest.datagrams_sent += 1;
        self.trace.datagram(now, at, &datagram.payload);
        let to = datagram.destination;
        let destination = self.own_addresses.get(&to).copied().unwrap_or(to);
        let way = [datagram.source, destination];
        let client = if server { destination } else { way[0] };
        let path = server.then_some(to);
        let seen = self.watch.on_sent(now, path, client, &datagram.payload);
        let seat = self.seat.as_mut();
        let passes = seat.is_none_or(|seat| seat.pass(now, way, &mut datagram.payload));
        self.hold(seen).is_some() && passes
    }

    /// Links decide a datagram's fate when it is sent, so their counters tell it at once.
    fn on_sent(&mut self, now: Time, at: usize, net: &Network) {
        let sender = HostId(at);
        self.on_public(sender, net.public(self.guests[at].address));
        self.note_harm(now, net, |joint| joint.hosts.contains(&sender));
    }

    fn on_event(
        &mut self,
        _: Time,
        hosts: &mut [Host],
        at: usize,
        (handle, event): (ConnectionHandle, Event),
    ) {
        self.pulse.on_progress();
        self.trace.event(at, &event);
        if event == Event::Accepted
            && let Some(connection) = hosts[at].endpoint.connection(handle)
        {
            let client = self.own_address(connection.remote());
            let accepted = (HostId(at), handle, client);
            self.accepted.push(accepted);
        }
        self.events.push_back((HostId(at), handle, event));
    }
}

/// Whether a datagram is one 1-RTT packet.
pub(super) fn is_short(datagram: &[u8]) -> bool {
    const LONG_HEADER: u8 = 0x80;
    datagram.first().is_some_and(|b| b & LONG_HEADER == 0)
}

/// Authentic packets of all connections of an endpoint, duplicates not counted.
fn packets_received(endpoint: &Endpoint) -> u64 {
    let connections = endpoint.handles().filter_map(|h| endpoint.connection(h));
    connections.map(|c| c.stats().packets_received).sum()
}

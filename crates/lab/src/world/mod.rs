//! Hosts on a simulated network whose every event is checked and traced.
//!
//! A [`CheckedWorld`] is the simulator's [`World`] of endpoints, watched: callers (the swarm, tests)
//! alternate `flush`, `poll_event` and `advance`. It knows nothing of streams or workloads; `checks` is
//! called at every event, `watch` looks at what is on the wire, `books` at what connections say of
//! themselves, `pulse` at how often things happen, `work` at what a datagram costs its receiver.
//! `adversary` rewrites what one host acknowledges; `freeze` stops hosts.

mod adversary;
mod books;
mod checks;
mod freeze;
mod numbers;
mod pulse;
mod trace;
mod watch;
mod work;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use towline_quic::{ConnectionHandle, Endpoint, Event};
use towline_sim::{Datagram, LinkConfig, LinkConfigError, NatConfig, Network, World};
use towline_wire::Time;

use crate::host::Host;
use crate::violation::Violation;
use adversary::Adversary;
pub use adversary::{AckPlan, Split};
pub use checks::HostId;
use checks::{Checks, Guest, Joint, Seat, is_short};
pub use freeze::Freeze;
use freeze::Freezes;
pub use towline_sim::START;
pub use trace::Trace;
pub use watch::{Limits, Watch};
pub use work::{Cost, Work, WorkCounter};

/// A world of endpoints that is checked at every event.
pub struct CheckedWorld {
    world: World<Host, Network>,
    checks: Checks,
}

impl CheckedWorld {
    /// An empty world; `plaintext` says that its hosts use the null AEAD, so that the watch can
    /// read packets.
    pub fn new(seed: u64, plaintext: bool) -> Self {
        Self {
            world: World::new(Vec::new(), Network::new(seed)),
            checks: Checks::new(seed, plaintext),
        }
    }

    /// Adds a host; hosts have the addresses 10.0.0.1:4433, 10.0.0.2:4433, … up to 10.0.255.255.
    pub fn add_host(&mut self, endpoint: Endpoint, is_server: bool) -> HostId {
        let id = HostId(self.world.hosts.len());
        let number = u16::try_from(id.0 + 1).expect("fewer hosts than 10.0.0.0/16 has addresses");
        let [high, low] = number.to_be_bytes();
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, high, low)), 4433);
        self.world.hosts.push(Host::new(endpoint, address));
        self.checks.guests.push(Guest {
            address,
            public: address,
            has_nat: false,
            is_server,
            datagrams_sent: 0,
            freezes: Freezes::default(),
            arrival: None,
        });
        id
    }

    /// Joins two hosts by a link each way.
    ///
    /// # Errors
    /// One of the configurations is impossible.
    pub fn join(
        &mut self,
        a: HostId,
        b: HostId,
        a_to_b: LinkConfig,
        b_to_a: LinkConfig,
    ) -> Result<(), LinkConfigError> {
        let ends = [self.address(a), self.address(b)];
        let (there, back) = self.world.net.join(ends[0], ends[1], a_to_b, b_to_a)?;
        self.checks.joints.push(Joint::new([a, b], [there, back]));
        Ok(())
    }

    /// Puts `host` behind a NAT.
    ///
    /// # Errors
    /// The configuration is impossible.
    pub fn set_nat(&mut self, host: HostId, nat: NatConfig) -> Result<(), LinkConfigError> {
        let address = self.address(host);
        self.checks.guests[host.0].has_nat = true;
        self.world.net.set_nat(address, nat)
    }

    /// `host` goes to another address of its own, and its endpoint knows: place 0 is where it began.
    pub fn move_host(&mut self, host: HostId, place: u8) {
        let (now, home) = (self.world.now, self.address(host));
        let mut to = home;
        if let (IpAddr::V4(ip), true) = (home.ip(), place > 0) {
            let [.., high, low] = ip.octets();
            to.set_ip(IpAddr::V4(Ipv4Addr::new(172, 16 + (place & 15), high, low)));
        }
        self.checks.trace.word(0x4d4f_5645 ^ u64::from(place) << 32);
        self.world.net.rebind(home, to);
        self.checks.on_public(host, to);
        self.world.hosts[host.0].endpoint.rebind(now);
    }

    /// `host` acknowledges to `victim` as `plan` says; `seed` decides what is left to chance.
    /// The world must be one of plaintext.
    pub fn set_adversary(&mut self, host: HostId, victim: HostId, plan: AckPlan, seed: u64) {
        self.checks.seat = Some(Seat {
            host: self.address(host),
            victim: self.address(victim),
            adversary: Adversary::new(plan, seed),
        });
    }

    /// The adversary between two hosts acknowledged something that never arrived.
    pub fn has_lied(&self, a: HostId, b: HostId) -> bool {
        let (a, b) = (self.address(a), self.address(b));
        self.checks.seat.as_ref().is_some_and(|s| {
            ([s.host, s.victim] == [a, b] || [s.victim, s.host] == [a, b]) && s.adversary.has_lied()
        })
    }

    /// `host` stops at these times; its socket holds up to `room` bytes meanwhile.
    pub fn set_freezes(&mut self, host: HostId, freezes: &[Freeze], room: usize) {
        self.checks.guests[host.0].freezes = Freezes::new(freezes, room);
    }

    /// Whether `host` stands still.
    pub fn is_frozen(&self, host: HostId) -> bool {
        self.checks.guests[host.0].is_frozen()
    }

    /// Whether `host` ever stood still.
    pub fn was_ever_frozen(&self, host: HostId) -> bool {
        self.checks.guests[host.0].freezes.was_ever_frozen()
    }

    /// When the newest datagram of `from` came that lay in the socket of `host` as it went on after
    /// a freeze.
    pub fn kept_alive(&self, host: HostId, from: HostId) -> Option<Time> {
        let joint = self.checks.joint(host, from)?;
        joint.kept_alive[usize::from(joint.hosts[1] == host)]
    }

    /// Counts what datagrams cost their receivers.
    pub fn count_work(&mut self, counter: WorkCounter) {
        self.checks.work = Work::new(counter);
    }

    /// What datagrams cost their receivers so far.
    pub fn work(&self) -> &Work {
        &self.checks.work
    }

    /// Makes every link perfect but for its delay, for what enters it from now on, takes NATs away
    /// behind their last mapping, and lets every host go on.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn heal(&mut self) -> Result<(), Violation> {
        self.checks.trace.word(0x4845_414c);
        for at in 0..self.world.hosts.len() {
            self.thaw(HostId(at))?;
            self.checks.guests[at].freezes.cancel();
        }
        let net = &mut self.world.net;
        for guest in &self.checks.guests {
            net.remove_nat(guest.address);
        }
        for id in self.checks.joints.iter().flat_map(|j| j.links) {
            let perfect = LinkConfig {
                delay: net.link(id).config().delay,
                ..LinkConfig::default()
            };
            // A plain delay is always possible.
            let _ = net.set_config(id, perfect);
        }
        Ok(())
    }

    /// The clock.
    pub fn now(&self) -> Time {
        self.world.now
    }

    /// A host's address.
    pub fn address(&self, host: HostId) -> SocketAddr {
        self.checks.guests[host.0].address
    }

    /// The host that has, or had, this address.
    pub fn host_at(&self, address: SocketAddr) -> Option<HostId> {
        self.checks.host_at(address)
    }

    /// A host's endpoint, to look at.
    pub fn endpoint(&self, host: HostId) -> &Endpoint {
        &self.world.hosts[host.0].endpoint
    }

    /// A host's endpoint, to act on; `flush` afterwards.
    pub fn endpoint_mut(&mut self, host: HostId) -> &mut Endpoint {
        &mut self.world.hosts[host.0].endpoint
    }

    /// The watch over the wire.
    pub fn watch_mut(&mut self) -> &mut Watch {
        &mut self.checks.watch
    }

    /// The hash of everything that happened so far.
    pub fn trace(&self) -> Trace {
        self.checks.trace
    }

    /// Adds a caller's own fact to the trace.
    pub fn note(&mut self, word: u64) {
        self.checks.trace.word(word);
    }

    /// UDP datagrams all hosts sent so far.
    pub fn datagrams_sent(&self) -> u64 {
        let guests = self.checks.guests.iter();
        guests.map(|g| g.datagrams_sent).sum()
    }

    /// When an authentic, new packet of `from` last reached `host`; the start of the world if
    /// none did.
    pub fn last_delivery(&self, host: HostId, from: HostId) -> Time {
        let joint = self.checks.joint(host, from);
        joint.map_or(START, |j| j.last_delivery[usize::from(j.hosts[1] == host)])
    }

    /// Probe timeouts in a row at either end of the connection between two hosts.
    pub fn probes_in_a_row(&self, a: HostId, b: HostId) -> u32 {
        let joints = self.checks.joints.iter();
        let probes = joints.filter(|j| j.joins(a, b));
        probes.flat_map(|j| j.probes).max().unwrap_or(0)
    }

    /// No datagram is on its way.
    pub fn is_network_empty(&self) -> bool {
        self.world.net.next_timeout().is_none()
    }

    /// When the links between two hosts last lost or changed a datagram, or one of the two stood
    /// still.
    pub fn last_harm(&self, a: HostId, b: HostId) -> Option<Time> {
        if self.is_frozen(a) || self.is_frozen(b) {
            return Some(self.world.now);
        }
        self.checks.joint(a, b)?.last_harm
    }

    /// The next time at which something happens by itself.
    pub fn next_timeout(&self) -> Option<Time> {
        let guests = self.checks.guests.iter();
        let freezes = guests.filter_map(|g| g.freezes.next_timeout());
        let network = self.world.net.next_timeout();
        self.deadlines().chain(freezes).chain(network).min()
    }

    /// The deadlines of the hosts that run.
    fn deadlines(&self) -> impl Iterator<Item = Time> {
        let hosts = self.world.hosts.iter().zip(&self.checks.guests);
        let running = hosts.filter(|(_, guest)| !guest.is_frozen());
        running.filter_map(|(host, _)| host.endpoint.next_timeout())
    }

    /// The next event of any connection.
    pub fn poll_event(&mut self) -> Option<(HostId, ConnectionHandle, Event)> {
        self.checks.events.pop_front()
    }

    /// The address of the client that `host` accepted as `handle`.
    pub fn accepted(&self, host: HostId, handle: ConnectionHandle) -> Option<SocketAddr> {
        let mut accepted = self.checks.accepted.iter();
        let found = accepted.find(|(h, c, _)| (*h, *c) == (host, handle));
        found.map(|(_, _, remote)| *remote)
    }

    /// Moves the clock to `to` (not backwards), delivers what is due and runs due timers.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn advance(&mut self, to: Time) -> Result<(), Violation> {
        self.check_timeouts()?;
        let now = self.world.now.max(to);
        self.world.now = now;
        self.checks.pulse.on_step(now)?;
        for at in 0..self.world.hosts.len() {
            let freezes = &mut self.checks.guests[at].freezes;
            freezes.begin(now);
            if freezes.is_over(now) {
                self.thaw(HostId(at))?;
            }
        }
        self.world.arrive(&mut self.checks);
        // What a NAT drops, it drops on arrival.
        self.checks.note_harm(now, &self.world.net, |_| true);
        self.world.run_timers(&mut self.checks);
        self.checks.verdict()
    }

    /// Ends a freeze now: the host reads its socket; its timers run after that.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn thaw(&mut self, host: HostId) -> Result<(), Violation> {
        if !self.is_frozen(host) {
            return Ok(());
        }
        let (now, at) = (self.world.now, host.0);
        self.checks.trace.word(0x5448_4157 ^ (at as u64) << 32);
        let socket = self.checks.guests[at].freezes.end();
        let joints = self.checks.joints.iter_mut();
        for joint in joints.filter(|j| j.hosts.contains(&host)) {
            joint.last_harm = Some(now);
        }
        for (arrival, datagram) in socket {
            self.note_news(host, arrival.0, &datagram);
            self.checks.guests[at].arrival = Some(arrival);
            self.world.deliver(at, datagram.into(), &mut self.checks);
            self.world.transmit(at, &mut self.checks);
            self.checks.verdict()?;
        }
        Ok(())
    }

    /// A short header in a datagram of which there is one, unharmed copy: its sender was alive.
    fn note_news(&mut self, host: HostId, arrival: Time, datagram: &Datagram) {
        let Some(sender) = self.host_at(datagram.source) else {
            return;
        };
        let mut joints = self.checks.joints.iter_mut();
        let Some(joint) = joints.find(|j| j.joins(host, sender)) else {
            return;
        };
        // A datagram from another address may be refused.
        let has_nat = joint.hosts.iter().any(|h| self.checks.guests[h.0].has_nat);
        let honest = !has_nat
            && joint.links.iter().all(|id| {
                let config = self.world.net.link(*id).config();
                config.duplicate == 0.0 && config.corrupt == 0.0 && config.truncate == 0.0
            });
        if honest && is_short(&datagram.payload) {
            joint.kept_alive[usize::from(joint.hosts[1] == host)] = Some(arrival);
        }
    }

    /// Puts what the hosts have to send on the network and collects their events.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn flush(&mut self) -> Result<(), Violation> {
        for at in 0..self.world.hosts.len() {
            if !self.is_frozen(HostId(at)) {
                self.world.transmit(at, &mut self.checks);
                self.world.listen(at, &mut self.checks);
            }
        }
        self.checks.verdict()
    }

    /// I8: a drained endpoint may not want to be woken in the past again and again.
    fn check_timeouts(&mut self) -> Result<(), Violation> {
        let now = self.world.now;
        if self.deadlines().any(|at| at <= now) {
            self.checks.pulse.on_late_timer(now)?;
        }
        Ok(())
    }
}

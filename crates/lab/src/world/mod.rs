//! Hosts on a simulated network: one virtual clock, one trace, checks at every event.
//!
//! Owns the endpoints, the network between them and the order in which things happen. Callers
//! (the swarm, scenarios) alternate `flush`, `poll_event` and `advance`. The world knows nothing
//! of streams or workloads; `watch` looks at what is on the wire, `books` at what connections say of
//! themselves, `pulse` at how often things happen, `work` at what a datagram costs its receiver.
//! `adversary` rewrites what one host acknowledges; `freeze` stops hosts.

mod adversary;
mod books;
pub(crate) mod ecn;
mod freeze;
mod numbers;
mod pulse;
mod trace;
mod watch;
mod work;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use towline_quic::{ConnectionHandle, DatagramMeta, Endpoint, Event, TrainBuf};
use towline_sim::{Datagram, LinkConfig, LinkConfigError, LinkId, Network};
use towline_wire::Time;

use crate::violation::{Invariant, Violation};
use adversary::Adversary;
pub use adversary::{AckPlan, Split};
use books::Books;
pub use freeze::Freeze;
use freeze::Freezes;
use pulse::Pulse;
pub use trace::Trace;
pub use watch::{Limits, Watch};
pub use work::{Cost, Work, WorkCounter};

/// A host of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(usize);

/// Where every world's clock starts: one second, so that nothing is mistaken for "unset".
pub const START: Time = Time::from_nanos(1_000_000_000);

struct Host {
    endpoint: Endpoint,
    address: SocketAddr,
    is_server: bool,
    datagrams_sent: u64,
    freezes: Freezes,
}

/// An adversary between two hosts.
struct Seat {
    /// The host it sits before, and the host it lies to.
    host: SocketAddr,
    victim: SocketAddr,
    adversary: Adversary,
}

impl Host {
    /// When its timers next want to run; never while it stands still.
    fn next_timeout(&self) -> Option<Time> {
        let next = self.endpoint.next_timeout();
        next.filter(|_| !self.freezes.is_frozen())
    }
}

impl Seat {
    /// What goes on the network in the place of a datagram.
    fn pass(&mut self, now: Time, way: [SocketAddr; 2], datagram: &[u8]) -> Option<Vec<u8>> {
        if way == [self.host, self.victim] {
            return self.adversary.rewrite(now, datagram);
        }
        if way == [self.victim, self.host] {
            self.adversary.on_victim_sent(datagram);
        }
        Some(datagram.to_vec())
    }
}

/// The two links of a joined pair of hosts.
struct Joint {
    hosts: [HostId; 2],
    links: [LinkId; 2],
    /// Datagrams lost, changed or held back so far, and when the newest was.
    harmed: u64,
    last_harm: Option<Time>,
    /// When an authentic, new packet last came out at either host.
    last_delivery: [Time; 2],
    /// Probe timeouts in a row of either host's connection, as of its newest timer.
    probes: [u32; 2],
    /// When the newest datagram came that lay in either host's socket as it went on after a freeze.
    kept_alive: [Option<Time>; 2],
}

impl Joint {
    fn joins(&self, a: HostId, b: HostId) -> bool {
        self.hosts == [a, b] || self.hosts == [b, a]
    }
}

/// A simulated world.
pub struct World {
    now: Time,
    network: Network,
    hosts: Vec<Host>,
    joints: Vec<Joint>,
    buf: TrainBuf,
    events: VecDeque<(HostId, ConnectionHandle, Event)>,
    /// Who was accepted: a connection may be gone before its events are read.
    accepted: Vec<(HostId, ConnectionHandle, SocketAddr)>,
    trace: Trace,
    watch: Watch,
    pulse: Pulse,
    seat: Option<Seat>,
    work: Work,
}

impl World {
    /// An empty world; `plaintext` says that its hosts use the null AEAD, so that the watch can
    /// read packets.
    pub fn new(seed: u64, plaintext: bool) -> Self {
        Self {
            now: START,
            network: Network::new(seed),
            hosts: Vec::new(),
            joints: Vec::new(),
            buf: TrainBuf::new(),
            events: VecDeque::new(),
            accepted: Vec::new(),
            trace: Trace::new(seed),
            watch: Watch::new(plaintext),
            pulse: Pulse::new(START),
            seat: None,
            work: Work::default(),
        }
    }

    /// Adds a host; hosts have the addresses 10.0.0.1:4433, 10.0.0.2:4433, …
    pub fn add_host(&mut self, endpoint: Endpoint, is_server: bool) -> HostId {
        let number = self.hosts.len() as u8 + 1;
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)), 4433);
        self.hosts.push(Host {
            endpoint,
            address,
            is_server,
            datagrams_sent: 0,
            freezes: Freezes::default(),
        });
        HostId(self.hosts.len() - 1)
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
        let (there, back) = self.network.join(
            self.hosts[a.0].address,
            self.hosts[b.0].address,
            a_to_b,
            b_to_a,
        )?;
        self.joints.push(Joint {
            hosts: [a, b],
            links: [there, back],
            harmed: 0,
            last_harm: None,
            last_delivery: [START; 2],
            probes: [0; 2],
            kept_alive: [None; 2],
        });
        Ok(())
    }

    /// `host` acknowledges to `victim` as `plan` says; `seed` decides what is left to chance.
    /// The world must be one of plaintext.
    pub fn set_adversary(&mut self, host: HostId, victim: HostId, plan: AckPlan, seed: u64) {
        self.seat = Some(Seat {
            host: self.address(host),
            victim: self.address(victim),
            adversary: Adversary::new(plan, seed),
        });
    }

    /// The adversary between two hosts acknowledged something that never arrived.
    pub fn has_lied(&self, a: HostId, b: HostId) -> bool {
        let (a, b) = (self.address(a), self.address(b));
        self.seat.as_ref().is_some_and(|s| {
            ([s.host, s.victim] == [a, b] || [s.victim, s.host] == [a, b]) && s.adversary.has_lied()
        })
    }

    /// `host` stops at these times; its socket holds up to `room` bytes meanwhile.
    pub fn set_freezes(&mut self, host: HostId, freezes: &[Freeze], room: usize) {
        self.hosts[host.0].freezes = Freezes::new(freezes, room);
    }

    /// Whether `host` stands still.
    pub fn is_frozen(&self, host: HostId) -> bool {
        self.hosts[host.0].freezes.is_frozen()
    }

    /// Whether `host` ever stood still.
    pub fn was_ever_frozen(&self, host: HostId) -> bool {
        self.hosts[host.0].freezes.was_ever_frozen()
    }

    /// When the newest datagram of `from` came that lay in the socket of `host` as it went on after
    /// a freeze.
    pub fn kept_alive(&self, host: HostId, from: HostId) -> Option<Time> {
        let joint = self.joint(host, from)?;
        joint.kept_alive[usize::from(joint.hosts[1] == host)]
    }

    /// Counts what datagrams cost their receivers.
    pub fn count_work(&mut self, counter: WorkCounter) {
        self.work = Work::new(counter);
    }

    /// What datagrams cost their receivers so far.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Makes every link perfect but for its delay, for what enters it from now on, and lets every
    /// host go on.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn heal(&mut self) -> Result<(), Violation> {
        self.trace.word(0x4845_414c);
        for i in 0..self.hosts.len() {
            self.thaw(HostId(i))?;
            self.hosts[i].freezes.cancel();
        }
        let ids: Vec<LinkId> = self.joints.iter().flat_map(|j| j.links).collect();
        for id in ids {
            let perfect = LinkConfig {
                delay: self.network.link(id).config().delay,
                ..LinkConfig::default()
            };
            // A plain delay is always possible.
            let _ = self.network.set_config(id, perfect);
        }
        Ok(())
    }

    /// The clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// A host's address.
    pub fn address(&self, host: HostId) -> SocketAddr {
        self.hosts[host.0].address
    }

    /// The host with this address.
    pub fn host_at(&self, address: SocketAddr) -> Option<HostId> {
        self.hosts
            .iter()
            .position(|h| h.address == address)
            .map(HostId)
    }

    /// A host's endpoint, to look at.
    pub fn endpoint(&self, host: HostId) -> &Endpoint {
        &self.hosts[host.0].endpoint
    }

    /// A host's endpoint, to act on; `flush` afterwards.
    pub fn endpoint_mut(&mut self, host: HostId) -> &mut Endpoint {
        &mut self.hosts[host.0].endpoint
    }

    /// The watch over the wire.
    pub fn watch_mut(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// The hash of everything that happened so far.
    pub fn trace(&self) -> Trace {
        self.trace
    }

    /// Adds a caller's own fact to the trace.
    pub fn note(&mut self, word: u64) {
        self.trace.word(word);
    }

    /// UDP datagrams all hosts sent so far.
    pub fn datagrams_sent(&self) -> u64 {
        self.hosts.iter().map(|h| h.datagrams_sent).sum()
    }

    fn joint(&self, a: HostId, b: HostId) -> Option<&Joint> {
        self.joints.iter().find(|j| j.joins(a, b))
    }

    /// When an authentic, new packet of `from` last reached `host`; the start of the world if
    /// none did.
    pub fn last_delivery(&self, host: HostId, from: HostId) -> Time {
        let joint = self.joint(host, from);
        joint.map_or(START, |j| j.last_delivery[usize::from(j.hosts[1] == host)])
    }

    /// Probe timeouts in a row at either end of the connection between two hosts.
    pub fn probes_in_a_row(&self, a: HostId, b: HostId) -> u32 {
        let joints = self.joints.iter();
        let probes = joints.filter(|j| j.joins(a, b));
        probes.flat_map(|j| j.probes).max().unwrap_or(0)
    }

    /// No datagram is on its way.
    pub fn is_network_empty(&self) -> bool {
        self.network.next_timeout().is_none()
    }

    /// When the links between two hosts last lost or changed a datagram, or one of the two stood
    /// still.
    pub fn last_harm(&self, a: HostId, b: HostId) -> Option<Time> {
        if self.is_frozen(a) || self.is_frozen(b) {
            return Some(self.now);
        }
        self.joint(a, b)?.last_harm
    }

    /// The next time at which something happens by itself.
    pub fn next_timeout(&self) -> Option<Time> {
        let endpoints = self.hosts.iter().filter_map(Host::next_timeout);
        let freezes = self.hosts.iter().filter_map(|h| h.freezes.next_timeout());
        let network = self.network.next_timeout();
        endpoints.chain(freezes).chain(network).min()
    }

    /// The next event of any connection.
    pub fn poll_event(&mut self) -> Option<(HostId, ConnectionHandle, Event)> {
        self.events.pop_front()
    }

    /// The address of the client that `host` accepted as `handle`.
    pub fn accepted(&self, host: HostId, handle: ConnectionHandle) -> Option<SocketAddr> {
        let found = self
            .accepted
            .iter()
            .find(|(h, c, _)| (*h, *c) == (host, handle));
        found.map(|(_, _, remote)| *remote)
    }

    /// Moves the clock to `to` (not backwards), delivers what is due and runs due timers.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn advance(&mut self, to: Time) -> Result<(), Violation> {
        self.check_timeouts()?;
        self.now = self.now.max(to);
        self.pulse.on_step(self.now)?;
        for i in 0..self.hosts.len() {
            self.hosts[i].freezes.begin(self.now);
            if self.hosts[i].freezes.is_over(self.now) {
                self.thaw(HostId(i))?;
            }
        }
        while let Some(mut datagram) = self.network.poll_deliver(self.now) {
            match self.host_at(datagram.destination) {
                Some(host) if self.is_frozen(host) => {
                    self.hosts[host.0].freezes.keep(self.now, datagram);
                }
                Some(host) => self.deliver(host, self.now, &mut datagram)?,
                None => {}
            }
        }
        let addresses: Vec<SocketAddr> = self.hosts.iter().map(|h| h.address).collect();
        for i in 0..self.hosts.len() {
            let host = &mut self.hosts[i];
            if host.next_timeout().is_some_and(|t| t <= self.now) {
                self.trace.word(0x5449_4d45 ^ (i as u64) << 32);
                note_probes(&mut self.joints, HostId(i), host, &addresses);
                host.endpoint.handle_timeout(self.now);
                self.pulse.on_timer(self.now)?;
            }
        }
        Ok(())
    }

    /// Ends a freeze now: the host reads its socket; its timers run after that.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn thaw(&mut self, host: HostId) -> Result<(), Violation> {
        if !self.is_frozen(host) {
            return Ok(());
        }
        self.trace.word(0x5448_4157 ^ (host.0 as u64) << 32);
        let socket = self.hosts[host.0].freezes.end();
        for joint in self.joints.iter_mut().filter(|j| j.hosts.contains(&host)) {
            joint.last_harm = Some(self.now);
        }
        for (arrival, mut datagram) in socket {
            self.note_news(host, arrival, &datagram);
            self.deliver(host, arrival, &mut datagram)?;
            self.transmit(host.0)?;
        }
        Ok(())
    }

    /// A short header in a datagram of which there is one, unharmed copy: its sender was alive.
    fn note_news(&mut self, host: HostId, arrival: Time, datagram: &Datagram) {
        let Some(sender) = self.host_at(datagram.source) else {
            return;
        };
        let Some(joint) = self.joints.iter_mut().find(|j| j.joins(host, sender)) else {
            return;
        };
        let honest = joint.links.iter().all(|id| {
            let config = self.network.link(*id).config();
            config.duplicate == 0.0 && config.corrupt == 0.0 && config.truncate == 0.0
        });
        if honest && is_short(&datagram.payload) {
            joint.kept_alive[usize::from(joint.hosts[1] == host)] = Some(arrival);
        }
    }

    /// `arrival` is when the datagram reached the host's socket.
    fn deliver(
        &mut self,
        HostId(i): HostId,
        arrival: Time,
        datagram: &mut Datagram,
    ) -> Result<(), Violation> {
        self.pulse.on_progress();
        let host = &mut self.hosts[i];
        self.trace.word(0x5245_4356 ^ (i as u64) << 32);
        if host.is_server {
            self.watch.on_delivered(datagram.source, &datagram.payload);
        }
        let meta = DatagramMeta {
            remote: datagram.source,
            local_ip: None,
            ecn: datagram.ecn.and_then(ecn::codepoint),
            stride: datagram.payload.len(),
        };
        let false_claim = self.seat.as_ref().is_some_and(|s| {
            [s.host, s.victim] == [datagram.source, self.hosts[i].address]
                && s.adversary.claims_unsent(&datagram.payload)
        });
        let host = &mut self.hosts[i];
        let before = packets_received(&host.endpoint);
        let is_short = is_short(&datagram.payload);
        let recovery = Books::of(&host.endpoint);
        let work_before = self.work.total(&host.endpoint);
        host.endpoint
            .handle_datagrams(arrival, meta, &mut datagram.payload);
        // A connection that is gone takes its count along.
        let work = self.work.total(&host.endpoint).saturating_sub(work_before);
        let len = datagram.payload.len();
        self.work.add([datagram.source, host.address], len, work);
        if packets_received(&host.endpoint) > before {
            if false_claim {
                books::check_objection(self.now, &host.endpoint, datagram.source)?;
            }
            // An adversary's datagram may bring many samples, one of the handshake three.
            let one_packet = self.seat.is_none() && is_short;
            recovery.check_delivery(self.now, &host.endpoint, one_packet)?;
            self.note_delivery(HostId(i), datagram.source);
        }
        Ok(())
    }

    fn note_delivery(&mut self, host: HostId, source: SocketAddr) {
        let Some(sender) = self.host_at(source) else {
            return;
        };
        for joint in &mut self.joints {
            if let Some(place) = joint.hosts.iter().position(|h| *h == host)
                && joint.hosts[1 - place] == sender
            {
                joint.last_delivery[place] = self.now;
            }
        }
    }

    /// Puts what the hosts have to send on the network and collects their events.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn flush(&mut self) -> Result<(), Violation> {
        for i in 0..self.hosts.len() {
            if self.is_frozen(HostId(i)) {
                continue;
            }
            self.transmit(i)?;
            while let Some((handle, event)) = self.hosts[i].endpoint.poll_event() {
                self.pulse.on_progress();
                self.trace.event(i, &event);
                if event == Event::Accepted
                    && let Some(connection) = self.hosts[i].endpoint.connection(handle)
                {
                    let remote = connection.remote();
                    self.accepted.push((HostId(i), handle, remote));
                }
                self.events.push_back((HostId(i), handle, event));
            }
        }
        Ok(())
    }

    fn transmit(&mut self, i: usize) -> Result<(), Violation> {
        loop {
            let host = &mut self.hosts[i];
            let before = Books::of(&host.endpoint);
            let Some(transmit) = host.endpoint.poll_transmit(self.now, &mut self.buf) else {
                return Ok(());
            };
            self.pulse.on_progress();
            before.check_window(self.now, &host.endpoint)?;
            if transmit.len != self.buf.filled().len() || transmit.segment_size == 0 {
                let what = format!(
                    "a train of {} bytes says {transmit:?}",
                    self.buf.filled().len()
                );
                return Err(Violation::new(Invariant::Pace, self.now, what));
            }
            for payload in self.buf.filled().chunks(transmit.segment_size) {
                host.datagrams_sent += 1;
                self.trace.datagram(self.now, i, payload);
                self.watch.on_sent(
                    self.now,
                    host.is_server,
                    transmit.remote,
                    host.address,
                    payload,
                )?;
                let [from, to] = [host.address, transmit.remote];
                let payload = match &mut self.seat {
                    Some(seat) => seat.pass(self.now, [from, to], payload),
                    None => Some(payload.to_vec()),
                };
                let Some(payload) = payload else {
                    continue;
                };
                let mut datagram = Datagram::new(from, to, payload);
                datagram.ecn = transmit.ecn.map(ecn::bits);
                self.network.send(self.now, datagram);
            }
            self.note_harm(HostId(i));
        }
    }

    /// Links decide a datagram's fate when it is sent, so their counters tell it at once.
    fn note_harm(&mut self, sender: HostId) {
        for joint in self.joints.iter_mut().filter(|j| j.hosts.contains(&sender)) {
            let harmed = joint
                .links
                .iter()
                .map(|id| {
                    let stats = self.network.link(*id).stats();
                    stats.drops.total() + stats.corrupted + stats.truncated
                })
                .sum();
            if harmed > joint.harmed {
                joint.harmed = harmed;
                joint.last_harm = Some(self.now);
            }
        }
    }

    /// I8: a drained endpoint may not want to be woken in the past again and again.
    fn check_timeouts(&mut self) -> Result<(), Violation> {
        let mut deadlines = self.hosts.iter().filter_map(Host::next_timeout);
        if deadlines.any(|t| t <= self.now) {
            self.pulse.on_late_timer(self.now)?;
        }
        Ok(())
    }
}

/// Notes how often in a row each connection of `host` has probed, before its timer runs.
fn note_probes(joints: &mut [Joint], id: HostId, host: &Host, addresses: &[SocketAddr]) {
    for connection in host
        .endpoint
        .handles()
        .filter_map(|h| host.endpoint.connection(h))
    {
        let peer = addresses.iter().position(|a| *a == connection.remote());
        let pair = peer.map(|p| [id, HostId(p)]);
        for joint in joints.iter_mut() {
            if Some(joint.hosts) == pair {
                joint.probes[0] = connection.stats().pto_count;
            } else if pair.is_some_and(|[own, peer]| joint.hosts == [peer, own]) {
                joint.probes[1] = connection.stats().pto_count;
            }
        }
    }
}

/// Whether a datagram is one 1-RTT packet.
fn is_short(datagram: &[u8]) -> bool {
    const LONG_HEADER: u8 = 0x80;
    datagram.first().is_some_and(|b| b & LONG_HEADER == 0)
}

/// Authentic packets of all connections of an endpoint, duplicates not counted.
fn packets_received(endpoint: &Endpoint) -> u64 {
    let connections = endpoint.handles().filter_map(|h| endpoint.connection(h));
    connections.map(|c| c.stats().packets_received).sum()
}

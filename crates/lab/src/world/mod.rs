//! Hosts on a simulated network: one virtual clock, one trace, checks at every event.
//!
//! Owns the endpoints, the network between them and the order in which things happen. Callers
//! (the swarm, scenarios) alternate `flush`, `poll_event` and `advance`. The world knows nothing
//! of streams or workloads; `watch` looks at what is on the wire, `pulse` at how often.

pub(crate) mod ecn;
mod pulse;
mod trace;
mod watch;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use towline_quic::{ConnectionHandle, DatagramMeta, Endpoint, Event, Stats, TrainBuf};
use towline_sim::{Datagram, LinkConfig, LinkConfigError, LinkId, Network};
use towline_wire::Time;

use crate::violation::{Invariant, Violation};
use pulse::Pulse;
pub use trace::Trace;
pub use watch::{Limits, Watch};

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
}

/// A simulated world.
pub struct World {
    now: Time,
    network: Network,
    hosts: Vec<Host>,
    joints: Vec<Joint>,
    buf: TrainBuf,
    events: VecDeque<(HostId, ConnectionHandle, Event)>,
    trace: Trace,
    watch: Watch,
    pulse: Pulse,
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
            trace: Trace::new(seed),
            watch: Watch::new(plaintext),
            pulse: Pulse::new(START),
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
        });
        Ok(())
    }

    /// Makes every link perfect but for its delay, for what enters it from now on.
    pub fn heal(&mut self) {
        self.trace.word(0x4845_414c);
        let ids: Vec<LinkId> = self.joints.iter().flat_map(|j| j.links).collect();
        for id in ids {
            let perfect = LinkConfig {
                delay: self.network.link(id).config().delay,
                ..LinkConfig::default()
            };
            // A plain delay is always possible.
            let _ = self.network.set_config(id, perfect);
        }
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

    /// When an authentic, new packet of `from` last reached `host`; the start of the world if
    /// none did.
    pub fn last_delivery(&self, host: HostId, from: HostId) -> Time {
        let joint = self.joints.iter().find_map(|j| {
            let place = j.hosts.iter().position(|h| *h == host)?;
            j.hosts.contains(&from).then_some(j.last_delivery[place])
        });
        joint.unwrap_or(START)
    }

    /// Probe timeouts in a row at either end of the connection between two hosts.
    pub fn probes_in_a_row(&self, a: HostId, b: HostId) -> u32 {
        let joints = self.joints.iter();
        let probes = joints.filter(|j| j.hosts == [a, b] || j.hosts == [b, a]);
        probes.flat_map(|j| j.probes).max().unwrap_or(0)
    }

    /// No datagram is on its way.
    pub fn is_network_empty(&self) -> bool {
        self.network.next_timeout().is_none()
    }

    /// When the links between two hosts last lost or changed a datagram.
    pub fn last_harm(&self, a: HostId, b: HostId) -> Option<Time> {
        self.joints
            .iter()
            .filter(|j| j.hosts == [a, b] || j.hosts == [b, a])
            .filter_map(|j| j.last_harm)
            .max()
    }

    /// The next time at which something happens by itself.
    pub fn next_timeout(&self) -> Option<Time> {
        let endpoints = self.hosts.iter().filter_map(|h| h.endpoint.next_timeout());
        endpoints.chain(self.network.next_timeout()).min()
    }

    /// The next event of any connection.
    pub fn poll_event(&mut self) -> Option<(HostId, ConnectionHandle, Event)> {
        self.events.pop_front()
    }

    /// Moves the clock to `to` (not backwards), delivers what is due and runs due timers.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn advance(&mut self, to: Time) -> Result<(), Violation> {
        self.check_timeouts()?;
        self.now = self.now.max(to);
        self.pulse.on_step(self.now)?;
        while let Some(mut datagram) = self.network.poll_deliver(self.now) {
            self.deliver(&mut datagram);
        }
        let addresses: Vec<SocketAddr> = self.hosts.iter().map(|h| h.address).collect();
        for i in 0..self.hosts.len() {
            let host = &mut self.hosts[i];
            if host.endpoint.next_timeout().is_some_and(|t| t <= self.now) {
                self.trace.word(0x5449_4d45 ^ (i as u64) << 32);
                note_probes(&mut self.joints, HostId(i), host, &addresses);
                host.endpoint.handle_timeout(self.now);
                self.pulse.on_timer(self.now)?;
            }
        }
        Ok(())
    }

    fn deliver(&mut self, datagram: &mut Datagram) {
        let Some(HostId(i)) = self.host_at(datagram.destination) else {
            return;
        };
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
        let before = packets_received(&host.endpoint);
        host.endpoint
            .handle_datagrams(self.now, meta, &mut datagram.payload);
        if packets_received(&host.endpoint) > before {
            self.note_delivery(HostId(i), datagram.source);
        }
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
            self.transmit(i)?;
            while let Some((handle, event)) = self.hosts[i].endpoint.poll_event() {
                self.pulse.on_progress();
                self.trace.event(i, &event);
                self.events.push_back((HostId(i), handle, event));
            }
        }
        Ok(())
    }

    fn transmit(&mut self, i: usize) -> Result<(), Violation> {
        loop {
            let host = &mut self.hosts[i];
            let before = flight(&host.endpoint);
            let Some(transmit) = host.endpoint.poll_transmit(self.now, &mut self.buf) else {
                return Ok(());
            };
            self.pulse.on_progress();
            check_window(self.now, &host.endpoint, &before)?;
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
                let mut datagram = Datagram::new(host.address, transmit.remote, payload.to_vec());
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
        let mut deadlines = self.hosts.iter().filter_map(|h| h.endpoint.next_timeout());
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

/// Authentic packets of all connections of an endpoint, duplicates not counted.
fn packets_received(endpoint: &Endpoint) -> u64 {
    let connections = endpoint.handles().filter_map(|h| endpoint.connection(h));
    connections.map(|c| c.stats().packets_received).sum()
}

/// Bytes in flight of every connection of an endpoint.
fn flight(endpoint: &Endpoint) -> Vec<(ConnectionHandle, u64)> {
    endpoint
        .handles()
        .filter_map(|h| Some((h, endpoint.connection(h)?.stats().bytes_in_flight)))
        .collect()
}

/// Datagrams that may exceed the window: two probes, and one on entering recovery (RFC 9002 §7.3.2).
const WINDOW_EXCEPTIONS: u64 = 3;

/// I3: a train never lifts the bytes in flight above the window by more than probes may.
fn check_window(
    now: Time,
    endpoint: &Endpoint,
    before: &[(ConnectionHandle, u64)],
) -> Result<(), Violation> {
    for (handle, before) in before {
        let Some(connection) = endpoint.connection(*handle) else {
            continue;
        };
        let Stats {
            bytes_in_flight,
            cwnd,
            mtu,
            ..
        } = connection.stats();
        let mtu = u64::from(mtu);
        let most = cwnd.max(*before) + WINDOW_EXCEPTIONS * mtu;
        if bytes_in_flight > *before && bytes_in_flight > most {
            let what = format!(
                "{bytes_in_flight} bytes in flight after a train, {before} before, window {cwnd}"
            );
            return Err(Violation::new(Invariant::Congestion, now, what));
        }
        if cwnd < 2 * mtu {
            let what = format!("a window of {cwnd} bytes is less than two packets of {mtu}");
            return Err(Violation::new(Invariant::Congestion, now, what));
        }
    }
    Ok(())
}

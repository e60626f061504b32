//! Hosts joined by links: who can reach whom, over which links, under which address.
//!
//! Owns all links of a simulated world and the translation of addresses on the way. Called by the
//! lab: `send`, then `poll_deliver` until `None`, then on to `next_timeout`. A host is its own
//! socket address; links may be shared by many routes (a bottleneck) and a route may cross several.
//! Events happen in order of (time, order of scheduling), whatever the caller's step.

use core::cmp::Reverse;
use core::fmt;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use towline_wire::Time;

use crate::nat::Nat;
use crate::{Datagram, Link, LinkConfig, LinkConfigError, NatConfig, QueueMeasure, Remap, TooBig};

/// Most notices of datagrams that were too big on their way at once; routers limit their rate, too.
pub const MAX_NOTICES: usize = 64;

/// A link of one [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(usize);

/// What a network could not deliver, besides what its links dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Datagrams between hosts that no route joins.
    pub dropped_no_route: u64,
    /// Datagrams that arrived for an address its host no longer has.
    pub dropped_stale_address: u64,
    /// Datagrams that a NAT had no mapping for.
    pub dropped_unmapped: u64,
    /// Notices that a datagram was too big which no host heard: its NAT had forgotten it, or there
    /// were [`MAX_NOTICES`] under way.
    pub dropped_notices: u64,
    /// Mappings that NATs made in place of one they had forgotten.
    pub rebindings: u64,
    /// Datagrams handed to a host.
    pub delivered: u64,
}

/// A world of hosts and links.
#[derive(Debug)]
pub struct Network {
    seed: u64,
    stations: Vec<Station>,
    /// How many links already have a name.
    names: BTreeMap<String, u64>,
    /// Links crossed, in order, from host to host.
    routes: BTreeMap<(SocketAddr, SocketAddr), Vec<LinkId>>,
    /// Present public address of each host that was ever rebound.
    public_of: BTreeMap<SocketAddr, SocketAddr>,
    /// Host of each public address ever used, stale ones included.
    host_of: BTreeMap<SocketAddr, SocketAddr>,
    /// NATs by host.
    nats: BTreeMap<SocketAddr, Nat>,
    /// Addresses that NATs took so far.
    nat_addresses: u32,
    /// What hosts will be told of datagrams that were too big, by time.
    notices: VecDeque<(Time, TooBig)>,
    /// When each link is due. The first is never a stale entry.
    agenda: BinaryHeap<Reverse<(Time, u64, LinkId)>>,
    next_sequence: u64,
    /// The latest time it was given.
    latest: Time,
    stats: NetworkStats,
}

#[derive(Debug)]
struct Station {
    link: Link,
    /// The agenda entry that counts for this link; others are stale.
    scheduled: Option<(Time, u64)>,
}

impl Network {
    /// An empty world. The same seed and the same calls give the same trace.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            stations: Vec::new(),
            names: BTreeMap::new(),
            routes: BTreeMap::new(),
            public_of: BTreeMap::new(),
            host_of: BTreeMap::new(),
            nats: BTreeMap::new(),
            nat_addresses: 0,
            notices: VecDeque::new(),
            agenda: BinaryHeap::new(),
            next_sequence: 0,
            latest: Time::ZERO,
            stats: NetworkStats::default(),
        }
    }

    /// Joins two hosts by a link each way and returns the two links, `a` to `b` first.
    ///
    /// # Errors
    /// One of the configurations is impossible; nothing was joined.
    pub fn join(
        &mut self,
        a: SocketAddr,
        b: SocketAddr,
        a_to_b: LinkConfig,
        b_to_a: LinkConfig,
    ) -> Result<(LinkId, LinkId), LinkConfigError> {
        b_to_a.validate()?;
        let there = self.add_link(&format!("{a}>{b}"), a_to_b)?;
        let back = self.add_link(&format!("{b}>{a}"), b_to_a)?;
        self.routes.insert((a, b), vec![there]);
        self.routes.insert((b, a), vec![back]);
        Ok((there, back))
    }

    /// Adds a link that routes can use. Its random choices depend on the world's seed and on its
    /// name only (a repeated name is numbered), so adding other links does not change them.
    ///
    /// # Errors
    /// The configuration is impossible.
    pub fn add_link(&mut self, name: &str, config: LinkConfig) -> Result<LinkId, LinkConfigError> {
        let count = self.names.entry(name.to_owned()).or_default();
        let link = if *count == 0 {
            Link::new(config, self.seed, name)?
        } else {
            Link::new(config, self.seed, &format!("{name}#{count}"))?
        };
        *count += 1;
        self.stations.push(Station {
            link,
            scheduled: None,
        });
        Ok(LinkId(self.stations.len() - 1))
    }

    /// Sends what goes from one host to another over `path`, in place of any earlier route.
    /// Datagrams already on the old route are dropped where it does not continue.
    ///
    /// # Errors
    /// The path is empty, names a link twice, or names one that does not exist.
    pub fn route(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        path: &[LinkId],
    ) -> Result<(), RouteError> {
        if path.is_empty() {
            return Err(RouteError::Empty);
        }
        for (index, link) in path.iter().enumerate() {
            if link.0 >= self.stations.len() {
                return Err(RouteError::UnknownLink);
            }
            if path[..index].contains(link) {
                return Err(RouteError::RepeatedLink);
            }
        }
        self.routes.insert((source, destination), path.to_vec());
        Ok(())
    }

    /// Gives `host` a new public address, as a NAT does when its mapping changes: from now on the
    /// others see `public` as its source and reach it there; what still arrives for the previous
    /// address is dropped. The host itself notices nothing. `public == host` ends the translation.
    /// `public` must not be the address of another host.
    pub fn rebind(&mut self, host: SocketAddr, public: SocketAddr) {
        self.host_of.insert(self.public(host), host);
        self.host_of.insert(public, host);
        self.public_of.insert(host, public);
    }

    /// Puts `host` behind a NAT of its own, in place of any earlier one, from the latest time the
    /// network was given on. Its first mapping is the public address the host has now; hosts with the
    /// same `rebind` times are behind one NAT that is rebooted. With [`NatConfig::default`] the
    /// mapping stays for good once the host has sent.
    ///
    /// # Errors
    /// The configuration is impossible.
    pub fn set_nat(&mut self, host: SocketAddr, config: NatConfig) -> Result<(), LinkConfigError> {
        config.validate()?;
        self.nats.insert(host, Nat::new(config, self.latest));
        Ok(())
    }

    /// Takes the NAT before `host` away; the mapping it had last stays.
    pub fn remove_nat(&mut self, host: SocketAddr) {
        self.nats.remove(&host);
    }

    /// The host that has, or had, this public address; itself for an address that nobody took.
    pub fn host_behind(&self, address: SocketAddr) -> SocketAddr {
        self.host(address)
    }

    /// The address under which the others see `host`.
    pub fn public(&self, host: SocketAddr) -> SocketAddr {
        self.public_of.get(&host).copied().unwrap_or(host)
    }

    /// Takes a datagram from its source host at `now`, rewriting the source to its public address.
    pub fn send(&mut self, now: Time, mut datagram: Datagram) {
        self.translate(now, datagram.source);
        let destination = self.host(datagram.destination);
        let route = (datagram.source, destination);
        datagram.source = self.public(datagram.source);
        self.enter(now, route, datagram);
    }

    /// Takes a forged datagram at `now`: its source is left as given, and it travels the way
    /// that source's own datagrams do.
    pub fn inject(&mut self, now: Time, datagram: Datagram) {
        let route = (self.host(datagram.source), self.host(datagram.destination));
        self.enter(now, route, datagram);
    }

    /// The next datagram that has reached its destination host by `now`, if any; its destination
    /// is the host's own address.
    pub fn poll_deliver(&mut self, now: Time) -> Option<Datagram> {
        self.latest = self.latest.max(now);
        while let Some(&Reverse((due, _, id))) = self.agenda.peek()
            && due <= now
        {
            self.agenda.pop();
            let station = &mut self.stations[id.0];
            station.scheduled = None;
            let datagram = station.link.poll(due);
            self.schedule(id);
            if let Some(arrived) = datagram.and_then(|datagram| self.pass_on(due, id, datagram)) {
                return Some(arrived);
            }
        }
        None
    }

    /// The next notice that has reached its host by `now`, if any; its source is the host's own
    /// address. A notice takes as long to come back as the link that refused the datagram delays.
    pub fn poll_too_big(&mut self, now: Time) -> Option<TooBig> {
        self.latest = self.latest.max(now);
        while let Some((due, _)) = self.notices.front()
            && *due <= now
        {
            let (due, mut notice) = self.notices.pop_front()?;
            let host = self.host(notice.source);
            if self.public(host) == notice.source && self.is_let_in(due, host) {
                notice.source = host;
                return Some(notice);
            }
            self.stats.dropped_notices += 1;
        }
        None
    }

    /// When `poll_deliver` or `poll_too_big` next has work, or `None` if nothing is on its way.
    pub fn next_timeout(&self) -> Option<Time> {
        let link = self.agenda.peek().map(|Reverse((due, ..))| *due);
        let notice = self.notices.front().map(|(due, _)| *due);
        link.into_iter().chain(notice).min()
    }

    /// Changes a link, from the latest time the network was given on: see [`Link::set_config`].
    ///
    /// # Errors
    /// The configuration is impossible; the link stays as it was.
    ///
    /// # Panics
    /// The id is of another network.
    pub fn set_config(&mut self, id: LinkId, config: LinkConfig) -> Result<(), LinkConfigError> {
        let changed = self.stations[id.0].link.set_config(self.latest, config);
        self.schedule(id);
        changed
    }

    /// What a link's bottleneck did since the last call: see [`Link::take_measure`].
    ///
    /// # Panics
    /// The id is of another network.
    pub fn take_measure(&mut self, id: LinkId, now: Time) -> QueueMeasure {
        self.latest = self.latest.max(now);
        let measure = self.stations[id.0].link.take_measure(now);
        self.schedule(id);
        measure
    }

    /// A link, for its counters, queue and configuration.
    ///
    /// # Panics
    /// The id is of another network.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.stations[id.0].link
    }

    /// All links, in the order they were added.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.stations
            .iter()
            .enumerate()
            .map(|(index, station)| (LinkId(index), &station.link))
    }

    /// The counters of the network itself; each link has its own.
    pub fn stats(&self) -> NetworkStats {
        self.stats
    }

    /// The host behind a public address, present or former.
    fn host(&self, address: SocketAddr) -> SocketAddr {
        self.host_of.get(&address).copied().unwrap_or(address)
    }

    fn enter(&mut self, now: Time, route: (SocketAddr, SocketAddr), datagram: Datagram) {
        let Some(&first) = self.routes.get(&route).and_then(|path| path.first()) else {
            self.stats.dropped_no_route += 1;
            return;
        };
        self.push(now, first, datagram);
    }

    /// Moves a datagram that came out of `from` to the next link of its route, or returns it at the end.
    fn pass_on(&mut self, now: Time, from: LinkId, mut datagram: Datagram) -> Option<Datagram> {
        let host = self.host(datagram.destination);
        let route = (self.host(datagram.source), host);
        let path = self.routes.get(&route).map_or(&[][..], Vec::as_slice);
        let Some(place) = path.iter().position(|link| *link == from) else {
            self.stats.dropped_no_route += 1;
            return None;
        };
        if let Some(&next) = path.get(place + 1) {
            self.push(now, next, datagram);
            return None;
        }
        if self.public(host) != datagram.destination {
            self.stats.dropped_stale_address += 1;
            return None;
        }
        if !self.is_let_in(now, host) {
            self.stats.dropped_unmapped += 1;
            return None;
        }
        datagram.destination = host;
        self.stats.delivered += 1;
        Some(datagram)
    }

    fn push(&mut self, now: Time, id: LinkId, datagram: Datagram) {
        self.latest = self.latest.max(now);
        let link = &mut self.stations[id.0].link;
        if let Some(notice) = link.push(now, datagram) {
            let due = now + link.config().delay;
            self.note(due, notice);
        }
        self.schedule(id);
    }

    fn note(&mut self, due: Time, notice: TooBig) {
        if self.notices.len() >= MAX_NOTICES {
            self.stats.dropped_notices += 1;
            return;
        }
        let place = self.notices.partition_point(|(before, _)| *before <= due);
        self.notices.insert(place, (due, notice));
    }

    /// The NAT of a host that sends makes a mapping where there is none.
    fn translate(&mut self, now: Time, host: SocketAddr) {
        let Some(remap) = self.nats.get_mut(&host).and_then(|n| n.on_outbound(now)) else {
            return;
        };
        self.stats.rebindings += 1;
        let public = match remap {
            Remap::Same => return,
            Remap::Port => self.free_port(self.public(host)),
            Remap::Address => self.free_address(self.public(host)),
        };
        self.rebind(host, public);
    }

    fn is_let_in(&mut self, now: Time, host: SocketAddr) -> bool {
        self.nats.get_mut(&host).is_none_or(|nat| nat.lets_in(now))
    }

    fn is_taken(&self, address: SocketAddr) -> bool {
        self.host_of.contains_key(&address) || self.routes.keys().any(|(a, _)| *a == address)
    }

    /// Another port of the same address.
    fn free_port(&self, address: SocketAddr) -> SocketAddr {
        let ports = (1..=u16::MAX).map(|step| address.port().wrapping_add(step));
        let mut others = ports.map(|port| SocketAddr::new(address.ip(), port));
        let free = others.find(|other| other.port() != 0 && !self.is_taken(*other));
        // All ports were used once: any that is not the present one will do.
        free.unwrap_or_else(|| SocketAddr::new(address.ip(), address.port().wrapping_add(1).max(1)))
    }

    /// Another address, of those set aside for tests of networks (RFC 2544, RFC 5180).
    fn free_address(&mut self, address: SocketAddr) -> SocketAddr {
        self.nat_addresses += 1;
        let number = self.nat_addresses;
        let ip = match address.ip() {
            IpAddr::V4(_) => {
                let first = u32::from(Ipv4Addr::new(198, 18, 0, 0));
                IpAddr::V4(Ipv4Addr::from(first + number % (1 << 17)))
            }
            IpAddr::V6(_) => {
                let first = u128::from(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0));
                IpAddr::V6(Ipv6Addr::from(first + u128::from(number)))
            }
        };
        SocketAddr::new(ip, address.port())
    }

    /// Keeps the agenda true after a link changed.
    fn schedule(&mut self, id: LinkId) {
        let station = &mut self.stations[id.0];
        let next = station.link.next_timeout();
        if next != station.scheduled.map(|(due, _)| due) {
            station.scheduled = next.map(|due| (due, self.next_sequence));
            if let Some((due, sequence)) = station.scheduled {
                self.next_sequence += 1;
                self.agenda.push(Reverse((due, sequence, id)));
            }
        }
        while let Some(&Reverse((due, sequence, id))) = self.agenda.peek()
            && self.stations[id.0].scheduled != Some((due, sequence))
        {
            self.agenda.pop();
        }
    }
}

/// A route that cannot be; the caller's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// It has no link.
    Empty,
    /// It crosses one link twice.
    RepeatedLink,
    /// It names a link of another network.
    UnknownLink,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a route needs at least one link",
            Self::RepeatedLink => "a route may cross a link only once",
            Self::UnknownLink => "the route names a link this network does not have",
        })
    }
}

impl std::error::Error for RouteError {}

#[cfg(test)]
mod tests;

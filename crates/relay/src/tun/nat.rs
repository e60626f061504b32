//! The NAT before the clients of a TUN relay: UDP and TCP ends by address and port.
//!
//! Owns the mappings and when they are forgotten. Called by the relay for what leaves the link to the
//! server, and for what enters the one back. Mappings do not depend on whom a client talks to, so a
//! server that changes its own address gets in, too. ICMP passes as it is.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use towline::Time;
use towline_sim::{NatConfig, Remap};

use super::transport::{End, Transport};

/// Cap: mappings at once; a further end takes the place of the one that was silent for longest.
pub(super) const MAX_MAPPINGS: usize = 4096;

/// A protocol and an end.
type Key = (u8, SocketAddr);

pub(super) struct Nat {
    config: NatConfig,
    next_rebinding: Option<Time>,
    /// By the client's own end.
    mappings: BTreeMap<Key, Mapping>,
    /// The client's own end by the present public one.
    inside: BTreeMap<Key, SocketAddr>,
    addresses: u8,
    pub(super) rebindings: u64,
    /// Packets that had no mapping, or could get none as all ports are taken.
    pub(super) unmapped: u64,
}

struct Mapping {
    public: SocketAddr,
    is_forgotten: bool,
    last_used: Time,
}

impl Nat {
    /// The configuration must validate.
    pub(super) fn new(config: NatConfig) -> Self {
        Self {
            next_rebinding: config.next_rebinding(Time::ZERO),
            config,
            mappings: BTreeMap::new(),
            inside: BTreeMap::new(),
            addresses: 0,
            rebindings: 0,
            unmapped: 0,
        }
    }

    /// Whether packets are to be shown to it at all.
    pub(super) fn is_on(&self) -> bool {
        self.config != NatConfig::default()
    }

    /// A packet of a client goes out; `false` drops it.
    pub(super) fn translate_out(&mut self, now: Time, packet: &mut [u8]) -> bool {
        let Some(transport) = Transport::of(packet) else {
            return true;
        };
        let Some(own) = transport.end(packet, End::Source) else {
            return true;
        };
        self.forget(now);
        let key = (transport.protocol, own);
        let Some(public) = self.map(now, key) else {
            self.unmapped += 1;
            return false;
        };
        transport.set_end(packet, End::Source, public);
        true
    }

    /// A packet of the server comes in; `false` drops it.
    pub(super) fn translate_in(&mut self, now: Time, packet: &mut [u8]) -> bool {
        let Some(transport) = Transport::of(packet) else {
            return true;
        };
        let Some(public) = transport.end(packet, End::Destination) else {
            return true;
        };
        self.forget(now);
        let idle = self.config.idle;
        let own = self.inside.get(&(transport.protocol, public)).copied();
        let mapping = own.and_then(|own| self.mappings.get_mut(&(transport.protocol, own)));
        let (Some(own), Some(mapping)) = (own, mapping.filter(|m| m.is_alive(now, idle))) else {
            self.unmapped += 1;
            return false;
        };
        mapping.last_used = now;
        transport.set_end(packet, End::Destination, own);
        true
    }

    fn forget(&mut self, now: Time) {
        if self.next_rebinding.is_some_and(|due| due <= now) {
            self.next_rebinding = self.config.next_rebinding(now);
            for mapping in self.mappings.values_mut() {
                mapping.is_forgotten = true;
            }
        }
    }

    /// The public end of a client's end that sends, made if there is none.
    fn map(&mut self, now: Time, key: Key) -> Option<SocketAddr> {
        let idle = self.config.idle;
        let before = match self.mappings.get_mut(&key) {
            Some(mapping) if mapping.is_alive(now, idle) => {
                mapping.last_used = now;
                return Some(mapping.public);
            }
            Some(mapping) => Some(mapping.public),
            None => None,
        };
        if before.is_none() && self.mappings.len() >= MAX_MAPPINGS {
            self.remove_oldest();
        }
        self.rebindings += u64::from(before.is_some());
        let public = match (before, self.config.change) {
            (Some(before), Remap::Same) => before,
            (Some(before), Remap::Port) => self.free_port(key.0, before)?,
            (Some(before), Remap::Address) => self.next_address(before),
            (None, _) if self.inside.contains_key(&key) => self.free_port(key.0, key.1)?,
            (None, _) => key.1,
        };
        if let Some(before) = before {
            self.inside.remove(&(key.0, before));
        }
        self.inside.insert((key.0, public), key.1);
        let mapping = Mapping {
            public,
            is_forgotten: false,
            last_used: now,
        };
        self.mappings.insert(key, mapping);
        Some(public)
    }

    fn remove_oldest(&mut self) {
        let ends = self.mappings.iter();
        let oldest = ends.min_by_key(|(_, mapping)| mapping.last_used);
        if let Some((key, public)) = oldest.map(|(key, mapping)| (*key, mapping.public)) {
            self.mappings.remove(&key);
            self.inside.remove(&(key.0, public));
        }
    }

    fn free_port(&self, protocol: u8, before: SocketAddr) -> Option<SocketAddr> {
        let ports = (1..u16::MAX).map(|step| before.port().wrapping_add(step));
        let mut others = ports.map(|port| SocketAddr::new(before.ip(), port));
        // More ports than mappings, so one of the next is free.
        others.find(|other| other.port() >= 1024 && !self.inside.contains_key(&(protocol, *other)))
    }

    /// The last octet goes round the upper half of the clients' network, where the relay gives no
    /// address itself.
    fn next_address(&mut self, before: SocketAddr) -> SocketAddr {
        self.addresses = (self.addresses + 1) % 120;
        let last = 128 + self.addresses;
        let ip: IpAddr = match before.ip() {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                Ipv4Addr::new(a, b, c, last).into()
            }
            IpAddr::V6(ip) => {
                let mut octets = ip.octets();
                octets[15] = last;
                Ipv6Addr::from(octets).into()
            }
        };
        SocketAddr::new(ip, before.port())
    }
}

impl Mapping {
    fn is_alive(&self, now: Time, idle: Option<std::time::Duration>) -> bool {
        let silence = now.saturating_duration_since(self.last_used);
        !self.is_forgotten && idle.is_none_or(|idle| silence < idle)
    }
}

#[cfg(test)]
mod tests;

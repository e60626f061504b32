//! The relay between two network namespaces: whole IP packets of any protocol (TCP, UDP, ICMP)
//! cross the simulator's links on the real clock, in both directions.
//!
//! Owns a TUN device in each namespace, the two [`Link`]s, and the namespaces it made itself.
//! `towline relay --tun` and tests run it on a thread of its own ([`TunRelay::run`] blocks).
//! It is a wire, not a router: it writes a packet's ECN bits and leaves the TTL alone. Corruption flips
//! any bit of the packet, its headers included, and truncation cuts its end; both usually fail a check
//! of the receiving kernel, so that programs see a loss, unless the link mends checksums. With `icmp`
//! the sender of a packet that is too long gets the ICMP error of its IP version, over the link back. Links count whole IP packets: `overhead` is
//! for what is below IP.

mod config;
mod device;
mod error;
mod ip;
mod namespace;
mod nat;
mod packet;
mod transport;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use towline::Time;
use towline_sim::{Datagram, Link, LinkConfig, MAX_QUOTED_BYTES};

pub use config::{
    CLIENT_ADDRESSES, DEFAULT_CLIENT_NAMESPACE, DEFAULT_SERVER_NAMESPACE, DEVICE_MTU, DEVICE_NAME,
    SERVER_ADDRESSES, TunAddresses, TunConfig, TunCounters,
};
pub use error::TunError;
pub use namespace::in_namespace;

use super::wait::WaitSet;
use super::{Epoch, HOUSEKEEPING, Monitor, RECEIVE_BUFFER_BYTES, RelayDirection, longest_sleep};
use device::Device;
use namespace::Namespace;
use nat::Nat;

/// Packets read from one device before the links and the other device have their turn.
const PACKETS_PER_TURN: usize = 64;

/// A relay between two namespaces, its devices open and up.
pub struct TunRelay {
    client: Device,
    server: Device,
    to_server: Link,
    to_client: Link,
    nat: Nat,
    epoch: Epoch,
    wait_set: WaitSet,
    next_housekeeping: Time,
    buffer: Vec<u8>,
    counters: TunCounters,
    published: TunMonitor,
    /// Last, so that the devices are closed before their namespaces go.
    _made: Vec<Namespace>,
}

impl TunRelay {
    /// Makes the namespaces if that is asked for, opens a device in each, gives it its addresses
    /// and the route to the other side.
    ///
    /// # Errors
    /// See [`TunError`]. What was made until then is removed.
    pub fn open(config: &TunConfig) -> Result<Self, TunError> {
        let link = |direction, link: &LinkConfig| {
            Link::new(link.clone(), config.seed, &format!("relay {direction}"))
                .map_err(|error| TunError::Link { direction, error })
        };
        let to_server = link(RelayDirection::ToUpstream, &config.to_server)?;
        let to_client = link(RelayDirection::ToClient, &config.to_client)?;
        config.nat.validate().map_err(TunError::Nat)?;
        let (client, server) = (&config.client_namespace, &config.server_namespace);
        if client == server {
            return Err(TunError::SameNamespace {
                name: client.clone(),
            });
        }
        for name in [client, server] {
            namespace::check_name(name)?;
        }
        let mut made = Vec::new();
        if config.create {
            let mut names = vec![client.clone(), server.clone()];
            names.retain(|name| namespace::exists(name));
            if !names.is_empty() {
                return Err(TunError::NamespacesExist { names });
            }
            for name in [client, server] {
                made.push(Namespace::create(name)?);
            }
        }
        let client = Device::open(client, &CLIENT_ADDRESSES, &SERVER_ADDRESSES)?;
        let server = Device::open(server, &SERVER_ADDRESSES, &CLIENT_ADDRESSES)?;
        let mut wait_set = WaitSet::default();
        wait_set.add(&client);
        wait_set.add(&server);
        Ok(Self {
            client,
            server,
            to_server,
            to_client,
            nat: Nat::new(config.nat.clone()),
            epoch: Epoch::default(),
            wait_set,
            next_housekeeping: Time::ZERO,
            buffer: vec![0; RECEIVE_BUFFER_BYTES],
            counters: TunCounters::default(),
            published: TunMonitor::default(),
            _made: made,
        })
    }

    /// A view of the counters for other threads while `run` has the relay.
    pub fn monitor(&self) -> TunMonitor {
        self.published.clone()
    }

    /// The counters now.
    pub fn counters(&self) -> TunCounters {
        let now = self.epoch.now();
        TunCounters {
            to_server: self.to_server.stats(),
            to_client: self.to_client.stats(),
            to_server_queue_bytes: self.to_server.queue_bytes(now),
            to_client_queue_bytes: self.to_client.queue_bytes(now),
            rebindings: self.nat.rebindings,
            packets_unmapped: self.nat.unmapped,
            ..self.counters
        }
    }

    /// Forwards until `stop` is set, which it notices within 25 ms. Blackouts are counted from
    /// the first call. What is inside the links when it stops stays there; a further call goes on.
    ///
    /// # Errors
    /// A device or the system's wait failed for good, such as by removal of the device. Errors of
    /// a single packet are counted instead.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        self.epoch.start();
        let result = self.run_until(stop);
        self.counters.lost_before_link = self.client.lost() + self.server.lost();
        self.publish();
        result
    }

    fn run_until(&mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.deliver();
            let now = self.epoch.now();
            if now >= self.next_housekeeping {
                self.next_housekeeping = now + HOUSEKEEPING;
                self.publish();
            }
            self.wait()?;
            self.take_in()?;
        }
        Ok(())
    }

    /// Writes what the links release.
    fn deliver(&mut self) {
        let now = self.epoch.now();
        for (link, device, goes_out) in [
            (&mut self.to_server, &self.server, self.nat.is_on()),
            (&mut self.to_client, &self.client, false),
        ] {
            let changes_ecn = link.config().ecn || link.config().ecn_rewrite.is_some();
            let mends = link.config().mend;
            while let Some(mut datagram) = link.poll(now) {
                let packet = &mut datagram.payload;
                if let Some(bits) = datagram.ecn.filter(|_| changes_ecn) {
                    packet::set_ecn(packet, bits);
                }
                if mends {
                    transport::mend(packet);
                }
                if goes_out && !self.nat.translate_out(now, packet) {
                    continue;
                }
                let sent = device.write(packet);
                self.counters.send_failures += u64::from(sent.is_err());
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let now = self.epoch.now();
        let links = [&self.to_server, &self.to_client];
        self.wait_set.wait(longest_sleep(links, now))
    }

    fn take_in(&mut self) -> io::Result<()> {
        for index in 0..2 {
            if !self.wait_set.is_ready(index) {
                continue;
            }
            for _ in 0..PACKETS_PER_TURN {
                let device = [&self.client, &self.server][index];
                let len = match device.read(&mut self.buffer) {
                    Ok(len) => len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {
                        self.counters.receive_failures += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                self.forward(index == 0, len);
            }
        }
        Ok(())
    }

    /// Puts the packet in the buffer on its link; it comes from the client or from the server.
    fn forward(&mut self, is_clients: bool, len: usize) {
        let original = &self.buffer[..len];
        let mut packet = original.to_vec();
        let now = self.epoch.now();
        let (link, link_back) = match is_clients {
            true => (&mut self.to_server, &mut self.to_client),
            false => (&mut self.to_client, &mut self.to_server),
        };
        if !packet::read(original).is_some_and(|header| header.is_forwarded()) {
            self.counters.not_forwarded += 1;
            return;
        }
        if !is_clients && self.nat.is_on() && !self.nat.translate_in(now, &mut packet) {
            return;
        }
        let notice = datagram(packet).and_then(|datagram| link.push(now, datagram));
        // Its sender knows the packet as it was before the NAT.
        let error = notice.and_then(|notice| {
            let quoted = &original[..len.min(MAX_QUOTED_BYTES)];
            transport::too_big(quoted, notice.mtu)
        });
        if let Some(error) = error.and_then(datagram) {
            self.counters.too_big_told += 1;
            link_back.push(now, error);
        }
    }

    fn publish(&self) {
        self.published.publish(self.counters());
    }
}

/// A packet as the links know it; `None` if it is no IP packet.
fn datagram(packet: Vec<u8>) -> Option<Datagram> {
    let header = packet::read(&packet)?;
    Some(Datagram {
        source: SocketAddr::new(header.source, 0),
        destination: SocketAddr::new(header.destination, 0),
        ecn: Some(header.ecn),
        payload: packet,
    })
}

/// Reads the counters of a running [`TunRelay`].
pub type TunMonitor = Monitor<TunCounters>;

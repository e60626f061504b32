//! The relay between two network namespaces: whole IP packets of any protocol (TCP, UDP, ICMP)
//! cross the simulator's links on the real clock, in both directions.
//!
//! Owns a TUN device in each namespace, the two [`Link`]s, and the namespaces it made itself.
//! `towline relay --tun` and tests run it on a thread of its own ([`TunRelay::run`] blocks).
//! It is a wire, not a router: it marks a packet's ECN bits and leaves the TTL alone. Corruption flips
//! any bit of the packet, its headers included, and truncation cuts its end; both usually fail a check
//! of the receiving kernel, so that programs see a loss. Links count whole IP packets: `overhead` is
//! for what is below IP.

mod config;
mod device;
mod error;
mod ip;
mod namespace;
mod packet;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use towline::Time;
use towline_sim::{Datagram, Link, LinkConfig};

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

/// Packets read from one device before the links and the other device have their turn.
const PACKETS_PER_TURN: usize = 64;

/// A relay between two namespaces, its devices open and up.
pub struct TunRelay {
    client: Device,
    server: Device,
    to_server: Link,
    to_client: Link,
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
        for (link, device) in [
            (&mut self.to_server, &self.server),
            (&mut self.to_client, &self.client),
        ] {
            while let Some(mut datagram) = link.poll(now) {
                if datagram.ecn == Some(packet::CE) {
                    packet::mark_ce(&mut datagram.payload);
                }
                let sent = device.write(&datagram.payload);
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
        let ways = [
            (&self.client, &mut self.to_server),
            (&self.server, &mut self.to_client),
        ];
        for (index, (device, link)) in ways.into_iter().enumerate() {
            if !self.wait_set.is_ready(index) {
                continue;
            }
            for _ in 0..PACKETS_PER_TURN {
                let packet = match device.read(&mut self.buffer) {
                    Ok(len) => &self.buffer[..len],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {
                        self.counters.receive_failures += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let Some(header) = packet::read(packet).filter(packet::Header::is_forwarded) else {
                    self.counters.not_forwarded += 1;
                    continue;
                };
                let now = self.epoch.now();
                link.push(
                    now,
                    Datagram {
                        source: SocketAddr::new(header.source, 0),
                        destination: SocketAddr::new(header.destination, 0),
                        ecn: Some(header.ecn),
                        payload: packet.to_vec(),
                    },
                );
            }
        }
        Ok(())
    }

    fn publish(&self) {
        self.published.publish(self.counters());
    }
}

/// Reads the counters of a running [`TunRelay`].
pub type TunMonitor = Monitor<TunCounters>;

//! The relay between two network namespaces: whole IP packets of any protocol (TCP, UDP, ICMP)
//! cross the simulator's links on the real clock, in both directions.
//!
//! Owns a TUN device in each namespace, the two [`Link`]s, and the namespaces it made itself.
//! `towline relay --tun` and tests run it on a thread of its own ([`TunRelay::run`] blocks).
//! It is a wire, not a router: it marks a packet's ECN bits and leaves the TTL alone. Corruption flips
//! any bit of the packet, its headers included, and truncation cuts its end; both usually fail a check
//! of the receiving kernel, so that programs see a loss. Links count whole IP packets: `overhead` is
//! for what is below IP.

mod device;
mod ip;
mod namespace;
mod packet;

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use towline::Time;
use towline_sim::{Datagram, Link, LinkConfig, LinkConfigError, LinkStats};

pub use namespace::in_namespace;

use super::wait::WaitSet;
use super::{Epoch, HOUSEKEEPING, Monitor, RECEIVE_BUFFER_BYTES, RelayDirection, longest_sleep};
use device::Device;
use namespace::Namespace;

/// The namespace of the clients unless another is named.
pub const DEFAULT_CLIENT_NAMESPACE: &str = "towline-client";

/// The namespace of the server unless another is named.
pub const DEFAULT_SERVER_NAMESPACE: &str = "towline-server";

/// The device's name in both namespaces.
pub const DEVICE_NAME: &str = "towline0";

/// Longest packet the devices take, bytes; a link's `mtu` may be smaller.
pub const DEVICE_MTU: u16 = 1500;

/// The clients' addresses. They may repeat in other namespaces: nothing leaves these two.
pub const CLIENT_ADDRESSES: TunAddresses = TunAddresses {
    v4: Ipv4Addr::new(10, 77, 1, 2),
    v6: Ipv6Addr::new(0xfd77, 1, 0, 0, 0, 0, 0, 2),
};

/// The server's addresses.
pub const SERVER_ADDRESSES: TunAddresses = TunAddresses {
    v4: Ipv4Addr::new(10, 77, 2, 2),
    v6: Ipv6Addr::new(0xfd77, 2, 0, 0, 0, 0, 0, 2),
};

/// Packets read from one device before the links and the other device have their turn.
const PACKETS_PER_TURN: usize = 64;

/// The addresses of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunAddresses {
    /// In a /24.
    pub v4: Ipv4Addr,
    /// In a /64.
    pub v6: Ipv6Addr,
}

/// Which namespaces a relay joins and what its two links do.
#[derive(Clone, Debug, PartialEq)]
pub struct TunConfig {
    /// Name of the clients' namespace, as `ip netns` has it.
    pub client_namespace: String,
    /// Name of the server's namespace.
    pub server_namespace: String,
    /// Whether the relay makes both, and removes them when it is dropped.
    pub create: bool,
    /// The link from the clients to the server.
    pub to_server: LinkConfig,
    /// The link from the server to the clients.
    pub to_client: LinkConfig,
    /// Seed of the links' random choices. The choices repeat with it; the real clock does not.
    pub seed: u64,
}

impl Default for TunConfig {
    fn default() -> Self {
        Self {
            client_namespace: DEFAULT_CLIENT_NAMESPACE.to_owned(),
            server_namespace: DEFAULT_SERVER_NAMESPACE.to_owned(),
            create: false,
            to_server: LinkConfig::default(),
            to_client: LinkConfig::default(),
            seed: 0,
        }
    }
}

impl TunConfig {
    /// The same with `link` in both directions.
    #[must_use]
    pub fn with_link(mut self, link: LinkConfig) -> Self {
        self.to_server = link.clone();
        self.to_client = link;
        self
    }
}

/// What a relay between namespaces did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunCounters {
    /// Packets that no wire to elsewhere carries: multicast, link-local, or not IP at all.
    pub not_forwarded: u64,
    /// Packets that the receiving kernel did not take.
    pub send_failures: u64,
    /// Errors the system reported when reading from a device.
    pub receive_failures: u64,
    /// Packets the kernels dropped before the relay could read them, because it was too slow.
    /// Brought up to date when [`TunRelay::run`] returns.
    pub lost_before_link: u64,
    /// The link from the clients to the server.
    pub to_server: LinkStats,
    /// The link from the server to the clients.
    pub to_client: LinkStats,
    /// Bytes waiting for the bottleneck towards the server now.
    pub to_server_queue_bytes: u64,
    /// Bytes waiting for the bottleneck towards the clients now.
    pub to_client_queue_bytes: u64,
}

/// Why a relay between namespaces does not start; the user's to put right.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// A link is configured to do the impossible.
    #[error("link {direction}: {error}")]
    Link {
        /// Which of the two.
        direction: RelayDirection,
        /// What is wrong with it.
        error: LinkConfigError,
    },
    /// No namespace can have this name.
    #[error("`{name}` is no name for a network namespace: it is a file name of up to 255 bytes")]
    Name {
        /// The name given.
        name: String,
    },
    /// Both ends in one place: packets would never take the relay's way.
    #[error("the clients and the server need two namespaces; both are `{name}`")]
    SameNamespace {
        /// The name given twice.
        name: String,
    },
    /// It is not there.
    #[error("there is no network namespace `{name}`")]
    NoSuchNamespace {
        /// The name given.
        name: String,
    },
    /// They are there, but were to be made: another relay has them, or one that was killed left them.
    #[error("network namespaces that are there already: {}", names.join(", "))]
    NamespacesExist {
        /// Those of the names given that are there.
        names: Vec<String>,
    },
    /// Another relay has its device there.
    #[error("another relay has the device {DEVICE_NAME} in namespace `{namespace}`")]
    DeviceExists {
        /// Where.
        namespace: String,
    },
    /// The process may not do this.
    #[error("{action} needs root, or the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    NotPermitted {
        /// What was tried.
        action: String,
    },
    /// The kernel has no TUN devices.
    #[error("/dev/net/tun is not there: the kernel's module `tun` is not loaded")]
    NoTun,
    /// The program `ip`, which sets addresses and routes, is missing.
    #[error("the program `ip` is not installed; it is part of iproute2")]
    NoIpProgram,
    /// The program `ip` failed.
    #[error("`{command}` failed: {message}")]
    Ip {
        /// The command as a person would type it.
        command: String,
        /// What it said.
        message: String,
    },
    /// The system failed in another way.
    #[error("{action} failed: {error}")]
    System {
        /// What was tried.
        action: String,
        /// What the system said.
        error: io::Error,
    },
}

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

//! A UDP relay between real programs that behaves like a bad network: the simulator's links on
//! the real clock.
//!
//! Owns the listening socket, one upstream socket per client address, and two [`Link`]s that all
//! clients share, one per direction. `towline relay` and tests run it on a thread of its own
//! ([`Relay::run`] blocks). Never looks into a datagram, and does not carry ECN marks; the form
//! for whole IP packets is in `tun`. The upstream sockets are what a NAT's mappings are, so a NAT that
//! forgets is one that takes other sockets.
//! A turn of the loop: deliver what the links release, wait, take in what has arrived.

mod config;
#[cfg(target_os = "linux")]
pub mod tun;
mod wait;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::SockRef;
use towline::Time;
use towline::io::Clock;
use towline_sim::{Datagram, Link};

pub use config::{
    DEFAULT_CLIENT_IDLE, DEFAULT_MAX_CLIENTS, RelayConfig, RelayCounters, RelayDirection,
    RelayError,
};
pub use towline_sim::{
    Aqm, DropStats, EcnRewrite, LinkConfig, LinkConfigError, LinkStats, LossModel, NatConfig,
    Policer, Profile, RateSchedule, Remap,
};

use wait::WaitSet;

/// Longest the loop sleeps before it looks at its stop flag.
const STOP_CHECK: Duration = Duration::from_millis(25);

/// How often idle clients are looked for, and the shared counters brought up to date.
const HOUSEKEEPING: Duration = Duration::from_millis(100);

/// Datagrams read from one socket before the links and the other sockets have their turn.
const DATAGRAMS_PER_TURN: usize = 64;

/// Kernel buffer asked for on every socket, so that losses are the links' and not the kernel's.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Room for the longest UDP payload.
const RECEIVE_BUFFER_BYTES: usize = 65_536;

/// A relay, bound and ready to run.
pub struct Relay {
    config: RelayConfig,
    listener: UdpSocket,
    listen_address: SocketAddr,
    to_upstream: Link,
    to_client: Link,
    clients: BTreeMap<SocketAddr, Client>,
    /// When the NAT next forgets all mappings.
    next_rebinding: Option<Time>,
    /// Addresses the NAT took so far.
    nat_addresses: u32,
    epoch: Epoch,
    wait_set: WaitSet,
    /// Clients in the order of `wait_set`, after the listener.
    waiting: Vec<SocketAddr>,
    clients_changed: bool,
    next_housekeeping: Time,
    buffer: Vec<u8>,
    counters: RelayCounters,
    published: RelayMonitor,
}

struct Client {
    /// Connected to the upstream, so it reads the upstream's datagrams only.
    socket: UdpSocket,
    /// The NAT forgot that the socket stands for the client: nothing gets in until the client sends.
    is_forgotten: bool,
    last_active: Time,
}

/// Relay time: the time since the first `run`, zero before.
#[derive(Default)]
struct Epoch(Option<(Clock, Time)>);

impl Epoch {
    /// Only the first call counts.
    fn start(&mut self) {
        self.0.get_or_insert_with(|| {
            let clock = Clock::start();
            let start = clock.now();
            (clock, start)
        });
    }

    fn now(&self) -> Time {
        self.0.as_ref().map_or(Time::ZERO, |(clock, start)| {
            Time::ZERO + clock.now().saturating_duration_since(*start)
        })
    }
}

/// How long the loop may sleep before a link has something to release or the stop flag is due.
fn longest_sleep(links: [&Link; 2], now: Time) -> Duration {
    links
        .into_iter()
        .filter_map(Link::next_timeout)
        .map(|due| due.saturating_duration_since(now))
        .fold(STOP_CHECK, Duration::min)
}

impl Relay {
    /// Binds the listening address and makes the links.
    ///
    /// # Errors
    /// See [`RelayError`].
    pub fn bind(config: RelayConfig) -> Result<Self, RelayError> {
        if config.max_clients == 0 {
            return Err(RelayError::NoClients);
        }
        let link = |direction, link: &LinkConfig| {
            Link::new(link.clone(), config.seed, &format!("relay {direction}"))
                .map_err(|error| RelayError::Link { direction, error })
        };
        let to_upstream = link(RelayDirection::ToUpstream, &config.to_upstream)?;
        let to_client = link(RelayDirection::ToClient, &config.to_client)?;
        refuse_packet_settings(RelayDirection::ToUpstream, &config.to_upstream)?;
        refuse_packet_settings(RelayDirection::ToClient, &config.to_client)?;
        config.nat.validate().map_err(RelayError::Nat)?;
        let has_loopback = config.upstream.is_ipv4() && config.upstream.ip().is_loopback();
        if config.nat.change == Remap::Address && !has_loopback {
            return Err(RelayError::NatAddress {
                upstream: config.upstream,
            });
        }
        let (listener, listen_address) =
            listen(config.listen).map_err(|error| RelayError::Listen {
                address: config.listen,
                error,
            })?;
        if is_reached_at(listen_address, config.upstream) {
            return Err(RelayError::Loop {
                address: config.upstream,
            });
        }
        Ok(Self {
            next_rebinding: config.nat.next_rebinding(Time::ZERO),
            nat_addresses: 0,
            config,
            listener,
            listen_address,
            to_upstream,
            to_client,
            clients: BTreeMap::new(),
            epoch: Epoch::default(),
            wait_set: WaitSet::default(),
            waiting: Vec::new(),
            clients_changed: true,
            next_housekeeping: Time::ZERO,
            buffer: vec![0; RECEIVE_BUFFER_BYTES],
            counters: RelayCounters::default(),
            published: RelayMonitor::default(),
        })
    }

    /// The address clients send to, with the port that was picked.
    pub fn local_addr(&self) -> SocketAddr {
        self.listen_address
    }

    /// A view of the counters for other threads while `run` has the relay.
    pub fn monitor(&self) -> RelayMonitor {
        self.published.clone()
    }

    /// The counters now.
    pub fn counters(&self) -> RelayCounters {
        let now = self.epoch.now();
        RelayCounters {
            clients: self.clients.len(),
            to_upstream: self.to_upstream.stats(),
            to_client: self.to_client.stats(),
            to_upstream_queue_bytes: self.to_upstream.queue_bytes(now),
            to_client_queue_bytes: self.to_client.queue_bytes(now),
            ..self.counters
        }
    }

    /// Forwards until `stop` is set, which it notices within 25 ms. Blackouts and other times are
    /// counted from the first call. What is inside the links when it stops stays there; a further call goes on.
    ///
    /// # Errors
    /// The listening socket or the system's wait failed for good. Errors of a single datagram
    /// or client are counted instead.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        self.epoch.start();
        let result = self.run_until(stop);
        self.publish();
        result
    }

    fn run_until(&mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.deliver();
            self.keep_house();
            self.wait()?;
            self.take_in()?;
        }
        Ok(())
    }

    /// Sends what the links release.
    fn deliver(&mut self) {
        let now = self.epoch.now();
        self.forget_mappings(now);
        while let Some(datagram) = self.to_upstream.poll(now) {
            let sent = match self.clients.get(&datagram.source) {
                Some(client) if client.is_forgotten => self
                    .rebind(datagram.source)
                    .and_then(|socket| send_connected(socket, &datagram.payload)),
                Some(client) => send_connected(&client.socket, &datagram.payload),
                None => {
                    self.counters.datagrams_orphaned += 1;
                    continue;
                }
            };
            self.counters.send_failures += u64::from(sent.is_err());
        }
        while let Some(datagram) = self.to_client.poll(now) {
            let sent = self
                .listener
                .send_to(&datagram.payload, datagram.destination);
            self.counters.send_failures += u64::from(sent.is_err());
        }
    }

    /// The NAT forgets all mappings when that is due.
    fn forget_mappings(&mut self, now: Time) {
        if self.next_rebinding.is_some_and(|due| due <= now) {
            self.next_rebinding = self.config.nat.next_rebinding(now);
            for client in self.clients.values_mut() {
                client.is_forgotten = true;
            }
        }
    }

    /// Gives a client whose mapping was forgotten the next one, and returns its socket.
    fn rebind(&mut self, address: SocketAddr) -> io::Result<&UdpSocket> {
        let other = match self.config.nat.change {
            Remap::Same => None,
            Remap::Port => Some(dial(self.config.upstream, None)?),
            Remap::Address => {
                self.nat_addresses += 1;
                // All of 127.0.0.0/8 is this machine; the first 64 Ki are left alone.
                let first = u32::from(Ipv4Addr::new(127, 1, 0, 0));
                let ip = Ipv4Addr::from(first + self.nat_addresses % (1 << 23));
                Some(dial(self.config.upstream, Some(ip.into()))?)
            }
        };
        let client = self.clients.get_mut(&address).ok_or(ErrorKind::NotFound)?;
        client.is_forgotten = false;
        if let Some(socket) = other {
            client.socket = socket;
            self.clients_changed = true;
        }
        self.counters.rebindings += 1;
        Ok(&client.socket)
    }

    fn keep_house(&mut self) {
        let now = self.epoch.now();
        if now < self.next_housekeeping {
            return;
        }
        self.next_housekeeping = now + HOUSEKEEPING;
        let before = self.clients.len();
        let idle = self.config.client_idle;
        let mapping_idle = self.config.nat.idle.unwrap_or(Duration::MAX);
        self.clients.retain(|_, client| {
            let silence = now.saturating_duration_since(client.last_active);
            client.is_forgotten |= silence >= mapping_idle;
            silence < idle
        });
        let expired = before - self.clients.len();
        self.clients_changed |= expired > 0;
        self.counters.clients_expired += expired as u64;
        self.publish();
    }

    fn wait(&mut self) -> io::Result<()> {
        if self.clients_changed {
            self.clients_changed = false;
            self.wait_set.clear();
            self.waiting.clear();
            self.wait_set.add(&self.listener);
            for (address, client) in &self.clients {
                self.wait_set.add(&client.socket);
                self.waiting.push(*address);
            }
        }
        let now = self.epoch.now();
        let links = [&self.to_upstream, &self.to_client];
        self.wait_set.wait(longest_sleep(links, now))
    }

    fn take_in(&mut self) -> io::Result<()> {
        for index in 0..self.waiting.len() {
            if self.wait_set.is_ready(index + 1) {
                self.take_from_upstream(self.waiting[index]);
            }
        }
        // Last, since it may add clients, which the wait set does not know yet.
        if self.wait_set.is_ready(0) {
            self.take_from_clients()?;
        }
        Ok(())
    }

    fn take_from_clients(&mut self) -> io::Result<()> {
        for _ in 0..DATAGRAMS_PER_TURN {
            let (len, source) = match self.listener.recv_from(&mut self.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if is_passing(&error) => {
                    self.counters.receive_failures += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let now = self.epoch.now();
            if !self.admit(source, now) {
                self.counters.datagrams_refused += 1;
                continue;
            }
            let payload = self.buffer[..len].to_vec();
            let datagram = Datagram::new(source, self.config.upstream, payload);
            self.to_upstream.push(now, datagram);
        }
        Ok(())
    }

    fn take_from_upstream(&mut self, address: SocketAddr) {
        let now = self.epoch.now();
        self.forget_mappings(now);
        let Some(client) = self.clients.get_mut(&address) else {
            return;
        };
        for _ in 0..DATAGRAMS_PER_TURN {
            match client.socket.recv(&mut self.buffer) {
                Ok(_) if client.is_forgotten => self.counters.datagrams_unmapped += 1,
                Ok(len) => {
                    client.last_active = now;
                    let payload = self.buffer[..len].to_vec();
                    let datagram = Datagram::new(self.config.upstream, address, payload);
                    self.to_client.push(now, datagram);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.counters.receive_failures += 1;
                    if !is_passing(&error) {
                        // The client's next datagram opens a new socket.
                        self.clients.remove(&address);
                        self.clients_changed = true;
                        break;
                    }
                }
            }
        }
    }

    /// Notes that a client sent something, making its upstream socket if it is new; false if it
    /// cannot be served.
    fn admit(&mut self, source: SocketAddr, now: Time) -> bool {
        if let Some(client) = self.clients.get_mut(&source) {
            client.last_active = now;
            return true;
        }
        if self.clients.len() >= self.config.max_clients {
            return false;
        }
        let Ok(socket) = dial(self.config.upstream, None) else {
            return false;
        };
        self.clients.insert(
            source,
            Client {
                socket,
                is_forgotten: false,
                last_active: now,
            },
        );
        self.clients_changed = true;
        self.counters.clients_total += 1;
        true
    }

    fn publish(&self) {
        self.published.publish(self.counters());
    }
}

/// Reads a running relay's counters from another thread; at most 100 ms old.
#[derive(Clone, Debug, Default)]
pub struct Monitor<C>(Arc<Mutex<C>>);

/// That of a [`Relay`].
pub type RelayMonitor = Monitor<RelayCounters>;

impl<C: Copy> Monitor<C> {
    /// The counters as last published.
    pub fn counters(&self) -> C {
        *self.lock()
    }

    fn publish(&self, counters: C) {
        *self.lock() = counters;
    }

    /// The counters are plain numbers, whole whatever the thread that panicked was doing.
    fn lock(&self) -> MutexGuard<'_, C> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listen(address: SocketAddr) -> io::Result<(UdpSocket, SocketAddr)> {
    let socket = prepare(UdpSocket::bind(address)?)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// What only whole IP packets have.
fn refuse_packet_settings(direction: RelayDirection, link: &LinkConfig) -> Result<(), RelayError> {
    let set = [
        (link.icmp, "icmp"),
        (link.mend, "mend"),
        (link.ecn_rewrite.is_some(), "remark"),
    ];
    match set.into_iter().find(|(is_set, _)| *is_set) {
        Some((_, setting)) => Err(RelayError::NeedsPackets { direction, setting }),
        None => Ok(()),
    }
}

/// A socket of its own for one client, at `local` if that is given.
fn dial(upstream: SocketAddr, local: Option<IpAddr>) -> io::Result<UdpSocket> {
    let any: IpAddr = match upstream {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = prepare(UdpSocket::bind((local.unwrap_or(any), 0))?)?;
    socket.connect(upstream)?;
    Ok(socket)
}

fn prepare(socket: UdpSocket) -> io::Result<UdpSocket> {
    socket.set_nonblocking(true)?;
    // The system may grant less; that costs losses under load, nothing else.
    let options = SockRef::from(&socket);
    let _ = options.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = options.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    Ok(socket)
}

/// Sends on a connected socket. An ICMP answer to an earlier datagram is reported in place of
/// sending this one, so it is tried once more: losses are the links' business.
fn send_connected(socket: &UdpSocket, payload: &[u8]) -> io::Result<usize> {
    match socket.send(payload) {
        Err(error) if is_passing(&error) => socket.send(payload),
        result => result,
    }
}

/// Whether datagrams to `upstream` would come back to a socket listening on `listen`.
fn is_reached_at(listen: SocketAddr, upstream: SocketAddr) -> bool {
    let wildcard = listen.ip().is_unspecified()
        && (upstream.ip().is_loopback() || upstream.ip().is_unspecified());
    listen.port() == upstream.port() && (listen.ip() == upstream.ip() || wildcard)
}

/// Errors that concern one datagram (often an ICMP answer to it) and leave the socket usable.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
    )
}

#[cfg(test)]
mod tests;

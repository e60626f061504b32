//! [`Network`]: simulated hosts and links in virtual time, for `towline.testing`.
//!
//! A loop in virtual time asks it which drivers have something to do, and when it next will be so; it moves
//! the clock itself. Drivers have numbers in place of descriptors: such as no system gives, two each, for
//! the socket and for the timer. Names of hosts, which host a program is at and what is to be said when
//! nothing can happen any more are matters of `python/towline/testing`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use towline::config::ClientConfig;
use towline::testing::{LinkConfig, LinkId, LinkStats, NatConfig, SimulatedSocket, VirtualNetwork};
use towline::{EndpointBuilder, Time};

use crate::certificate;
use crate::errors::Failure;
use crate::hub::{Hub, lock};

/// The first number that stands for a descriptor: far above what a system gives.
const FIRST_NUMBER: RawFd = 1 << 30;

/// A datagram as Python sees it: nanoseconds, from where, to where, bytes.
type Noted = (u64, (String, u16), (String, u16), usize);

/// Simulated hosts, the links between them, and their time.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct Network {
    shared: VirtualNetwork,
    /// Where the clock stood at first.
    start: Time,
    state: Mutex<State>,
    memory: Memory,
}

#[derive(Default)]
struct State {
    links: Vec<Link>,
    /// The drivers, by the number of their socket.
    drivers: BTreeMap<RawFd, Known>,
    drivers_made: RawFd,
    /// NATs, by the host behind them.
    nats: BTreeMap<IpAddr, NatConfig>,
}

struct Link {
    id: LinkId,
    config: LinkConfig,
    /// Since when it carries nothing.
    cut: Option<Time>,
}

struct Known {
    address: SocketAddr,
    hub: Weak<Hub>,
}

/// What clients on a network remember of its servers, by the number of their configuration. Nobody comes
/// with a memory from elsewhere: the handshakes of a seed would not be the same each time.
type Memory = Arc<Mutex<BTreeMap<u64, ClientConfig>>>;

/// A driver's place on a network.
pub(crate) struct Place {
    number: RawFd,
    memory: Memory,
}

impl Place {
    /// What a client with this configuration goes by here.
    pub(crate) fn client_config(
        &self,
        given: &certificate::ClientConfig,
    ) -> Result<ClientConfig, Failure> {
        let mut memory = lock(&self.memory);
        if let Some(config) = memory.get(&given.number) {
            return Ok(config.clone());
        }
        let config = given.renewed()?;
        memory.insert(given.number, config.clone());
        Ok(config)
    }

    pub(crate) fn fileno(&self) -> RawFd {
        self.number
    }

    pub(crate) fn timer_fileno(&self) -> RawFd {
        self.number + 1
    }
}

impl Network {
    /// Has the endpoint go by this network's clock and seed.
    pub(crate) fn prepare(&self, builder: EndpointBuilder) -> EndpointBuilder {
        self.shared.prepare(builder)
    }

    pub(crate) fn socket(&self, address: SocketAddr) -> SimulatedSocket {
        self.shared.socket(address)
    }

    /// Notes a driver, whose socket is at `address`.
    pub(crate) fn add(&self, address: SocketAddr, hub: &Arc<Hub>) -> Place {
        let mut state = lock(&self.state);
        let number = FIRST_NUMBER + 2 * state.drivers_made;
        state.drivers_made += 1;
        let hub = Arc::downgrade(hub);
        state.drivers.insert(number, Known { address, hub });
        if let Some(nat) = state.nats.get(&address.ip()).cloned() {
            // It was valid when it was set.
            let _ = self.shared.with(|network| network.set_nat(address, nat));
        }
        Place {
            number,
            memory: Arc::clone(&self.memory),
        }
    }

    fn nanos(&self, time: Time) -> u64 {
        let since = time.saturating_duration_since(self.start);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Where the sockets of a host are.
    fn sockets_of(&self, host: IpAddr) -> Vec<SocketAddr> {
        let state = lock(&self.state);
        let addresses = state.drivers.values().map(|known| known.address);
        addresses.filter(|address| address.ip() == host).collect()
    }

    /// Changes a link, from now on.
    fn change(
        &self,
        link: usize,
        change: impl FnOnce(&mut Link) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // The network counts changes from the latest time it was given.
        self.shared.deliver();
        let mut state = lock(&self.state);
        let link = state.links.get_mut(link).ok_or_else(unknown_link)?;
        change(link)?;
        let mut config = link.config.clone();
        config
            .blackouts
            .extend(link.cut.map(|from| from..Time::MAX));
        let changed = self
            .shared
            .with(|network| network.set_config(link.id, config));
        changed.map_err(|error| Failure::Value(error.to_string()))
    }
}

fn unknown_link() -> Failure {
    Failure::Value("the network has no such link".to_owned())
}

fn link_config(settings: &str) -> Result<LinkConfig, Failure> {
    let config = settings.parse::<LinkConfig>();
    config.map_err(|error| Failure::Value(error.to_string()))
}

fn host(text: &str) -> Result<IpAddr, Failure> {
    text.parse().map_err(|error| Failure::value("host", error))
}

#[pymethods]
impl Network {
    /// An empty network; its seed decides what links lose and endpoints choose.
    #[new]
    fn new(seed: u64) -> Self {
        let shared = VirtualNetwork::new(seed);
        Self {
            start: shared.now(),
            shared,
            state: Mutex::default(),
            memory: Memory::default(),
        }
    }

    /// The first of the numbers that stand for descriptors.
    #[classattr]
    const FIRST_NUMBER: RawFd = FIRST_NUMBER;

    /// Nanoseconds that have passed.
    #[getter]
    fn now(&self) -> u64 {
        self.nanos(self.shared.now())
    }

    /// Moves the time on, to so many nanoseconds from the start.
    fn advance_to(&self, nanos: u64) {
        self.shared
            .advance_to(self.start + Duration::from_nanos(nanos));
    }

    /// The numbers of drivers that have something to do now: what has arrived, and timers.
    fn poll(&self) -> Vec<RawFd> {
        self.shared.deliver();
        let now = self.shared.now();
        let mut due = Vec::new();
        let mut state = lock(&self.state);
        state.drivers.retain(|number, known| {
            let Some(hub) = known.hub.upgrade().filter(|hub| !hub.is_gone()) else {
                return false;
            };
            if self.shared.is_readable(known.address) {
                due.push(*number);
            }
            if hub.armed().is_some_and(|at| at <= now) {
                due.push(number + 1);
            }
            true
        });
        due
    }

    /// When there next is something to do if nobody does anything before, nanoseconds from the start.
    fn next_timeout(&self) -> Option<u64> {
        let state = lock(&self.state);
        let hubs = state.drivers.values();
        let armed = hubs.filter_map(|known| known.hub.upgrade()?.armed());
        let next = armed.chain(self.shared.next_timeout()).min();
        next.map(|next| self.nanos(next))
    }

    /// Joins two hosts by a link each way; their numbers. The settings are those of `towline relay`.
    fn join(
        &self,
        py: Python<'_>,
        a: &str,
        b: &str,
        there: &str,
        back: &str,
    ) -> PyResult<(usize, usize)> {
        let join = || {
            let (a, b) = (host(a)?, host(b)?);
            let configs = [link_config(there)?, link_config(back)?];
            let [there, back] = configs.clone();
            let joined = self.shared.join_hosts(a, b, there, back);
            let (there, back) = joined.map_err(|error| Failure::Value(error.to_string()))?;
            let mut state = lock(&self.state);
            let first = state.links.len();
            for (id, config) in [there, back].into_iter().zip(configs) {
                let cut = None;
                state.links.push(Link { id, config, cut });
            }
            Ok((first, first + 1))
        };
        join().map_err(|failure: Failure| failure.raise(py))
    }

    /// Gives a link other settings.
    fn set_link(&self, py: Python<'_>, link: usize, settings: &str) -> PyResult<()> {
        let set = link_config(settings).and_then(|config| {
            self.change(link, |link| {
                link.config = config;
                Ok(())
            })
        });
        set.map_err(|failure| failure.raise(py))
    }

    /// Has a link carry nothing, or go on. What is behind its queue arrives.
    fn set_cut(&self, py: Python<'_>, link: usize, cut: bool) -> PyResult<()> {
        let now = self.shared.now();
        let set = self.change(link, |link| {
            link.cut = cut.then(|| link.cut.unwrap_or(now));
            Ok(())
        });
        set.map_err(|failure| failure.raise(py))
    }

    /// What a link has counted.
    fn link_stats<'py>(&self, py: Python<'py>, link: usize) -> PyResult<Bound<'py, PyDict>> {
        self.shared.deliver();
        let id = lock(&self.state).links.get(link).map(|link| link.id);
        let id = id.ok_or_else(|| unknown_link().raise(py))?;
        let stats = self.shared.with(|network| network.link(id).stats());
        link_counts(py, &stats)
    }

    /// What the network has counted.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.shared.with(|network| network.stats());
        let counts = PyDict::new(py);
        counts.set_item("delivered", stats.delivered)?;
        counts.set_item("without_a_link", stats.dropped_no_route)?;
        counts.set_item("to_former_addresses", stats.dropped_stale_address)?;
        counts.set_item("kept_out_by_nats", stats.dropped_unmapped)?;
        counts.set_item("rebindings", stats.rebindings)?;
        Ok(counts)
    }

    /// Whether a socket or a NAT has this address.
    fn is_bound(&self, py: Python<'_>, address: &str, port: u16) -> PyResult<bool> {
        let ip = host(address).map_err(|failure| failure.raise(py))?;
        Ok(self.shared.is_bound(SocketAddr::new(ip, port)))
    }

    /// Has others see every socket of a host at another port, as when a NAT was rebooted.
    fn rebind(&self, py: Python<'_>, address: &str) -> PyResult<()> {
        let ip = host(address).map_err(|failure| failure.raise(py))?;
        for socket in self.sockets_of(ip) {
            // From the upper end, where no socket is given its port.
            let ports = (1..=u16::MAX).rev().map(|port| SocketAddr::new(ip, port));
            let mut free = ports.filter(|address| !self.shared.is_bound(*address));
            if let Some(public) = free.next() {
                self.shared.with(|network| network.rebind(socket, public));
            }
        }
        Ok(())
    }

    /// Puts a host behind a NAT with these settings, or takes it away.
    #[pyo3(signature = (address, settings=None))]
    fn set_nat(&self, py: Python<'_>, address: &str, settings: Option<&str>) -> PyResult<()> {
        let set = || {
            let ip = host(address)?;
            let config = settings.map(str::parse::<NatConfig>).transpose();
            let config = config.map_err(|error| Failure::Value(error.to_string()))?;
            // It counts from the latest time that the network was given.
            self.shared.deliver();
            let mut state = lock(&self.state);
            match &config {
                Some(config) => state.nats.insert(ip, config.clone()),
                None => state.nats.remove(&ip),
            };
            drop(state);
            for socket in self.sockets_of(ip) {
                self.shared
                    .with(|network| match config.clone() {
                        Some(config) => network.set_nat(socket, config),
                        None => {
                            network.remove_nat(socket);
                            Ok(())
                        }
                    })
                    .map_err(|error| Failure::Value(error.to_string()))?;
            }
            Ok(())
        };
        set().map_err(|failure: Failure| failure.raise(py))
    }

    /// Whether datagrams are noted from now on, or no more.
    fn trace_datagrams(&self, on: bool) {
        self.shared.trace_datagrams(on);
    }

    /// The datagrams that were noted, in the order in which they were sent.
    fn trace(&self) -> Vec<Noted> {
        let end = |address: SocketAddr| (address.ip().to_string(), address.port());
        let noted = self.shared.trace().into_iter();
        noted
            .map(|sent| {
                let (source, destination) = (end(sent.source), end(sent.destination));
                (self.nanos(sent.at), source, destination, sent.len)
            })
            .collect()
    }
}

fn link_counts<'py>(py: Python<'py>, stats: &LinkStats) -> PyResult<Bound<'py, PyDict>> {
    let drops = &stats.drops;
    let counts = PyDict::new(py);
    for (name, count) in [
        ("datagrams_sent", stats.datagrams_in),
        ("bytes_sent", stats.bytes_in),
        ("datagrams_delivered", stats.datagrams_delivered),
        ("bytes_delivered", stats.bytes_delivered),
        ("lost", drops.loss + drops.listed),
        ("dropped_in_queue", drops.queue + drops.aqm + drops.capacity),
        ("dropped_by_policer", drops.policer),
        ("dropped_in_outage", drops.blackout),
        ("dropped_as_too_big", drops.mtu),
        ("duplicated", stats.duplicated),
        ("reordered", stats.reordered),
        ("corrupted", stats.corrupted),
        ("truncated", stats.truncated),
        ("marked", stats.ce_marks),
        ("queue_peak_bytes", stats.queue_peak_bytes),
    ] {
        counts.set_item(name, count)?;
    }
    Ok(counts)
}

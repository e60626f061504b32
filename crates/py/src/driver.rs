//! [`Driver`]: an endpoint that a loop drives.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use towline::Endpoint;
use towline::handles::Waiter;
use towline::io::{Socket, SocketOptions, UdpSocket};
use towline::webtransport::Server;

use crate::certificate::{Certificate, ClientConfig};
use crate::endpoint::{AnyShard, Made, endpoint, the_shard};
use crate::errors::{Failure, os_error};
use crate::fields::add_fields;
use crate::group;
use crate::hub::{Hub, lock};
use crate::listener::{Door, Listener};
use crate::network::{Network, Place};
use crate::operation::Operation;
use crate::session::Session;
use crate::transport::Transport;

/// The turn ended on its budget, or something is due: take another one soon.
pub(crate) const AGAIN: u32 = 1;
/// A turn is worth it when the socket is writable.
pub(crate) const WANT_WRITE: u32 = 2;
/// Tokens were called.
pub(crate) const READY: u32 = 4;
/// The descriptor is another one, or has to be watched anew.
pub(crate) const REGISTER: u32 = 8;

/// An endpoint and its descriptors, for one loop.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct Driver {
    hub: Arc<Hub>,
    /// `None` once it was closed.
    engine: Mutex<Option<Engine>>,
    endpoint: Mutex<Option<Endpoint>>,
    local: SocketAddr,
    /// On a simulated network, where no descriptor is one of the system's.
    place: Option<Place>,
    /// Its clients speak an application's own protocol, and no HTTP/3.
    is_quic: bool,
}

/// What takes turns.
struct Engine {
    shard: AnyShard,
    want_write: bool,
}

impl Engine {
    fn turn(&mut self, hub: &Hub, readable: bool) -> io::Result<u32> {
        hub.on_turn();
        let now = self.shard.clock().now();
        if self.want_write {
            match self.shard.flush(now) {
                Ok(()) => self.want_write = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let turn = self.shard.drive_if(now, readable)?;
        self.want_write = turn.want_write;
        let is_due = match self.shard.next_timeout() {
            Some(next) => hub.arm(next)?,
            None => false,
        };
        let register = self.shard.take_rebound() | self.shard.take_heard();
        let mut result = 0;
        if turn.again || is_due || register || hub.has_work() {
            result |= AGAIN;
        }
        if turn.want_write {
            result |= WANT_WRITE;
        }
        if register {
            result |= REGISTER;
        }
        Ok(result)
    }
}

#[pymethods]
impl Driver {
    /// An endpoint at this address, of the system or of a simulated network, which takes clients if it has
    /// a certificate: for sessions, and requests where it takes them, or, with `alpn`, for connections of
    /// these protocols.
    #[new]
    #[pyo3(signature = (
        host, port, certificate=None, alpn=None, transport=None, takes_requests=false, network=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn new(
        py: Python<'_>,
        host: &str,
        port: u16,
        certificate: Option<PyRef<'_, Certificate>>,
        alpn: Option<Vec<Vec<u8>>>,
        transport: Option<Transport>,
        takes_requests: bool,
        network: Option<PyRef<'_, Network>>,
    ) -> PyResult<Self> {
        let ip: IpAddr = host
            .parse()
            .map_err(|error| Failure::value("host", error).raise(py))?;
        let is_quic = alpn.is_some();
        let builder = endpoint(
            certificate.as_deref(),
            alpn,
            transport.as_ref(),
            takes_requests,
        );
        let builder = builder.map_err(|failure| failure.raise(py))?;
        let address = SocketAddr::new(ip, port);
        let Some(network) = network else {
            let bound = UdpSocket::bind(address, &SocketOptions::default());
            let socket: Box<dyn Socket> = Box::new(bound.map_err(os_error)?);
            let made = builder.on_sockets(vec![socket]);
            return made
                .and_then(|made| Self::of(made, is_quic))
                .map_err(os_error);
        };
        let socket: Box<dyn Socket> = Box::new(network.socket(address));
        let made = network.prepare(builder).on_sockets(vec![socket]);
        let (endpoint, shard) = made.and_then(the_shard).map_err(os_error)?;
        let hub = Hub::in_virtual_time(shard.clock().clone());
        let place = network.add(address, &hub);
        Ok(Self::new_with(hub, endpoint, shard, is_quic, Some(place)))
    }

    /// A server on the socket that is `index` of the `count` that `bind_group` made, with the group's
    /// secret. It takes a descriptor of its own.
    #[staticmethod]
    fn adopt(
        py: Python<'_>,
        fd: RawFd,
        certificate: PyRef<'_, Certificate>,
        index: usize,
        count: usize,
        secret: [u8; 32],
    ) -> PyResult<Self> {
        let builder = endpoint(Some(&certificate), None, None, false);
        let builder = builder.map_err(|failure| failure.raise(py))?;
        let made = group::adopt(fd, builder, (index, count), secret);
        made.and_then(|made| Self::of(made, false))
            .map_err(os_error)
    }

    /// The socket's descriptor; -1 once it was closed.
    fn fileno(&self) -> RawFd {
        let engine = lock(&self.engine);
        let Some(engine) = engine.as_ref() else {
            return -1;
        };
        match &self.place {
            Some(place) => place.fileno(),
            None => engine.shard.fd().map_or(-1, |fd| fd.as_raw_fd()),
        }
    }

    /// The timer's descriptor, readable when a turn is due; -1 once it was closed.
    fn timer_fileno(&self) -> RawFd {
        match &self.place {
            Some(place) if !self.hub.is_gone() => place.timer_fileno(),
            _ => self.hub.timer_fd(),
        }
    }

    /// One turn of about a millisecond at most. Says what is to be done next.
    fn drive(&self, py: Python<'_>, readable: bool) -> PyResult<u32> {
        self.hub.check().map_err(|failure| failure.raise(py))?;
        // The lock is taken and given back without the interpreter: who has it never waits for that.
        let result = py.detach(|| match lock(&self.engine).as_mut() {
            Some(engine) => engine.turn(&self.hub, readable),
            None => Ok(0),
        });
        let result = result.map_err(os_error)?;
        Ok(result | if self.hub.has_ready() { READY } else { 0 })
    }

    /// Whether a turn is due: a handle gave it work, or a token was called.
    #[getter]
    fn wants_turn(&self) -> bool {
        self.hub.wants_turn()
    }

    /// The tokens that were called since this was asked last.
    fn take_ready(&self) -> Vec<u64> {
        self.hub.take_ready()
    }

    /// Where the socket is bound.
    #[getter]
    fn local_address(&self) -> (String, u16) {
        (self.local.ip().to_string(), self.local.port())
    }

    /// An attempt to get a session for `url` of whichever of these addresses answers first.
    fn connect(
        &self,
        py: Python<'_>,
        addresses: Vec<(String, u16)>,
        url: &str,
        headers: Vec<(String, String)>,
        protocols: Vec<String>,
        config: PyRef<'_, ClientConfig>,
    ) -> PyResult<Operation> {
        let start = || {
            let remotes = remotes(&addresses)?;
            let mut head = http::Request::get(url);
            for (name, value) in &headers {
                head = head.header(name, value);
            }
            let head = head
                .body(())
                .map_err(|error| Failure::value("url", error))?;
            let endpoint = self.endpoint()?;
            let config = match &self.place {
                Some(place) => place.client_config(&config)?,
                None => config.config.clone(),
            };
            Ok(Operation::connect(
                &self.hub, endpoint, remotes, head, protocols, config,
            ))
        };
        start().map_err(|failure: Failure| failure.raise(py))
    }

    /// An attempt to get a connection with whichever of these addresses answers first: for requests, or for
    /// the protocol of `config`.
    fn reach(
        &self,
        py: Python<'_>,
        addresses: Vec<(String, u16)>,
        server_name: String,
        config: PyRef<'_, ClientConfig>,
        for_requests: bool,
    ) -> PyResult<Operation> {
        let start = || {
            let (endpoint, remotes) = (self.endpoint()?, remotes(&addresses)?);
            let (hub, config) = (&self.hub, config.config.clone());
            Ok(Operation::reach(
                hub,
                endpoint,
                remotes,
                server_name,
                config,
                for_requests,
            ))
        };
        start().map_err(|failure: Failure| failure.raise(py))
    }

    /// An attempt to begin a request, on a connection of HTTP/3.
    fn request(
        &self,
        py: Python<'_>,
        connection: PyRef<'_, Session>,
        method: &str,
        url: &str,
        headers: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> PyResult<Operation> {
        let begin = || {
            let head = http::Request::builder().method(method).uri(url).body(());
            let mut head = head.map_err(|error| Failure::value("url", error))?;
            add_fields(head.headers_mut(), &headers)?;
            Ok(Operation::request(&self.hub, connection.http()?, head))
        };
        begin().map_err(|failure: Failure| failure.raise(py))
    }

    /// Where clients come in.
    fn listen(&self, py: Python<'_>) -> PyResult<Listener> {
        let endpoint = self.endpoint().map_err(|failure| failure.raise(py))?;
        if self.is_quic {
            return Ok(Listener::new(
                &self.hub,
                Door::Quic(endpoint, Waiter::new()),
            ));
        }
        match Server::new(&endpoint) {
            Some(server) => {
                let wishes = Box::new(server.wishes());
                Ok(Listener::new(&self.hub, Door::Http3(wishes)))
            }
            None => {
                let words = "the endpoint has no certificate".to_owned();
                Err(Failure::Value(words).raise(py))
            }
        }
    }

    /// Takes no new clients from now on; what is left after so many seconds is closed.
    fn shut_down(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        let grace = Duration::try_from_secs_f64(grace);
        let grace = grace.map_err(|error| Failure::value("grace", error).raise(py))?;
        let endpoint = self.endpoint().map_err(|failure| failure.raise(py))?;
        endpoint.start_shutdown(grace, self.peace(), b"");
        Ok(())
    }

    /// Connections in any state.
    #[getter]
    fn connection_count(&self, py: Python<'_>) -> PyResult<usize> {
        self.hub.check().map_err(|failure| failure.raise(py))?;
        let endpoint = lock(&self.endpoint);
        Ok(endpoint.as_ref().map_or(0, Endpoint::connection_count))
    }

    /// Datagrams of other shards that came to this one, and were dropped.
    #[getter]
    fn misdirected_count(&self, py: Python<'_>) -> PyResult<u64> {
        self.hub.check().map_err(|failure| failure.raise(py))?;
        let endpoint = lock(&self.endpoint);
        let shards = endpoint
            .as_ref()
            .map_or_else(Vec::new, Endpoint::shard_stats);
        Ok(shards
            .iter()
            .map(|shard| shard.socket.hand_over_drops)
            .sum())
    }

    /// As `Session.in_flight`, of all connections together: the bytes of all, and the longest time.
    fn in_flight(&self, py: Python<'_>) -> PyResult<(u64, f64)> {
        let endpoint = self.endpoint().map_err(|failure| failure.raise(py))?;
        let (bytes, pto) = py.detach(|| endpoint.unacknowledged());
        Ok((bytes, pto.as_secs_f64()))
    }

    /// Closes all connections in peace. A turn sends the notices.
    fn close_connections(&self, py: Python<'_>) -> PyResult<()> {
        let endpoint = self.endpoint().map_err(|failure| failure.raise(py))?;
        endpoint.close(self.peace(), b"");
        Ok(())
    }

    /// Gives the descriptors back. Whatever is open ends without a word to the peers.
    fn close(&self, py: Python<'_>) {
        if self.hub.is_forked() {
            return;
        }
        let (engine, endpoint) = (&self.engine, &self.endpoint);
        py.detach(|| {
            let engine = lock(engine).take();
            let endpoint = lock(endpoint).take();
            drop((endpoint, engine));
        });
        self.hub.close();
    }

    /// This process is a fork of the one that made the driver.
    fn on_fork(&self) {
        self.hub.on_fork();
    }
}

/// Code of a connection that is closed in peace (RFC 9114 §8.1).
const H3_NO_ERROR: u64 = 0x100;

fn remotes(addresses: &[(String, u16)]) -> Result<Vec<SocketAddr>, Failure> {
    let addresses = addresses.iter().map(|(host, port)| {
        let ip: Result<IpAddr, _> = host.parse();
        let ip = ip.map_err(|error| Failure::value("addresses", error))?;
        Ok(SocketAddr::new(ip, *port))
    });
    addresses.collect()
}

impl Driver {
    /// On the one shard of an endpoint, whose sockets are the system's.
    fn of(made: Made, is_quic: bool) -> io::Result<Self> {
        let (endpoint, shard) = the_shard(made)?;
        let hub = Hub::new(shard.clock().clone())?;
        Ok(Self::new_with(hub, endpoint, shard, is_quic, None))
    }

    fn new_with(
        hub: Arc<Hub>,
        endpoint: Endpoint,
        mut shard: AnyShard,
        is_quic: bool,
        place: Option<Place>,
    ) -> Self {
        shard.set_waker(&hub.work_waker());
        Self {
            place,
            hub,
            local: endpoint.local_addr(),
            is_quic,
            engine: Mutex::new(Some(Engine {
                shard,
                want_write: false,
            })),
            endpoint: Mutex::new(Some(endpoint)),
        }
    }

    /// The code by which connections are closed in peace.
    fn peace(&self) -> u64 {
        if self.is_quic { 0 } else { H3_NO_ERROR }
    }

    fn endpoint(&self) -> Result<Endpoint, Failure> {
        self.hub.check()?;
        let endpoint = lock(&self.endpoint);
        endpoint
            .clone()
            .ok_or_else(|| Failure::NotConnected("the endpoint is closed".to_owned()))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Not by the locks: in a fork, a thread that is not there may hold them.
        let engine = self
            .engine
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let endpoint = self
            .endpoint
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let held = (endpoint.take(), engine.take());
        if self.hub.is_forked() {
            std::mem::forget(held);
            return;
        }
        drop(held);
        self.hub.close();
    }
}

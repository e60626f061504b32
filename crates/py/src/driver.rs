//! [`Driver`]: an endpoint that a loop drives.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::prelude::*;
use towline::Endpoint;
use towline::handles::Sessions;
use towline::io::{Shard, UdpSocket};
use towline::webtransport::{Config, Server};

use crate::certificate::{Certificate, ClientConfig};
use crate::errors::{Failure, os_error};
use crate::group;
use crate::hub::{Hub, lock};
use crate::listener::Listener;
use crate::operation::Operation;

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
}

/// What takes turns.
struct Engine {
    shard: Shard<UdpSocket, Sessions>,
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
    /// An endpoint at this address, which takes sessions if it has a certificate.
    #[new]
    #[pyo3(signature = (host, port, certificate=None))]
    fn new(
        py: Python<'_>,
        host: &str,
        port: u16,
        certificate: Option<PyRef<'_, Certificate>>,
    ) -> PyResult<Self> {
        let ip: IpAddr = host
            .parse()
            .map_err(|error| Failure::value("host", error).raise(py))?;
        let mut builder = Endpoint::builder();
        if let Some(certificate) = certificate {
            let config = certificate.server_config();
            builder = builder.server(config.map_err(|failure| failure.raise(py))?);
        }
        let builder = builder.webtransport(Config::default());
        let bound = builder.bind_shards(SocketAddr::new(ip, port));
        bound.and_then(Self::of).map_err(os_error)
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
        let config = certificate.server_config();
        let config = config.map_err(|failure| failure.raise(py))?;
        let made = group::adopt(fd, config, (index, count), secret);
        made.and_then(Self::of).map_err(os_error)
    }

    /// The socket's descriptor; -1 once it was closed.
    fn fileno(&self) -> RawFd {
        let engine = lock(&self.engine);
        let fd = engine.as_ref().and_then(|engine| engine.shard.fd());
        fd.map_or(-1, |fd| fd.as_raw_fd())
    }

    /// The timer's descriptor, readable when a turn is due; -1 once it was closed.
    fn timer_fileno(&self) -> RawFd {
        self.hub.timer_fd()
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
            let mut remotes = Vec::with_capacity(addresses.len());
            for (host, port) in &addresses {
                let ip: IpAddr = host
                    .parse()
                    .map_err(|error| Failure::value("addresses", error))?;
                remotes.push(SocketAddr::new(ip, *port));
            }
            let mut head = http::Request::get(url);
            for (name, value) in &headers {
                head = head.header(name, value);
            }
            let head = head
                .body(())
                .map_err(|error| Failure::value("url", error))?;
            let endpoint = self.endpoint()?;
            let config = config.config.clone();
            Ok(Operation::connect(
                &self.hub, endpoint, remotes, head, protocols, config,
            ))
        };
        start().map_err(|failure: Failure| failure.raise(py))
    }

    /// Where clients ask for sessions.
    fn listen(&self, py: Python<'_>) -> PyResult<Listener> {
        let endpoint = self.endpoint().map_err(|failure| failure.raise(py))?;
        match Server::new(&endpoint) {
            Some(server) => Ok(Listener::new(&self.hub, server.sessions())),
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
        endpoint.start_shutdown(grace, H3_NO_ERROR, b"");
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
        let shards = endpoint.as_ref().map_or_else(Vec::new, Endpoint::shard_stats);
        Ok(shards.iter().map(|shard| shard.socket.hand_over_drops).sum())
    }

    /// Closes all connections in peace. A turn sends the notices.
    fn close_connections(&self, py: Python<'_>) -> PyResult<()> {
        let endpoint = self.endpoint().map_err(|failure| failure.raise(py))?;
        endpoint.close(H3_NO_ERROR, b"");
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

impl Driver {
    /// On the one shard of an endpoint.
    pub(crate) fn of(
        (endpoint, mut shards): (Endpoint, Vec<Shard<UdpSocket, Sessions>>),
    ) -> io::Result<Self> {
        let mut shard = shards
            .pop()
            .ok_or_else(|| io::Error::other("an endpoint has a shard"))?;
        let hub = Hub::new(shard.clock().clone())?;
        shard.set_waker(&hub.work_waker());
        Ok(Self {
            hub,
            local: endpoint.local_addr(),
            engine: Mutex::new(Some(Engine {
                shard,
                want_write: false,
            })),
            endpoint: Mutex::new(Some(endpoint)),
        })
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
        let engine = lock(&self.engine).take();
        let endpoint = lock(&self.endpoint).take();
        if self.hub.is_forked() {
            std::mem::forget((engine, endpoint));
            return;
        }
        drop((endpoint, engine));
        self.hub.close();
    }
}

//! [`Endpoint`]: one bound socket that connects, accepts, or both.
//!
//! Binding spawns the driver task. The last endpoint handle to go leaves existing
//! connections alive, closes what nobody accepted, and lets the driver end with the
//! last connection.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use towline_quic::{ClientConfig, EndpointConfig, ServerConfig};
use tracing::Instrument;

use super::connection::{Connection, Reference};
use super::driver::Driver;
use super::error::ConnectError;
use super::registry::Registry;
use super::waiters::{WaiterKey, Waiters};
use crate::io::{Change, Handle, Shard, SocketInfo, SocketOptions, SocketStats, UdpSocket};

/// A QUIC endpoint. Clones are the same endpoint.
#[derive(Clone)]
pub struct Endpoint {
    share: Arc<Share>,
}

/// What endpoint handles share; dropped with the last of them.
struct Share {
    shard: Handle<Registry>,
    local: SocketAddr,
}

impl Endpoint {
    /// An endpoint that only connects. Bind to `0.0.0.0:0` or `[::]:0` (both families).
    ///
    /// # Errors
    /// When called outside of a tokio runtime, or the address cannot be bound.
    pub fn client(bind: SocketAddr) -> io::Result<Self> {
        Self::builder().bind(bind)
    }

    /// An endpoint that accepts connections, and may connect too.
    ///
    /// # Errors
    /// When called outside of a tokio runtime, or the address cannot be bound.
    pub fn server(bind: SocketAddr, config: ServerConfig) -> io::Result<Self> {
        Self::builder().server(config).bind(bind)
    }

    /// An endpoint with choices.
    pub fn builder() -> EndpointBuilder {
        EndpointBuilder::default()
    }

    /// Connects to `remote`, which must prove to be `server_name` by the rules of `config`.
    ///
    /// Cancel safe: a dropped call gives the attempt up.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        config: &ClientConfig,
    ) -> Result<Connection, ConnectError> {
        self.check_family(remote)?;
        let shard = &self.share.shard;
        let now = shard.clock().now();
        let slot = shard.with(|endpoint, registry| {
            if registry.closed.is_some() || registry.stopped {
                return (Err(ConnectError::EndpointClosed), Change::None);
            }
            match endpoint.connect(now, config, remote, server_name) {
                Ok(handle) => (Ok(registry.insert(handle, remote)), Change::Made),
                Err(error) => (Err(error.into()), Change::None),
            }
        })?;
        let reference = Reference::adopt(shard.clone(), slot, remote);
        reference.established().await?;
        tracing::debug!(%remote, server_name, "connected");
        Ok(Connection::new(reference))
    }

    fn check_family(&self, remote: SocketAddr) -> Result<(), ConnectError> {
        let local = self.share.local;
        let reachable = match (local, remote) {
            (SocketAddr::V4(_), SocketAddr::V6(_)) => false,
            (SocketAddr::V6(local), SocketAddr::V4(_)) => local.ip().is_unspecified(),
            _ => true,
        };
        if reachable {
            Ok(())
        } else {
            Err(ConnectError::AddressFamily { local, remote })
        }
    }

    /// The next connection whose handshake has finished; `None` once the endpoint was
    /// [closed](Self::close).
    ///
    /// Cancel safe: a dropped call took no connection. At most
    /// [`MAX_ACCEPT_QUEUE`](super::MAX_ACCEPT_QUEUE) connections wait; further ones are closed.
    pub async fn accept(&self) -> Option<Connection> {
        let mut waiting = Waiting::new(&self.share.shard, |registry| &mut registry.acceptors);
        let (slot, remote) = poll_fn(|cx| {
            let key = &mut waiting.key;
            let (result, _replaced) = self.share.shard.with(|_, registry| {
                let result = match registry.pop_accepted() {
                    Some(slot) => {
                        let remote = registry.entry(slot).remote;
                        (Poll::Ready(Some((slot, remote))), None)
                    }
                    None if registry.closed.is_some() || registry.stopped => {
                        (Poll::Ready(None), None)
                    }
                    None => {
                        let replaced = registry.acceptors.register(key, cx.waker());
                        (Poll::Pending, replaced)
                    }
                };
                (result, Change::None)
            });
            result
        })
        .await?;
        let reference = Reference::adopt(self.share.shard.clone(), slot, remote);
        tracing::debug!(%remote, "accepted");
        Some(Connection::new(reference))
    }

    /// The bound address, its port chosen by the system if 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.share.local
    }

    /// Closes all connections, told `code` and `reason`, and refuses new ones.
    ///
    /// The notices are sent by the driver: await [`wait_idle`](Self::wait_idle) before
    /// leaving the runtime.
    pub fn close(&self, code: u64, reason: &[u8]) {
        let now = self.share.shard.clock().now();
        let mut wake = Vec::new();
        self.share.shard.with(|endpoint, registry| {
            registry.close_all(endpoint, now, code, reason);
            registry.acceptors.wake_all(&mut wake);
            ((), Change::Made)
        });
        for waker in wake {
            waker.wake();
        }
    }

    /// Waits until no connection is left, neither open nor closing. Cancel safe.
    ///
    /// A closed connection takes three probe timeouts more to be gone (RFC 9000 §10.2).
    pub async fn wait_idle(&self) {
        let mut waiting = Waiting::new(&self.share.shard, |registry| &mut registry.idlers);
        poll_fn(|cx| {
            let key = &mut waiting.key;
            let (result, _replaced) = self.share.shard.with(|endpoint, registry| {
                if endpoint.stats().connections == 0 || registry.stopped {
                    return ((Poll::Ready(()), None), Change::None);
                }
                let replaced = registry.idlers.register(key, cx.waker());
                ((Poll::Pending, replaced), Change::None)
            });
            result
        })
        .await;
    }

    /// Connections in any state, handshakes and closing ones included.
    pub fn connection_count(&self) -> usize {
        self.share
            .shard
            .read(|endpoint, _| endpoint.stats().connections)
    }

    /// What the socket is bound to and what the system granted it.
    pub fn socket_info(&self) -> SocketInfo {
        self.share.shard.socket_info()
    }

    /// The socket's counters as of the driver's last turn.
    pub fn socket_stats(&self) -> SocketStats {
        self.share.shard.socket_stats()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let now = self.shard.clock().now();
        self.shard.with(|endpoint, registry| {
            registry.orphaned = true;
            endpoint.refuse_new();
            registry.drop_unclaimed(endpoint, now);
            ((), Change::Made)
        });
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("local", &self.share.local)
            .finish_non_exhaustive()
    }
}

/// A registration with the endpoint's waiters, taken back when its future is dropped.
struct Waiting<'a> {
    shard: &'a Handle<Registry>,
    of: fn(&mut Registry) -> &mut Waiters,
    key: Option<WaiterKey>,
}

impl<'a> Waiting<'a> {
    fn new(shard: &'a Handle<Registry>, of: fn(&mut Registry) -> &mut Waiters) -> Self {
        Self {
            shard,
            of,
            key: None,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let _removed = self
                .shard
                .with(|_, registry| ((self.of)(registry).remove(key), Change::None));
        }
    }
}

/// Choices for a new [`Endpoint`].
#[derive(Default)]
#[must_use = "an endpoint exists once `bind` was called"]
pub struct EndpointBuilder {
    server: Option<ServerConfig>,
    engine: Option<EndpointConfig>,
    socket: SocketOptions,
}

impl EndpointBuilder {
    /// Accept connections.
    pub fn server(mut self, config: ServerConfig) -> Self {
        self.server = Some(config);
        self
    }

    /// The engine's secrets and connection IDs, instead of fresh random ones: a server
    /// that keeps its reset key over a restart can reset connections it has forgotten.
    pub fn engine(mut self, config: EndpointConfig) -> Self {
        self.engine = Some(config);
        self
    }

    /// Socket buffers, GSO and GRO.
    pub fn socket(mut self, options: SocketOptions) -> Self {
        self.socket = options;
        self
    }

    /// Binds a socket and spawns the driver on the current tokio runtime.
    ///
    /// # Errors
    /// When called outside of a tokio runtime, or the address cannot be bound.
    pub fn bind(self, address: SocketAddr) -> io::Result<Endpoint> {
        let socket = UdpSocket::bind(address, &self.socket)?;
        self.start(socket)
    }

    /// As [`bind`](Self::bind), on a socket that is bound already.
    ///
    /// # Errors
    /// When called outside of a tokio runtime, or the socket refuses an option.
    pub fn on_socket(self, socket: std::net::UdpSocket) -> io::Result<Endpoint> {
        let socket = UdpSocket::from_std(socket, &self.socket)?;
        self.start(socket)
    }

    fn start(self, socket: UdpSocket) -> io::Result<Endpoint> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let engine = match self.engine {
            Some(engine) => engine,
            None => EndpointConfig::from_seed(crate::io::random_seed()?),
        };
        let shard = Shard::new(
            socket,
            engine,
            self.server.map(Arc::new),
            Registry::default(),
        );
        let info = shard.info();
        let handle = shard.handle().clone();
        let span = tracing::info_span!("endpoint", local = %info.local_addr);
        tracing::debug!(parent: &span, gso = info.gso_segments, gro = info.gro_segments,
            send_buffer = info.send_buffer.granted, recv_buffer = info.recv_buffer.granted, "bound");
        runtime.spawn(Driver::new(shard)?.instrument(span));
        Ok(Endpoint {
            share: Arc::new(Share {
                shard: handle,
                local: info.local_addr,
            }),
        })
    }
}

impl fmt::Debug for EndpointBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointBuilder")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

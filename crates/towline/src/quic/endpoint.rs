//! [`Endpoint`]: one bound address that connects, accepts, or both.
//!
//! Binding spawns a driver task for each shard: one, unless the builder is asked for more.
//! A connection stays with the shard it began at; accepting takes from all shards in turn,
//! connecting gives to them in turn. The last endpoint handle to go leaves existing
//! connections alive, closes what nobody accepted, and lets the driver end with the
//! last connection.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use towline_quic::{ClientConfig, EndpointConfig, EndpointStats, ServerConfig};
use tracing::Instrument;

use super::connection::{Connection, Reference, wake_all};
use super::driver::Driver;
use super::error::ConnectError;
use super::registry::Registry;
use super::waiters::WaiterKey;
use crate::io::{
    Change, Handle, SocketInfo, SocketOptions, SocketStats, UdpSocket, bind_shards, machine_memory,
    shard_group,
};

/// A QUIC endpoint. Clones are the same endpoint.
#[derive(Clone)]
pub struct Endpoint {
    share: Arc<Share>,
}

/// What endpoint handles share; dropped with the last of them.
struct Share {
    /// At least one.
    shards: Vec<Handle<Registry>>,
    connecting: Rotation,
    accepting: Rotation,
    local: SocketAddr,
}

/// Whose turn it is among the shards. One for each purpose: with one for two, calls that
/// alternate would meet the same shard each time.
#[derive(Default)]
struct Rotation(AtomicUsize);

impl Rotation {
    /// All indices below `count`, each time beginning with the next one.
    fn next(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let turn = self.0.fetch_add(1, Ordering::Relaxed) % count;
        (turn..count).chain(0..turn)
    }
}

/// One shard of an endpoint: what its socket and its engine did.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ShardStats {
    /// What its socket is bound to and was granted.
    pub info: SocketInfo,
    /// Its socket's counters as of its driver's last turn.
    pub socket: SocketStats,
    /// Its engine's counters.
    pub engine: EndpointStats,
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
    /// When called outside of a tokio runtime, the address cannot be bound, or the transport
    /// settings make no sense.
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
        let start = |shard: &Handle<Registry>| {
            let now = shard.clock().now();
            shard.with(|endpoint, registry| {
                if registry.closed.is_some() || registry.stopped {
                    return (Err(ConnectError::EndpointClosed), Change::None);
                }
                match endpoint.connect(now, config, remote, server_name) {
                    Ok(handle) => (Ok(registry.insert(handle, remote)), Change::Made),
                    Err(error) => (Err(error.into()), Change::None),
                }
            })
        };
        let mut started = Err(ConnectError::EndpointClosed);
        for index in self.share.connecting.next(self.share.shards.len()) {
            let shard = &self.share.shards[index];
            started = start(shard).map(|slot| (shard, slot));
            // A shard whose socket failed leaves the work to the others.
            if !matches!(started, Err(ConnectError::EndpointClosed)) {
                break;
            }
        }
        let (shard, slot) = started?;
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
    /// [`MAX_ACCEPT_QUEUE`](super::MAX_ACCEPT_QUEUE) connections of a shard wait; further
    /// ones are closed.
    pub async fn accept(&self) -> Option<Connection> {
        let shards = &self.share.shards;
        let mut waiting = Waiting::new(shards, |registry, key, wake| {
            let left = registry.acceptors.leave(key);
            registry.call_acceptors(wake);
            left
        });
        let (shard, slot, remote) = poll_fn(|cx| {
            let mut open = false;
            for index in self.share.accepting.next(shards.len()) {
                let key = &mut waiting.keys[index];
                let (taken, _replaced) = shards[index].with(|_, registry| {
                    let result = match registry.pop_accepted(*key) {
                        Some(slot) => (Some((slot, registry.entry(slot).remote)), None),
                        None if registry.closed.is_some() || registry.stopped => (None, None),
                        None => {
                            open = true;
                            (None, registry.acceptors.register(key, cx.waker()))
                        }
                    };
                    (result, Change::None)
                });
                if let Some((slot, remote)) = taken {
                    return Poll::Ready(Some((&shards[index], slot, remote)));
                }
            }
            if open {
                Poll::Pending
            } else {
                Poll::Ready(None)
            }
        })
        .await?;
        let reference = Reference::adopt(shard.clone(), slot, remote);
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
        let mut wake = Vec::new();
        for shard in &self.share.shards {
            let now = shard.clock().now();
            shard.with(|endpoint, registry| {
                registry.close_all(endpoint, now, code, reason);
                registry.acceptors.wake_all(&mut wake);
                ((), Change::Made)
            });
        }
        for waker in wake {
            waker.wake();
        }
    }

    /// Waits until no connection is left, neither open nor closing. Cancel safe.
    ///
    /// A closed connection takes three probe timeouts more to be gone (RFC 9000 §10.2).
    pub async fn wait_idle(&self) {
        let shards = &self.share.shards;
        let mut waiting = Waiting::new(shards, |registry, key, _| registry.idlers.leave(key));
        poll_fn(|cx| {
            for (shard, key) in shards.iter().zip(&mut waiting.keys) {
                let (busy, _replaced) = shard.with(|endpoint, registry| {
                    if endpoint.stats().connections == 0 || registry.stopped {
                        return ((false, None), Change::None);
                    }
                    let replaced = registry.idlers.register(key, cx.waker());
                    ((true, replaced), Change::None)
                });
                if busy {
                    return Poll::Pending;
                }
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Connections in any state, handshakes and closing ones included. Those of a shard whose
    /// driver has ended do not count: nothing moves them any more.
    pub fn connection_count(&self) -> usize {
        let count = |shard: &Handle<Registry>| {
            shard.read(|endpoint, registry| {
                if registry.stopped {
                    0
                } else {
                    endpoint.stats().connections
                }
            })
        };
        self.share.shards.iter().map(count).sum()
    }

    /// What the sockets are bound to and what the system granted them; where they differ, the
    /// least.
    pub fn socket_info(&self) -> SocketInfo {
        let mut infos = self.share.shards.iter().map(Handle::socket_info);
        let first = infos.next().expect("an endpoint has at least one shard");
        infos.fold(first, SocketInfo::least)
    }

    /// The sum of the sockets' counters as of their drivers' last turns.
    pub fn socket_stats(&self) -> SocketStats {
        let mut sum = SocketStats::default();
        for shard in &self.share.shards {
            sum += shard.socket_stats();
        }
        sum
    }

    /// How each shard fares, in shard order.
    pub fn shard_stats(&self) -> Vec<ShardStats> {
        let stats = |shard: &Handle<Registry>| ShardStats {
            info: shard.socket_info(),
            socket: shard.socket_stats(),
            engine: shard.read(|endpoint, _| endpoint.stats()),
        };
        self.share.shards.iter().map(stats).collect()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for shard in &self.shards {
            let now = shard.clock().now();
            shard.with(|endpoint, registry| {
                registry.orphaned = true;
                endpoint.refuse_new();
                registry.drop_unclaimed(endpoint, now);
                ((), Change::Made)
            });
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("local", &self.share.local)
            .finish_non_exhaustive()
    }
}

/// Places in the lines of all shards, given up when their future is done or dropped.
struct Waiting<'a> {
    shards: &'a [Handle<Registry>],
    leave: Leave,
    keys: Vec<Option<WaiterKey>>,
}

/// Leaves a line; adds who is called instead.
type Leave = fn(&mut Registry, WaiterKey, &mut Vec<Waker>) -> Option<Waker>;

impl<'a> Waiting<'a> {
    fn new(shards: &'a [Handle<Registry>], leave: Leave) -> Self {
        Self {
            shards,
            leave,
            keys: vec![None; shards.len()],
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        for (shard, key) in self.shards.iter().zip(&self.keys) {
            if let Some(key) = *key {
                let mut wake = Vec::new();
                let _left = shard
                    .with(|_, registry| ((self.leave)(registry, key, &mut wake), Change::None));
                wake_all(wake);
            }
        }
    }
}

/// Choices for a new [`Endpoint`].
#[must_use = "an endpoint exists once `bind` was called"]
pub struct EndpointBuilder {
    server: Option<ServerConfig>,
    engine: Option<EndpointConfig>,
    reset_key: Option<[u8; 32]>,
    socket: SocketOptions,
    shards: usize,
    memory_limit: Option<u64>,
}

impl Default for EndpointBuilder {
    fn default() -> Self {
        Self {
            server: None,
            engine: None,
            reset_key: None,
            socket: SocketOptions::default(),
            shards: 1,
            memory_limit: None,
        }
    }
}

impl EndpointBuilder {
    /// Accept connections.
    pub fn server(mut self, config: ServerConfig) -> Self {
        self.server = Some(config);
        self
    }

    /// The engine's secrets and connection IDs, instead of fresh random ones: a server
    /// that keeps its reset key over a restart can reset connections it has forgotten.
    /// With several [`shards`](Self::shards), its generator of connection IDs is ignored.
    pub fn engine(mut self, config: EndpointConfig) -> Self {
        self.engine = Some(config);
        self
    }

    /// The key of stateless resets (RFC 9000 §10.3), instead of a fresh one: after a restart at the
    /// same address the server ends connections that it has forgotten at their next packet, and not
    /// after an idle timeout. It must be secret, and no other server's: whoever sees a connection
    /// could have it reset by a server with the same key.
    pub fn reset_key(mut self, key: [u8; 32]) -> Self {
        self.reset_key = Some(key);
        self
    }

    /// Bytes of memory that the endpoint's connections may hold together, all shards; beyond it
    /// connections that hold much and do not move are ended
    /// ([`ConnectionError::Shed`](towline_quic::ConnectionError::Shed)). Data that the application wrote as
    /// `Bytes` does not count. Default: half of what the machine or container has.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Socket buffers, GSO and GRO.
    pub fn socket(mut self, options: SocketOptions) -> Self {
        self.socket = options;
        self
    }

    /// Splits the endpoint into so many shards, 1 to [`MAX_SHARDS`](crate::io::MAX_SHARDS), to
    /// use as many cores. Each has its own socket on the same port, its own engine and its own
    /// driver task, so the runtime must have several threads. A connection lives on one shard,
    /// which its connection IDs name. The server's limits are divided, rounded up, and may fill
    /// unevenly: one shard can refuse newcomers while another has room.
    ///
    /// One core carries some 10 Gbit/s or 100,000 small connections: more shards pay off for
    /// servers with many busy clients, never for a single connection.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// Binds a socket for each shard and spawns their drivers on the current tokio runtime.
    ///
    /// # Errors
    /// When called outside of a tokio runtime, the address cannot be bound, or the number of
    /// shards is out of range.
    pub fn bind(self, address: SocketAddr) -> io::Result<Endpoint> {
        let sockets = bind_shards(address, self.shards, &self.socket)?;
        self.start(sockets)
    }

    /// As [`bind`](Self::bind), on a socket that is bound already. It can have one shard only.
    ///
    /// # Errors
    /// When called outside of a tokio runtime, the socket refuses an option, or several shards
    /// were asked for.
    pub fn on_socket(self, socket: std::net::UdpSocket) -> io::Result<Endpoint> {
        if self.shards != 1 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "one socket has one shard; let `bind` make the sockets of several",
            ));
        }
        let socket = UdpSocket::from_std(socket, &self.socket)?;
        self.start(vec![socket])
    }

    fn start(self, sockets: Vec<UdpSocket>) -> io::Result<Endpoint> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        if let Some(server) = &self.server {
            let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
            server.transport.validate().map_err(invalid)?;
        }
        let (mut engine, half) = match self.engine {
            Some(engine) => (engine, None),
            None => (
                EndpointConfig::from_seed(crate::io::random_seed()?),
                machine_memory().map(|bytes| bytes / 2),
            ),
        };
        if let Some(key) = self.reset_key {
            engine.reset_key = key;
        }
        if let Some(limit) = self.memory_limit.or(half) {
            engine.memory_limit = limit;
        }
        let mut handles = Vec::with_capacity(sockets.len());
        let mut drivers = Vec::with_capacity(sockets.len());
        let mut local = None;
        for shard in shard_group(sockets, engine, self.server, |_| Registry::default()) {
            let info = shard.info();
            local.get_or_insert(info.local_addr);
            let span =
                tracing::info_span!("endpoint", local = %info.local_addr, shard = handles.len());
            tracing::debug!(parent: &span, gso = info.gso_segments, gro = info.gro_segments,
                send_buffer = info.send_buffer.granted, recv_buffer = info.recv_buffer.granted, "bound");
            handles.push(shard.handle().clone());
            drivers.push(Driver::new(shard)?.instrument(span));
        }
        for driver in drivers {
            runtime.spawn(driver);
        }
        Ok(Endpoint {
            share: Arc::new(Share {
                shards: handles,
                connecting: Rotation::default(),
                accepting: Rotation::default(),
                local: local.ok_or(io::ErrorKind::InvalidInput)?,
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

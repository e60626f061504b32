//! [`Endpoint`]: one bound address that connects, accepts, or both.
//!
//! A connection stays with the shard it began at; accepting takes from all shards in turn,
//! connecting gives to them in turn. The last endpoint handle to go leaves existing
//! connections alive, closes what nobody accepted, and lets the drivers end with the
//! last connection.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use towline_quic::observe::ObserverFactory;
use towline_quic::stats::Totals;
use towline_quic::{
    self as engine, ClientConfig, EndpointConfig, EndpointStats, NoCids, ServerConfig, ShardedCid,
};
use towline_wire::{Side, Time};

use super::accept_queue::{DoorPlan, Plans};
use super::connecting::Connecting;
use super::connection::Connection;
use super::error::ConnectError;
use super::reference::Reference;
use super::sessions::Sessions;
use super::shards::{Queue, Shards};
use super::waiter::Waiter;
use super::waiters::WaiterKey;
use crate::io::{
    Change, Clock, Handle, MAX_SHARDS, Shard, Socket, SocketInfo, SocketOptions, SocketStats,
    UdpSocket, bind_separately, bind_shards, machine_memory, shard_apart, shard_group,
};

/// A QUIC endpoint. Clones are the same endpoint.
#[derive(Clone)]
pub struct Endpoint {
    share: Arc<Share>,
}

/// What endpoint handles share; dropped with the last of them.
struct Share {
    shards: Shards,
    connecting: Rotation,
    /// One for each queue.
    accepting: Vec<Rotation>,
    deciding: Rotation,
    idling: Rotation,
    plans: Plans,
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
        self.start_connect(remote, server_name, config)?.await
    }

    /// As [`connect`](Self::connect), whose first part this is: what it returns is a future, and the
    /// attempt is under way whether that is polled or not.
    ///
    /// # Errors
    /// Those that are known at once: the configuration, the name or the address does not fit, or the
    /// endpoint is closed.
    pub fn start_connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        config: &ClientConfig,
    ) -> Result<Connecting, ConnectError> {
        self.check_family(remote)?;
        let start = |shard: &Handle<Sessions>| {
            let now = shard.clock().now();
            shard.with(|endpoint, sessions| {
                if sessions.closed.is_some() || sessions.stopped {
                    return (Err(ConnectError::EndpointClosed), Change::None);
                }
                match endpoint.connect(now, config, remote, server_name) {
                    Ok(handle) => (Ok(sessions.insert(handle, remote)), Change::Made),
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
        let reference = Reference::adopt(shard.clone(), slot, remote, Side::Client);
        Ok(Connecting::new(reference))
    }

    /// The time that this endpoint goes by.
    pub fn now(&self) -> Time {
        self.clock().now()
    }

    /// What time that is.
    pub(crate) fn clock(&self) -> &Clock {
        self.share.shards[0].clock()
    }

    fn check_family(&self, remote: SocketAddr) -> Result<(), ConnectError> {
        let local = self.local_addr();
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
    /// [closed](Self::close), or [shuts down](Self::shutdown) and no handshake is under way any more.
    /// Where the application [decides](EndpointBuilder::incoming) about each client, nothing comes here.
    /// Connections of a protocol that has a [door](EndpointBuilder::door) come from there.
    ///
    /// Cancel safe: a dropped call took no connection. At most
    /// [`MAX_ACCEPT_QUEUE`](super::MAX_ACCEPT_QUEUE) connections of a shard wait; further
    /// ones are closed.
    pub async fn accept(&self) -> Option<Connection> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_accept(&mut waiter, cx)).await
    }

    /// As [`accept`](Self::accept), for callers that poll.
    pub fn poll_accept(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Connection>> {
        self.take_accepted(0, waiter, Some(cx.waker()))
    }

    /// As [`accept`](Self::accept), but pending and not waiting while there is none.
    pub fn try_accept(&self) -> Poll<Option<Connection>> {
        self.take_accepted(0, &mut Waiter::new(), None)
    }

    pub(super) fn take_accepted(
        &self,
        queue: usize,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Option<Connection>> {
        let take = |endpoint: &mut engine::Endpoint, sessions: &mut Sessions, key| match sessions
            .pop_accepted(queue, key)
        {
            Some(slot) => Poll::Ready(Some((slot, sessions.entry(slot).remote))),
            None if sessions.accepts_no_more(queue, endpoint) => Poll::Ready(None),
            None => Poll::Pending,
        };
        let taken = ready!(self.take_from_any(Queue::Acceptors(queue), waiter, waker, take));
        Poll::Ready(taken.map(|(shard, (slot, remote))| {
            let reference = Reference::adopt(shard.clone(), slot, remote, Side::Server);
            tracing::debug!(%remote, "accepted");
            Connection::new(reference)
        }))
    }

    /// Takes what one of the shards has, asked in turn, or a place in the queue of each: `take` says
    /// what there is, that there is nothing yet, or that there will be nothing.
    pub(super) fn take_from_any<T>(
        &self,
        queue: Queue,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
        mut take: impl FnMut(&mut engine::Endpoint, &mut Sessions, Option<WaiterKey>) -> Poll<Option<T>>,
    ) -> Poll<Option<(&Handle<Sessions>, T)>> {
        let shards = &self.share.shards;
        let turns = match queue {
            Queue::Deciders => &self.share.deciding,
            Queue::Acceptors(queue) => &self.share.accepting[queue],
            Queue::Idlers => &self.share.idling,
        };
        let mut open = false;
        let keys = waiter.on_endpoint(shards, queue);
        let taken = turns.next(shards.len()).find_map(|index| {
            let key = &mut keys[index];
            let (taken, _replaced) = shards[index].with(|endpoint, sessions| {
                let result = match take(endpoint, sessions, *key) {
                    Poll::Ready(taken) => (taken, None),
                    Poll::Pending => {
                        open = true;
                        let waiters = queue.of(sessions);
                        (None, waker.and_then(|waker| waiters.register(key, waker)))
                    }
                };
                (result, Change::None)
            });
            taken.map(|taken| (&shards[index], taken))
        });
        if taken.is_some() || !open {
            waiter.leave();
        }
        match taken {
            None if open => Poll::Pending,
            taken => Poll::Ready(taken),
        }
    }

    pub(super) fn plans(&self) -> &Plans {
        &self.share.plans
    }

    /// At least one.
    pub(super) fn shards(&self) -> &[Handle<Sessions>] {
        &self.share.shards
    }

    /// The bound address, its port chosen by the system if 0 was asked for; after [`Self::rebind`] that
    /// of the new socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.share.shards[0].socket_info().local_addr
    }

    /// Goes on on another socket, which is bound already, as when the device has another network now.
    /// Client connections tell their servers at once, from the new address and under connection IDs
    /// not used before, and keep their streams. A server's connections stay where their clients know
    /// them only if the new socket has the same address.
    ///
    /// On Linux a client's endpoint does so by itself when the address that it was bound to is removed;
    /// one that is bound to no address needs nothing, for there the system chooses.
    ///
    /// # Errors
    /// For an endpoint with several shards, each of which would need a socket, or one whose socket is
    /// of the other address family.
    pub fn rebind(&self, socket: std::net::UdpSocket) -> io::Result<()> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let [shard] = &self.share.shards[..] else {
            return invalid("an endpoint with several shards cannot go on on one socket");
        };
        if socket.local_addr()?.is_ipv4() != self.local_addr().is_ipv4() {
            return invalid("the new socket is of another address family");
        }
        shard.rebind(socket);
        Ok(())
    }

    /// Closes all connections, told `code` and `reason`, and refuses new ones.
    ///
    /// The notices are sent by the driver: await [`wait_idle`](Self::wait_idle) before
    /// leaving the runtime.
    pub fn close(&self, code: u64, reason: &[u8]) {
        let mut wake = Vec::new();
        for shard in self.share.shards.iter() {
            let now = shard.clock().now();
            shard.with(|endpoint, sessions| {
                sessions.close_all(endpoint, now, code, reason);
                sessions.wake_acceptors(&mut wake);
                sessions.deciders.wake_all(&mut wake);
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
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_idle(&mut waiter, cx)).await;
    }

    /// As [`wait_idle`](Self::wait_idle), for callers that poll.
    pub fn poll_idle(&self, waiter: &mut Waiter, cx: &mut Context<'_>) -> Poll<()> {
        let shards = &self.share.shards;
        let keys = waiter.on_endpoint(shards, Queue::Idlers);
        for (shard, key) in shards.iter().zip(keys) {
            let (busy, _replaced) = shard.with(|endpoint, sessions| {
                if endpoint.is_idle() || sessions.stopped {
                    return ((false, None), Change::None);
                }
                let replaced = sessions.idlers.register(key, cx.waker());
                ((true, replaced), Change::None)
            });
            if busy {
                return Poll::Pending;
            }
        }
        waiter.leave();
        Poll::Ready(())
    }

    /// What the peers of all open connections have not acknowledged: bytes written, sent or not, and bytes
    /// on their way; and the longest probe timeout among these connections. Looks at each of them.
    pub fn unacknowledged(&self) -> (u64, Duration) {
        let of_shard = |shard: &Handle<Sessions>| {
            shard.read(|endpoint, _| {
                let mut all = (0, Duration::ZERO);
                for handle in endpoint.handles() {
                    let connection = endpoint.connection(handle);
                    let Some(open) = connection.filter(|connection| !connection.is_closed()) else {
                        continue;
                    };
                    let stats = open.stats();
                    let left = stats.bytes_in_flight.max(open.unacknowledged());
                    if left > 0 {
                        all = (all.0 + left, all.1.max(stats.pto));
                    }
                }
                all
            })
        };
        let shards = self.share.shards.iter().map(of_shard);
        shards.fold((0, Duration::ZERO), |(sum, longest), (left, pto)| {
            (sum + left, longest.max(pto))
        })
    }

    /// Connections in any state, handshakes and closing ones included. Those of a shard whose
    /// driver has ended do not count: nothing moves them any more.
    pub fn connection_count(&self) -> usize {
        let count = |shard: &Handle<Sessions>| {
            shard.read(|endpoint, sessions| {
                if sessions.stopped {
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
        for shard in self.share.shards.iter() {
            sum += shard.socket_stats();
        }
        sum
    }

    /// The statistics of all connections together, those that are gone included: counters summed up,
    /// and how the gauges of the present ones lie. Each shard waits meanwhile, about a microsecond for
    /// each of its connections.
    pub fn connection_totals(&self) -> Totals {
        let mut totals = Totals::default();
        for shard in self.share.shards.iter() {
            totals.merge(&shard.read(|endpoint, _| endpoint.connection_totals()));
        }
        totals
    }

    /// How each shard fares, in shard order.
    pub fn shard_stats(&self) -> Vec<ShardStats> {
        let stats = |shard: &Handle<Sessions>| ShardStats {
            info: shard.socket_info(),
            socket: shard.socket_stats(),
            engine: shard.read(|endpoint, _| endpoint.stats()),
        };
        self.share.shards.iter().map(stats).collect()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for shard in self.shards.iter() {
            let now = shard.clock().now();
            shard.with(|endpoint, sessions| {
                sessions.orphaned = true;
                endpoint.set_server_config(now, None);
                sessions.drop_unclaimed(endpoint, now);
                ((), Change::Made)
            });
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("local", &self.local_addr())
            .finish_non_exhaustive()
    }
}

/// Choices for a new [`Endpoint`].
#[must_use = "an endpoint exists once a socket was bound"]
pub struct EndpointBuilder {
    server: Option<ServerConfig>,
    engine: Option<EndpointConfig>,
    cid_len: Option<usize>,
    reset_key: Option<[u8; 32]>,
    socket: SocketOptions,
    shards: usize,
    apart: Option<(usize, usize)>,
    memory_limit: Option<u64>,
    incoming: bool,
    observers: Option<Arc<dyn ObserverFactory>>,
    clock: Clock,
    pub(super) doors: Vec<DoorPlan>,
}

impl Default for EndpointBuilder {
    fn default() -> Self {
        Self {
            server: None,
            engine: None,
            cid_len: None,
            reset_key: None,
            socket: SocketOptions::default(),
            shards: 1,
            apart: None,
            memory_limit: None,
            incoming: false,
            observers: None,
            clock: Clock::start(),
            doors: Vec::new(),
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
    /// With several [`shards`](Self::shards), its generator of connection IDs makes one for each, where
    /// it can.
    pub fn engine(mut self, config: EndpointConfig) -> Self {
        self.engine = Some(config);
        self
    }

    /// Length of connection IDs, bytes: 4 to 20, or 0 for an endpoint that only connects, which has one
    /// connection with each server address at a time and with several shards a port for each. They are
    /// in every packet that the peer sends. Default 8.
    pub fn cid_len(mut self, bytes: usize) -> Self {
        self.cid_len = Some(bytes);
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

    /// Whether the application decides about each client before a TLS session is made for it. It takes
    /// them from [`Endpoint::incoming`], and must: nobody gets a connection by itself then. Default: no.
    pub fn incoming(mut self, decide: bool) -> Self {
        self.incoming = decide;
        self
    }

    /// Has every connection tell what happens to it; `QlogDir` of the feature `qlog` writes it down.
    /// Observers run on the drivers, which wait for them.
    pub fn observers(mut self, factory: Arc<dyn ObserverFactory>) -> Self {
        self.observers = Some(factory);
        self
    }

    /// The clock that the shards go by, instead of the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Secrets from `seed`, unless they were given.
    #[cfg(feature = "testing")]
    pub(crate) fn seeded(mut self, seed: [u8; 32]) -> Self {
        self.engine
            .get_or_insert_with(|| EndpointConfig::from_seed(seed));
        self
    }

    /// Socket buffers, GSO and GRO.
    pub fn socket(mut self, options: SocketOptions) -> Self {
        self.socket = options;
        self
    }

    /// Splits the endpoint into so many shards, 1 to [`MAX_SHARDS`](crate::io::MAX_SHARDS), to
    /// use as many cores. Each has its own socket on the same port, its own engine and its own
    /// driver, so a runtime must have several threads. A connection lives on one shard,
    /// which its connection IDs name. The server's limits are divided, rounded up, and may fill
    /// unevenly: one shard can refuse newcomers while another has room.
    ///
    /// One core carries some 10 Gbit/s or 100,000 small connections: more shards pay off for
    /// servers with many busy clients, never for a single connection.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// Makes the endpoint the shard at `index` of `count`, each of which is in a process of its own. One
    /// process [binds](crate::io::bind_shards) the sockets and hands them out in order; each makes its
    /// endpoint by [`on_sockets`](Self::on_sockets). All have to have the keys of one
    /// [`engine`](Self::engine) configuration, each with a seed of its own. The limits are divided as
    /// among [`shards`](Self::shards).
    ///
    /// A process that is restarted takes its socket again, and resets the connections that it has
    /// forgotten; the others' live on.
    pub fn apart(mut self, index: usize, count: usize) -> Self {
        self.apart = Some((index, count));
        self
    }

    /// Binds a socket for each shard. Whoever calls has to drive them, as [`Shard`] says, each until it
    /// [is over](Shard::is_over). A shard that is dropped ends its connections.
    ///
    /// # Errors
    /// When the address cannot be bound, the number of shards is out of range, or the transport
    /// settings make no sense.
    pub fn bind_shards(
        self,
        address: SocketAddr,
    ) -> io::Result<(Endpoint, Vec<Shard<UdpSocket, Sessions>>)> {
        let bind = match self.cid_len {
            Some(0) => bind_separately,
            _ => bind_shards,
        };
        let sockets = bind(address, self.shards, &self.socket)?;
        self.on_sockets(sockets)
    }

    /// As [`bind_shards`](Self::bind_shards), over sockets of any kind: one shard for each of them.
    ///
    /// # Errors
    /// When there is no socket, the system has no randomness to give, or the transport settings make
    /// no sense.
    pub fn on_sockets<S: Socket>(
        self,
        sockets: Vec<S>,
    ) -> io::Result<(Endpoint, Vec<Shard<S, Sessions>>)> {
        if let Some(server) = &self.server {
            let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
            server.validate().map_err(invalid)?;
        }
        let plans = Plans::new(self.doors, self.server.as_ref())?;
        let (mut engine, half) = match self.engine {
            Some(engine) => (engine, None),
            None => (
                EndpointConfig::from_seed(crate::io::random_seed()?),
                machine_memory().map(|bytes| bytes / 2),
            ),
        };
        match self.cid_len {
            Some(0) if self.server.is_some() => {
                let what = "a server needs connection IDs; give them a length of 4 to 20 bytes";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            Some(0) => engine.cid_generator = Box::new(NoCids),
            Some(len) => {
                let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
                engine.cid_generator = Box::new(ShardedCid::with_len(0, len).map_err(invalid)?);
            }
            None => {}
        }
        if let Some(key) = self.reset_key {
            engine.reset_key = key;
        }
        if let Some(limit) = self.memory_limit.or(half) {
            engine.memory_limit = limit;
        }
        engine.hold_incoming |= self.incoming;
        engine.keep_unread = true;
        let shards = match self.apart {
            None => shard_group(sockets, engine, self.server, &self.clock, |_| {
                Sessions::new(plans.clone())
            }),
            Some(place) => {
                let socket = only_socket(sockets, place)?;
                let sessions = Sessions::new(plans.clone());
                let (server, clock) = (self.server, &self.clock);
                vec![shard_apart(socket, engine, server, clock, sessions, place)]
            }
        };
        if let Some(observers) = &self.observers {
            for shard in &shards {
                shard.handle().with(|endpoint, _| {
                    endpoint.set_observers(Arc::clone(observers));
                    ((), Change::None)
                });
            }
        }
        if shards.is_empty() {
            let what = "an endpoint needs a socket";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let share = Share {
            shards: shards.iter().map(|shard| shard.handle().clone()).collect(),
            connecting: Rotation::default(),
            accepting: (0..plans.queues()).map(|_| Rotation::default()).collect(),
            deciding: Rotation::default(),
            idling: Rotation::default(),
            plans,
        };
        let endpoint = Endpoint {
            share: Arc::new(share),
        };
        Ok((endpoint, shards))
    }

    /// Makes a shard's socket of one that is bound already.
    #[cfg(feature = "tokio")]
    pub(crate) fn adopt(&self, socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
        if self.shards != 1 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "one socket has one shard; let `bind` make the sockets of several",
            ));
        }
        UdpSocket::from_std(socket, &self.socket)
    }
}

impl fmt::Debug for EndpointBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointBuilder")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

/// The socket of an endpoint that is the shard `index` of `count`.
fn only_socket<S>(mut sockets: Vec<S>, (index, count): (usize, usize)) -> io::Result<S> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    if index >= count || count > MAX_SHARDS {
        let what = format!("shard {index} of {count}: there are 1 to {MAX_SHARDS}, from 0 on");
        return Err(invalid(what));
    }
    match (sockets.pop(), sockets.is_empty()) {
        (Some(socket), true) => Ok(socket),
        _ => Err(invalid("a shard apart has one socket".to_owned())),
    }
}

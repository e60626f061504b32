//! [`Connection`]: opening and accepting streams, datagrams, statistics, closing.
//!
//! A thin handle over its [`Reference`]: every call locks the shard, asks the engine, and goes. What
//! has to wait waits by a [`Waiter`].

use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rustls::CipherSuite;
use towline_quic::{
    Algorithm, BandwidthShare, Connection as Engine, ConnectionError, HostController, MigrateError,
    PeerIdentity, Stats,
};
use towline_wire::{Direction, Side, StreamId};

use super::entry::Interest;
use super::recv_stream::RecvStream;
use super::reference::{Reference, lost};
use super::send_stream::SendStream;
use super::waiter::Waiter;
use crate::io::Change;

/// A QUIC connection. Clones are the same connection.
///
/// When the last clone and the last stream of it are dropped, the connection is
/// closed with application code 0 and data not yet delivered is lost: await
/// [`SendStream::finished`] or the peer's own close first.
#[derive(Clone)]
pub struct Connection {
    pub(super) reference: Arc<Reference>,
}

impl Connection {
    pub(super) fn new(reference: Arc<Reference>) -> Self {
        Self { reference }
    }

    pub(super) fn reference(&self) -> &Arc<Reference> {
        &self.reference
    }

    /// Opens a bidirectional stream; waits while the peer permits no more. The peer
    /// learns of it with the first write.
    ///
    /// Cancel safe: a dropped call opened nothing.
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_open_bi(&mut waiter, cx)).await
    }

    /// As [`open_bi`](Self::open_bi), for callers that poll.
    pub fn poll_open_bi(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        let id = ready!(self.poll_open(Direction::Bidirectional, waiter, Some(cx.waker())))?;
        Poll::Ready(Ok((self.send_stream(id), self.recv_stream(id))))
    }

    /// As [`open_bi`](Self::open_bi), but pending and not waiting while the peer permits no more, or
    /// others wait for it.
    pub fn try_open_bi(&self) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        let id = ready!(self.poll_open(Direction::Bidirectional, &mut Waiter::new(), None))?;
        Poll::Ready(Ok((self.send_stream(id), self.recv_stream(id))))
    }

    /// Opens a unidirectional stream; waits while the peer permits no more.
    ///
    /// Cancel safe: a dropped call opened nothing.
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_open_uni(&mut waiter, cx)).await
    }

    /// As [`open_uni`](Self::open_uni), for callers that poll.
    pub fn poll_open_uni(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Result<SendStream, ConnectionError>> {
        let id = ready!(self.poll_open(Direction::Unidirectional, waiter, Some(cx.waker())))?;
        Poll::Ready(Ok(self.send_stream(id)))
    }

    /// As [`open_uni`](Self::open_uni), but pending and not waiting while the peer permits no more, or
    /// others wait for it.
    pub fn try_open_uni(&self) -> Poll<Result<SendStream, ConnectionError>> {
        let id = ready!(self.poll_open(Direction::Unidirectional, &mut Waiter::new(), None))?;
        Poll::Ready(Ok(self.send_stream(id)))
    }

    /// The peer's next bidirectional stream, in the order it opened them.
    ///
    /// Cancel safe: a dropped call took no stream.
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_accept_bi(&mut waiter, cx)).await
    }

    /// As [`accept_bi`](Self::accept_bi), for callers that poll.
    pub fn poll_accept_bi(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        let id = ready!(self.poll_accept(Direction::Bidirectional, waiter, Some(cx.waker())))?;
        Poll::Ready(Ok((self.send_stream(id), self.recv_stream(id))))
    }

    /// As [`accept_bi`](Self::accept_bi), but pending and not waiting while there is none.
    pub fn try_accept_bi(&self) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        let id = ready!(self.poll_accept(Direction::Bidirectional, &mut Waiter::new(), None))?;
        Poll::Ready(Ok((self.send_stream(id), self.recv_stream(id))))
    }

    /// The peer's next unidirectional stream, in the order it opened them.
    ///
    /// Cancel safe: a dropped call took no stream.
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn accept_uni(&self) -> Result<RecvStream, ConnectionError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_accept_uni(&mut waiter, cx)).await
    }

    /// As [`accept_uni`](Self::accept_uni), for callers that poll.
    pub fn poll_accept_uni(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionError>> {
        let id = ready!(self.poll_accept(Direction::Unidirectional, waiter, Some(cx.waker())))?;
        Poll::Ready(Ok(self.recv_stream(id)))
    }

    /// As [`accept_uni`](Self::accept_uni), but pending and not waiting while there is none.
    pub fn try_accept_uni(&self) -> Poll<Result<RecvStream, ConnectionError>> {
        let id = ready!(self.poll_accept(Direction::Unidirectional, &mut Waiter::new(), None))?;
        Poll::Ready(Ok(self.recv_stream(id)))
    }

    fn poll_open(
        &self,
        direction: Direction,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        let interest = Interest::open(direction);
        waiter.poll_connection(&self.reference, interest, waker, |engine, entry| {
            if let Some(error) = &entry.error {
                return Poll::Ready((Err(error.clone()), Change::None));
            }
            let Some(engine) = engine else {
                return Poll::Ready((Err(lost(entry)), Change::None));
            };
            match engine.open(direction) {
                Some(id) => {
                    entry.send.insert(id, Default::default());
                    Poll::Ready((Ok(id), Change::None))
                }
                None => Poll::Pending,
            }
        })
    }

    fn poll_accept(
        &self,
        direction: Direction,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        let interest = Interest::accept(direction);
        waiter.poll_connection(&self.reference, interest, waker, |engine, entry| {
            let id = engine.and_then(|engine| engine.accept(direction));
            match (id, &entry.error, entry.handle) {
                (Some(id), _, _) => {
                    if direction == Direction::Bidirectional {
                        entry.accepted_bi = id.index() + 1;
                        // The peer may have asked to stop already.
                        entry.send.entry(id).or_default();
                    }
                    Poll::Ready((Ok(id), Change::None))
                }
                (None, Some(error), _) => Poll::Ready((Err(error.clone()), Change::None)),
                (None, None, None) => Poll::Ready((Err(lost(entry)), Change::None)),
                (None, None, Some(_)) => Poll::Pending,
            }
        })
    }

    pub(super) fn send_stream(&self, id: StreamId) -> SendStream {
        SendStream::new(Arc::clone(&self.reference), id)
    }

    pub(super) fn recv_stream(&self, id: StreamId) -> RecvStream {
        RecvStream::new(Arc::clone(&self.reference), id)
    }

    /// Closes the connection: the peer is told `code` and `reason`, unsent data is dropped, and what arrived
    /// and was not read goes a few round trips later.
    ///
    /// Codes above 2^62-1 become that. The notice is sent by the endpoint's driver:
    /// await [`Endpoint::wait_idle`](super::Endpoint::wait_idle) before that ends.
    pub fn close(&self, code: u64, reason: &[u8]) {
        let now = self.reference.now();
        self.reference.with(|engine, entry| {
            match engine {
                Some(engine) if entry.error.is_none() => engine.close(now, code, reason),
                _ => return ((), Change::None),
            }
            ((), Change::Made)
        });
    }

    /// Waits until the connection is over and says why. Cancel safe.
    pub async fn closed(&self) -> ConnectionError {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_closed(&mut waiter, cx)).await
    }

    /// As [`closed`](Self::closed), for callers that poll.
    pub fn poll_closed(&self, waiter: &mut Waiter, cx: &mut Context<'_>) -> Poll<ConnectionError> {
        let (interest, waker) = (Interest::Closed, Some(cx.waker()));
        waiter.poll_connection(&self.reference, interest, waker, |_, entry| {
            match (&entry.error, entry.handle) {
                (Some(error), _) => Poll::Ready((error.clone(), Change::None)),
                (None, None) => Poll::Ready((lost(entry), Change::None)),
                (None, Some(_)) => Poll::Pending,
            }
        })
    }

    /// Why the connection is over; `None` while it lives.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.reference.look(|_, entry| entry.error.clone())
    }

    /// Whether something waits to be sent that only the window or the pacer holds back.
    pub fn has_unsent(&self) -> bool {
        self.reference
            .look(|engine, _| engine.is_some_and(Engine::wants_transmit))
    }

    /// Counters and measurements; after the end, the last ones.
    pub fn stats(&self) -> Stats {
        self.reference
            .look(|engine, entry| match (engine, &entry.last_state) {
                (_, Some(last_state)) => last_state.stats.clone(),
                (Some(engine), None) => engine.stats(),
                (None, None) => Stats::default(),
            })
    }

    /// The smoothed round-trip time.
    pub fn rtt(&self) -> Duration {
        self.stats().smoothed_rtt
    }

    /// Who the peer proved to be; `None` if it showed no credentials.
    pub fn peer_identity(&self) -> Option<PeerIdentity> {
        self.reference
            .last_state_or(|engine| engine.peer_identity(), |r| r.peer_identity.clone())
    }

    /// The application protocol agreed on.
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.reference.last_state_or(
            |engine| engine.alpn().map(<[u8]>::to_vec),
            |r| r.alpn.clone(),
        )
    }

    /// The TLS cipher suite agreed on, in RFC 8446's spelling.
    pub fn cipher_suite(&self) -> Option<&'static str> {
        let suite = self
            .reference
            .last_state_or(Engine::cipher_suite, |r| r.cipher_suite)?;
        Some(match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
            CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
            other => other.as_str().unwrap_or("unknown"),
        })
    }

    /// The key exchange group agreed on, as IANA names it.
    pub fn key_exchange(&self) -> Option<&'static str> {
        let group = self
            .reference
            .last_state_or(Engine::key_exchange, |r| r.key_exchange)?;
        Some(group.as_str().unwrap_or("unknown"))
    }

    /// Whether the TLS session was resumed from an earlier connection.
    pub fn is_resumed(&self) -> bool {
        self.reference
            .look(|engine, entry| match &entry.last_state {
                Some(last_state) => last_state.resumed,
                None => engine.is_some_and(Engine::is_resumed),
            })
    }

    /// The peer's address, as of the last packet; after the end, the last one.
    pub fn remote_addr(&self) -> SocketAddr {
        self.reference.remote_addr()
    }

    /// The address of ours that the peer's last packets were sent to, without a port; after the end,
    /// the last one. `None` where the socket does not tell it, and at a client before the first packet
    /// from the server.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.reference.local_ip()
    }

    /// Which end this is.
    pub fn side(&self) -> Side {
        self.reference.side()
    }

    /// The host name that the client asked for (RFC 6066 §3), at the server; `None` at the client, and if
    /// it asked for none.
    pub fn server_name(&self) -> Option<String> {
        self.reference.last_state_or(
            |engine| engine.server_name().map(str::to_owned),
            |last_state| last_state.server_name.clone(),
        )
    }

    /// A number that no other connection of this process has, as long as anybody refers to this one.
    pub fn stable_id(&self) -> usize {
        Arc::as_ptr(&self.reference).addr()
    }

    /// A handle that does not keep the connection open.
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.reference))
    }

    /// Fills `out` with keying material bound to this connection (RFC 8446 §7.5).
    ///
    /// # Errors
    /// When the connection is gone or TLS refuses.
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), rustls::Error> {
        self.reference.look(|engine, _| {
            engine
                .ok_or_else(|| rustls::Error::General("the connection is gone".to_owned()))?
                .export_keying_material(out, label, context)
        })
    }

    /// Client: moves the connection to another address of this host, once it has proved to lead to the
    /// server; data stays where it is until then. `stats().path_changes` and [`Self::local_ip`] tell
    /// when it has moved, `stats().paths_failed` that nobody answered there. The endpoint must be bound
    /// to no address of its own (`0.0.0.0`, `[::]`), so that it can send from any;
    /// [`Endpoint::rebind`](crate::Endpoint::rebind) moves all connections to another socket instead.
    ///
    /// # Errors
    /// [`MigrateError`] says why not, and nothing changed.
    pub fn migrate(&self, local_ip: IpAddr) -> Result<(), MigrateError> {
        let now = self.reference.now();
        self.reference.with(|engine, entry| match engine {
            Some(engine) => (engine.migrate(now, local_ip), Change::Made),
            None => {
                let error = entry.error.clone();
                let error = error.unwrap_or(ConnectionError::ClosedLocally);
                (Err(MigrateError::ConnectionLost(error)), Change::None)
            }
        })
    }

    /// Goes on with another congestion controller, from the present window. No effect after the end.
    pub fn set_congestion(&self, algorithm: Algorithm) {
        let now = self.reference.now();
        self.change(|engine| engine.set_congestion(now, algorithm));
    }

    /// Goes on under the host's common background controller: see
    /// [`TransportConfig::background`](crate::config::TransportConfig::background).
    pub fn set_background(&self, host: &HostController) {
        let now = self.reference.now();
        self.change(|engine| engine.set_background(now, host));
    }

    /// Changes the strict limit, bytes a second of UDP payload over every packet; `None` lifts it.
    pub fn set_rate_limit(&self, limit: Option<NonZeroU64>) {
        self.change(|engine| engine.set_rate_limit(limit));
    }

    /// Joins a bandwidth pool with this class and weight, or leaves the one it is in.
    pub fn set_bandwidth(&self, share: Option<&BandwidthShare>) {
        self.change(|engine| engine.set_bandwidth(share));
    }

    /// How many bidirectional streams the peer may have open at once from now on, at most 2^60.
    ///
    /// More are permitted at once. Fewer takes effect as streams end: what was permitted stays
    /// (RFC 9000 §4.6). No effect after the end, as of all these calls.
    pub fn set_max_concurrent_bidi_streams(&self, streams: u64) {
        self.change(|engine| engine.set_max_concurrent_bidi_streams(streams));
    }

    /// As [`set_max_concurrent_bidi_streams`](Self::set_max_concurrent_bidi_streams), of unidirectional
    /// streams.
    pub fn set_max_concurrent_uni_streams(&self, streams: u64) {
        self.change(|engine| engine.set_max_concurrent_uni_streams(streams));
    }

    /// The window for all that the peer sends on streams, bytes, at most 2^62 − 1: how far it may be
    /// ahead of what was read. It stays as it is from now on, whatever
    /// [`max_receive_window`](crate::config::TransportConfig::max_receive_window) permits to auto-tuning.
    ///
    /// A larger one is granted at once. A smaller one takes effect as data is read: what was granted stays
    /// (RFC 9000 §4.1).
    pub fn set_receive_window(&self, bytes: u64) {
        self.change(|engine| engine.set_receive_window(bytes));
    }

    /// How many bytes may be written and not yet acknowledged, on all streams together:
    /// [`send_buffer`](crate::config::TransportConfig::send_buffer), changed while the connection runs.
    ///
    /// Writers that wait for room go on if there is more. What was written before stays, whatever the
    /// limit; with 0 nothing more is taken.
    pub fn set_send_window(&self, bytes: u64) {
        self.change(|engine| engine.set_send_window(bytes));
    }

    /// Changes the engine's connection, if it still has one, and has it look what to send.
    fn change(&self, change: impl FnOnce(&mut Engine)) {
        self.reference.with(|engine, _| match engine {
            Some(engine) => {
                change(engine);
                ((), Change::Made)
            }
            None => ((), Change::None),
        });
    }

    /// Changes to fresh packet protection keys (RFC 9001 §6); false where the rules do not
    /// permit it yet: before confirmation, or before the last change was acknowledged.
    pub fn initiate_key_update(&self) -> bool {
        self.reference.with(|engine, _| {
            let started = engine.is_some_and(Engine::initiate_key_update);
            (started, if started { Change::Made } else { Change::None })
        })
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("remote", &self.reference.remote())
            .finish_non_exhaustive()
    }
}

/// Refers to a connection without keeping it open; made by [`Connection::downgrade`].
#[derive(Clone)]
pub struct WeakConnection(Weak<Reference>);

impl WeakConnection {
    /// A handle that keeps it open; `None` if no handle is left, and no stream of it.
    pub fn upgrade(&self) -> Option<Connection> {
        self.0.upgrade().map(Connection::new)
    }
}

impl fmt::Debug for WeakConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakConnection")
            .field(&(self.0.strong_count() > 0))
            .finish()
    }
}

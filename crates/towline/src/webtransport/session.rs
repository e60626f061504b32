//! [`Session`]: streams and datagrams with one peer, beside other sessions of the connection.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use towline_http3::observe::Event;
use towline_http3::webtransport::{Dialect, OpenError, datagram_header, exporter_context};
use towline_quic::{ConnectionError, DatagramOptions, SendDatagramError, Stats};
use towline_wire::{Direction, StreamId};

use super::error::Error;
use crate::handles::{Connection, RecvStream, SendStream, Turn, Waiter, WaiterKey};
use crate::http3;
use crate::http3::link::Link;
use crate::http3::protocol::Http3;
use crate::http3::sessions::Wait;

/// A WebTransport session. Clones are the same session.
///
/// When the last clone is dropped, the session is closed with code 0, its streams with it; the
/// connection lives for as long as somebody has a handle of it.
///
/// When the session is over, its streams are: reads and writes on them fail.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    link: Link,
    id: StreamId,
    dialect: Dialect,
    headers: HeaderMap,
    protocol: Option<String>,
    /// What its datagrams begin with.
    label: Bytes,
}

/// Counts of a session, and of the connection that carries it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SessionStats {
    /// Datagrams of the session that arrived.
    pub datagrams_received: u64,
    /// Of those, the ones that nobody read in time.
    pub datagrams_dropped: u64,
    /// Streams that this end opened.
    pub streams_opened: u64,
    /// Streams of the peer's that were accepted.
    pub streams_accepted: u64,
    /// The connection's: round trips, losses, the congestion window.
    pub transport: Stats,
}

impl Session {
    pub(super) fn new(
        link: Link,
        id: StreamId,
        dialect: Dialect,
        headers: HeaderMap,
        protocol: Option<String>,
    ) -> Self {
        let label = datagram_header(id);
        let shared = Shared {
            link,
            id,
            dialect,
            headers,
            protocol,
            label,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Its number: the stream of its CONNECT request.
    pub fn id(&self) -> StreamId {
        self.shared.id
    }

    /// The version of WebTransport that both ends speak.
    pub fn dialect(&self) -> Dialect {
        self.shared.dialect
    }

    /// The application protocol that the server chose, if it was offered any.
    pub fn protocol(&self) -> Option<&str> {
        self.shared.protocol.as_deref()
    }

    /// The fields of the server's answer, at the client; at the server those that it sent.
    pub fn headers(&self) -> &HeaderMap {
        &self.shared.headers
    }

    /// The QUIC connection below.
    pub fn transport(&self) -> &Connection {
        self.shared.link.transport()
    }

    /// Opens a bidirectional stream; waits while the peer permits no more.
    ///
    /// Cancel safe: a dropped call opened nothing.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), Error> {
        poll_fn(|cx| self.poll_open_bi(cx)).await
    }

    /// As [`open_bi`](Self::open_bi), for callers that poll.
    pub fn poll_open_bi(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), Error>> {
        let id = ready!(self.poll_open(Direction::Bidirectional, Some(cx)))?;
        Poll::Ready(Ok(self.both_halves(id, None)))
    }

    /// As [`open_bi`](Self::open_bi), but pending and not waiting while the peer permits no more.
    pub fn try_open_bi(&self) -> Poll<Result<(SendStream, RecvStream), Error>> {
        let id = ready!(self.poll_open(Direction::Bidirectional, None))?;
        Poll::Ready(Ok(self.both_halves(id, None)))
    }

    /// Opens a unidirectional stream; waits while the peer permits no more.
    ///
    /// Cancel safe: a dropped call opened nothing.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn open_uni(&self) -> Result<SendStream, Error> {
        poll_fn(|cx| self.poll_open_uni(cx)).await
    }

    /// As [`open_uni`](Self::open_uni), for callers that poll.
    pub fn poll_open_uni(&self, cx: &mut Context<'_>) -> Poll<Result<SendStream, Error>> {
        let id = ready!(self.poll_open(Direction::Unidirectional, Some(cx)))?;
        Poll::Ready(Ok(self.transport().adopt_send(id, None)))
    }

    /// As [`open_uni`](Self::open_uni), but pending and not waiting while the peer permits no more.
    pub fn try_open_uni(&self) -> Poll<Result<SendStream, Error>> {
        let id = ready!(self.poll_open(Direction::Unidirectional, None))?;
        Poll::Ready(Ok(self.transport().adopt_send(id, None)))
    }

    /// The peer's next bidirectional stream, in the order in which they arrived.
    ///
    /// Cancel safe: a dropped call took no stream.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), Error> {
        poll_fn(|cx| self.poll_accept_bi(cx)).await
    }

    /// As [`accept_bi`](Self::accept_bi), for callers that poll.
    pub fn poll_accept_bi(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), Error>> {
        let taken = ready!(self.poll_accept(Direction::Bidirectional, Some(cx)));
        Poll::Ready(taken.map(|(id, stopped)| self.both_halves(id, stopped)))
    }

    /// As [`accept_bi`](Self::accept_bi), but pending and not waiting while there is none.
    pub fn try_accept_bi(&self) -> Poll<Result<(SendStream, RecvStream), Error>> {
        let taken = ready!(self.poll_accept(Direction::Bidirectional, None));
        Poll::Ready(taken.map(|(id, stopped)| self.both_halves(id, stopped)))
    }

    /// The peer's next unidirectional stream, in the order in which they arrived.
    ///
    /// Cancel safe: a dropped call took no stream.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn accept_uni(&self) -> Result<RecvStream, Error> {
        poll_fn(|cx| self.poll_accept_uni(cx)).await
    }

    /// As [`accept_uni`](Self::accept_uni), for callers that poll.
    pub fn poll_accept_uni(&self, cx: &mut Context<'_>) -> Poll<Result<RecvStream, Error>> {
        let taken = ready!(self.poll_accept(Direction::Unidirectional, Some(cx)));
        Poll::Ready(taken.map(|(id, _)| self.transport().adopt_recv(id)))
    }

    /// As [`accept_uni`](Self::accept_uni), but pending and not waiting while there is none.
    pub fn try_accept_uni(&self) -> Poll<Result<RecvStream, Error>> {
        let taken = ready!(self.poll_accept(Direction::Unidirectional, None));
        Poll::Ready(taken.map(|(id, _)| self.transport().adopt_recv(id)))
    }

    /// Queues a datagram, or refuses it at once: datagrams are lost rather than delayed.
    ///
    /// # Errors
    /// When the peer takes none, it is too large, the queue is full, or the session is over.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), SendDatagramError> {
        self.send_datagram_with(data, &DatagramOptions::default())
    }

    /// As [`send_datagram`](Self::send_datagram), with a greatest age, an order, a group of senders, or an id
    /// under which [`Connection::datagram_fate`] tells what became of it.
    ///
    /// # Errors
    /// The same; [`ConnectionError::ClosedLocally`] where the session is over and the connection is not.
    pub fn send_datagram_with(
        &self,
        mut data: Bytes,
        options: &DatagramOptions,
    ) -> Result<(), SendDatagramError> {
        let Shared {
            link, id, label, ..
        } = &*self.shared;
        link.with(|own, turn| match turn {
            Some(turn) if own.sessions.over(*id).is_none() => {
                let (now, engine) = (turn.now, &mut *turn.connection);
                let len = data.len() as u64;
                engine.send_datagram_with(now, label, &mut data, options)?;
                engine.tell_observer(now, || Event::DatagramCreated { id: *id, len });
                Ok(())
            }
            _ => Err(datagrams_lost(own)),
        })
    }

    /// Queues a datagram, waiting while the queue is full.
    ///
    /// Cancel safe: a dropped call queued nothing.
    ///
    /// # Errors
    /// When the peer takes none, it is too large, or the session is over.
    pub async fn send_datagram_wait(&self, mut data: Bytes) -> Result<(), SendDatagramError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_send_datagram(&mut waiter, cx, &mut data)).await
    }

    /// As [`send_datagram_wait`](Self::send_datagram_wait), for callers that poll: `data` is taken when it is
    /// queued.
    pub fn poll_send_datagram(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), SendDatagramError>> {
        let id = self.id();
        // Who waits for the connection's queue is woken by it, also when the session is over.
        let lost = |own: &mut Http3| own.sessions.over(id).map(|_| datagrams_lost(own));
        if let Some(error) = self.shared.link.look(lost) {
            return Poll::Ready(Err(error));
        }
        let (label, options) = (&self.shared.label, &DatagramOptions::default());
        self.transport()
            .poll_send_datagram_with(waiter, cx, label, data, options)
    }

    /// The next datagram that arrived.
    ///
    /// Cancel safe: a dropped call took none.
    ///
    /// # Errors
    /// When the session is over, and what arrived before was read.
    pub async fn read_datagram(&self) -> Result<Bytes, Error> {
        poll_fn(|cx| self.poll_read_datagram(cx)).await
    }

    /// As [`read_datagram`](Self::read_datagram), for callers that poll.
    pub fn poll_read_datagram(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Error>> {
        self.take_datagram(Some(cx))
    }

    /// As [`read_datagram`](Self::read_datagram), but pending and not waiting while there is none.
    pub fn try_read_datagram(&self) -> Poll<Result<Bytes, Error>> {
        self.take_datagram(None)
    }

    /// The largest datagram that can be sent now; `None` if the peer takes none.
    pub fn max_datagram_len(&self) -> Option<usize> {
        let whole = self.transport().max_datagram_len()?;
        whole.checked_sub(self.shared.label.len())
    }

    /// Closes the session with a code and words for the peer, of which 1,024 bytes are sent. It never waits
    /// for the peer; streams and datagrams on their way may be lost.
    pub fn close(&self, code: u32, reason: &str) {
        let id = self.id();
        self.act(|own, turn| {
            own.act(turn, |machine, streams| {
                machine.close_session(streams, id, code, reason);
            });
        });
    }

    /// Waits until the session is over, and says why: [`Error::Closed`] has the code and the words. Cancel
    /// safe.
    pub async fn closed(&self) -> Error {
        let mut watch = Watch::new(self);
        loop {
            if let Err(error) = poll_fn(|cx| watch.poll(cx, |_, _| false)).await {
                return error;
            }
        }
    }

    /// As [`closed`](Self::closed), for callers that poll.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Error> {
        let never = |_: &mut Http3, _: &mut Turn<'_>| None::<()>;
        match ready!(self.poll(Wait::End, Some(cx), never)) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        }
    }

    /// Why the session is over; `None` while it lives.
    pub fn close_reason(&self) -> Option<Error> {
        let id = self.id();
        self.shared.link.look(|own| over(own, id))
    }

    /// Asks the peer to end the session soon; nothing else changes.
    pub fn drain(&self) {
        let id = self.id();
        self.act(|own, turn| {
            own.act(turn, |machine, streams| machine.drain_session(streams, id));
        });
    }

    /// Waits until the peer asks that the session end soon, or goes away as a whole. Cancel safe.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn draining(&self) -> Result<(), Error> {
        let mut watch = Watch::new(self);
        poll_fn(|cx| watch.poll(cx, |own, id| own.sessions.is_draining(id))).await
    }

    /// As [`draining`](Self::draining), for callers that poll.
    pub fn poll_draining(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let id = self.id();
        self.poll(Wait::Drain, Some(cx), |own, _| {
            own.sessions.is_draining(id).then_some(())
        })
    }

    /// Counts and measurements.
    pub fn stats(&self) -> SessionStats {
        let id = self.id();
        let counts = self.shared.link.look(|own| own.sessions.counts(id));
        SessionStats {
            datagrams_received: counts.datagrams_received,
            datagrams_dropped: counts.datagrams_dropped,
            streams_opened: counts.streams_opened,
            streams_accepted: counts.streams_accepted,
            transport: self.transport().stats(),
        }
    }

    /// Fills `out` with keying material bound to this session
    /// (draft-ietf-webtrans-http3-16 §4.8).
    ///
    /// # Errors
    /// When label or context are longer than 255 bytes, the connection is gone, or TLS refuses.
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), rustls::Error> {
        let bound = exporter_context(self.id(), label, context).ok_or_else(|| {
            let words = "labels and contexts of a session have 255 bytes or less";
            rustls::Error::General(words.to_owned())
        })?;
        self.transport()
            .export_keying_material(out, b"EXPORTER-WebTransport", Some(&bound))
    }

    fn both_halves(&self, id: StreamId, stopped: Option<u64>) -> (SendStream, RecvStream) {
        let transport = self.transport();
        (transport.adopt_send(id, stopped), transport.adopt_recv(id))
    }

    fn poll_open(
        &self,
        direction: Direction,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<StreamId, Error>> {
        let id = self.id();
        self.poll(Wait::Open(direction), cx, |own, turn| {
            let opened = own.act(turn, |machine, streams| {
                machine.open_session_stream(streams, id, direction)
            });
            match opened {
                Ok(stream) => {
                    own.sessions.opened(id, stream, turn);
                    turn.expect_handle(stream);
                    Some(stream)
                }
                // Where it is closed, the caller finds out why.
                Err(OpenError::Blocked | OpenError::Closed) => None,
            }
        })
    }

    fn poll_accept(
        &self,
        direction: Direction,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<(StreamId, Option<u64>), Error>> {
        let id = self.id();
        self.poll(Wait::Accept(direction), cx, |own, turn| {
            let taken = own.sessions.take_stream(id, direction)?;
            if direction == Direction::Bidirectional {
                turn.expect_handle(taken.0);
            }
            Some(taken)
        })
    }

    fn take_datagram(&self, cx: Option<&mut Context<'_>>) -> Poll<Result<Bytes, Error>> {
        let id = self.id();
        // Those that arrived before the end can be read after it.
        let taken = |own: &mut Http3| own.sessions.take_datagram(id);
        if let Some(datagram) = self.shared.link.look(taken) {
            return Poll::Ready(Ok(datagram));
        }
        self.poll(Wait::Datagram, cx, |own, turn| own.next_datagram(id, turn))
    }

    /// One attempt to get something of the session; without a context nobody is woken.
    fn poll<R>(
        &self,
        wait: Wait,
        cx: Option<&mut Context<'_>>,
        attempt: impl FnOnce(&mut Http3, &mut Turn<'_>) -> Option<R>,
    ) -> Poll<Result<R, Error>> {
        let id = self.id();
        // Most attempts leave nothing to send: who waits costs the shard no turn.
        self.shared.link.with_quiet(|own, turn| {
            let (None, Some(turn)) = (over(own, id), turn) else {
                let lost = own.over().into();
                return Poll::Ready(Err(over(own, id).unwrap_or(lost)));
            };
            if let Some(result) = attempt(own, turn) {
                return Poll::Ready(Ok(result));
            }
            if let Some(error) = over(own, id) {
                return Poll::Ready(Err(error));
            }
            if let Some(cx) = cx {
                own.sessions.wait(id, wait, cx.waker());
            }
            Poll::Pending
        })
    }

    fn act(&self, f: impl FnOnce(&mut Http3, &mut Turn<'_>)) {
        self.shared.link.with(|own, turn| {
            if let Some(turn) = turn {
                f(own, turn);
            }
        });
    }
}

/// A future's wait for the end of a session, or for the peer's wish for it; dropped, it leaves nothing.
struct Watch<'a> {
    session: &'a Session,
    key: Option<WaiterKey>,
}

impl<'a> Watch<'a> {
    fn new(session: &'a Session) -> Self {
        Self { session, key: None }
    }

    /// Ready when it `is_due`, or why the session is over.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        is_due: impl FnOnce(&Http3, StreamId) -> bool,
    ) -> Poll<Result<(), Error>> {
        let (id, key) = (self.session.id(), &mut self.key);
        let (result, _replaced) = self.session.shared.link.look(|own| {
            if let Some(error) = over(own, id) {
                return (Poll::Ready(Err(error)), None);
            }
            if is_due(own, id) {
                return (Poll::Ready(Ok(())), None);
            }
            (Poll::Pending, own.sessions.watch(id, key, cx.waker()))
        });
        result
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let id = self.session.id();
            let link = &self.session.shared.link;
            let _left = link.look(|own| own.sessions.leave(id, key));
        }
    }
}

/// What a datagram of a session meets that is over.
fn datagrams_lost(own: &Http3) -> SendDatagramError {
    SendDatagramError::ConnectionLost(match &own.end {
        Some(http3::Error::ConnectionLost(why)) => why.clone(),
        _ => ConnectionError::ClosedLocally,
    })
}

/// Why a session is over, if it is.
pub(super) fn over(own: &Http3, session: StreamId) -> Option<Error> {
    let ended = own.sessions.over(session).map(Error::from);
    ended.or_else(|| own.end.clone().map(Error::Http3))
}

impl Drop for Shared {
    fn drop(&mut self) {
        let id = self.id;
        self.link.with(|own, turn| {
            if let Some(turn) = turn {
                own.act(turn, |machine, streams| {
                    machine.close_session(streams, id, 0, "");
                });
                own.sessions.forget(id, turn.wake);
            }
        });
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id())
            .field("dialect", &self.dialect())
            .finish_non_exhaustive()
    }
}

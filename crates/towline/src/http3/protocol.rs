//! [`Http3`]: HTTP/3's part in one connection, between the engine and the handles.
//!
//! Under the shard's lock. It shows the state machine what the engine tells, and keeps what comes of it
//! for whoever asks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use towline_http3::{self as http3, Config, Count, Counters, ErrorCode, Event, webtransport};
use towline_quic::{ConnectionError, Event as Told, ResetAtError};
use towline_wire::{Side, StreamId, Time};

use super::error::Error;
use super::exchange::{CANCELLED, Exchange, Unclaimed};
use super::sessions::Sessions;
use super::streams::Streams;
use super::wakers::Wakers;
use crate::handles::{Half, Protocol, Turn};

/// A code of the peer's that is no application's is told with this added: an application's are smaller.
pub(crate) const HTTP3_CODES: u64 = 1 << 32;

/// HTTP/3 on one connection.
pub(crate) struct Http3 {
    pub(crate) machine: http3::Connection,
    /// Those that somebody has a handle of, or may get one of.
    pub(super) exchanges: BTreeMap<StreamId, Exchange>,
    /// Requests that wait to be accepted, some of which have been discarded.
    requests: VecDeque<StreamId>,
    /// How many: half of them at most.
    discarded: usize,
    /// Tasks that accept requests.
    pub(super) acceptors: Wakers,
    /// Tasks that wait for a stream, or for the peer's settings.
    pub(crate) openers: Wakers,
    /// WebTransport's sessions.
    pub(crate) sessions: Sessions,
    /// Requests are refused: the application takes sessions alone.
    refuses_requests: bool,
    /// Those of all connections.
    counters: Arc<Counters>,
    /// Datagrams were left with the engine.
    datagrams_left: bool,
    /// Why nothing more comes.
    pub(crate) end: Option<Error>,
}

impl Http3 {
    /// One that takes requests; with `refuses_requests`, sessions alone.
    pub(crate) fn new(
        side: Side,
        config: Config,
        refuses_requests: bool,
        counters: Arc<Counters>,
    ) -> Self {
        let mut machine = http3::Connection::new(side, config);
        machine.count_with(Arc::clone(&counters));
        Self {
            sessions: Sessions::default(),
            refuses_requests,
            counters,
            machine,
            exchanges: BTreeMap::new(),
            requests: VecDeque::new(),
            discarded: 0,
            acceptors: Wakers::default(),
            openers: Wakers::default(),
            datagrams_left: false,
            end: None,
        }
    }

    /// Lets `act` call the state machine, and deals with what comes of it.
    pub(crate) fn act<R>(
        &mut self,
        turn: &mut Turn<'_>,
        act: impl FnOnce(&mut http3::Connection, &mut Streams<'_>) -> R,
    ) -> R {
        let result = act(&mut self.machine, &mut Streams::of(turn));
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Session(event) => {
                    let account = self.machine.kept();
                    self.sessions.deliver(event, account, turn);
                }
                Event::Datagram { id, payload } => {
                    if self.sessions.on_datagram(id, payload, turn) {
                        self.counters.add(Count::DatagramsDropped);
                    }
                }
                Event::Request { id, end, .. } if self.refuses_requests => {
                    self.refuse(turn, id, end);
                }
                Event::Reset { id, .. } | Event::Stopped { id, .. } | Event::Failed { id, .. }
                    if self.is_unclaimed(id) =>
                {
                    self.discard(turn, id);
                }
                Event::Failed { id, error } if !self.exchanges.contains_key(&id) => {
                    // Nobody else will hear of it.
                    tracing::info!(stream = %id, "a request of the peer's was refused: {error}");
                }
                event => self.deliver(event, turn.wake),
            }
        }
        result
    }

    /// A request that waits to be accepted.
    fn is_unclaimed(&self, id: StreamId) -> bool {
        let exchange = self.exchanges.get(&id);
        exchange.is_some_and(|exchange| exchange.request.is_some())
    }

    /// A request that nobody has taken was given up, by the client or for what it is: it makes room for
    /// another, so that those that wait are never more than there are streams.
    fn discard(&mut self, turn: &mut Turn<'_>, id: StreamId) {
        self.exchanges.remove(&id);
        self.machine.cancel(&mut Streams::of(turn), id, CANCELLED);
        self.discarded += 1;
        // One walk for as many as it takes out.
        if self.discarded > self.requests.len() / 2 {
            let exchanges = &self.exchanges;
            self.requests.retain(|id| exchanges.contains_key(id));
            self.discarded = 0;
        }
    }

    /// Memory was short: what nobody has taken goes, and what the connection kept to go on.
    fn drop_unclaimed(&mut self) {
        self.exchanges
            .retain(|_, exchange| exchange.request.is_none());
        self.requests = VecDeque::new();
        self.discarded = 0;
        self.sessions.drop_unclaimed();
        self.machine.abandon();
    }

    /// The next request that nobody has taken.
    pub(super) fn take_request(&mut self) -> Option<(StreamId, Box<http::request::Parts>)> {
        while let Some(id) = self.requests.pop_front() {
            let Some(exchange) = self.exchanges.get_mut(&id) else {
                self.discarded -= 1;
                continue;
            };
            if let Some(Unclaimed {
                mut head, protocol, ..
            }) = exchange.request.take()
            {
                if let Some(name) = protocol {
                    head.extensions.insert(super::tunnel::Protocol::new(name));
                }
                return Some((id, head));
            }
        }
        None
    }

    /// Nobody answers requests here. What comes of it is bounded: a request is refused once.
    fn refuse(&mut self, turn: &mut Turn<'_>, id: StreamId, whole: bool) {
        self.counters.add(Count::RequestsUnwanted);
        let (mut head, ()) = http::Response::new(()).into_parts();
        head.status = http::StatusCode::NOT_FOUND;
        let streams = &mut Streams::of(turn);
        if self.machine.respond(streams, id, &head, true).is_err() {
            self.machine.cancel(streams, id, CANCELLED);
        } else if !whole {
            self.machine
                .stop_reading(streams, id, ErrorCode::H3_NO_ERROR);
        }
    }

    fn deliver(&mut self, event: Event, wake: &mut Vec<Waker>) {
        match event {
            Event::Settings(_) => self.openers.wake(wake),
            Event::Request {
                id,
                head,
                protocol,
                end,
            } => {
                let _charge = self.machine.kept().charge_fields(&head.headers);
                let request = Unclaimed {
                    head,
                    protocol,
                    _charge,
                };
                self.on_request(id, request, end, wake);
            }
            Event::Response { id, head, end, .. } => {
                let charge = self.machine.kept().charge_fields(&head.headers);
                self.with(id, |exchange| {
                    exchange.heads.push_back((head, charge));
                    match end {
                        true => exchange.end_incoming(Ok(()), wake),
                        false => wake.extend(exchange.reader.take()),
                    }
                });
            }
            Event::Body(id) => self.with(id, |exchange| wake.extend(exchange.reader.take())),
            Event::Trailers { id, fields } => {
                let charge = self.machine.kept().charge_fields(&fields);
                self.with(id, |exchange| exchange.trailers = Some((fields, charge)));
            }
            Event::Finished(id) => self.with(id, |exchange| exchange.end_incoming(Ok(()), wake)),
            Event::Reset { id, code } => {
                self.with(id, |exchange| {
                    exchange.end_incoming(Err(Error::Reset(code)), wake);
                });
            }
            Event::Stopped { id, code } => {
                self.with(id, |exchange| {
                    exchange.end_outgoing(Error::Stopped(code), wake);
                });
            }
            Event::Writable(id) => self.with(id, |exchange| wake.extend(exchange.writer.take())),
            Event::Failed { id, error } => {
                self.with(id, |exchange| exchange.fail(&Error::Refused(error), wake));
            }
            Event::GoAway { .. } => self.openers.wake(wake),
            Event::Closed(error) => self.fail(&Error::Broken(error), wake),
            _ => {}
        }
    }

    /// Why nothing goes any more.
    pub(crate) fn over(&self) -> Error {
        let closed = Error::ConnectionLost(ConnectionError::ClosedLocally);
        self.end.clone().unwrap_or(closed)
    }

    /// Nothing more comes of what this end sends on a stream: where the handle has sent the end, that half
    /// is over now.
    fn on_sent(&mut self, turn: &mut Turn<'_>, id: StreamId) {
        if self.sessions.is_finished(id) {
            self.on_half_over(turn, id, Half::Sending);
        }
    }

    fn take_datagrams(&mut self, turn: &mut Turn<'_>) {
        self.datagrams_left = self.act(turn, |machine, streams| machine.on_datagrams(streams));
    }

    /// The next datagram of a session. Where none waits and some were left with the engine, as many more are
    /// taken as in any call: whoever reads need not wait for a timer.
    #[cfg(feature = "webtransport")]
    pub(crate) fn next_datagram(
        &mut self,
        session: StreamId,
        turn: &mut Turn<'_>,
    ) -> Option<bytes::Bytes> {
        let waiting = self.sessions.take_datagram(session);
        if waiting.is_some() || !self.datagrams_left {
            return waiting;
        }
        self.take_datagrams(turn);
        self.sessions.take_datagram(session)
    }

    fn with(&mut self, id: StreamId, f: impl FnOnce(&mut Exchange)) {
        if let Some(exchange) = self.exchanges.get_mut(&id) {
            f(exchange);
        }
    }

    fn on_request(&mut self, id: StreamId, request: Unclaimed, end: bool, wake: &mut Vec<Waker>) {
        let exchange = Exchange {
            request: Some(request),
            incoming: end.then_some(Ok(())),
            ..Exchange::default()
        };
        self.exchanges.insert(id, exchange);
        self.requests.push_back(id);
        self.acceptors.wake(wake);
    }

    /// Nothing more comes or goes.
    fn fail(&mut self, error: &Error, wake: &mut Vec<Waker>) {
        let error = self.end.get_or_insert_with(|| error.clone()).clone();
        for exchange in self.exchanges.values_mut() {
            // What has arrived can be read still, up to where it breaks off.
            exchange.outgoing.get_or_insert_with(|| error.clone());
            wake.extend(exchange.reader.take());
            wake.extend(exchange.writer.take());
            wake.extend(exchange.watcher.take());
        }
        self.acceptors.wake(wake);
        self.openers.wake(wake);
        self.sessions.wake_all(wake);
    }
}

impl Protocol for Http3 {
    fn on_event(&mut self, turn: &mut Turn<'_>, event: Told) -> Option<Told> {
        match event {
            Told::Accepted | Told::Connected => {
                self.act(turn, |machine, streams| machine.on_established(streams));
            }
            Told::Opened(direction) => {
                self.act(turn, |machine, streams| {
                    machine.on_opened(streams, direction)
                });
                return None;
            }
            Told::Readable(id) => {
                self.act(turn, |machine, streams| machine.on_readable(streams, id));
            }
            Told::Writable(id) => {
                self.act(turn, |machine, streams| machine.on_writable(streams, id));
            }
            Told::Stopped { id, error_code } => {
                // Before the session may end with it.
                let told = self.code_for_handle(id, error_code);
                self.act(turn, |machine, streams| {
                    machine.on_stopped(streams, id, error_code);
                });
                self.sessions.on_stopped(id, told);
                self.on_sent(turn, id);
                return Some(Told::Stopped {
                    id,
                    error_code: told,
                });
            }
            Told::StreamsAvailable(_) => {
                self.act(turn, |machine, streams| {
                    machine.on_streams_available(streams)
                });
                self.openers.wake(turn.wake);
            }
            Told::Finished(id) => self.on_sent(turn, id),
            Told::DatagramReceived => {
                self.take_datagrams(turn);
                return None;
            }
            _ => {}
        }
        Some(event)
    }

    fn held(&self) -> usize {
        let exchanges = self.exchanges.len() * size_of::<(StreamId, Exchange)>();
        let requests = self.requests.len() * size_of::<StreamId>();
        self.machine.held() + exchanges + requests + self.sessions.held()
    }

    fn next_timeout(&self) -> Option<Time> {
        // At once, when others have had their turn.
        (self.machine.again() || self.datagrams_left).then_some(Time::ZERO)
    }

    fn on_timeout(&mut self, turn: &mut Turn<'_>) {
        self.act(turn, |machine, streams| machine.resume(streams));
        if self.datagrams_left {
            self.take_datagrams(turn);
        }
    }

    fn bytes_read(&self, id: StreamId) -> u64 {
        self.machine.session_prefix_read(id)
    }

    fn send_allowance(&mut self, turn: &mut Turn<'_>, id: StreamId) -> Option<u64> {
        let session = self.sessions.of_stream(id)?;
        let credit = self.machine.session_send_credit(session)?;
        if credit == 0 {
            self.sessions.wait_for_credit(session, id);
            self.act(turn, |machine, streams| {
                machine.on_session_blocked(streams, session);
            });
        }
        Some(credit)
    }

    fn on_written(&mut self, id: StreamId, bytes: u64) {
        self.machine.on_session_written(id, bytes);
    }

    fn on_read(&mut self, turn: &mut Turn<'_>, id: StreamId, bytes: u64) {
        self.act(turn, |machine, streams| {
            machine.on_session_read(streams, id, bytes);
        });
    }

    fn reset(
        &mut self,
        turn: &mut Turn<'_>,
        id: StreamId,
        code: u64,
        reliable_size: u64,
    ) -> Result<(), ResetAtError> {
        let Some(session) = self.sessions.of_stream(id) else {
            return turn.connection.reset_at(id, code, reliable_size);
        };
        if reliable_size == 0 {
            let code = u32::try_from(code).unwrap_or(u32::MAX);
            self.act(turn, |machine, streams| {
                machine.reset_session_stream(streams, id, code);
            });
            self.on_sent(turn, id);
            return Ok(());
        }
        // What stands in front of the payload belongs to it.
        let is_ours = id.initiator() == turn.connection.side();
        let prefix = webtransport::prefix_len(session, id.direction());
        let size = reliable_size.saturating_add(if is_ours { prefix } else { 0 });
        let code = self.machine.session_code_to_http3(id, code);
        turn.connection.reset_at(id, code, size)?;
        self.on_sent(turn, id);
        Ok(())
    }

    fn stop(&mut self, turn: &mut Turn<'_>, id: StreamId, code: u64) {
        if self.sessions.of_stream(id).is_none() {
            return turn.connection.stop(id, code);
        }
        let code = u32::try_from(code).unwrap_or(u32::MAX);
        self.act(turn, |machine, streams| {
            machine.stop_session_stream(streams, id, code);
        });
    }

    fn code_for_handle(&self, id: StreamId, code: u64) -> u64 {
        if self.sessions.of_stream(id).is_none() {
            return code;
        }
        match self.machine.session_code_from_http3(id, code) {
            Some(code) => code.into(),
            None => code.saturating_add(HTTP3_CODES),
        }
    }

    fn on_final_size(&mut self, turn: &mut Turn<'_>, id: StreamId, bytes: u64) {
        self.act(turn, |machine, streams| {
            machine.on_session_final_size(streams, id, bytes);
        });
    }

    fn on_finish(&mut self, _: &mut Turn<'_>, id: StreamId) {
        self.sessions.on_finish(id);
    }

    fn on_half_over(&mut self, turn: &mut Turn<'_>, id: StreamId, half: Half) {
        if self.sessions.on_half_over(id, half) {
            self.act(turn, |machine, streams| {
                machine.on_session_stream_over(streams, id, 0);
            });
        }
    }

    fn on_end(&mut self, error: &ConnectionError, wake: &mut Vec<Waker>) {
        self.fail(&Error::ConnectionLost(error.clone()), wake);
        if matches!(error, ConnectionError::Shed) {
            self.drop_unclaimed();
        }
    }
}

//! [`Http3`]: HTTP/3's part in one connection, between the engine and the handles.
//!
//! Under the shard's lock. It shows the state machine what the engine tells, and keeps what comes of it
//! for whoever asks.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use towline_http3::{self as http3, Config, Event};
use towline_quic::{ConnectionError, Event as Told};
use towline_wire::{Side, StreamId, Time};

use super::error::Error;
use super::exchange::{Exchange, Wakers};
use super::streams::Streams;
use crate::handles::{Protocol, Turn};

/// HTTP/3 on one connection.
pub(crate) struct Http3 {
    pub(super) machine: http3::Connection,
    /// Those that somebody has a handle of, or may get one of.
    pub(super) exchanges: BTreeMap<StreamId, Exchange>,
    /// Requests that wait to be accepted.
    pub(super) requests: VecDeque<StreamId>,
    /// Tasks that accept requests.
    pub(super) acceptors: Wakers,
    /// Tasks that wait for a stream, or for the peer's settings.
    pub(super) openers: Wakers,
    /// Datagrams were left with the engine.
    datagrams_left: bool,
    /// Why nothing more comes.
    pub(super) end: Option<Error>,
}

impl Http3 {
    pub(super) fn new(side: Side, config: Config) -> Self {
        Self {
            machine: http3::Connection::new(side, config),
            exchanges: BTreeMap::new(),
            requests: VecDeque::new(),
            acceptors: Wakers::default(),
            openers: Wakers::default(),
            datagrams_left: false,
            end: None,
        }
    }

    /// Lets `act` call the state machine, and deals with what comes of it.
    pub(super) fn act<R>(
        &mut self,
        turn: &mut Turn<'_>,
        act: impl FnOnce(&mut http3::Connection, &mut Streams<'_>) -> R,
    ) -> R {
        let result = act(&mut self.machine, &mut Streams::of(turn));
        while let Some(event) = self.machine.poll_event() {
            self.deliver(event, turn.wake);
        }
        result
    }

    fn deliver(&mut self, event: Event, wake: &mut Vec<Waker>) {
        match event {
            Event::Settings(_) => self.openers.wake(wake),
            Event::Request {
                id,
                head,
                protocol,
                end,
            } => self.on_request(id, (head, protocol), end, wake),
            Event::Response { id, head, end, .. } => {
                self.with(id, |exchange| {
                    exchange.heads.push_back(head);
                    match end {
                        true => exchange.end_incoming(Ok(()), wake),
                        false => wake.extend(exchange.reader.take()),
                    }
                });
            }
            Event::Body(id) => self.with(id, |exchange| wake.extend(exchange.reader.take())),
            Event::Trailers { id, fields } => {
                self.with(id, |exchange| exchange.trailers = Some(fields));
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
            // Datagrams are WebTransport's.
            _ => {}
        }
    }

    /// Why nothing goes any more.
    pub(crate) fn over(&self) -> Error {
        let closed = Error::ConnectionLost(ConnectionError::ClosedLocally);
        self.end.clone().unwrap_or(closed)
    }

    fn take_datagrams(&mut self, turn: &mut Turn<'_>) {
        self.datagrams_left = self.act(turn, |machine, streams| machine.on_datagrams(streams));
    }

    fn with(&mut self, id: StreamId, f: impl FnOnce(&mut Exchange)) {
        if let Some(exchange) = self.exchanges.get_mut(&id) {
            f(exchange);
        }
    }

    fn on_request(
        &mut self,
        id: StreamId,
        request: (Box<http::request::Parts>, Option<bytes::Bytes>),
        end: bool,
        wake: &mut Vec<Waker>,
    ) {
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
        }
        self.acceptors.wake(wake);
        self.openers.wake(wake);
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
                self.act(turn, |machine, streams| {
                    machine.on_stopped(streams, id, error_code);
                });
            }
            Told::StreamsAvailable(_) => {
                self.act(turn, |machine, streams| {
                    machine.on_streams_available(streams)
                });
                self.openers.wake(turn.wake);
            }
            Told::DatagramReceived => {
                self.take_datagrams(turn);
                return None;
            }
            _ => {}
        }
        Some(event)
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

    fn on_end(&mut self, error: &ConnectionError, wake: &mut Vec<Waker>) {
        self.fail(&Error::ConnectionLost(error.clone()), wake);
    }
}

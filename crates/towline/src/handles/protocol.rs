//! [`Protocol`]: what stands between a connection and its handles.
//!
//! An endpoint has one made for each connection that agrees on an application protocol it was
//! [told of](super::EndpointBuilder::protocol). It runs under the shard's lock, like the handles, and
//! needs no task: it sees the connection's events first, acts on the engine's connection, and hands
//! streams to the application. Payload does not pass through it: it reads what it needs of a stream to
//! know whose it is, and leaves the rest to a handle.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use towline_quic::{Connection as Engine, ConnectionError, Event};
use towline_wire::Time;

/// A protocol's part in one connection.
///
/// What the application asks of it goes through [`Connection::with_protocol`](crate::Connection::with_protocol). Tasks that wait for
/// something of it leave wakers in it, by its own rules.
pub trait Protocol: Any + Send {
    /// Something happened to the connection. The first event is `Accepted` or `Connected`.
    ///
    /// What it returns goes on to the connection's handles, and what it keeps they never hear of. An
    /// `Opened` that is kept obliges it to `accept` until there is no stream left, a `Readable` to
    /// read until nothing is there or a handle [is made](crate::Connection::adopt_recv); the engine does not
    /// tell twice. A `Stopped` of a stream that has no handle yet is to be remembered for
    /// [`adopt_send`](crate::Connection::adopt_send). The handles hear of the handshake and of the end in any case.
    fn on_event(&mut self, turn: &mut Turn<'_>, event: Event) -> Option<Event>;

    /// When [`on_timeout`](Self::on_timeout) is wanted next. Asked after each call of any kind.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// The time it asked for has come.
    fn on_timeout(&mut self, turn: &mut Turn<'_>) {
        let _ = turn;
    }

    /// The connection is over: whoever waits for something of the protocol must be woken. What has
    /// arrived can still be read. Called once, but not where no handle was left and nobody waits: then
    /// the protocol is dropped.
    fn on_end(&mut self, error: &ConnectionError, wake: &mut Vec<Waker>);
}

/// What a protocol acts on.
#[non_exhaustive]
pub struct Turn<'a> {
    /// The time, for the engine's calls.
    pub now: Time,
    /// The engine's connection. Calls on it are short: the shard waits for them.
    pub connection: &'a mut Engine,
    /// Woken when the shard's lock has been released.
    pub wake: &'a mut Vec<Waker>,
}

/// Makes the protocol's part of a connection that agreed on it, whichever end began.
pub type ProtocolFactory = Arc<dyn Fn(&Engine) -> Box<dyn Protocol> + Send + Sync>;

/// The protocol of one entry, and what it waits for.
pub(super) struct Seat {
    protocol: Box<dyn Protocol>,
    /// When the sessions have it called.
    pub(super) at: Option<Time>,
}

impl Seat {
    pub(super) fn new(protocol: Box<dyn Protocol>) -> Self {
        Self { protocol, at: None }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.protocol.next_timeout()
    }

    /// What of an event the handles are told.
    pub(super) fn on_event(&mut self, turn: &mut Turn<'_>, event: Event) -> Option<Event> {
        let theirs = match &event {
            Event::Accepted | Event::Connected | Event::Confirmed | Event::Closed(_) => {
                Some(event.clone())
            }
            _ => None,
        };
        let passed = self.protocol.on_event(turn, event);
        theirs.or(passed)
    }

    pub(super) fn on_timeout(&mut self, turn: &mut Turn<'_>) {
        self.protocol.on_timeout(turn);
    }

    pub(super) fn on_end(&mut self, error: &ConnectionError, wake: &mut Vec<Waker>) {
        self.protocol.on_end(error, wake);
    }

    /// The protocol, if it is a `P`.
    pub(super) fn of<P: Protocol>(&mut self) -> Option<&mut P> {
        let protocol: &mut dyn Any = &mut *self.protocol;
        protocol.downcast_mut()
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

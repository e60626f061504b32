//! [`Link`]: the way from the handles to HTTP/3's part in their connection.

use towline_http3::ErrorCode;
use towline_wire::StreamId;

use super::error::Error;
use super::protocol::Http3;
use crate::handles::{Connection, Turn};
use crate::io::Change;

/// A connection that speaks HTTP/3.
#[derive(Clone)]
pub(crate) struct Link(Connection);

impl Link {
    /// `None` where it speaks something else.
    pub(crate) fn new(transport: Connection) -> Option<Self> {
        let speaks = transport.with_protocol(|_: &mut Http3, _| ((), Change::None));
        speaks.map(|()| Self(transport))
    }

    pub(crate) fn transport(&self) -> &Connection {
        &self.0
    }

    /// Acts on the protocol. The shard has its turn afterwards.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Http3, Option<&mut Turn<'_>>) -> R) -> R {
        self.with_change(|own, turn| (f(own, turn), Change::Made))
    }

    /// As `with`, for what seldom leaves anything to send: the shard has its turn where it did.
    pub(crate) fn with_quiet<R>(
        &self,
        f: impl FnOnce(&mut Http3, Option<&mut Turn<'_>>) -> R,
    ) -> R {
        self.with_change(|own, turn| {
            let Some(turn) = turn else {
                return (f(own, None), Change::None);
            };
            let (waited, was_closed) = (
                turn.connection.wants_transmit(),
                turn.connection.is_closed(),
            );
            let result = f(own, Some(turn));
            let sends = !waited && turn.connection.wants_transmit();
            match sends || (!was_closed && turn.connection.is_closed()) {
                true => (result, Change::Made),
                false => (result, Change::None),
            }
        })
    }

    /// As `with`, where nothing of it needs the shard.
    pub(crate) fn look<R>(&self, f: impl FnOnce(&mut Http3) -> R) -> R {
        self.with_change(|own, _| (f(own), Change::None))
    }

    pub(crate) fn with_change<R>(
        &self,
        f: impl FnOnce(&mut Http3, Option<&mut Turn<'_>>) -> (R, Change),
    ) -> R {
        self.0
            .with_protocol(f)
            .expect("the protocol was there when this was made, and stays")
    }
}

/// A request's stream, as its handles share it. What came of it is forgotten with the last of them.
pub(super) struct Stream {
    pub(super) link: Link,
    pub(super) id: StreamId,
}

impl Stream {
    pub(super) fn new(link: Link, id: StreamId) -> Self {
        Self { link, id }
    }

    /// Acts on the protocol and what has come of this stream.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Http3, Option<&mut Turn<'_>>) -> R) -> R {
        self.link.with(f)
    }

    /// As `with`, for what may free credit: most reads free too little to be worth a frame.
    pub(super) fn read<R>(&self, f: impl FnOnce(&mut Http3, Option<&mut Turn<'_>>) -> R) -> R {
        self.link.with_quiet(f)
    }

    /// Gives up our message, and with it the whole exchange; not where the peer wants no more of ours,
    /// whose own may be whole (RFC 9114 §4.1).
    pub(super) fn cancel(&self, code: ErrorCode) {
        let id = self.id;
        self.with(|own, turn| {
            let exchange = own.exchanges.get(&id);
            let stopped = exchange.is_some_and(|exchange| exchange.outgoing.is_some());
            if let Some(turn) = turn.filter(|_| !stopped) {
                own.act(turn, |machine, streams| machine.cancel(streams, id, code));
                // Whoever waits at the other half waits in vain: no event follows.
                if let Some(exchange) = own.exchanges.get_mut(&id) {
                    exchange.fail(&Error::Closed, turn.wake);
                }
            }
        });
    }

    /// Wants no more of the peer's message.
    pub(super) fn stop_reading(&self, code: ErrorCode) {
        let id = self.id;
        self.with(|own, turn| {
            if let Some(turn) = turn {
                own.act(turn, |machine, streams| {
                    machine.stop_reading(streams, id, code);
                });
            }
        });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let id = self.id;
        let _exchange = self.link.look(|own| own.exchanges.remove(&id));
    }
}

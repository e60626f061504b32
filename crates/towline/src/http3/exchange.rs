//! [`Exchange`]: what has come of one request and its answer, until their handles take it.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;
use http::HeaderMap;
use towline_http3::{Charge, ErrorCode};

use super::error::Error;

/// A request that nobody has accepted.
pub(super) struct Unclaimed {
    pub(super) head: Box<http::request::Parts>,
    /// Its `:protocol`.
    pub(super) protocol: Option<Bytes>,
    pub(super) _charge: Charge,
}

/// One stream as its handles see it. Payload is not here: it waits in the engine.
#[derive(Default)]
pub(super) struct Exchange {
    /// At the server, until it is accepted; with `:protocol`.
    pub(super) request: Option<Unclaimed>,
    /// At the client: interim answers, and the final one.
    pub(super) heads: VecDeque<(Box<http::response::Parts>, Charge)>,
    pub(super) trailers: Option<(HeaderMap, Charge)>,
    /// The peer's message is whole, or why it will never be.
    pub(super) incoming: Option<Result<(), Error>>,
    /// Why nothing more of ours is taken.
    pub(super) outgoing: Option<Error>,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// Whoever wants to know when nothing more of ours is taken.
    pub(super) watcher: Option<Waker>,
}

impl Exchange {
    /// The peer's half ended; the first reason stays.
    pub(super) fn end_incoming(&mut self, how: Result<(), Error>, wake: &mut Vec<Waker>) {
        self.incoming.get_or_insert(how);
        wake.extend(self.reader.take());
    }

    /// Our half ended.
    pub(super) fn end_outgoing(&mut self, why: Error, wake: &mut Vec<Waker>) {
        self.outgoing.get_or_insert(why);
        wake.extend(self.writer.take());
        wake.extend(self.watcher.take());
    }

    /// Both halves ended.
    pub(super) fn fail(&mut self, error: &Error, wake: &mut Vec<Waker>) {
        self.end_incoming(Err(error.clone()), wake);
        self.end_outgoing(error.clone(), wake);
    }
}

/// Puts a waker in its place. Another's is returned, to be dropped when the lock has been released.
#[must_use = "drop it when the lock has been released"]
pub(super) fn wait(place: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match place {
        Some(old) if old.will_wake(waker) => None,
        _ => place.replace(waker.clone()),
    }
}

/// The code of a message that nobody wants any more.
pub(super) const CANCELLED: ErrorCode = ErrorCode::H3_REQUEST_CANCELLED;

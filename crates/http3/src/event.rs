//! [`Event`]: what a connection tells its user, and the queue it waits in.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;
use towline_wire::StreamId;
use towline_wire::http3::Settings;

use crate::error::{Error, StreamError};
use crate::webtransport::SessionEvent;

/// Cap: HTTP datagrams that wait for the application; the oldest makes room (RFC 9221 §5).
pub(crate) const MAX_QUEUED_DATAGRAMS: usize = 256;

/// What happened. Events of one stream come in the order of its frames.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The peer's SETTINGS arrived (RFC 9114 §7.2.4). Once.
    Settings(Settings),
    /// A client's request (RFC 9114 §4.1).
    Request {
        /// Its stream.
        id: StreamId,
        /// Method, URI and fields.
        head: Box<http::request::Parts>,
        /// `:protocol` of an extended CONNECT (RFC 9220).
        protocol: Option<Bytes>,
        /// Nothing follows: no body, no trailers. There is no `Finished` then.
        end: bool,
    },
    /// A server's answer.
    Response {
        /// The stream of the request.
        id: StreamId,
        /// Status and fields.
        head: Box<http::response::Parts>,
        /// A 1xx answer: another one follows.
        interim: bool,
        /// Nothing follows: no body, no trailers. There is no `Finished` then.
        end: bool,
    },
    /// A body has bytes to read. Told again after a read said `Blocked`.
    Body(StreamId),
    /// Fields after the body.
    Trailers {
        /// Their stream.
        id: StreamId,
        /// The fields.
        fields: HeaderMap,
    },
    /// The peer's message is whole.
    Finished(StreamId),
    /// The peer gave up its message, with this code.
    Reset {
        /// The stream.
        id: StreamId,
        /// The peer's code.
        code: u64,
    },
    /// The peer wants no more of our message, with this code.
    Stopped {
        /// The stream.
        id: StreamId,
        /// The peer's code.
        code: u64,
    },
    /// A body that was blocked can be written again.
    Writable(StreamId),
    /// The peer's message is malformed or too large: both halves of the stream are given up.
    Failed {
        /// The stream.
        id: StreamId,
        /// What was wrong.
        error: StreamError,
    },
    /// The peer takes no requests from this stream on (RFC 9114 §5.2). Of ours that it leaves
    /// undone, each has a `Reset` with H3_REQUEST_REJECTED, and a `Stopped` where its body was not whole:
    /// they may be sent again elsewhere.
    GoAway {
        /// The first stream that is refused; at a server, a push ID.
        id: u64,
    },
    /// An HTTP datagram of a request or a WebTransport session (RFC 9297).
    Datagram {
        /// The stream of the request, or the session.
        id: StreamId,
        /// Without the number in front.
        payload: Bytes,
    },
    /// Something of a WebTransport session.
    Session(SessionEvent),
    /// The connection was closed, because the peer broke a rule. The last event.
    Closed(Error),
}

/// Events that wait; datagrams come after all others.
#[derive(Default, Debug)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    datagrams: VecDeque<(StreamId, Bytes)>,
}

impl Events {
    pub(crate) fn push(&mut self, event: Event) {
        self.queue.push_back(event);
    }

    pub(crate) fn push_datagram(&mut self, id: StreamId, payload: Bytes) {
        if self.datagrams.len() == MAX_QUEUED_DATAGRAMS {
            self.datagrams.pop_front();
        }
        self.datagrams.push_back((id, payload));
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn datagrams(&self) -> usize {
        self.datagrams.len()
    }

    /// What comes after the end is not told.
    pub(crate) fn drop_datagrams(&mut self) {
        self.datagrams.clear();
    }

    pub(crate) fn poll(&mut self) -> Option<Event> {
        self.queue.pop_front().or_else(|| {
            let (id, payload) = self.datagrams.pop_front()?;
            Some(Event::Datagram { id, payload })
        })
    }

    /// The peer's message ended: said in its head, if that is the newest event.
    pub(crate) fn finish(&mut self, of: StreamId) {
        match self.queue.back_mut() {
            Some(
                Event::Request { id, end, .. }
                | Event::Response {
                    id,
                    end,
                    interim: false,
                    ..
                },
            ) if *id == of => *end = true,
            _ => self.push(Event::Finished(of)),
        }
    }
}

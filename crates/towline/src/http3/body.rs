//! [`RecvBody`]: the body of the peer's message.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap};
use http_body::{Body, Frame, SizeHint};
use towline_http3::{BodyError, ErrorCode};
use towline_wire::StreamId;

use super::error::Error;
use super::exchange::wait;
use super::link::Stream;
use super::send::Outgoing;
use crate::handles::Connection;

/// Most bytes of a body that are taken at once.
const CHUNK: usize = 64 * 1024;

/// The body of a request or an answer, as it arrives: what is not read holds the peer back.
///
/// Dropped before its end, it asks the peer to send no more; at a client this cancels the request.
pub struct RecvBody {
    stream: Arc<Stream>,
    /// What the peer is told if the rest is not wanted.
    unwanted: ErrorCode,
    /// What is still to be sent of the request that this answers.
    outgoing: Option<Outgoing>,
    /// Bytes that are to come, where the peer said.
    left: Option<u64>,
    over: bool,
}

impl RecvBody {
    pub(super) fn new(stream: Arc<Stream>, unwanted: ErrorCode) -> Self {
        Self {
            stream,
            unwanted,
            outgoing: None,
            left: None,
            over: false,
        }
    }

    /// The stream that it comes on.
    pub fn id(&self) -> StreamId {
        self.stream.id
    }

    /// The QUIC connection that it comes by: who the peer is, and its address.
    pub fn transport(&self) -> &Connection {
        self.stream.link.transport()
    }

    /// The message's fields say how long it will be; what comes is checked against them before.
    pub(super) fn expect(&mut self, fields: &HeaderMap) {
        let len = fields.get(CONTENT_LENGTH);
        self.left = len.and_then(|len| len.to_str().ok()?.parse().ok());
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// While this is read, `outgoing` is sent.
    pub(super) fn send_meanwhile(&mut self, outgoing: Option<Outgoing>) {
        self.outgoing = outgoing;
    }

    /// The next bytes, without copying; `None` at the end.
    ///
    /// Cancel safe: a dropped call took nothing.
    ///
    /// # Errors
    /// When the peer gave the message up, it was malformed, or the connection is over.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// As [`chunk`](Self::chunk), for callers that poll.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        if let Some(outgoing) = &mut self.outgoing
            && let Poll::Ready(sent) = outgoing.poll(cx)
        {
            self.outgoing = None;
            if let Err(error @ Error::Body(_)) = sent {
                return Poll::Ready(Err(error));
            }
        }
        let id = self.stream.id;
        let (chunk, _replaced) = self.stream.read(|own, turn| {
            let over = own.over();
            let ended = own.end.is_some();
            let Some(turn) = turn else {
                return (Poll::Ready(Err(over)), None);
            };
            let read = own.act(turn, |machine, streams| {
                machine.read_body(streams, id, CHUNK)
            });
            let Some(exchange) = own.exchanges.get_mut(&id) else {
                return (Poll::Ready(Err(over)), None);
            };
            let chunk = match (read, &exchange.incoming) {
                (Ok(Some(bytes)), _) => Ok(Some(bytes)),
                (Ok(None), _) | (_, Some(Ok(()))) => Ok(None),
                (_, Some(Err(error))) => Err(error.clone()),
                (Err(BodyError::Reset(code)), None) => Err(Error::Reset(code)),
                (Err(BodyError::Blocked), None) if !ended => {
                    return (Poll::Pending, wait(&mut exchange.reader, cx.waker()));
                }
                (Err(_), None) if ended => Err(over),
                (Err(_), None) => Err(Error::Closed),
            };
            (Poll::Ready(chunk), None)
        });
        let chunk = ready!(chunk);
        self.over = !matches!(chunk, Ok(Some(_)));
        if let (Ok(Some(bytes)), Some(left)) = (&chunk, &mut self.left) {
            *left = left.saturating_sub(bytes.len() as u64);
        }
        Poll::Ready(chunk)
    }

    /// The fields after the body, if there are any; what is left of the body is dropped.
    ///
    /// Not cancel safe: a dropped call loses a part of the body.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn trailers(&mut self) -> Result<Option<HeaderMap>, Error> {
        while self.chunk().await?.is_some() {}
        Ok(self.take_trailers())
    }

    fn take_trailers(&self) -> Option<HeaderMap> {
        let id = self.stream.id;
        let take = |own: &mut super::protocol::Http3| {
            own.exchanges
                .get_mut(&id)?
                .trailers
                .take()
                .map(|(fields, _)| fields)
        };
        self.stream.link.look(take)
    }

    /// The whole body, which may have at most `limit` bytes.
    ///
    /// Not cancel safe: a dropped call loses what it had taken.
    ///
    /// # Errors
    /// When it is longer, otherwise as [`chunk`](Self::chunk).
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if chunk.len() > limit - all.len() {
                return Err(Error::TooLong(limit));
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }
}

impl Body for RecvBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if !self.over
            && let Some(chunk) = ready!(self.poll_chunk(cx)).transpose()
        {
            return Poll::Ready(Some(chunk.map(Frame::data)));
        }
        let trailers = self.take_trailers();
        Poll::Ready(trailers.map(|fields| Ok(Frame::trailers(fields))))
    }

    fn is_end_stream(&self) -> bool {
        let id = self.stream.id;
        // What is left of our own message goes while this is read.
        self.outgoing.is_none()
            && self.stream.link.look(|own| {
                own.exchanges.get(&id).is_none_or(|exchange| {
                    let is_whole = self.over || exchange.incoming == Some(Ok(()));
                    is_whole && exchange.trailers.is_none()
                })
            })
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            Some(left) if !self.over => SizeHint::with_exact(left),
            _ if self.over => SizeHint::with_exact(0),
            _ => SizeHint::new(),
        }
    }
}

impl Drop for RecvBody {
    fn drop(&mut self) {
        // What is left of our own body says for itself that it is given up.
        drop(self.outgoing.take());
        if !self.over {
            self.stream.stop_reading(self.unwanted);
        }
    }
}

impl fmt::Debug for RecvBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBody")
            .field("id", &self.stream.id)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

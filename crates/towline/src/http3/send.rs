//! [`SendBody`]: the body of our message.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use http_body::Body;
use towline_http3::{BodyError, ErrorCode};

use super::error::Error;
use super::exchange::{CANCELLED, wait};
use super::link::Stream;

/// The body of a message of ours, piece by piece.
///
/// Dropped before [`finish`](Self::finish) or [`trailers`](Self::trailers), it gives the message up with
/// H3_REQUEST_CANCELLED: a part must not look like the whole.
pub struct SendBody {
    stream: Arc<Stream>,
    /// Everything was said.
    over: bool,
}

impl SendBody {
    pub(super) fn new(stream: Arc<Stream>, over: bool) -> Self {
        Self { stream, over }
    }

    /// Writes all of `data` without copying it; waits while the peer takes no more.
    ///
    /// Not cancel safe: a dropped call may have written a part, and the message cannot go on then.
    ///
    /// # Errors
    /// When the peer wants no more, this half is over, or the connection is.
    pub async fn write(&mut self, mut data: Bytes) -> Result<(), Error> {
        while !data.is_empty() {
            poll_fn(|cx| self.poll_write(cx, &mut data)).await?;
        }
        Ok(())
    }

    /// As [`write`](Self::write), for callers that poll: what was taken is cut off the front of `data`.
    /// What is left then has to be written before anything else (RFC 9114 §7.2.1).
    ///
    /// # Errors
    /// The same.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<usize, Error>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let id = self.stream.id;
        let (written, _replaced) = self.stream.with(|own, turn| {
            let over = own.over();
            let Some(turn) = turn.filter(|_| own.end.is_none()) else {
                return (Poll::Ready(Err(over)), None);
            };
            let written = own.act(turn, |machine, streams| {
                machine.write_body(streams, id, data)
            });
            let Some(exchange) = own.exchanges.get_mut(&id) else {
                return (Poll::Ready(Err(over)), None);
            };
            let written = match written {
                Ok(written) => Ok(written),
                Err(BodyError::Reset(code)) => {
                    let error = exchange.outgoing.get_or_insert(Error::Stopped(code));
                    Err(error.clone())
                }
                Err(BodyError::Blocked) => {
                    return (Poll::Pending, wait(&mut exchange.writer, cx.waker()));
                }
                Err(BodyError::Closed) => Err(exchange.outgoing.clone().unwrap_or(Error::Closed)),
            };
            (Poll::Ready(written), None)
        });
        written
    }

    /// Ends the message after what was written. It is delivered without this handle, for as long as the
    /// connection is open.
    ///
    /// # Errors
    /// When this half is over, or the connection is.
    pub fn finish(mut self) -> Result<(), Error> {
        self.end(None)
    }

    /// Ends the message with fields after its body (RFC 9110 §6.5).
    ///
    /// # Errors
    /// When they cannot be sent, this half is over, or the connection is.
    pub fn trailers(mut self, fields: &HeaderMap) -> Result<(), Error> {
        self.end(Some(fields))
    }

    /// Gives the message up with `code` instead of H3_REQUEST_CANCELLED.
    pub fn reset(mut self, code: ErrorCode) {
        self.give_up(code);
    }

    fn give_up(&mut self, code: ErrorCode) {
        if !self.over {
            self.over = true;
            self.stream.cancel(code);
        }
    }

    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Error> {
        if self.over {
            return Ok(());
        }
        let id = self.stream.id;
        let ended = self.stream.with(|own, turn| {
            let Some(turn) = turn.filter(|_| own.end.is_none()) else {
                return Err(own.over());
            };
            let ended = own.act(turn, |machine, streams| match trailers {
                Some(fields) => machine.send_trailers(streams, id, fields),
                None => machine.finish(streams, id),
            });
            let stopped = own.exchanges.get(&id).and_then(|e| e.outgoing.clone());
            ended.map_err(|error| stopped.unwrap_or(Error::NotSent(error)))
        });
        self.over = ended.is_ok();
        ended
    }
}

impl Drop for SendBody {
    fn drop(&mut self) {
        self.give_up(CANCELLED);
    }
}

impl fmt::Debug for SendBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBody")
            .field("id", &self.stream.id)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

/// What an `http_body` gives next: bytes, fields, or the reason why it failed.
enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// A body of any type.
trait Source: Send {
    fn poll_piece(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, String>>>;
}

impl<B> Source for B
where
    B: Body + Send,
    B::Data: Buf,
    B::Error: fmt::Display,
{
    fn poll_piece(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, String>>> {
        let frame = ready!(self.poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| error.to_string())?;
            Ok(match frame.into_data() {
                // `Bytes` are not copied.
                Ok(mut data) => Piece::Data(data.copy_to_bytes(data.remaining())),
                Err(frame) => Piece::Trailers(frame.into_trailers().unwrap_or_default()),
            })
        }))
    }
}

/// A body that is being sent. Dropped before its end, it gives the message up.
pub(super) struct Outgoing {
    send: SendBody,
    /// The lock is never taken: it lets those that hold a body be looked at from several threads.
    source: Mutex<Pin<Box<dyn Source>>>,
    /// What the source gave last and was not taken yet.
    data: Bytes,
}

impl Outgoing {
    pub(super) fn new<B>(send: SendBody, body: B) -> Self
    where
        B: Body + Send + 'static,
        B::Data: Buf,
        B::Error: fmt::Display,
    {
        Self {
            send,
            source: Mutex::new(Box::pin(body)),
            data: Bytes::new(),
        }
    }

    /// Sends on. Ready when everything was said, or why it cannot be.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            while !self.data.is_empty() {
                ready!(self.send.poll_write(cx, &mut self.data))?;
            }
            let source = self
                .source
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            match ready!(source.as_mut().poll_piece(cx)) {
                Some(Ok(Piece::Data(data))) => self.data = data,
                Some(Ok(Piece::Trailers(fields))) => {
                    return Poll::Ready(self.send.end(Some(&fields)));
                }
                Some(Err(why)) => {
                    self.send.give_up(ErrorCode::H3_INTERNAL_ERROR);
                    return Poll::Ready(Err(Error::Body(why)));
                }
                None => return Poll::Ready(self.send.end(None)),
            }
        }
    }
}

/// Says how long the body will be, where that is known and not said.
pub(super) fn describe<B: Body>(headers: &mut HeaderMap, body: &B) {
    if let Some(len) = body.size_hint().exact().filter(|len| *len > 0) {
        let len = HeaderValue::from(len);
        headers.entry(CONTENT_LENGTH).or_insert(len);
    }
}

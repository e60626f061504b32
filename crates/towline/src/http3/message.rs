//! [`Request`] and [`Responder`]: what a server does with a client's request.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use http::Method;
use http_body::Body;
use towline_http3::{ErrorCode, SendError};
use towline_wire::StreamId;

use super::body::RecvBody;
use super::error::Error;
use super::exchange::{CANCELLED, Exchange, wait};
use super::link::Stream;
use super::send::{Outgoing, SendBody, describe};

/// A client's request. Dropped, it is given up with H3_REQUEST_CANCELLED.
#[derive(Debug)]
pub struct Request {
    head: http::request::Parts,
    body: RecvBody,
    responder: Responder,
}

impl Request {
    pub(super) fn new(stream: Arc<Stream>, head: http::request::Parts) -> Self {
        let is_head = head.method == Method::HEAD;
        // An answer may need no more of it (RFC 9114 §4.1).
        let mut body = RecvBody::new(Arc::clone(&stream), ErrorCode::H3_NO_ERROR);
        body.expect(&head.headers);
        Self {
            head,
            body,
            responder: Responder {
                stream,
                is_head,
                answered: false,
            },
        }
    }

    /// Its stream.
    pub fn id(&self) -> StreamId {
        self.responder.stream.id
    }

    /// Method, URI and fields.
    pub fn head(&self) -> &http::request::Parts {
        &self.head
    }

    /// Its body, as it arrives.
    pub fn body(&mut self) -> &mut RecvBody {
        &mut self.body
    }

    /// Tells when nobody waits for the answer any more.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.responder.stream))
    }

    /// The request, and what answers it.
    pub fn into_parts(self) -> (http::Request<RecvBody>, Responder) {
        let request = http::Request::from_parts(self.head, self.body);
        (request, self.responder)
    }
}

/// Whether anybody waits for the answer to a request, independent of who reads the request and writes the
/// answer.
pub struct Watch(Arc<Stream>);

impl Watch {
    /// Waits until the client wants no more of the answer, or the connection is over, and says why. An answer
    /// that was taken whole is none of that. Cancel safe.
    pub async fn gone(&self) -> Error {
        poll_fn(|cx| self.poll_gone(cx)).await
    }

    /// As [`gone`](Self::gone), for callers that poll. One task: a later one takes the place of an earlier.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<Error> {
        let id = self.0.id;
        let (gone, _replaced) = self.0.link.look(|own| {
            let over = own.over();
            let ended = own.end.is_some();
            match own.exchanges.get_mut(&id) {
                None => (Poll::Ready(over), None),
                Some(Exchange {
                    outgoing: Some(error),
                    ..
                }) => (Poll::Ready(error.clone()), None),
                Some(_) if ended => (Poll::Ready(over), None),
                Some(exchange) => (Poll::Pending, wait(&mut exchange.watcher, cx.waker())),
            }
        });
        gone
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.id).finish()
    }
}

/// Answers one request. Dropped without an answer, it gives the request up with H3_REQUEST_CANCELLED.
pub struct Responder {
    stream: Arc<Stream>,
    /// The request was HEAD: its answer has no body (RFC 9110 §9.3.2).
    is_head: bool,
    answered: bool,
}

impl Responder {
    /// The stream of the request.
    pub fn id(&self) -> StreamId {
        self.stream.id
    }

    /// Sends an interim answer (1xx); the final one follows.
    ///
    /// # Errors
    /// When its status is another, it cannot be sent, the client has given the request up, or the
    /// connection is over.
    pub fn interim(&mut self, head: http::Response<()>) -> Result<(), Error> {
        if !head.status().is_informational() {
            return Err(SendError::WrongState.into());
        }
        self.respond(head, false)
    }

    /// Sends the answer: its head, its body, and the fields after it. Waits while the client takes no more.
    ///
    /// A dropped call gives the answer up. Where its body fails, its stream is reset with
    /// H3_INTERNAL_ERROR.
    ///
    /// # Errors
    /// When it cannot be sent, its body fails, the client wants no more of it, or the connection is over.
    pub async fn send<B>(mut self, response: http::Response<B>) -> Result<(), Error>
    where
        B: Body + Send + 'static,
        B::Data: Buf,
        B::Error: fmt::Display,
    {
        let (head, body) = response.into_parts();
        let mut head = http::Response::from_parts(head, ());
        describe(head.headers_mut(), &body);
        let is_whole = self.is_head || body.is_end_stream();
        self.answer(head, is_whole)?;
        let stream = Arc::clone(&self.stream);
        if is_whole {
            return Ok(());
        }
        let mut outgoing = Outgoing::new(SendBody::new(stream, false), body);
        poll_fn(|cx| outgoing.poll(cx)).await
    }

    /// Sends the answer's head; the body follows piece by piece. The answer to HEAD has none.
    ///
    /// # Errors
    /// As [`interim`](Self::interim).
    pub fn start(mut self, head: http::Response<()>) -> Result<SendBody, Error> {
        let is_head = self.is_head;
        self.answer(head, is_head)?;
        Ok(SendBody::new(Arc::clone(&self.stream), is_head))
    }

    /// The final head.
    fn answer(&mut self, head: http::Response<()>, end: bool) -> Result<(), Error> {
        if head.status().is_informational() {
            return Err(SendError::WrongState.into());
        }
        self.respond(head, end)?;
        self.answered = true;
        Ok(())
    }

    fn respond(&self, head: http::Response<()>, end: bool) -> Result<(), Error> {
        let (head, ()) = head.into_parts();
        let id = self.stream.id;
        self.stream.with(|own, turn| {
            let Some(turn) = turn.filter(|_| own.end.is_none()) else {
                return Err(own.over());
            };
            let sent = own.act(turn, |machine, streams| {
                machine.respond(streams, id, &head, end)
            });
            let stopped = own.exchanges.get(&id).and_then(|e| e.outgoing.clone());
            sent.map_err(|error| stopped.unwrap_or(Error::NotSent(error)))
        })
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            self.stream.cancel(CANCELLED);
        }
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("id", &self.stream.id)
            .field("answered", &self.answered)
            .finish_non_exhaustive()
    }
}

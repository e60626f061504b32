//! [`Connection`]: requests of a client, and the client's requests at a server.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::{Method, StatusCode};
use towline_http3::{ErrorCode, SendError, Settings};
use towline_quic::ConnectionError;
use towline_wire::StreamId;

use super::body::RecvBody;
use super::error::Error;
use super::exchange::{CANCELLED, Exchange, wait};
use super::link::{Link, Stream};
use super::message::Request;
use super::send::{Outgoing, SendBody, describe};
use super::tunnel::Protocol;
use crate::handles;

/// HTTP/3 on one connection. Clones are the same connection, which is closed as
/// [its transport](handles::Connection) says.
#[derive(Clone)]
pub struct Connection {
    link: Link,
}

impl Connection {
    /// HTTP/3 on `transport`; `None` where it speaks something else, or its endpoint was made without
    /// [HTTP/3](handles::EndpointBuilder::http3).
    pub fn new(transport: handles::Connection) -> Option<Self> {
        Link::new(transport).map(|link| Self { link })
    }

    /// The QUIC connection below: statistics, addresses, its end.
    pub fn transport(&self) -> &handles::Connection {
        self.link.transport()
    }

    #[cfg(feature = "webtransport")]
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The peer's SETTINGS, once they came (RFC 9114 §7.2.4).
    pub fn peer_settings(&self) -> Option<Settings> {
        self.link.look(|own| own.machine.peer_settings().copied())
    }

    /// Client: sends a request and waits for the answer's head. The request's body is sent meanwhile, and
    /// what is left of it then while the answer's is read. Interim answers are passed over;
    /// [`start`](Self::start) shows them.
    ///
    /// A dropped call cancels the request. Where its body fails, its stream is reset with
    /// H3_INTERNAL_ERROR.
    ///
    /// # Errors
    /// When the request cannot be sent, its body fails, the server gives it up, or the connection is over.
    pub async fn request<B>(
        &self,
        request: http::Request<B>,
    ) -> Result<http::Response<RecvBody>, Error>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Buf,
        B::Error: fmt::Display,
    {
        let (head, body) = request.into_parts();
        let mut head = http::Request::from_parts(head, ());
        describe(head.headers_mut(), &body);
        let is_whole = body.is_end_stream();
        let (send, mut response) = self.begin(head, is_whole).await?;
        let outgoing = match is_whole {
            true => None,
            false => Some(Outgoing::new(send, body)),
        };
        response.outgoing = outgoing;
        response.await_final().await
    }

    /// Client: sends a request's head; its body goes by the one half of what this returns, and the answer
    /// comes by the other. A CONNECT has a [`Protocol`] in its extensions.
    ///
    /// Cancel safe: a dropped call sent nothing.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn start(&self, head: http::Request<()>) -> Result<(SendBody, Response), Error> {
        self.begin(head, false).await
    }

    async fn begin(
        &self,
        head: http::Request<()>,
        end: bool,
    ) -> Result<(SendBody, Response), Error> {
        let (head, ()) = head.into_parts();
        let is_head = head.method == Method::HEAD;
        let id = poll_fn(|cx| self.poll_begin(cx, &head, end)).await?;
        let stream = Arc::new(Stream::new(self.link.clone(), id));
        let response = Response {
            body: RecvBody::new(Arc::clone(&stream), CANCELLED),
            outgoing: None,
            is_head,
        };
        Ok((SendBody::new(stream, end), response))
    }

    fn poll_begin(
        &self,
        cx: &mut Context<'_>,
        head: &http::request::Parts,
        end: bool,
    ) -> Poll<Result<StreamId, Error>> {
        self.link.with(|own, turn| {
            let Some(turn) = turn.filter(|_| own.end.is_none()) else {
                return Poll::Ready(Err(own.over()));
            };
            let protocol = head.extensions.get().map(Protocol::as_bytes);
            match own.act(turn, |machine, streams| {
                machine.request(streams, head, protocol, end)
            }) {
                Ok(id) => {
                    own.exchanges.insert(id, Exchange::default());
                    Poll::Ready(Ok(id))
                }
                Err(SendError::NoStream | SendError::NotReady) => {
                    own.openers.wait(cx.waker());
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error.into())),
            }
        })
    }

    /// Server: the next request, in the order in which their heads arrived; `None` when the connection is
    /// over.
    ///
    /// Cancel safe: a dropped call took no request.
    pub async fn accept(&self) -> Option<Request> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept), for callers that poll.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<Request>> {
        let taken = self.link.look(|own| {
            if let Some(request) = own.take_request() {
                return Poll::Ready(Some(request));
            }
            if own.end.is_some() {
                return Poll::Ready(None);
            }
            own.acceptors.wait(cx.waker());
            Poll::Pending
        });
        let taken = ready!(taken);
        Poll::Ready(taken.map(|(id, head)| {
            let stream = Arc::new(Stream::new(self.link.clone(), id));
            Request::new(stream, *head)
        }))
    }

    /// Takes no requests beyond those that have begun, and tells the peer (RFC 9114 §5.2). Those go on.
    pub fn go_away(&self) {
        self.link.with(|own, turn| {
            if let Some(turn) = turn {
                own.act(turn, |machine, streams| machine.go_away(streams));
            }
        });
    }

    /// Closes the connection in peace, with H3_NO_ERROR (RFC 9114 §5.3). What was not delivered is lost.
    pub fn close(&self) {
        self.link.with(|own, turn| {
            if let Some(turn) = turn {
                own.act(turn, |machine, streams| {
                    machine.close(streams, ErrorCode::H3_NO_ERROR);
                });
            }
        });
    }

    /// Waits until the connection is over and says why. Cancel safe.
    pub async fn closed(&self) -> ConnectionError {
        self.link.transport().closed().await
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection")
            .field(&self.link.transport().stable_id())
            .finish()
    }
}

/// A request's answer on its way. Dropped, it cancels the request.
pub struct Response {
    body: RecvBody,
    /// What is still to be sent of the request.
    outgoing: Option<Outgoing>,
    /// The request was HEAD: its answer has no body (RFC 9110 §9.3.2).
    is_head: bool,
}

impl Response {
    /// The next head: interim answers (1xx), then the final one, after which the body can be
    /// [read](Self::into_body).
    ///
    /// Cancel safe: a dropped call took none.
    ///
    /// # Errors
    /// When the server gives the request up, or the connection is over.
    pub async fn head(&mut self) -> Result<http::Response<()>, Error> {
        poll_fn(|cx| self.poll_head(cx)).await
    }

    /// As [`head`](Self::head), for callers that poll.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<http::Response<()>, Error>> {
        if let Some(outgoing) = &mut self.outgoing
            && let Poll::Ready(sent) = outgoing.poll(cx)
        {
            self.outgoing = None;
            match sent {
                // The server's answer says why it wants no more.
                Ok(()) | Err(Error::Stopped(_)) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let stream = self.body.stream();
        let id = stream.id;
        let (head, _replaced) = stream.with(|own, _| {
            let over = own.over();
            let ended = own.end.is_some();
            let Some(exchange) = own.exchanges.get_mut(&id) else {
                return (Poll::Ready(Err(over)), None);
            };
            let head = match (exchange.heads.pop_front(), &exchange.incoming) {
                (Some((head, _)), _) => Ok(head),
                (None, Some(Err(error))) => Err(error.clone()),
                (None, Some(Ok(()))) => Err(Error::Closed),
                (None, None) if ended => Err(over),
                (None, None) => {
                    return (Poll::Pending, wait(&mut exchange.reader, cx.waker()));
                }
            };
            (Poll::Ready(head), None)
        });
        let head = ready!(head)?;
        if !self.is_head && head.status != StatusCode::NOT_MODIFIED {
            self.body.expect(&head.headers);
        }
        Poll::Ready(Ok(http::Response::from_parts(*head, ())))
    }

    /// The body of the answer.
    pub fn into_body(self) -> RecvBody {
        let mut body = self.body;
        body.send_meanwhile(self.outgoing);
        body
    }

    async fn await_final(mut self) -> Result<http::Response<RecvBody>, Error> {
        loop {
            let head = self.head().await?;
            if !head.status().is_informational() {
                return Ok(head.map(|()| self.into_body()));
            }
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("id", &self.body.stream().id)
            .finish_non_exhaustive()
    }
}

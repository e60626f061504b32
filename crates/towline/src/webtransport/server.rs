//! [`Server`] and [`Connection`]: where sessions come from, at both ends.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use towline_http3::SendError;
use towline_http3::webtransport::{self as machine, ConnectError as Refusal};
use towline_wire::StreamId;

use super::error::Error;
use super::request::SessionRequest;
use super::session::{Session, over};
use crate::handles::{self, Door, Endpoint, EndpointBuilder, Waiter};
use crate::http3;
use crate::http3::link::Link;
use crate::http3::sessions::{Answer, Asked, Wait};

/// What an end permits, and what it takes beside sessions.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Versions of WebTransport, and limits of sessions.
    pub sessions: machine::Config,
    /// HTTP/3 below.
    pub http: http3::Config,
    /// Leaves requests to [`http3::Connection::accept`], which somebody has to call; otherwise they get
    /// status 404.
    pub takes_requests: bool,
}

impl EndpointBuilder {
    /// Has the endpoint's connections speak HTTP/3 with WebTransport where both ends agree on
    /// [`http3::ALPN`]: those of clients are accepted by a
    /// [`Server`](crate::webtransport::Server), and no more by [`Endpoint::accept`]. In the place of
    /// [`http3`](Self::http3).
    pub fn webtransport(self, config: Config) -> Self {
        let mut http = config.http;
        http.webtransport = Some(config.sessions);
        self.speak_http3(http, !config.takes_requests)
    }
}

/// Where clients come in. Clones are the same; it keeps the endpoint as a clone of it does.
#[derive(Clone)]
pub struct Server {
    door: Door,
}

impl Server {
    /// `None` where the endpoint was made without [WebTransport](EndpointBuilder::webtransport).
    pub fn new(endpoint: &Endpoint) -> Option<Self> {
        let door = endpoint.door(http3::ALPN.as_bytes())?;
        Some(Self { door })
    }

    pub(super) fn door(&self) -> &Door {
        &self.door
    }

    /// The next client's connection, whose sessions are accepted there; `None` when the endpoint is closed.
    ///
    /// Cancel safe: a dropped call took no connection.
    pub async fn accept(&self) -> Option<Connection> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_accept(&mut waiter, cx)).await
    }

    /// As [`accept`](Self::accept), for callers that poll.
    pub fn poll_accept(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Connection>> {
        loop {
            match ready!(self.door.poll_accept(waiter, cx)) {
                None => return Poll::Ready(None),
                Some(transport) => {
                    if let Some(http) = http3::Connection::new(transport) {
                        return Poll::Ready(Some(Connection::new(http)));
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// A connection that carries sessions. Clones are the same connection.
#[derive(Clone, Debug)]
pub struct Connection {
    http: http3::Connection,
}

impl Connection {
    /// The sessions of a connection whose endpoint has [WebTransport](EndpointBuilder::webtransport).
    pub fn new(http: http3::Connection) -> Self {
        Self { http }
    }

    /// Requests beside the sessions, GOAWAY, and the orderly end.
    pub fn http(&self) -> &http3::Connection {
        &self.http
    }

    /// The QUIC connection below.
    pub fn transport(&self) -> &handles::Connection {
        self.http.transport()
    }

    /// Server: the client's next wish for a session; `None` when the connection is over.
    ///
    /// Cancel safe: a dropped call took none.
    pub async fn accept(&self) -> Option<SessionRequest> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept), for callers that poll.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<SessionRequest>> {
        poll_request(&self.http, cx)
    }

    /// Client: asks for a session. `head` has the URI (`https`) and further fields, for instance `origin`;
    /// `protocols` are those of the application, its favourite first.
    ///
    /// A dropped call gives the session up.
    ///
    /// # Errors
    /// When the server speaks no WebTransport of ours, refuses, or the connection is over.
    pub async fn open(
        &self,
        head: http::Request<()>,
        protocols: &[&str],
    ) -> Result<Session, Error> {
        let (head, ()) = head.into_parts();
        let id = poll_fn(|cx| self.poll_ask(cx, &head, protocols)).await?;
        let mut pending = Pending {
            link: Some(self.link()),
            id,
        };
        let answer = poll_fn(|cx| self.poll_answer(cx, id)).await?;
        pending.link = None;
        let Answer {
            headers,
            protocol,
            dialect,
            ..
        } = answer;
        let link = self.link().clone();
        Ok(Session::new(link, id, dialect, headers, protocol))
    }

    fn poll_ask(
        &self,
        cx: &mut Context<'_>,
        head: &http::request::Parts,
        protocols: &[&str],
    ) -> Poll<Result<StreamId, Error>> {
        self.link().with(|own, turn| {
            let Some(turn) = turn.filter(|_| own.end.is_none()) else {
                return Poll::Ready(Err(own.over().into()));
            };
            let asked = own.act(turn, |machine, streams| {
                machine.connect_session(streams, head, protocols)
            });
            match asked {
                Ok(id) => {
                    own.sessions.begin(id);
                    Poll::Ready(Ok(id))
                }
                Err(Refusal::Send(SendError::NotReady | SendError::NoStream)) => {
                    own.openers.wait(cx.waker());
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error.into())),
            }
        })
    }

    fn poll_answer(&self, cx: &mut Context<'_>, id: StreamId) -> Poll<Result<Answer, Error>> {
        self.link().with(|own, _| {
            // A session that was accepted and has ended since is a session.
            if let Some(answer) = own.sessions.take_answer(id) {
                return Poll::Ready(Ok(answer));
            }
            if let Some(error) = over(own, id) {
                return Poll::Ready(Err(error));
            }
            own.sessions.wait(id, Wait::Answer, cx.waker());
            Poll::Pending
        })
    }

    fn link(&self) -> &Link {
        self.http.link()
    }
}

/// The client's next wish for a session.
pub(super) fn poll_request(
    http: &http3::Connection,
    cx: &mut Context<'_>,
) -> Poll<Option<SessionRequest>> {
    let asked = ready!(poll_asked(http, cx));
    Poll::Ready(asked.map(|asked| SessionRequest::new(http.link().clone(), asked)))
}

/// The same, for who answers it without a handle.
pub(super) fn poll_asked(http: &http3::Connection, cx: &mut Context<'_>) -> Poll<Option<Asked>> {
    http.link().look(|own| {
        if let Some(asked) = own.sessions.take_asked() {
            return Poll::Ready(Some(asked));
        }
        if own.end.is_some() {
            return Poll::Ready(None);
        }
        own.sessions.acceptors.wait(cx.waker());
        Poll::Pending
    })
}

/// A session that was asked for and not had. Dropped with a link, it is given up.
struct Pending<'a> {
    link: Option<&'a Link>,
    id: StreamId,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(link) = self.link else { return };
        let id = self.id;
        link.with(|own, turn| {
            if let Some(turn) = turn {
                own.act(turn, |machine, streams| {
                    machine.close_session(streams, id, 0, "");
                });
                own.sessions.forget(id, turn.wake);
            }
        });
    }
}

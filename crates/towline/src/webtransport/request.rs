//! [`SessionRequest`]: a client's wish for a session.

use std::fmt;
use std::task::{Context, Poll};

use http::{HeaderMap, StatusCode};
use towline_http3::SendError;
use towline_http3::webtransport::Dialect;
use towline_wire::StreamId;

use super::error::Error;
use super::session::{Session, over};
use crate::handles::Connection;
use crate::http3::link::Link;
use crate::http3::sessions::{Asked, Wait};

/// A client asks for a session. Dropped, it is refused with status 404.
pub struct SessionRequest {
    link: Link,
    asked: Asked,
    answered: bool,
}

impl SessionRequest {
    pub(super) fn new(link: Link, asked: Asked) -> Self {
        Self {
            link,
            asked,
            answered: false,
        }
    }

    /// Its number: the stream of its CONNECT request.
    pub fn id(&self) -> StreamId {
        self.asked.session
    }

    /// The host, and perhaps the port, that the client asked.
    pub fn authority(&self) -> &str {
        let authority = self.asked.head.uri.authority();
        authority.map_or("", http::uri::Authority::as_str)
    }

    /// Path and query.
    pub fn path(&self) -> &str {
        let path = self.asked.head.uri.path_and_query();
        path.map_or("/", http::uri::PathAndQuery::as_str)
    }

    /// The page that asks, at a browser: a server that is not for every page looks at it.
    pub fn origin(&self) -> Option<&str> {
        self.headers().get("origin")?.to_str().ok()
    }

    /// The fields of the request.
    pub fn headers(&self) -> &HeaderMap {
        &self.asked.head.headers
    }

    /// The application protocols that the client offers, its favourite first.
    pub fn protocols(&self) -> &[String] {
        &self.asked.protocols
    }

    /// The version of WebTransport.
    pub fn dialect(&self) -> Dialect {
        self.asked.dialect
    }

    /// The QUIC connection that it came by.
    pub fn transport(&self) -> &Connection {
        self.link.transport()
    }

    /// Why nobody waits for the answer any more: the client gave its request up, or the connection is over.
    /// One task: a later one takes the place of an earlier.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<Error> {
        let id = self.id();
        self.link.look(|own| match over(own, id) {
            Some(error) => Poll::Ready(error),
            None => {
                own.sessions.wait(id, Wait::End, cx.waker());
                Poll::Pending
            }
        })
    }

    /// Gives the client its session, without an application protocol.
    ///
    /// # Errors
    /// When the client or the connection is gone.
    pub fn accept(self) -> Result<Session, Error> {
        self.accept_with(None, HeaderMap::new())
    }

    /// As [`accept`](Self::accept), with one of the application protocols and fields for the answer.
    ///
    /// # Errors
    /// The same, and when the fields or the protocol cannot be sent.
    pub fn accept_with(
        mut self,
        protocol: Option<&str>,
        headers: HeaderMap,
    ) -> Result<Session, Error> {
        let id = self.id();
        let (mut head, ()) = http::Response::new(()).into_parts();
        head.headers = headers;
        self.link.with(|own, turn| {
            let (None, Some(turn)) = (over(own, id), turn) else {
                let lost = own.over().into();
                return Err(over(own, id).unwrap_or(lost));
            };
            let sent = own.act(turn, |machine, streams| {
                machine.accept_session(streams, id, &head, protocol)
            });
            sent.map_err(|error| over(own, id).unwrap_or_else(|| not_sent(error)))
        })?;
        self.answered = true;
        Ok(Session::new(
            self.link.clone(),
            id,
            self.dialect(),
            head.headers,
            protocol.map(str::to_owned),
        ))
    }

    /// Refuses the session, with another status than 2xx.
    pub fn reject(mut self, status: StatusCode) {
        self.refuse(status);
    }

    fn refuse(&mut self, status: StatusCode) {
        let id = self.id();
        self.answered = true;
        tracing::info!(
            %status, path = self.path(), origin = ?self.origin(), "a session was refused"
        );
        self.link.with(|own, turn| {
            if let Some(turn) = turn {
                own.act(turn, |machine, streams| {
                    if machine.refuse_session(streams, id, status).is_err() {
                        machine.close_session(streams, id, 0, "");
                    }
                });
                own.sessions.forget(id, turn.wake);
            }
        });
    }
}

fn not_sent(error: SendError) -> Error {
    Error::Http3(crate::http3::Error::NotSent(error))
}

impl Drop for SessionRequest {
    fn drop(&mut self) {
        if !self.answered {
            self.refuse(StatusCode::NOT_FOUND);
        }
    }
}

impl fmt::Debug for SessionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRequest")
            .field("id", &self.id())
            .field("authority", &self.authority())
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

//! Sessions in a [`Router`], and the sessions of all connections of a server.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::StatusCode;

use super::request::SessionRequest;
use super::server::{Server, poll_asked, poll_request};
use super::session::Session;
use crate::http3::arrivals::Arrivals;
use crate::http3::link::Link;
use crate::http3::sessions::Asked;
use crate::http3::{self, Router, Task};

impl Router {
    /// Has `handler` serve the sessions for `path`, each of which is accepted.
    ///
    /// ```
    /// # use towline::http3::Router;
    /// # use towline::webtransport::Session;
    /// let router = Router::new().session("/echo", |session: Session| async move {
    ///     while let Ok((mut send, mut recv)) = session.accept_bi().await {
    ///         while let Ok(Some(chunk)) = recv.read_chunk(1 << 16).await {
    ///             if send.write_chunk(chunk).await.is_err() {
    ///                 break;
    ///             }
    ///         }
    ///         let _ = send.finish();
    ///     }
    /// });
    /// # drop(router);
    /// ```
    ///
    /// # Panics
    /// When `path` does not begin with a slash, or has a handler of sessions.
    #[must_use]
    pub fn session<H, F>(self, path: &str, handler: H) -> Self
    where
        H: Fn(Session) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.session_request(path, move |request| {
            let handler = Arc::clone(&handler);
            async move {
                match request.accept() {
                    Ok(session) => handler(session).await,
                    Err(error) => tracing::debug!("session not accepted: {error}"),
                }
            }
        })
    }

    /// As [`session`](Self::session), where `handler` looks at origin, fields and protocols, and accepts or
    /// rejects.
    ///
    /// # Panics
    /// As [`session`](Self::session).
    #[must_use]
    pub fn session_request<H, F>(mut self, path: &str, handler: H) -> Self
    where
        H: Fn(SessionRequest) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let begin = move |link, asked| -> Task {
            let (request, handler) = (SessionRequest::new(link, asked), Arc::clone(&handler));
            // Called in its own task: a panic is its own.
            Box::pin(async move { handler(request).await })
        };
        self.add_session(path, Box::new(begin));
        self
    }
}

/// What a client wants of a server that takes sessions and requests.
#[derive(Debug)]
pub enum Wish {
    /// A session.
    Session(SessionRequest),
    /// An answer.
    Request(Box<http3::Request>),
}

/// The same, before it has a handle.
enum Arrived {
    Request(Box<http3::Request>),
    Session(Link, Asked),
}

impl Server {
    /// The wishes for sessions of all clients, whatever connection they come by.
    pub fn sessions(&self) -> SessionRequests {
        SessionRequests(Arrivals::new(self.door().clone(), poll_request))
    }

    /// As [`sessions`](Self::sessions), and the requests beside them where the
    /// [configuration](super::Config::takes_requests) leaves those to the application. In the place of it: the
    /// connections of a server come to one of the two.
    pub fn wishes(&self) -> Wishes {
        Wishes(Arrivals::new(self.door().clone(), poll_wish))
    }

    /// Serves sessions, and requests where the [configuration](super::Config::takes_requests) leaves them to the
    /// application, of all clients until the endpoint is [closed](crate::Endpoint::close), each in a task of tokio's of
    /// its own. Those that have begun then go on. A session for which there is no path is refused
    /// with 404.
    ///
    /// # Panics
    /// When called outside of a tokio runtime.
    #[cfg(feature = "tokio")]
    pub async fn serve(&self, router: Router) {
        self.serve_with(router, |task| drop(tokio::spawn(task)))
            .await;
    }

    /// As [`serve`](Self::serve), where `spawn` has each task run. A client can have as many at a time as the
    /// transport's configuration permits it streams.
    pub async fn serve_with(&self, router: Router, spawn: impl FnMut(Task)) {
        let begin = |router: &Router, wish| match wish {
            Arrived::Request(request) => router.answer(*request),
            Arrived::Session(link, asked) => match router.find_session(asked.head.uri.path()) {
                Some(handler) => Some(handler(link, asked)),
                None => {
                    SessionRequest::new(link, asked).reject(StatusCode::NOT_FOUND);
                    None
                }
            },
        };
        let door = self.door().clone();
        router.serve(door, poll_arrived, begin, spawn).await;
    }
}

fn poll_arrived(connection: &http3::Connection, cx: &mut Context<'_>) -> Poll<Option<Arrived>> {
    match poll_asked(connection, cx) {
        Poll::Ready(Some(asked)) => {
            let link = connection.link().clone();
            Poll::Ready(Some(Arrived::Session(link, asked)))
        }
        _ => {
            let request = connection.poll_accept(cx);
            request.map(|request| request.map(|request| Arrived::Request(Box::new(request))))
        }
    }
}

fn poll_wish(connection: &http3::Connection, cx: &mut Context<'_>) -> Poll<Option<Wish>> {
    let arrived = poll_arrived(connection, cx);
    arrived.map(|arrived| {
        Some(match arrived? {
            Arrived::Request(request) => Wish::Request(request),
            Arrived::Session(link, asked) => Wish::Session(SessionRequest::new(link, asked)),
        })
    })
}

/// Wishes for sessions and requests of all connections of a server, as [`SessionRequests`] has them.
pub struct Wishes(Arrivals<Wish>);

impl Wishes {
    /// The next one; `None` when the endpoint is closed and all connections are over.
    ///
    /// Cancel safe: a dropped call took none.
    pub async fn accept(&mut self) -> Option<Wish> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept), for callers that poll.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<Wish>> {
        self.0.poll_next(cx)
    }
}

impl fmt::Debug for Wishes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wishes").finish_non_exhaustive()
    }
}

/// Wishes for sessions of all connections of a server, in the order in which they arrived but for clients that
/// have many at once: then those take turns. It keeps connections open for as long as their clients do.
pub struct SessionRequests(Arrivals<SessionRequest>);

impl SessionRequests {
    /// The next one; `None` when the endpoint is closed and all connections are over.
    ///
    /// Cancel safe: a dropped call took none.
    pub async fn accept(&mut self) -> Option<SessionRequest> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept), for callers that poll.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<SessionRequest>> {
        self.0.poll_next(cx)
    }
}

impl fmt::Debug for SessionRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRequests").finish_non_exhaustive()
    }
}

//! [`Router`]: which handler answers which path, and the loop that lets them.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use http::StatusCode;
use http_body::Body;

use super::arrivals::{Arrivals, Take};
use super::body::RecvBody;
use super::connection::Connection;
use super::link::Link;
use super::message::{Request, Responder};
use super::routes::Routes;
use super::send::SendBody;
use super::server::Server;
use super::sessions::Asked;
use crate::handles::Door;

/// The work of a handler on one request or session, to be run beside the others.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

type RequestHandler = Box<dyn Fn(http::Request<RecvBody>, Responder) -> Task + Send + Sync>;
#[cfg_attr(
    not(feature = "webtransport"),
    allow(dead_code, reason = "without the feature there are no sessions")
)]
pub(crate) type SessionHandler = Box<dyn Fn(Link, Asked) -> Task + Send + Sync>;

/// Handlers by path.
///
/// A path is matched as the client wrote it, without its query: nothing is decoded, and `.` and `..` mean
/// nothing. `/files/*` serves everything that begins with `/files/`; an exact path goes before it, and
/// so does a longer prefix. Every method comes to the handler. Where there is none, the answer
/// is 404.
///
/// ```
/// # use bytes::Bytes;
/// # use http::{Method, Request, Response, StatusCode};
/// # use http_body_util::Full;
/// # use towline::http3::{RecvBody, Router};
/// async fn hello(request: Request<RecvBody>) -> Response<Full<Bytes>> {
///     let words = format!("you asked for {}", request.uri().path());
///     Response::new(Full::new(words.into()))
/// }
///
/// let router = Router::new()
///     .route("/hello", hello)
///     // The body goes back as it comes; nothing of it is kept.
///     .route("/echo", |request: Request<RecvBody>| async { Response::new(request.into_body()) });
/// # drop(router);
/// ```
///
/// A [`Server`](Server::serve) serves it on all its connections. Where the answer's body fails, its
/// stream is reset with H3_INTERNAL_ERROR; where the handler panics, with H3_REQUEST_CANCELLED.
#[derive(Default)]
pub struct Router {
    requests: Routes<RequestHandler>,
    fallback: Option<RequestHandler>,
    #[cfg_attr(
        not(feature = "webtransport"),
        allow(dead_code, reason = "without the feature there are no sessions")
    )]
    sessions: Routes<SessionHandler>,
}

impl Router {
    /// One without any path.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `handler` answer the requests for `path`.
    ///
    /// # Panics
    /// When `path` does not begin with a slash, or has a handler.
    #[must_use]
    pub fn route<H, F, B>(mut self, path: &str, handler: H) -> Self
    where
        H: Fn(http::Request<RecvBody>) -> F + Send + Sync + 'static,
        F: Future<Output = http::Response<B>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Buf,
        B::Error: fmt::Display,
    {
        self.requests.add(path, answering(handler));
        self
    }

    /// Has `handler` answer the requests for which there is no path.
    #[must_use]
    pub fn fallback<H, F, B>(mut self, handler: H) -> Self
    where
        H: Fn(http::Request<RecvBody>) -> F + Send + Sync + 'static,
        F: Future<Output = http::Response<B>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Buf,
        B::Error: fmt::Display,
    {
        self.fallback = Some(answering(handler));
        self
    }

    #[cfg(feature = "webtransport")]
    pub(crate) fn add_session(&mut self, path: &str, handler: SessionHandler) {
        self.sessions.add(path, handler);
    }

    #[cfg(feature = "webtransport")]
    pub(crate) fn find_session(&self, path: &str) -> Option<&SessionHandler> {
        self.sessions.find(path)
    }

    /// The work on one request.
    pub(crate) fn answer(&self, request: Request) -> Option<Task> {
        let (request, responder) = request.into_parts();
        let handler = self.requests.find(request.uri().path());
        if let Some(handler) = handler.or(self.fallback.as_ref()) {
            return Some(handler(request, responder));
        }
        let mut answer = http::Response::new(());
        *answer.status_mut() = StatusCode::NOT_FOUND;
        if let Err(error) = responder.start(answer).and_then(SendBody::finish) {
            tracing::debug!("a refusal did not go through: {error}");
        }
        None
    }

    /// Hands what arrives to the work that `begin` makes of it, until the endpoint is closed.
    pub(crate) async fn serve<T>(
        self,
        door: Door,
        take: Take<T>,
        begin: impl Fn(&Self, T) -> Option<Task>,
        mut spawn: impl FnMut(Task),
    ) {
        let mut arrivals = Arrivals::new(door, take);
        while let Some(arrived) = poll_fn(|cx| arrivals.poll_next(cx)).await {
            if let Some(task) = begin(&self, arrived) {
                spawn(task);
            }
        }
    }
}

/// A handler of any type, which may answer with any body.
fn answering<H, F, B>(handler: H) -> RequestHandler
where
    H: Fn(http::Request<RecvBody>) -> F + Send + Sync + 'static,
    F: Future<Output = http::Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Buf,
    B::Error: fmt::Display,
{
    let handler = Arc::new(handler);
    Box::new(move |request, responder| -> Task {
        let handler = Arc::clone(&handler);
        // Called in its own task: a panic is its own.
        Box::pin(async move { send(responder, handler(request).await).await })
    })
}

async fn send<B>(responder: Responder, answer: http::Response<B>)
where
    B: Body + Send + 'static,
    B::Data: Buf,
    B::Error: fmt::Display,
{
    let id = responder.id();
    if let Err(error) = responder.send(answer).await {
        tracing::debug!(
            stream = id.as_u64(),
            "the answer did not go through: {error}"
        );
    }
}

impl Server {
    /// The requests of all clients, whatever connection they come by.
    pub fn requests(&self) -> Requests {
        Requests(Arrivals::new(self.door().clone(), take_request))
    }

    /// Answers the requests of all clients until the endpoint is [closed](crate::Endpoint::close), each in a task of
    /// tokio's of its own. Those that have begun then go on.
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
        let door = self.door().clone();
        router
            .serve(door, take_request, Router::answer, spawn)
            .await;
    }
}

fn take_request(connection: &Connection, cx: &mut Context<'_>) -> Poll<Option<Request>> {
    connection.poll_accept(cx)
}

/// Requests of all connections of a server, in the order in which they arrived but for clients that have
/// many at once: then those take turns. It keeps connections open for as long as their clients do.
pub struct Requests(Arrivals<Request>);

impl Requests {
    /// The next request; `None` when the endpoint is closed and all connections are over.
    ///
    /// Cancel safe: a dropped call took none.
    pub async fn accept(&mut self) -> Option<Request> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept), for callers that poll.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<Request>> {
        self.0.poll_next(cx)
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}

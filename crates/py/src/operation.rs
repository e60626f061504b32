//! [`Operation`]: what takes several steps, as a future that the loop polls when its token is called.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;
use towline::config::ClientConfig;
use towline::http3::{self, Response, SendBody};
use towline::webtransport::connect_over;
use towline::{Connection, Endpoint, Time};

use crate::carrier::Carrier;
use crate::errors::Failure;
use crate::exchange::{BodySender, HttpResponse};
use crate::hub::{Hub, lock};
use crate::session::Session;

type Attempt = Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send>>;

/// What an attempt may come to.
enum Outcome {
    /// What has streams, or carries requests.
    Carrier(Carrier),
    /// A request that has begun: its body, and its answer.
    Request(SendBody, Response),
}

/// An attempt to get a session, a connection, or a request under way. Dropped, it is given up.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct Operation {
    hub: Arc<Hub>,
    /// `None` once it is over.
    attempt: Mutex<Option<Attempt>>,
    /// When it wants to be polled if it is not called before, nanoseconds.
    next: Arc<AtomicU64>,
    /// Called when it is worth polling.
    #[pyo3(get)]
    token: u64,
    waker: Waker,
}

impl Operation {
    /// Connects to whichever of `addresses` answers first, and asks for a session.
    pub(crate) fn connect(
        hub: &Arc<Hub>,
        endpoint: Endpoint,
        addresses: Vec<SocketAddr>,
        head: http::Request<()>,
        protocols: Vec<String>,
        config: ClientConfig,
    ) -> Self {
        let next = Arc::new(AtomicU64::new(u64::MAX));
        let timer = Arc::clone(&next);
        let attempt = async move {
            let host = head.uri().host().unwrap_or_default();
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let transport = reach(endpoint, addresses, host, config, timer).await?;
            let protocols: Vec<&str> = protocols.iter().map(String::as_str).collect();
            let session = connect_over(transport, head, &protocols).await;
            let session = session.map_err(|error| Failure::of_connect(&error))?;
            Ok(Outcome::Carrier(session.into()))
        };
        Self::new(hub, next, Box::pin(attempt))
    }

    /// Connects to whichever of `addresses` answers first, for requests or for the application's own
    /// protocol.
    pub(crate) fn reach(
        hub: &Arc<Hub>,
        endpoint: Endpoint,
        addresses: Vec<SocketAddr>,
        host: String,
        config: ClientConfig,
        for_requests: bool,
    ) -> Self {
        let next = Arc::new(AtomicU64::new(u64::MAX));
        let timer = Arc::clone(&next);
        let attempt = async move {
            let transport = reach(endpoint, addresses, &host, config, timer).await?;
            if !for_requests {
                return Ok(Outcome::Carrier(transport.into()));
            }
            match http3::Connection::new(transport) {
                Some(http) => Ok(Outcome::Carrier(http.into())),
                None => Err(Failure::of_http_connect(&http3::ConnectError::NotHttp3)),
            }
        };
        Self::new(hub, next, Box::pin(attempt))
    }

    /// Begins a request.
    pub(crate) fn request(
        hub: &Arc<Hub>,
        http: http3::Connection,
        head: http::Request<()>,
    ) -> Self {
        let attempt = async move {
            let begun = http.start(head).await;
            let (body, response) = begun.map_err(|error| Failure::of_http(&error))?;
            Ok(Outcome::Request(body, response))
        };
        let next = Arc::new(AtomicU64::new(u64::MAX));
        Self::new(hub, next, Box::pin(attempt))
    }

    fn new(hub: &Arc<Hub>, next: Arc<AtomicU64>, attempt: Attempt) -> Self {
        let token = hub.tokens(1);
        Self {
            hub: Arc::clone(hub),
            attempt: Mutex::new(Some(attempt)),
            next,
            token,
            waker: hub.waker(token),
        }
    }
}

/// Connects to whichever of `addresses` answers first; `timer` says when to poll again.
async fn reach(
    endpoint: Endpoint,
    addresses: Vec<SocketAddr>,
    host: &str,
    config: ClientConfig,
    timer: Arc<AtomicU64>,
) -> Result<Connection, Failure> {
    let mut race = endpoint.race(addresses, host, &config);
    let transport = poll_fn(|cx| {
        let polled = race.poll(endpoint.now(), cx);
        let at = race.next_timeout().map_or(u64::MAX, Time::as_nanos);
        timer.store(at, Ordering::Relaxed);
        polled
    });
    let transport = transport.await;
    timer.store(u64::MAX, Ordering::Relaxed);
    transport.map_err(|error| Failure::of_transport(&error))
}

#[pymethods]
impl Operation {
    /// What it came to. `None`: the token will be called, or the time of `delay` is to pass.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let poll = || {
            self.hub.check()?;
            let mut attempt = lock(&self.attempt);
            let Some(future) = attempt.as_mut() else {
                let words = "the attempt was given up";
                return Err(Failure::NotConnected(words.to_owned()));
            };
            let mut cx = Context::from_waker(&self.waker);
            let Poll::Ready(result) = future.as_mut().poll(&mut cx) else {
                return Ok(None);
            };
            *attempt = None;
            result.map(Some)
        };
        let outcome = poll().map_err(|failure: Failure| failure.raise(py))?;
        Ok(match outcome {
            None => None,
            Some(Outcome::Carrier(carrier)) => {
                let session = Session::new(&self.hub, carrier, true);
                Some(session.into_pyobject(py)?.into_any())
            }
            Some(Outcome::Request(body, response)) => {
                let body = BodySender::new(&self.hub, body, false);
                let response = HttpResponse::new(&self.hub, response);
                Some((body, response).into_pyobject(py)?.into_any())
            }
        })
    }

    /// Seconds until it wants to be polled, if it does.
    fn delay(&self) -> Option<f64> {
        let next = self.next.load(Ordering::Relaxed);
        let next = (next != u64::MAX).then(|| Time::from_nanos(next));
        next.map(|at| at.saturating_duration_since(self.hub.now()).as_secs_f64())
    }

    /// Gives the attempt up.
    fn cancel(&self) {
        self.drop_now();
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.drop_now() {
            self.hub.ring();
        }
    }
}

impl Operation {
    /// True if there was something to drop.
    fn drop_now(&self) -> bool {
        self.hub.drop_handle(lock(&self.attempt).take())
    }
}

//! [`Operation`]: what takes several steps, as a future that the loop polls when its token is called.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;
use towline::config::ClientConfig;
use towline::webtransport::{self, ConnectError, connect_over};
use towline::{Endpoint, Time, http3};

use crate::errors::Failure;
use crate::hub::{Hub, lock};
use crate::session::Session;

type Attempt = Pin<Box<dyn Future<Output = Result<webtransport::Session, ConnectError>> + Send>>;

/// An attempt to get a session. Dropped, it is given up.
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
            let mut race = endpoint.race(addresses, host, &config);
            let transport = poll_fn(|cx| {
                let polled = race.poll(endpoint.now(), cx);
                let at = race.next_timeout().map_or(u64::MAX, Time::as_nanos);
                timer.store(at, Ordering::Relaxed);
                polled
            });
            let transport = transport.await.map_err(http3::ConnectError::from);
            timer.store(u64::MAX, Ordering::Relaxed);
            drop(race);
            let protocols: Vec<&str> = protocols.iter().map(String::as_str).collect();
            connect_over(transport?, head, &protocols).await
        };
        let token = hub.tokens(1);
        Self {
            hub: Arc::clone(hub),
            attempt: Mutex::new(Some(Box::pin(attempt))),
            next,
            token,
            waker: hub.waker(token),
        }
    }
}

#[pymethods]
impl Operation {
    /// The session. `None`: the token will be called, or the time of `delay` is to pass.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Session>> {
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
            match result {
                Ok(session) => Ok(Some(Session::new(&self.hub, session, true))),
                Err(error) => Err(Failure::of_connect(&error)),
            }
        };
        poll().map_err(|failure| failure.raise(py))
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

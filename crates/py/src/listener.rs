//! [`Listener`]: where clients ask a server for sessions.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, StatusCode};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use towline::webtransport::{self, SessionRequests};

use crate::errors::Failure;
use crate::hub::{Hub, lock};
use crate::session::{Session, fields};

/// Where clients ask a server for sessions.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct Listener {
    hub: Arc<Hub>,
    /// `None` once it was released.
    requests: Mutex<Option<SessionRequests>>,
    /// Called when somebody asks.
    #[pyo3(get)]
    token: u64,
    waker: Waker,
}

impl Listener {
    pub(crate) fn new(hub: &Arc<Hub>, requests: SessionRequests) -> Self {
        let token = hub.tokens(1);
        Self {
            hub: Arc::clone(hub),
            requests: Mutex::new(Some(requests)),
            token,
            waker: hub.waker(token),
        }
    }
}

#[pymethods]
impl Listener {
    /// The next wish for a session. `None`: the token will be called.
    fn accept(&self, py: Python<'_>) -> PyResult<Option<SessionRequest>> {
        self.hub.check().map_err(|failure| failure.raise(py))?;
        let mut cx = Context::from_waker(&self.waker);
        let polled = match lock(&self.requests).as_mut() {
            Some(requests) => requests.poll_accept(&mut cx),
            None => Poll::Ready(None),
        };
        match polled {
            Poll::Pending => Ok(None),
            Poll::Ready(None) => Err(PyStopAsyncIteration::new_err("the server is closed")),
            Poll::Ready(Some(request)) => Ok(Some(SessionRequest {
                hub: Arc::clone(&self.hub),
                request: Mutex::new(Some(request)),
            })),
        }
    }

    /// Lets the clients' connections go: those without a session are closed.
    fn release(&self) {
        self.drop_now();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.drop_now() {
            self.hub.ring();
        }
    }
}

impl Listener {
    /// True if there was something to drop.
    fn drop_now(&self) -> bool {
        self.hub.drop_handle(lock(&self.requests).take())
    }
}

/// A client's wish for a session. Dropped, it is refused.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct SessionRequest {
    hub: Arc<Hub>,
    /// `None` once it was answered.
    request: Mutex<Option<webtransport::SessionRequest>>,
}

impl SessionRequest {
    fn with<R>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&webtransport::SessionRequest) -> R,
    ) -> PyResult<R> {
        let look = || {
            self.hub.check()?;
            lock(&self.request).as_ref().map(f).ok_or_else(answered)
        };
        look().map_err(|failure| failure.raise(py))
    }

    fn take(&self, py: Python<'_>) -> PyResult<webtransport::SessionRequest> {
        let take = || {
            self.hub.check()?;
            lock(&self.request).take().ok_or_else(answered)
        };
        take().map_err(|failure| failure.raise(py))
    }
}

fn answered() -> Failure {
    Failure::Value("the request for a session was answered before".to_owned())
}

#[pymethods]
impl SessionRequest {
    /// Path and query.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |request| request.path().to_owned())
    }

    /// The host, and perhaps the port, that the client asked.
    #[getter]
    fn authority(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |request| request.authority().to_owned())
    }

    /// The page that asks, at a browser.
    #[getter]
    fn origin(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(py, |request| request.origin().map(str::to_owned))
    }

    /// Whether the client says what page asks, even if its words are no text.
    #[getter]
    fn has_origin(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |request| request.headers().contains_key("origin"))
    }

    /// Where the client is.
    #[getter]
    fn remote_address(&self, py: Python<'_>) -> PyResult<(String, u16)> {
        self.with(py, |request| {
            let address = request.transport().remote_addr();
            (address.ip().to_string(), address.port())
        })
    }

    /// The fields of the request.
    #[getter]
    fn headers(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        self.with(py, |request| fields(request.headers()))
    }

    /// The application protocols that the client offers, its favourite first.
    #[getter]
    fn protocols(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |request| request.protocols().to_vec())
    }

    /// Gives the client its session.
    #[pyo3(signature = (protocol=None))]
    fn accept(&self, py: Python<'_>, protocol: Option<&str>) -> PyResult<Session> {
        let request = self.take(py)?;
        match request.accept_with(protocol, HeaderMap::new()) {
            Ok(session) => Ok(Session::new(&self.hub, session, false)),
            Err(error) => Err(Failure::of_session(&error).raise(py)),
        }
    }

    /// Refuses the session.
    fn reject(&self, py: Python<'_>, status: u16) -> PyResult<()> {
        let Ok(status) = StatusCode::from_u16(status) else {
            return Err(Failure::value("status", "100 to 999").raise(py));
        };
        self.take(py)?.reject(status);
        Ok(())
    }
}

impl Drop for SessionRequest {
    fn drop(&mut self) {
        let request = lock(&self.request).take();
        if self.hub.drop_handle(request) {
            self.hub.ring();
        }
    }
}

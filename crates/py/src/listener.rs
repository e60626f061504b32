//! [`Listener`]: where clients ask a server for sessions, answers or connections.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, StatusCode};
use pyo3::exceptions::{PyBaseException, PyStopAsyncIteration};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use towline::handles::Waiter;
use towline::webtransport::{self, Wish, Wishes};
use towline::{Connection, Endpoint};

use crate::errors::Failure;
use crate::exchange::HttpRequest;
use crate::fields::{add_fields, fields, raw_fields};
use crate::hub::{Hub, lock};
use crate::session::Session;

/// Where clients ask a server for sessions, answers or connections.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct Listener {
    hub: Arc<Hub>,
    /// `None` once it was released.
    door: Mutex<Option<Door>>,
    /// Called when somebody asks.
    #[pyo3(get)]
    token: u64,
    waker: Waker,
}

/// Where they come in.
pub(crate) enum Door {
    /// Wishes for sessions, and requests.
    Http3(Box<Wishes>),
    /// Connections of the application's own protocol.
    Quic(Endpoint, Waiter),
}

impl Listener {
    pub(crate) fn new(hub: &Arc<Hub>, door: Door) -> Self {
        let token = hub.tokens(1);
        Self {
            hub: Arc::clone(hub),
            door: Mutex::new(Some(door)),
            token,
            waker: hub.waker(token),
        }
    }
}

#[pymethods]
impl Listener {
    /// The next wish for a session, request or connection. `None`: the token will be called.
    fn accept<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.hub.check().map_err(|failure| failure.raise(py))?;
        let mut cx = Context::from_waker(&self.waker);
        let hub = &self.hub;
        let closed = || PyStopAsyncIteration::new_err("the server is closed");
        let arrived = match lock(&self.door).as_mut() {
            None => return Err(closed()),
            Some(Door::Http3(wishes)) => wishes
                .poll_accept(&mut cx)
                .map(|wish| wish.map(Arrived::Wish)),
            Some(Door::Quic(endpoint, waiter)) => {
                let polled = endpoint.poll_accept(waiter, &mut cx);
                polled.map(|connection| connection.map(Arrived::Connection))
            }
        };
        let arrived = match arrived {
            Poll::Pending => return Ok(None),
            Poll::Ready(None) => return Err(closed()),
            Poll::Ready(Some(arrived)) => arrived,
        };
        Ok(Some(match arrived {
            Arrived::Wish(Wish::Session(request)) => {
                let token = hub.tokens(1);
                let request = SessionRequest {
                    hub: Arc::clone(hub),
                    request: Mutex::new(Some(request)),
                    token,
                    waker: hub.waker(token),
                };
                request.into_pyobject(py)?.into_any()
            }
            Arrived::Wish(Wish::Request(request)) => HttpRequest::new(hub, *request)
                .into_pyobject(py)?
                .into_any(),
            Arrived::Connection(connection) => Session::new(hub, connection, false)
                .into_pyobject(py)?
                .into_any(),
        }))
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
        self.hub.drop_handle(lock(&self.door).take())
    }
}

/// What came in.
enum Arrived {
    Wish(Wish),
    Connection(Connection),
}

/// A client's wish for a session. Dropped, it is refused.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct SessionRequest {
    hub: Arc<Hub>,
    /// `None` once it was answered.
    request: Mutex<Option<webtransport::SessionRequest>>,
    /// Called when the client gave its request up.
    #[pyo3(get)]
    token: u64,
    waker: Waker,
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
            (address.ip().to_canonical().to_string(), address.port())
        })
    }

    /// The fields of the request.
    #[getter]
    fn headers(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        self.with(py, |request| fields(request.headers()))
    }

    /// The same as bytes, as they came.
    #[getter]
    fn raw_headers<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        self.with(py, |request| raw_fields(py, request.headers()))
    }

    /// Why the client waits for no answer any more, as an exception; `None`: the token will be called.
    fn poll_gone(&self, py: Python<'_>) -> PyResult<Option<Py<PyBaseException>>> {
        let gone = self.with(py, |request| {
            match request.poll_gone(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(error) => Some(Failure::of_session(&error)),
                Poll::Pending => None,
            }
        })?;
        Ok(gone.map(|gone| gone.raise(py).into_value(py)))
    }

    /// The application protocols that the client offers, its favourite first.
    #[getter]
    fn protocols(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |request| request.protocols().to_vec())
    }

    /// Gives the client its session, with these fields in the answer.
    #[pyo3(signature = (protocol=None, headers=None))]
    fn accept(
        &self,
        py: Python<'_>,
        protocol: Option<&str>,
        headers: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    ) -> PyResult<Session> {
        let mut fields = HeaderMap::new();
        let added = add_fields(&mut fields, &headers.unwrap_or_default());
        added.map_err(|failure| failure.raise(py))?;
        let request = self.take(py)?;
        match request.accept_with(protocol, fields) {
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

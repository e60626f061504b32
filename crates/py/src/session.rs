//! [`Session`]: streams and datagrams with one peer.

use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use towline::engine::DatagramOptions;
use towline::handles::Waiter;
use towline::http3;
use towline::stats::{Value, Visit};
use towline::webtransport;

use crate::errors::Failure;
use crate::hub::{Hub, lock};
use crate::input::Input;
use crate::recv_stream::RecvStream;
use crate::send_stream::SendStream;

/// What can be waited for at a session: the token is the session's plus one of these.
#[derive(Clone, Copy)]
enum Wait {
    AcceptBi,
    AcceptUni,
    OpenBi,
    OpenUni,
    Datagram,
    DatagramRoom,
    Drain,
    End,
}

const WAITS: usize = 8;

/// A session.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct Session {
    hub: Arc<Hub>,
    /// `None` once it was released.
    session: Mutex<Option<webtransport::Session>>,
    /// The connection ends with the session: a client's.
    owns_connection: bool,
    /// Of the first kind of wait.
    #[pyo3(get)]
    token: u64,
    /// Made when they are first needed.
    wakers: [OnceLock<Waker>; WAITS],
    /// Whoever waits for room in the queue of datagrams.
    room: Mutex<Waiter>,
}

impl Session {
    /// `owns_connection`: nobody else uses the connection below.
    pub(crate) fn new(
        hub: &Arc<Hub>,
        session: webtransport::Session,
        owns_connection: bool,
    ) -> Self {
        Self {
            owns_connection,
            hub: Arc::clone(hub),
            session: Mutex::new(Some(session)),
            token: hub.tokens(WAITS as u64),
            wakers: [const { OnceLock::new() }; WAITS],
            room: Mutex::new(Waiter::new()),
        }
    }

    fn waker(&self, wait: Wait) -> &Waker {
        let place = wait as usize;
        self.wakers[place].get_or_init(|| self.hub.waker(self.token + place as u64))
    }

    fn with<R>(
        &self,
        f: impl FnOnce(&webtransport::Session) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.hub.check()?;
        match &*lock(&self.session) {
            Some(session) => f(session),
            None => Err(Failure::Closed {
                words: "this end closed the session".to_owned(),
                code: 0,
                reason: String::new(),
                by_peer: false,
            }),
        }
    }

    /// One try. `None`: the token is called when it is worth another.
    fn attempt<R>(
        &self,
        py: Python<'_>,
        wait: Wait,
        f: impl FnOnce(&webtransport::Session, &mut Context<'_>) -> Poll<Result<R, webtransport::Error>>,
    ) -> PyResult<Option<R>> {
        let attempted = self.with(|session| {
            let mut cx = Context::from_waker(self.waker(wait));
            match f(session, &mut cx) {
                Poll::Ready(Ok(result)) => Ok(Some(result)),
                Poll::Ready(Err(error)) => Err(Failure::of_session(&error)),
                Poll::Pending => Ok(None),
            }
        });
        attempted.map_err(|failure| failure.raise(py))
    }

    fn both(
        &self,
        (send, recv): (towline::SendStream, towline::RecvStream),
    ) -> (SendStream, RecvStream) {
        (
            SendStream::new(&self.hub, send),
            RecvStream::new(&self.hub, recv),
        )
    }
}

#[pymethods]
impl Session {
    #[classattr]
    const ACCEPT_BI: u64 = Wait::AcceptBi as u64;
    #[classattr]
    const ACCEPT_UNI: u64 = Wait::AcceptUni as u64;
    #[classattr]
    const OPEN_BI: u64 = Wait::OpenBi as u64;
    #[classattr]
    const OPEN_UNI: u64 = Wait::OpenUni as u64;
    #[classattr]
    const DATAGRAM: u64 = Wait::Datagram as u64;
    #[classattr]
    const DATAGRAM_ROOM: u64 = Wait::DatagramRoom as u64;
    #[classattr]
    const DRAIN: u64 = Wait::Drain as u64;
    #[classattr]
    const END: u64 = Wait::End as u64;

    /// The application protocol that the server chose.
    #[getter]
    fn protocol(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let protocol = self.with(|session| Ok(session.protocol().map(str::to_owned)));
        protocol.map_err(|failure| failure.raise(py))
    }

    /// The version of WebTransport.
    #[getter]
    fn dialect(&self, py: Python<'_>) -> PyResult<&'static str> {
        let dialect = self.with(|session| Ok(session.dialect().name()));
        dialect.map_err(|failure| failure.raise(py))
    }

    /// The fields of the server's answer.
    #[getter]
    fn headers(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let headers = self.with(|session| Ok(fields(session.headers())));
        headers.map_err(|failure| failure.raise(py))
    }

    /// Where the peer is.
    #[getter]
    fn remote_address(&self, py: Python<'_>) -> PyResult<(String, u16)> {
        let address = self.with(|session| Ok(session.transport().remote_addr()));
        let address = address.map_err(|failure| failure.raise(py))?;
        Ok((address.ip().to_string(), address.port()))
    }

    /// The peer's next bidirectional stream.
    fn accept_bi(&self, py: Python<'_>) -> PyResult<Option<(SendStream, RecvStream)>> {
        let poll = webtransport::Session::poll_accept_bi;
        let taken = self.attempt(py, Wait::AcceptBi, poll)?;
        Ok(taken.map(|halves| self.both(halves)))
    }

    /// The peer's next unidirectional stream.
    fn accept_uni(&self, py: Python<'_>) -> PyResult<Option<RecvStream>> {
        let poll = webtransport::Session::poll_accept_uni;
        let taken = self.attempt(py, Wait::AcceptUni, poll)?;
        Ok(taken.map(|recv| RecvStream::new(&self.hub, recv)))
    }

    /// A new bidirectional stream.
    fn open_bi(&self, py: Python<'_>) -> PyResult<Option<(SendStream, RecvStream)>> {
        let poll = webtransport::Session::poll_open_bi;
        let opened = self.attempt(py, Wait::OpenBi, poll)?;
        Ok(opened.map(|halves| self.both(halves)))
    }

    /// A new unidirectional stream.
    fn open_uni(&self, py: Python<'_>) -> PyResult<Option<SendStream>> {
        let poll = webtransport::Session::poll_open_uni;
        let opened = self.attempt(py, Wait::OpenUni, poll)?;
        Ok(opened.map(|send| SendStream::new(&self.hub, send)))
    }

    /// Queues a datagram; false where the queue is full.
    #[pyo3(signature = (data, max_age=None, send_order=0))]
    fn send_datagram(
        &self,
        data: &Bound<'_, PyAny>,
        max_age: Option<f64>,
        send_order: i64,
    ) -> PyResult<bool> {
        let py = data.py();
        let input = Input::of("data", data)?;
        let mut options = DatagramOptions::default().send_order(send_order);
        if let Some(seconds) = max_age {
            let age = Duration::try_from_secs_f64(seconds);
            let age = age.map_err(|error| Failure::value("max_age", error).raise(py))?;
            options = options.max_age(age);
        }
        let sent = self.with(|session| {
            let data = Bytes::copy_from_slice(input.as_slice());
            match session.send_datagram_with(data, &options) {
                Ok(()) => Ok(true),
                Err(error) => match Failure::of_datagram(error) {
                    Some(failure) => Err(failure),
                    None => Ok(false),
                },
            }
        });
        sent.map_err(|failure| failure.raise(py))
    }

    /// As `send_datagram`, but calls the token when there is room again.
    fn send_datagram_when_room(&self, data: &Bound<'_, PyAny>) -> PyResult<bool> {
        let input = Input::of("data", data)?;
        let sent = self.with(|session| {
            let mut data = Bytes::copy_from_slice(input.as_slice());
            let mut cx = Context::from_waker(self.waker(Wait::DatagramRoom));
            let mut room = lock(&self.room);
            match session.poll_send_datagram(&mut room, &mut cx, &mut data) {
                Poll::Pending => Ok(false),
                Poll::Ready(Ok(())) => Ok(true),
                Poll::Ready(Err(error)) => match Failure::of_datagram(error) {
                    Some(failure) => Err(failure),
                    None => Ok(false),
                },
            }
        });
        sent.map_err(|failure| failure.raise(data.py()))
    }

    /// The next datagram that arrived.
    fn receive_datagram<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let poll = webtransport::Session::poll_read_datagram;
        let taken = self.attempt(py, Wait::Datagram, poll)?;
        Ok(taken.map(|datagram| PyBytes::new(py, &datagram)))
    }

    /// The largest datagram that can be sent now.
    #[getter]
    fn max_datagram_size(&self, py: Python<'_>) -> PyResult<usize> {
        let size = self.with(|session| Ok(session.max_datagram_len().unwrap_or(0)));
        size.map_err(|failure| failure.raise(py))
    }

    /// Closes the session.
    fn close(&self, py: Python<'_>, code: u32, reason: &str) -> PyResult<()> {
        let closed = self.with(|session| {
            session.close(code, reason);
            Ok(())
        });
        closed.map_err(|failure| failure.raise(py))
    }

    /// Asks the peer to end the session soon.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let drained = self.with(|session| {
            session.drain();
            Ok(())
        });
        drained.map_err(|failure| failure.raise(py))
    }

    /// Whether the peer asked for the end; `None`: the token will be called.
    fn poll_draining(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        let poll = webtransport::Session::poll_draining;
        let drains = self.attempt(py, Wait::Drain, poll)?;
        Ok(drains.map(|()| true))
    }

    /// Why the session is over, as an exception; `None` while it lives: the token will be called.
    fn poll_closed(&self, py: Python<'_>) -> PyResult<Option<Py<PyBaseException>>> {
        let over = self.with(|session| {
            let mut cx = Context::from_waker(self.waker(Wait::End));
            match session.poll_closed(&mut cx) {
                Poll::Ready(error) => Ok(Some(Failure::of_session(&error))),
                Poll::Pending => Ok(None),
            }
        });
        match over {
            Ok(over) => Ok(over.map(|failure| failure.raise(py).into_value(py))),
            Err(Failure::Forked) => Err(Failure::Forked.raise(py)),
            Err(released) => Ok(Some(released.raise(py).into_value(py))),
        }
    }

    /// Why the session is over, as an exception; `None` while it lives.
    fn close_reason(&self, py: Python<'_>) -> PyResult<Option<Py<PyBaseException>>> {
        let over = self.with(|session| Ok(session.close_reason()));
        let over = over.map_err(|failure| failure.raise(py))?;
        Ok(over.map(|error| Failure::of_session(&error).raise(py).into_value(py)))
    }

    /// Every number of the session and of the connection below, those with the prefix `session_` being
    /// the session's own.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.with(|session| Ok(session.stats()));
        let stats = stats.map_err(|failure| failure.raise(py))?;
        let dict = PyDict::new(py);
        let mut numbers: Vec<(&str, Value)> = Vec::new();
        stats
            .transport
            .visit(&mut |field, value| numbers.push((field.name, value)));
        for (name, value) in numbers {
            match value {
                Value::Whole(whole) => dict.set_item(name, whole)?,
                Value::Real(real) => dict.set_item(name, real)?,
                Value::Flag(flag) => dict.set_item(name, flag)?,
                Value::Absent => dict.set_item(name, py.None())?,
            }
        }
        dict.set_item("session_datagrams_received", stats.datagrams_received)?;
        dict.set_item("session_datagrams_dropped", stats.datagrams_dropped)?;
        dict.set_item("session_streams_opened", stats.streams_opened)?;
        dict.set_item("session_streams_accepted", stats.streams_accepted)?;
        Ok(dict)
    }

    /// Bytes that the peer has not acknowledged, one more if others wait to be sent, and how long an
    /// acknowledgement can take, seconds.
    fn in_flight(&self, py: Python<'_>) -> PyResult<(u64, f64)> {
        let found = self.with(|session| {
            let transport = session.transport();
            Ok((transport.stats(), transport.has_unsent()))
        });
        let (stats, unsent) = found.map_err(|failure| failure.raise(py))?;
        let bytes = stats.bytes_in_flight + u64::from(unsent);
        Ok((bytes, stats.pto.as_secs_f64()))
    }

    /// Lets the session go: one that is open is closed.
    fn release(&self) {
        self.drop_now();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.drop_now() {
            self.hub.ring();
        }
    }
}

impl Session {
    /// True if there was something to drop.
    fn drop_now(&self) -> bool {
        let room = std::mem::take(&mut *lock(&self.room));
        let session = lock(&self.session).take();
        if let Some(session) = &session
            && self.owns_connection
            && !self.hub.is_forked()
            && let Some(http) = http3::Connection::new(session.transport().clone())
        {
            // Without it the last handle would close the connection as if something had gone wrong.
            http.close();
        }
        self.hub.drop_handle(session.map(|session| (room, session)))
    }
}

/// Fields as text; bytes that are no text are replaced.
pub(crate) fn fields(headers: &http::HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let fields = headers.iter();
    fields
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}

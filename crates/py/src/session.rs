//! [`Session`]: streams and datagrams with one peer, in a session or on a connection of its own.

use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use towline::engine::DatagramOptions;
use towline::http3;
use towline::stats::{Value, Visit};

use crate::carrier::{Carrier, WAITS, Wait};
use crate::errors::{Codes, Failure};
use crate::fields::fields;
use crate::hub::{Hub, lock};
use crate::input::Input;
use crate::recv_stream::RecvStream;
use crate::send_stream::SendStream;

/// A session, or a connection. The token is that of the first kind of wait; that of another is the token plus
/// its number.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct Session {
    hub: Arc<Hub>,
    /// `None` once it was released.
    carrier: Mutex<Option<Carrier>>,
    /// The connection ends with the session: a client's.
    owns_connection: bool,
    #[pyo3(get)]
    token: u64,
    /// Made when they are first needed.
    wakers: [OnceLock<Waker>; WAITS],
}

impl Session {
    /// `owns_connection`: nobody else uses the connection below.
    pub(crate) fn new(hub: &Arc<Hub>, carrier: impl Into<Carrier>, owns_connection: bool) -> Self {
        Self {
            owns_connection,
            hub: Arc::clone(hub),
            carrier: Mutex::new(Some(carrier.into())),
            token: hub.tokens(WAITS as u64),
            wakers: [const { OnceLock::new() }; WAITS],
        }
    }

    fn waker(&self, wait: Wait) -> &Waker {
        let place = wait as usize;
        self.wakers[place].get_or_init(|| self.hub.waker(self.token + place as u64))
    }

    fn with<R>(&self, f: impl FnOnce(&Carrier) -> Result<R, Failure>) -> Result<R, Failure> {
        self.hub.check()?;
        match &*lock(&self.carrier) {
            Some(carrier) => f(carrier),
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
        f: impl FnOnce(&Carrier, &mut Context<'_>) -> Poll<Result<R, Failure>>,
    ) -> PyResult<Option<R>> {
        let attempted = self.with(|carrier| {
            let mut cx = Context::from_waker(self.waker(wait));
            match f(carrier, &mut cx) {
                Poll::Ready(result) => result.map(Some),
                Poll::Pending => Ok(None),
            }
        });
        attempted.map_err(|failure| failure.raise(py))
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

    /// The application protocol that the server chose; that of a connection is its ALPN.
    #[getter]
    fn protocol(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let protocol = self.with(|carrier| {
            Ok(match carrier {
                Carrier::Session(session, _) => session.protocol().map(str::to_owned),
                Carrier::Quic(_) | Carrier::Http(..) => {
                    let alpn = carrier.transport().alpn();
                    alpn.map(|alpn| String::from_utf8_lossy(&alpn).into_owned())
                }
            })
        });
        protocol.map_err(|failure| failure.raise(py))
    }

    /// The version of WebTransport, or what else it is.
    #[getter]
    fn dialect(&self, py: Python<'_>) -> PyResult<&'static str> {
        let dialect = self.with(|carrier| {
            Ok(match carrier {
                Carrier::Session(session, _) => session.dialect().name(),
                Carrier::Quic(_) => "quic",
                Carrier::Http(..) => "h3",
            })
        });
        dialect.map_err(|failure| failure.raise(py))
    }

    /// The fields of the answer to a session's request.
    #[getter]
    fn headers(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let headers = self.with(|carrier| {
            Ok(match carrier {
                Carrier::Session(session, _) => fields(session.headers()),
                Carrier::Quic(_) | Carrier::Http(..) => Vec::new(),
            })
        });
        headers.map_err(|failure| failure.raise(py))
    }

    /// Where the peer is.
    #[getter]
    fn remote_address(&self, py: Python<'_>) -> PyResult<(String, u16)> {
        let address = self.with(|carrier| Ok(carrier.transport().remote_addr()));
        let address = address.map_err(|failure| failure.raise(py))?;
        Ok((address.ip().to_canonical().to_string(), address.port()))
    }

    /// The address of ours that the peer sends to, where the socket tells it.
    #[getter]
    fn local_ip(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let ip = self.with(|carrier| Ok(carrier.transport().local_ip()));
        let ip = ip.map_err(|failure| failure.raise(py))?;
        Ok(ip.map(|ip| ip.to_canonical().to_string()))
    }

    /// The host name that a client asked for by TLS, at a server.
    #[getter]
    fn server_name(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let name = self.with(|carrier| Ok(carrier.transport().server_name()));
        name.map_err(|failure| failure.raise(py))
    }

    /// The peer's next bidirectional stream.
    fn accept_bi(&self, py: Python<'_>) -> PyResult<Option<(SendStream, RecvStream)>> {
        self.attempt(py, Wait::AcceptBi, |carrier, cx| {
            let halves = ready!(carrier.poll_accept_bi(cx))?;
            Poll::Ready(Ok(self.both(carrier.codes(), halves)))
        })
    }

    /// The peer's next unidirectional stream.
    fn accept_uni(&self, py: Python<'_>) -> PyResult<Option<RecvStream>> {
        self.attempt(py, Wait::AcceptUni, |carrier, cx| {
            let recv = ready!(carrier.poll_accept_uni(cx))?;
            Poll::Ready(Ok(RecvStream::of_stream(&self.hub, recv, carrier.codes())))
        })
    }

    /// A new bidirectional stream.
    fn open_bi(&self, py: Python<'_>) -> PyResult<Option<(SendStream, RecvStream)>> {
        self.attempt(py, Wait::OpenBi, |carrier, cx| {
            let halves = ready!(carrier.poll_open_bi(cx))?;
            Poll::Ready(Ok(self.both(carrier.codes(), halves)))
        })
    }

    /// A new unidirectional stream.
    fn open_uni(&self, py: Python<'_>) -> PyResult<Option<SendStream>> {
        self.attempt(py, Wait::OpenUni, |carrier, cx| {
            let send = ready!(carrier.poll_open_uni(cx))?;
            Poll::Ready(Ok(SendStream::new(&self.hub, send, carrier.codes())))
        })
    }

    /// Queues a datagram; false where the queue is full.
    #[pyo3(signature = (data, max_age=None, send_order=0, send_group=0))]
    fn send_datagram(
        &self,
        data: &Bound<'_, PyAny>,
        max_age: Option<f64>,
        send_order: i64,
        send_group: u32,
    ) -> PyResult<bool> {
        let py = data.py();
        let input = Input::of("data", data)?;
        // Those of each group wait in a line of their own.
        let mut options = DatagramOptions::default()
            .sender(send_group)
            .send_group(send_group)
            .send_order(send_order);
        if let Some(seconds) = max_age {
            let age = Duration::try_from_secs_f64(seconds);
            let age = age.map_err(|error| Failure::value("max_age", error).raise(py))?;
            options = options.max_age(age);
        }
        let sent = self.with(|carrier| {
            carrier.send_datagram(Bytes::copy_from_slice(input.as_slice()), &options)
        });
        sent.map_err(|failure| failure.raise(py))
    }

    /// As `send_datagram`, but calls the token when there is room again.
    fn send_datagram_when_room(&self, data: &Bound<'_, PyAny>) -> PyResult<bool> {
        let input = Input::of("data", data)?;
        let sent = self.with(|carrier| {
            let data = Bytes::copy_from_slice(input.as_slice());
            let mut cx = Context::from_waker(self.waker(Wait::DatagramRoom));
            carrier.send_datagram_when_room(&mut cx, data)
        });
        sent.map_err(|failure| failure.raise(data.py()))
    }

    /// The next datagram that arrived.
    fn receive_datagram<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let taken = self.attempt(py, Wait::Datagram, Carrier::poll_read_datagram)?;
        Ok(taken.map(|datagram| PyBytes::new(py, &datagram)))
    }

    /// The largest datagram that can be sent now.
    #[getter]
    fn max_datagram_size(&self, py: Python<'_>) -> PyResult<usize> {
        let size = self.with(|carrier| Ok(carrier.max_datagram_len()));
        size.map_err(|failure| failure.raise(py))
    }

    /// Closes it.
    fn close(&self, py: Python<'_>, code: u64, reason: &str) -> PyResult<()> {
        let closed = self.with(|carrier| {
            carrier.close(code, reason);
            Ok(())
        });
        closed.map_err(|failure| failure.raise(py))
    }

    /// Asks the peer to end the session soon.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let drained = self.with(|carrier| {
            carrier.drain();
            Ok(())
        });
        drained.map_err(|failure| failure.raise(py))
    }

    /// Whether the peer asked for the end; `None`: the token will be called.
    fn poll_draining(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        let drains = self.attempt(py, Wait::Drain, Carrier::poll_draining)?;
        Ok(drains.map(|()| true))
    }

    /// Why the session is over, as an exception; `None` while it lives: the token will be called.
    fn poll_closed(&self, py: Python<'_>) -> PyResult<Option<Py<PyBaseException>>> {
        let over = self.with(|carrier| {
            let mut cx = Context::from_waker(self.waker(Wait::End));
            match carrier.poll_closed(&mut cx) {
                Poll::Ready(over) => Ok(Some(over)),
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
        let over = self.with(|carrier| Ok(carrier.close_reason()));
        let over = over.map_err(|failure| failure.raise(py))?;
        Ok(over.map(|over| over.raise(py).into_value(py)))
    }

    /// Keying material that both ends of the session have and nobody else.
    fn export_keying_material<'py>(
        &self,
        py: Python<'py>,
        label: &[u8],
        context: &[u8],
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, length, |out| {
            let exported = self.with(|carrier| carrier.export_keying_material(out, label, context));
            exported.map_err(|failure| failure.raise(py))
        })
    }

    /// Every number of the session and of the connection below, those with the prefix `session_` being
    /// the session's own.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.with(|carrier| {
            Ok(match carrier {
                Carrier::Session(session, _) => {
                    let stats = session.stats();
                    (stats.transport.clone(), Some(stats))
                }
                Carrier::Quic(_) | Carrier::Http(..) => (carrier.transport().stats(), None),
            })
        });
        let (transport, session) = stats.map_err(|failure| failure.raise(py))?;
        let dict = PyDict::new(py);
        let mut numbers: Vec<(&str, Value)> = Vec::new();
        transport.visit(&mut |field, value| numbers.push((field.name, value)));
        for (name, value) in numbers {
            match value {
                Value::Whole(whole) => dict.set_item(name, whole)?,
                Value::Real(real) => dict.set_item(name, real)?,
                Value::Flag(flag) => dict.set_item(name, flag)?,
                Value::Absent => dict.set_item(name, py.None())?,
            }
        }
        if let Some(stats) = session {
            dict.set_item("session_datagrams_received", stats.datagrams_received)?;
            dict.set_item("session_datagrams_dropped", stats.datagrams_dropped)?;
            dict.set_item("session_streams_opened", stats.streams_opened)?;
            dict.set_item("session_streams_accepted", stats.streams_accepted)?;
        }
        Ok(dict)
    }

    /// Bytes that the peer has not acknowledged, sent or not, and how long that can take, seconds.
    fn in_flight(&self, py: Python<'_>) -> PyResult<(u64, f64)> {
        let numbers = self.with(|carrier| {
            let (transport, stats) = (carrier.transport(), carrier.transport().stats());
            // What waits for the pacer is not in flight, and is not delivered either.
            let left = stats.bytes_in_flight.max(transport.unacknowledged());
            Ok((left, stats.pto.as_secs_f64()))
        });
        numbers.map_err(|failure| failure.raise(py))
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
    /// The connection, where it is one of HTTP/3.
    pub(crate) fn http(&self) -> Result<http3::Connection, Failure> {
        self.with(|carrier| match carrier {
            Carrier::Http(http, _) => Ok(http.clone()),
            Carrier::Session(..) | Carrier::Quic(_) => {
                let words = "requests are for connections of HTTP/3";
                Err(Failure::Value(words.to_owned()))
            }
        })
    }

    /// True if there was something to drop.
    fn drop_now(&self) -> bool {
        let carrier = lock(&self.carrier).take();
        if let Some(carrier) = &carrier
            && self.owns_connection
            && !self.hub.is_forked()
            && let Some(http) = http3::Connection::new(carrier.transport().clone())
        {
            // Without it the last handle would close the connection as if something had gone wrong.
            http.close();
        }
        self.hub.drop_handle(carrier)
    }

    fn both(
        &self,
        codes: Codes,
        (send, recv): (towline::SendStream, towline::RecvStream),
    ) -> (SendStream, RecvStream) {
        (
            SendStream::new(&self.hub, send, codes),
            RecvStream::of_stream(&self.hub, recv, codes),
        )
    }
}

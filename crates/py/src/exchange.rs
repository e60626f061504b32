//! Messages of HTTP/3: [`HttpRequest`] at a server, [`HttpResponse`] at a client, and [`BodySender`], by which
//! either sends its own.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use towline::http3::{self, ErrorCode, RecvBody, Responder, Response, SendBody, Watch};

use crate::errors::Failure;
use crate::fields::{add_fields, fields, raw_fields};
use crate::hub::{Hub, lock};
use crate::input::Input;
use crate::recv_stream::RecvStream;
use crate::session::Session;

/// The body of a message of ours. Dropped before its end, it gives the message up.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct BodySender {
    hub: Arc<Hub>,
    sending: Mutex<Sending>,
    /// The message has no body, whatever is written: it answers HEAD.
    discards: bool,
    /// Called when there is room for more.
    #[pyo3(get)]
    token: u64,
    waker: Waker,
}

struct Sending {
    /// `None` once it was ended or released.
    body: Option<SendBody>,
    /// What was taken and has not left: it goes before anything else.
    left: Bytes,
}

impl Sending {
    /// Whether everything that was taken has left.
    fn flush(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        while !self.left.is_empty() {
            let body = self.body.as_mut().ok_or_else(over)?;
            match body.poll_write(cx, &mut self.left) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    self.left = Bytes::new();
                    return Err(Failure::of_http(&error));
                }
                Poll::Pending => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn over() -> Failure {
    Failure::StreamOver("the message was ended or given up by this end".to_owned())
}

impl BodySender {
    pub(crate) fn new(hub: &Arc<Hub>, body: SendBody, discards: bool) -> Self {
        let token = hub.tokens(1);
        Self {
            hub: Arc::clone(hub),
            sending: Mutex::new(Sending {
                body: Some(body),
                left: Bytes::new(),
            }),
            discards,
            token,
            waker: hub.waker(token),
        }
    }

    fn with<R>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Sending, &mut Context<'_>) -> Result<R, Failure>,
    ) -> PyResult<R> {
        let result = self.hub.check().and_then(|()| {
            let mut cx = Context::from_waker(&self.waker);
            f(&mut lock(&self.sending), &mut cx)
        });
        result.map_err(|failure| failure.raise(py))
    }
}

#[pymethods]
impl BodySender {
    /// Takes all of `data`, and says whether it has left; else `flush` sends on once the token is called.
    /// `None` where it took nothing: what was taken before has to leave first.
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let input = Input::of("data", data)?;
        self.with(data.py(), |sending, cx| {
            if sending.body.is_none() {
                return Err(over());
            }
            if self.discards {
                return Ok(Some(true));
            }
            if !sending.flush(cx)? {
                return Ok(None);
            }
            sending.left = Bytes::copy_from_slice(input.as_slice());
            sending.flush(cx).map(Some)
        })
    }

    /// Whether everything that was taken has left; else the token will be called.
    fn flush(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, Sending::flush)
    }

    /// Ends the message, whose body has left, with fields after it.
    #[pyo3(signature = (trailers=None))]
    fn finish(&self, py: Python<'_>, trailers: Option<Vec<(Vec<u8>, Vec<u8>)>>) -> PyResult<()> {
        self.with(py, |sending, cx| {
            let mut fields = HeaderMap::new();
            add_fields(&mut fields, trailers.as_deref().unwrap_or_default())?;
            if sending.body.is_some() && !sending.flush(cx)? {
                let words = "a part of the body has not left: flush it before the end";
                return Err(Failure::Value(words.to_owned()));
            }
            let body = sending.body.take().ok_or_else(over)?;
            let ended = match fields.is_empty() || self.discards {
                true => body.finish(),
                false => body.trailers(&fields),
            };
            ended.map_err(|error| Failure::of_http(&error))
        })
    }

    /// Gives the message up, with a code of HTTP/3.
    fn reset(&self, py: Python<'_>, code: u64) -> PyResult<()> {
        self.with(py, |sending, _| {
            sending.left = Bytes::new();
            if let Some(body) = sending.body.take() {
                body.reset(ErrorCode::from_u64(code));
            }
            Ok(())
        })
    }

    /// Whether it was ended or given up.
    #[getter]
    fn is_over(&self) -> bool {
        lock(&self.sending).body.is_none()
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        let body = lock(&self.sending).body.take();
        if self.hub.drop_handle(body) {
            self.hub.ring();
        }
    }
}

/// A request's answer on its way. Dropped, it cancels the request.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct HttpResponse {
    hub: Arc<Hub>,
    /// `None` once its body was taken.
    response: Mutex<Option<Response>>,
    /// Called when a head may have come.
    #[pyo3(get)]
    token: u64,
    waker: Waker,
}

impl HttpResponse {
    pub(crate) fn new(hub: &Arc<Hub>, response: Response) -> Self {
        let token = hub.tokens(1);
        Self {
            hub: Arc::clone(hub),
            response: Mutex::new(Some(response)),
            token,
            waker: hub.waker(token),
        }
    }
}

#[pymethods]
impl HttpResponse {
    /// The next head: status and fields. `None`: the token will be called.
    #[expect(clippy::type_complexity, reason = "it is Python's type")]
    fn poll_head(&self, py: Python<'_>) -> PyResult<Option<(u16, Vec<(String, String)>)>> {
        let poll = || {
            self.hub.check()?;
            let mut response = lock(&self.response);
            let response = response.as_mut().ok_or_else(over)?;
            match response.poll_head(&mut Context::from_waker(&self.waker)) {
                Poll::Pending => Ok(None),
                Poll::Ready(Ok(head)) => Ok(Some((head.status().as_u16(), fields(head.headers())))),
                Poll::Ready(Err(error)) => Err(Failure::of_http(&error)),
            }
        };
        poll().map_err(|failure| failure.raise(py))
    }

    /// The body, once the final head has come.
    fn body(&self, py: Python<'_>) -> PyResult<RecvStream> {
        let take = || {
            self.hub.check()?;
            let response = lock(&self.response).take().ok_or_else(over)?;
            Ok(RecvStream::of_body(&self.hub, response.into_body()))
        };
        take().map_err(|failure: Failure| failure.raise(py))
    }

    /// Cancels the request, if its body was not taken.
    fn release(&self) {
        self.drop_now();
    }
}

impl Drop for HttpResponse {
    fn drop(&mut self) {
        if self.drop_now() {
            self.hub.ring();
        }
    }
}

impl HttpResponse {
    /// True if there was something to drop.
    fn drop_now(&self) -> bool {
        let response = lock(&self.response).take();
        self.hub.drop_handle(response)
    }
}

/// A client's request. Dropped without an answer, it is given up.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct HttpRequest {
    hub: Arc<Hub>,
    method: http::Method,
    uri: Uri,
    headers: HeaderMap,
    connection: towline::Connection,
    parts: Mutex<Parts>,
    /// Called when nobody waits for the answer any more.
    #[pyo3(get)]
    token: u64,
    waker: Waker,
}

/// What is taken once; and the watch, which goes with the request.
struct Parts {
    body: Option<RecvBody>,
    responder: Option<Responder>,
    watch: Option<Watch>,
}

impl HttpRequest {
    pub(crate) fn new(hub: &Arc<Hub>, request: http3::Request) -> Self {
        let watch = request.watch();
        let (request, responder) = request.into_parts();
        let (head, body) = request.into_parts();
        let token = hub.tokens(1);
        Self {
            hub: Arc::clone(hub),
            method: head.method,
            uri: head.uri,
            headers: head.headers,
            connection: body.transport().clone(),
            parts: Mutex::new(Parts {
                body: Some(body),
                responder: Some(responder),
                watch: Some(watch),
            }),
            token,
            waker: hub.waker(token),
        }
    }

    fn with<R>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Parts) -> Result<R, Failure>,
    ) -> PyResult<R> {
        let result = self.hub.check().and_then(|()| f(&mut lock(&self.parts)));
        result.map_err(|failure| failure.raise(py))
    }

    /// A head of ours.
    fn head(status: u16, headers: &[(Vec<u8>, Vec<u8>)]) -> Result<http::Response<()>, Failure> {
        let mut head = http::Response::new(());
        let status = StatusCode::from_u16(status);
        *head.status_mut() = status.map_err(|error| Failure::value("status", error))?;
        add_fields(head.headers_mut(), headers)?;
        Ok(head)
    }
}

fn answered() -> Failure {
    Failure::Value("the request was answered before".to_owned())
}

#[pymethods]
impl HttpRequest {
    /// The method.
    #[getter]
    fn method(&self) -> &str {
        self.method.as_str()
    }

    /// Path and query.
    #[getter]
    fn path(&self) -> &str {
        self.uri.path_and_query().map_or("/", |path| path.as_str())
    }

    /// `https`, or what else the client wrote.
    #[getter]
    fn scheme(&self) -> &str {
        self.uri.scheme_str().unwrap_or("https")
    }

    /// The host, and perhaps the port, that the client asked.
    #[getter]
    fn authority(&self) -> &str {
        let authority = self.uri.authority().map(|authority| authority.as_str());
        let host = || self.headers.get("host").and_then(|host| host.to_str().ok());
        authority.or_else(host).unwrap_or_default()
    }

    /// The fields.
    #[getter]
    fn headers(&self) -> Vec<(String, String)> {
        fields(&self.headers)
    }

    /// The same as bytes, as they came.
    #[getter]
    fn raw_headers<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        raw_fields(py, &self.headers)
    }

    /// The connection that it came by.
    fn connection(&self, py: Python<'_>) -> PyResult<Session> {
        match http3::Connection::new(self.connection.clone()) {
            Some(http) => Ok(Session::new(&self.hub, http, false)),
            None => Err(Failure::of_http_connect(&http3::ConnectError::NotHttp3).raise(py)),
        }
    }

    /// Its body; once.
    fn body(&self, py: Python<'_>) -> PyResult<RecvStream> {
        self.with(py, |parts| {
            let body = parts.body.take().ok_or_else(over)?;
            Ok(RecvStream::of_body(&self.hub, body))
        })
    }

    /// Sends an interim answer (1xx).
    fn interim(
        &self,
        py: Python<'_>,
        status: u16,
        headers: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> PyResult<()> {
        self.with(py, |parts| {
            let head = Self::head(status, &headers)?;
            let responder = parts.responder.as_mut().ok_or_else(answered)?;
            let sent = responder.interim(head);
            sent.map_err(|error| Failure::of_http(&error))
        })
    }

    /// Sends the head of the answer; its body follows.
    fn respond(
        &self,
        py: Python<'_>,
        status: u16,
        headers: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> PyResult<BodySender> {
        self.with(py, |parts| {
            let head = Self::head(status, &headers)?;
            let responder = parts.responder.take().ok_or_else(answered)?;
            let sent = responder.start(head);
            let body = sent.map_err(|error| Failure::of_http(&error))?;
            let discards = self.method == http::Method::HEAD;
            Ok(BodySender::new(&self.hub, body, discards))
        })
    }

    /// Whether the final head of the answer was sent.
    #[getter]
    fn is_answered(&self) -> bool {
        lock(&self.parts).responder.is_none()
    }

    /// Why nobody waits for the answer any more, as an exception; `None` while somebody does: the token
    /// will be called.
    fn poll_gone(&self, py: Python<'_>) -> PyResult<Option<Py<pyo3::exceptions::PyBaseException>>> {
        let gone = self.with(py, |parts| {
            let Some(watch) = &parts.watch else {
                return Ok(Some(over()));
            };
            match watch.poll_gone(&mut Context::from_waker(&self.waker)) {
                Poll::Pending => Ok(None),
                Poll::Ready(error) => Ok(Some(Failure::of_http(&error))),
            }
        })?;
        Ok(gone.map(|gone| gone.raise(py).into_value(py)))
    }

    /// Lets the request go: what was not answered is given up.
    fn release(&self) {
        self.drop_now();
    }
}

impl Drop for HttpRequest {
    fn drop(&mut self) {
        if self.drop_now() {
            self.hub.ring();
        }
        if self.hub.is_forked() {
            // The last handle would wait for a lock that nobody gives back.
            std::mem::forget(self.connection.clone());
        }
    }
}

impl HttpRequest {
    /// True if there was something to drop.
    fn drop_now(&self) -> bool {
        let mut parts = lock(&self.parts);
        let taken = (
            parts.body.take(),
            parts.responder.take(),
            parts.watch.take(),
        );
        drop(parts);
        let is_some = taken.0.is_some() || taken.1.is_some() || taken.2.is_some();
        self.hub.drop_handle(Some(taken)) && is_some
    }
}

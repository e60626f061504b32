//! [`RecvStream`]: the receiving half of a stream, or the body of a message of HTTP/3, and what was taken of it
//! and not read yet.
//!
//! What `readuntil` and its like look at stays here until it is whole, so that a cancelled call loses
//! nothing.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use towline::http3;

use crate::errors::{Codes, Failure};
use crate::fields::fields;
use crate::hub::{Hub, lock};
use crate::input::{Input, fill};

/// The most bytes that are asked of the stream at once when all are wanted.
const CHUNK: usize = 64 << 10;

type Result<T> = std::result::Result<T, Failure>;

/// The receiving half of a stream.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct RecvStream {
    hub: Arc<Hub>,
    reader: Mutex<Reader>,
    /// Called when a read that found too little is worth another try.
    #[pyo3(get)]
    token: u64,
    waker: Waker,
    #[pyo3(get)]
    id: u64,
}

/// Where the bytes come from.
enum Source {
    Stream(towline::RecvStream, Codes),
    /// Boxed: most are streams.
    Body(Box<Body>),
}

struct Body {
    body: http3::RecvBody,
    /// What was taken of it in one piece and was too much.
    rest: Bytes,
}

impl Source {
    /// The next bytes, at most `max`; `None` at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Result<Option<Bytes>>> {
        match self {
            Self::Stream(stream, codes) => {
                let chunk = stream.poll_read_chunk(cx, max);
                chunk.map_err(|error| Failure::of_read(*codes, error))
            }
            Self::Body(source) => {
                let Body { body, rest } = &mut **source;
                if rest.is_empty() {
                    let chunk = ready!(body.poll_chunk(cx));
                    match chunk.map_err(|error| Failure::of_http(&error))? {
                        Some(chunk) => *rest = chunk,
                        None => return Poll::Ready(Ok(None)),
                    }
                }
                Poll::Ready(Ok(Some(rest.split_to(max.min(rest.len())))))
            }
        }
    }

    /// Fills `out` from its start; `None` at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<Option<usize>>> {
        if let Self::Stream(stream, codes) = self {
            let read = stream.poll_read(cx, out);
            return read.map_err(|error| Failure::of_read(*codes, error));
        }
        let chunk = ready!(self.poll_chunk(cx, out.len()))?;
        Poll::Ready(Ok(chunk.map(|chunk| {
            out[..chunk.len()].copy_from_slice(&chunk);
            chunk.len()
        })))
    }
}

struct Reader {
    /// `None` once it was released.
    source: Option<Source>,
    /// Taken of the stream and not read.
    pending: BytesMut,
    /// How far that was searched, and for what: each byte is looked at once, however few come at a time.
    searched: (usize, Box<[u8]>),
    /// The end came.
    ended: bool,
}

impl Reader {
    /// The next bytes of the stream, at most `max`; none at its end.
    fn take(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Result<Bytes>> {
        if self.ended {
            return Poll::Ready(Ok(Bytes::new()));
        }
        let Some(source) = &mut self.source else {
            return Poll::Ready(Err(stopped()));
        };
        let chunk = ready!(source.poll_chunk(cx, max.max(1)))?;
        self.ended = chunk.is_none();
        Poll::Ready(Ok(chunk.unwrap_or_default()))
    }

    /// Takes more; false at the end.
    fn more(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Result<bool>> {
        let chunk = ready!(self.take(cx, max))?;
        self.pending.extend_from_slice(&chunk);
        Poll::Ready(Ok(!chunk.is_empty()))
    }

    /// The first `len` bytes that wait.
    fn cut(&mut self, len: usize) -> Bytes {
        let cut = self.pending.split_to(len).freeze();
        self.searched.0 = 0;
        if self.pending.is_empty() {
            // A stream that idles holds no memory.
            self.pending = BytesMut::new();
        }
        cut
    }

    fn cut_all(&mut self) -> Bytes {
        self.cut(self.pending.len())
    }

    fn read(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Result<Bytes>> {
        match self.pending.is_empty() {
            false => Poll::Ready(Ok(self.cut(max.min(self.pending.len())))),
            true => self.take(cx, max),
        }
    }

    fn read_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes>> {
        while ready!(self.more(cx, CHUNK))? {}
        Poll::Ready(Ok(self.cut_all()))
    }

    /// As `read_all`, if that is at most `limit`.
    fn read_whole(&mut self, cx: &mut Context<'_>, limit: usize) -> Poll<Result<Bytes>> {
        loop {
            if self.pending.len() > limit {
                return Poll::Ready(Err(Failure::TooLong(limit)));
            }
            let most = CHUNK.min(limit - self.pending.len() + 1);
            if !ready!(self.more(cx, most))? {
                return Poll::Ready(Ok(self.cut_all()));
            }
        }
    }

    fn read_exactly(&mut self, cx: &mut Context<'_>, len: usize) -> Poll<Result<Bytes>> {
        while self.pending.len() < len {
            let chunk = ready!(self.take(cx, len - self.pending.len()))?;
            if chunk.is_empty() {
                let partial = self.cut_all().to_vec();
                return Poll::Ready(Err(Failure::Incomplete(partial, Some(len))));
            }
            if chunk.len() == len {
                return Poll::Ready(Ok(chunk));
            }
            self.pending.extend_from_slice(&chunk);
        }
        Poll::Ready(Ok(self.cut(len)))
    }

    /// All bytes up to a separator, and with it; at most `limit`. `None` where the stream ended before.
    fn read_until(
        &mut self,
        cx: &mut Context<'_>,
        separator: &[u8],
        limit: usize,
    ) -> Poll<Result<Option<Bytes>>> {
        if *self.searched.1 != *separator {
            self.searched = (0, separator.into());
        }
        loop {
            let searched = self.searched.0;
            if let Some(at) = find(&self.pending[searched..], separator) {
                let end = searched + at + separator.len();
                return Poll::Ready(match end > limit {
                    true => Err(Failure::BeyondLimit(limit)),
                    false => Ok(Some(self.cut(end))),
                });
            }
            // A separator may have begun at the end.
            let from = self.pending.len().saturating_sub(separator.len() - 1);
            self.searched.0 = from.max(searched);
            if self.pending.len() > limit {
                return Poll::Ready(Err(Failure::BeyondLimit(limit)));
            }
            // One more than the limit: a line of just that length may be the last.
            if !ready!(self.more(cx, limit - self.pending.len() + 1))? {
                return Poll::Ready(Ok(None));
            }
        }
    }

    fn read_into(&mut self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize>> {
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if !self.pending.is_empty() {
            let len = out.len().min(self.pending.len());
            self.cut(len).copy_to_slice(&mut out[..len]);
            return Poll::Ready(Ok(len));
        }
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        let Some(source) = &mut self.source else {
            return Poll::Ready(Err(stopped()));
        };
        let read = ready!(source.poll_read(cx, out))?;
        self.ended = read.is_none();
        Poll::Ready(Ok(read.unwrap_or(0)))
    }
}

fn stopped() -> Failure {
    Failure::StreamOver("the stream was stopped by this end".to_owned())
}

/// A number of bytes.
fn size(argument: &str, size: i64) -> Result<usize> {
    usize::try_from(size).map_err(|_| Failure::value(argument, "it must not be negative"))
}

/// Where `separator`, which is not empty, begins first.
fn find(bytes: &[u8], separator: &[u8]) -> Option<usize> {
    let (first, rest) = separator.split_first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| byte == first) {
        let begin = from + at;
        if bytes[begin + 1..].starts_with(rest) {
            return Some(begin);
        }
        from = begin + 1;
    }
    None
}

impl RecvStream {
    pub(crate) fn of_stream(hub: &Arc<Hub>, stream: towline::RecvStream, codes: Codes) -> Self {
        let id = stream.id().as_u64();
        Self::new(hub, id, Source::Stream(stream, codes))
    }

    pub(crate) fn of_body(hub: &Arc<Hub>, body: http3::RecvBody) -> Self {
        let id = body.id().as_u64();
        let rest = Bytes::new();
        Self::new(hub, id, Source::Body(Box::new(Body { body, rest })))
    }

    fn new(hub: &Arc<Hub>, id: u64, source: Source) -> Self {
        let token = hub.tokens(1);
        Self {
            hub: Arc::clone(hub),
            token,
            waker: hub.waker(token),
            id,
            reader: Mutex::new(Reader {
                source: Some(source),
                pending: BytesMut::new(),
                searched: Default::default(),
                ended: false,
            }),
        }
    }

    /// One try. `None`: the token is called when it is worth another.
    fn attempt<R>(
        &self,
        f: impl FnOnce(&mut Reader, &mut Context<'_>) -> Poll<Result<R>>,
    ) -> Result<Option<R>> {
        self.hub.check()?;
        let mut cx = Context::from_waker(&self.waker);
        match f(&mut lock(&self.reader), &mut cx) {
            Poll::Ready(result) => result.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    fn attempt_bytes<'py>(
        &self,
        py: Python<'py>,
        f: impl FnOnce(&mut Reader, &mut Context<'_>) -> Poll<Result<Bytes>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let bytes = self.attempt(f).map_err(|failure| failure.raise(py))?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }
}

#[pymethods]
impl RecvStream {
    /// Up to `n` bytes, at least one; none at the end; all to the end for an `n` below 0. `None`: the token
    /// will be called.
    fn read<'py>(&self, py: Python<'py>, n: i64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.attempt_bytes(py, |reader, cx| match usize::try_from(n) {
            Ok(0) => Poll::Ready(Ok(Bytes::new())),
            Ok(n) => reader.read(cx, n),
            Err(_) => reader.read_all(cx),
        })
    }

    /// `n` bytes.
    fn read_exactly<'py>(&self, py: Python<'py>, n: i64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let n = size("n", n).map_err(|failure| failure.raise(py))?;
        self.attempt_bytes(py, |reader, cx| reader.read_exactly(cx, n))
    }

    /// All bytes up to a separator, and with it.
    fn read_until<'py>(
        &self,
        py: Python<'py>,
        separator: &Bound<'py, PyAny>,
        limit: i64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let limit = size("limit", limit).map_err(|failure| failure.raise(py))?;
        let separator = Input::of("separator", separator)?;
        if separator.as_slice().is_empty() {
            let failure = Failure::value("separator", "it must have at least one byte");
            return Err(failure.raise(py));
        }
        self.attempt_bytes(py, |reader, cx| {
            let read = ready!(reader.read_until(cx, separator.as_slice(), limit))?;
            Poll::Ready(read.ok_or_else(|| Failure::Incomplete(reader.cut_all().to_vec(), None)))
        })
    }

    /// As `read_until` a line's end; the last line may have none. No bytes at the end.
    fn read_line<'py>(&self, py: Python<'py>, limit: i64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let limit = size("limit", limit).map_err(|failure| failure.raise(py))?;
        self.attempt_bytes(py, |reader, cx| {
            let read = ready!(reader.read_until(cx, b"\n", limit))?;
            Poll::Ready(Ok(read.unwrap_or_else(|| reader.cut_all())))
        })
    }

    /// Fills `buffer` from its start on, and says how far: 0 at the end.
    fn read_into(&self, buffer: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let read = fill("buffer", buffer, |out| {
            self.attempt(|reader, cx| reader.read_into(cx, out))
        })?;
        read.map_err(|failure| failure.raise(buffer.py()))
    }

    /// All to the end, if that is at most `limit`; what is more waits to be read piece by piece.
    fn read_whole<'py>(
        &self,
        py: Python<'py>,
        limit: i64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let limit = size("limit", limit).map_err(|failure| failure.raise(py))?;
        self.attempt_bytes(py, |reader, cx| reader.read_whole(cx, limit))
    }

    /// Asks the peer to send no more. The code of a body is HTTP/3's.
    fn stop(&self, py: Python<'_>, code: u64) -> PyResult<()> {
        self.hub.check().map_err(|failure| failure.raise(py))?;
        let mut reader = lock(&self.reader);
        reader.pending = BytesMut::new();
        reader.searched.0 = 0;
        match &mut reader.source {
            Some(Source::Stream(stream, _)) => stream.stop(code),
            Some(Source::Body(_)) => reader.source = None,
            None => {}
        }
        Ok(())
    }

    /// The fields after a body that was read to its end; each once.
    fn take_trailers(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        self.hub.check().map_err(|failure| failure.raise(py))?;
        let mut reader = lock(&self.reader);
        let ended = reader.ended;
        let Some(Source::Body(source)) = reader.source.as_mut().filter(|_| ended) else {
            return Ok(Vec::new());
        };
        // At the end there is nothing to wait for.
        let taken = pin!(source.body.trailers()).poll(&mut Context::from_waker(&self.waker));
        match taken {
            Poll::Ready(Ok(trailers)) => Ok(trailers.as_ref().map(fields).unwrap_or_default()),
            Poll::Ready(Err(error)) => Err(Failure::of_http(&error).raise(py)),
            Poll::Pending => Ok(Vec::new()),
        }
    }

    /// Whether the end was read.
    #[getter]
    fn ended(&self) -> bool {
        let reader = lock(&self.reader);
        reader.ended && reader.pending.is_empty()
    }

    /// Lets the stream go: the peer of one that was not read to its end is asked to stop.
    fn release(&self) {
        self.drop_now();
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if self.drop_now() {
            self.hub.ring();
        }
    }
}

impl RecvStream {
    /// True if there was something to drop.
    fn drop_now(&self) -> bool {
        let mut reader = lock(&self.reader);
        reader.pending = BytesMut::new();
        reader.searched.0 = 0;
        let source = reader.source.take();
        drop(reader);
        self.hub.drop_handle(source)
    }
}

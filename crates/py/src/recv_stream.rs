//! [`RecvStream`]: the receiving half of a stream, and what was taken of it and not read yet.
//!
//! What `readuntil` and its like look at stays here until it is whole, so that a cancelled call loses
//! nothing.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Failure;
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

struct Reader {
    /// `None` once it was released.
    stream: Option<towline::RecvStream>,
    /// Taken of the stream and not read.
    pending: BytesMut,
    /// The end came.
    ended: bool,
}

impl Reader {
    /// The next bytes of the stream, at most `max`; none at its end.
    fn take(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Result<Bytes>> {
        if self.ended {
            return Poll::Ready(Ok(Bytes::new()));
        }
        let Some(stream) = &mut self.stream else {
            let words = "the stream was stopped by this end";
            return Poll::Ready(Err(Failure::StreamOver(words.to_owned())));
        };
        match ready!(stream.poll_read_chunk(cx, max.max(1))) {
            Ok(Some(chunk)) => Poll::Ready(Ok(chunk)),
            Ok(None) => {
                self.ended = true;
                Poll::Ready(Ok(Bytes::new()))
            }
            Err(error) => Poll::Ready(Err(Failure::of_read(error))),
        }
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
        let mut searched = 0;
        loop {
            if let Some(at) = find(&self.pending[searched..], separator) {
                let end = searched + at + separator.len();
                return Poll::Ready(match end > limit {
                    true => Err(Failure::BeyondLimit(limit)),
                    false => Ok(Some(self.cut(end))),
                });
            }
            // A separator may have begun at the end.
            searched = self.pending.len().saturating_sub(separator.len() - 1);
            if self.pending.len() >= limit {
                return Poll::Ready(Err(Failure::BeyondLimit(limit)));
            }
            if !ready!(self.more(cx, limit - self.pending.len()))? {
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
        let Some(stream) = &mut self.stream else {
            let words = "the stream was stopped by this end";
            return Poll::Ready(Err(Failure::StreamOver(words.to_owned())));
        };
        let read = ready!(stream.poll_read(cx, out)).map_err(Failure::of_read)?;
        self.ended = read.is_none();
        Poll::Ready(Ok(read.unwrap_or(0)))
    }
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
    pub(crate) fn new(hub: &Arc<Hub>, stream: towline::RecvStream) -> Self {
        let token = hub.tokens(1);
        Self {
            hub: Arc::clone(hub),
            token,
            waker: hub.waker(token),
            id: stream.id().as_u64(),
            reader: Mutex::new(Reader {
                stream: Some(stream),
                pending: BytesMut::new(),
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

    /// Asks the peer to send no more.
    fn stop(&self, py: Python<'_>, code: u32) -> PyResult<()> {
        self.hub.check().map_err(|failure| failure.raise(py))?;
        let mut reader = lock(&self.reader);
        reader.pending = BytesMut::new();
        if let Some(stream) = &mut reader.stream {
            stream.stop(u64::from(code));
        }
        Ok(())
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
        let stream = reader.stream.take();
        drop(reader);
        self.hub.drop_handle(stream)
    }
}

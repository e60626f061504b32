//! [`RecvStream`]: the receiving half of a stream.
//!
//! Reads take bytes out of the engine's reassembly buffer and give the peer new
//! credit; an empty buffer makes the caller wait.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use towline_quic::{self as engine, Connection as Engine, ConnectionError, ReceivedChunk};
use towline_wire::StreamId;

use super::error::{ReadError, ReadExactError, ReadToEndError};
use super::hooks::{Work, code_for_handle};
use super::protocol::Half;
use super::reference::{Reference, lost};
use crate::io::Change;

/// Most bytes one `read_to_end` step takes at once.
const CHUNK: usize = 64 * 1024;

/// The receiving half of a stream.
///
/// Dropped before its end was read, it asks the peer to stop with code 0.
///
/// What arrived before the connection ended can still be read afterwards, however late, unless this side
/// closed it or the endpoint's memory is short: a handle holds the memory of what was not read.
pub struct RecvStream {
    reference: Arc<Reference>,
    id: StreamId,
    /// Where it begins for its reader: what stands before was read by the connection's protocol.
    start: u64,
    end: Option<End>,
}

/// How the stream ended for its reader; remembered because the engine forgets.
#[derive(Clone, Copy)]
enum End {
    Finished,
    Reset(u64),
    Stopped,
}

impl RecvStream {
    pub(super) fn new(reference: Arc<Reference>, id: StreamId) -> Self {
        Self::adopt(reference, id, 0)
    }

    /// The connection's protocol has read the first `start` bytes.
    pub(super) fn adopt(reference: Arc<Reference>, id: StreamId, start: u64) -> Self {
        Self {
            reference,
            id,
            start,
            end: None,
        }
    }

    /// The stream's number on the wire.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Reads at least one byte into `out` and returns how many; `None` at the end.
    ///
    /// Cancel safe: a dropped call took nothing.
    ///
    /// # Errors
    /// When the peer reset the stream, this side stopped it, or the connection is over.
    pub async fn read(&mut self, out: &mut [u8]) -> Result<Option<usize>, ReadError> {
        poll_fn(|cx| self.poll_read(cx, out)).await
    }

    /// As [`read`](Self::read), for callers that poll. One task: a later one takes the place of an earlier.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<Result<Option<usize>, ReadError>> {
        self.read_slice(out, Some(cx.waker()))
    }

    /// As [`read`](Self::read), but pending and not waiting while nothing is there.
    pub fn try_read(&mut self, out: &mut [u8]) -> Poll<Result<Option<usize>, ReadError>> {
        self.read_slice(out, None)
    }

    /// The next bytes in order, at most `max` of them, without copying; `None` at the end.
    ///
    /// Cancel safe: a dropped call took nothing.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_chunk(&mut self, max: usize) -> Result<Option<Bytes>, ReadError> {
        poll_fn(|cx| self.poll_read_chunk(cx, max)).await
    }

    /// As [`read_chunk`](Self::read_chunk), for callers that poll.
    pub fn poll_read_chunk(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, ReadError>> {
        self.take_chunk(max, Some(cx.waker()))
    }

    /// As [`read_chunk`](Self::read_chunk), but pending and not waiting while nothing is there.
    pub fn try_read_chunk(&mut self, max: usize) -> Poll<Result<Option<Bytes>, ReadError>> {
        self.take_chunk(max, None)
    }

    fn take_chunk(
        &mut self,
        max: usize,
        waker: Option<&Waker>,
    ) -> Poll<Result<Option<Bytes>, ReadError>> {
        if max == 0 {
            return Poll::Ready(Ok(Some(Bytes::new())));
        }
        self.poll_with(waker, |engine, id| engine.read(id, max))
    }

    /// Fills `chunks` from the first on with the next bytes in order, without copying, and returns how
    /// many were filled, at least one; `None` at the end.
    ///
    /// Cancel safe: a dropped call took nothing.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_chunks(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, ReadError> {
        poll_fn(|cx| self.poll_read_chunks(cx, chunks)).await
    }

    /// As [`read_chunks`](Self::read_chunks), for callers that poll.
    pub fn poll_read_chunks(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut [Bytes],
    ) -> Poll<Result<Option<usize>, ReadError>> {
        if chunks.is_empty() {
            return Poll::Ready(Ok(Some(0)));
        }
        let filled = ready!(self.poll_with(Some(cx.waker()), |engine, id| {
            let mut filled = Filled::default();
            for chunk in chunks {
                match engine.read(id, usize::MAX) {
                    Ok(Some(bytes)) => {
                        filled.bytes += bytes.len();
                        *chunk = bytes;
                    }
                    Ok(None) if filled.chunks > 0 => {
                        filled.end = Some(End::Finished);
                        break;
                    }
                    Err(engine::ReadError::Reset(code)) if filled.chunks > 0 => {
                        filled.end = Some(End::Reset(code));
                        break;
                    }
                    Err(_) if filled.chunks > 0 => break,
                    Ok(None) => return Ok(None),
                    Err(error) => return Err(error),
                }
                filled.chunks += 1;
            }
            Ok(Some(filled))
        }));
        let filled = filled?;
        if let Some(end) = filled.as_ref().and_then(|filled| filled.end) {
            self.end.get_or_insert(end);
        }
        Poll::Ready(Ok(filled.map(|filled| filled.chunks)))
    }

    /// The lowest bytes that have arrived and were not read, at most `max` of them, whatever is
    /// missing before them; `None` at the end. Each byte comes once. Nothing waits for a lost
    /// packet but what was in it.
    ///
    /// Ordered reads may come before the first call, not after.
    ///
    /// Cancel safe: a dropped call took nothing.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_unordered(&mut self, max: usize) -> Result<Option<ReceivedChunk>, ReadError> {
        poll_fn(|cx| self.poll_read_unordered(cx, u64::MAX, max.max(1))).await
    }

    /// As `read_unordered`, of bytes below offset `below` alone; the others stay in the window.
    pub(crate) fn poll_read_unordered(
        &mut self,
        cx: &mut Context<'_>,
        below: u64,
        max: usize,
    ) -> Poll<Result<Option<ReceivedChunk>, ReadError>> {
        let start = self.start;
        self.poll_with(Some(cx.waker()), |engine, id| {
            let below = below.saturating_add(start);
            let chunk = engine.read_unordered_below(id, below, max)?;
            Ok(chunk.map(|chunk| ReceivedChunk {
                offset: chunk.offset.saturating_sub(start),
                ..chunk
            }))
        })
    }

    /// The length of the stream, as soon as its end has arrived and until it was read.
    pub fn final_size(&self) -> Option<u64> {
        let id = self.id;
        let size = self
            .reference
            .look(|engine, _| engine.and_then(|engine| engine.final_size(id)));
        size.map(|size| size.saturating_sub(self.start))
    }

    /// Fills `out`.
    ///
    /// Not cancel safe: a dropped call may have taken a part.
    ///
    /// # Errors
    /// When the stream ends before, otherwise as [`read`](Self::read).
    pub async fn read_exact(&mut self, out: &mut [u8]) -> Result<(), ReadExactError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read(&mut out[filled..]).await? {
                Some(n) => filled += n,
                None => return Err(ReadExactError::FinishedEarly(filled)),
            }
        }
        Ok(())
    }

    /// Reads the whole stream, which may have at most `limit` bytes.
    ///
    /// Not cancel safe: a dropped call loses what it had taken.
    ///
    /// # Errors
    /// When the stream is longer, otherwise as [`read`](Self::read).
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        let mut all = Vec::new();
        while let Some(chunk) = self.read_chunk(CHUNK).await? {
            if chunk.len() > limit - all.len() {
                return Err(ReadToEndError::TooLong(limit));
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    /// Waits until the peer resets the stream and returns its code, without reading the stream. `None`
    /// when no reset is to come: all data is here, read or not, or this side has
    /// [stopped](Self::stop) the stream.
    ///
    /// What has arrived can be read until there is a code: a reset drops it.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn received_reset(&mut self) -> Result<Option<u64>, ConnectionError> {
        poll_fn(|cx| self.poll_received_reset(cx)).await
    }

    /// As [`received_reset`](Self::received_reset), for callers that poll. It shares its place with a read that
    /// waits: one task.
    pub fn poll_received_reset(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<u64>, ConnectionError>> {
        match self.end {
            Some(End::Reset(code)) => return Poll::Ready(Ok(Some(code))),
            Some(End::Finished | End::Stopped) => return Poll::Ready(Ok(None)),
            None => {}
        }
        let asked = ready!(self.call(Some(cx.waker()), |engine, id| {
            let code = engine.received_reset(id)?;
            // What is delivered all the same may be left to be read.
            let is_over = engine.final_size(id).is_none();
            Ok(Asked { code, is_over })
        }));
        Poll::Ready(match asked {
            Ok(asked) => {
                self.end = asked.end();
                Ok(asked.code)
            }
            Err(engine::ReadError::ConnectionLost(error)) => Err(error),
            // The engine has forgotten the stream: it ended.
            Err(_) => Ok(None),
        })
    }

    /// Asks the peer to stop sending, with an application code. Further reads fail.
    pub fn stop(&mut self, code: u64) {
        if self.end.is_none() {
            self.end = Some(End::Stopped);
            self.tell_stop(code);
        }
    }

    fn tell_stop(&self, code: u64) {
        let id = self.id;
        let _waker = self.hooked(|engine, work| {
            let waker = work.entry.recv.remove(&id);
            let Some(engine) = engine else {
                return (waker, Change::None);
            };
            // After the end it only gives back what was not read.
            work.stop(engine, code);
            work.on_half_over(engine, Half::Receiving);
            let is_over = work.entry.error.is_some();
            (waker, if is_over { Change::None } else { Change::Made })
        });
    }

    fn read_slice(
        &mut self,
        out: &mut [u8],
        waker: Option<&Waker>,
    ) -> Poll<Result<Option<usize>, ReadError>> {
        if out.is_empty() {
            return Poll::Ready(Ok(Some(0)));
        }
        self.poll_with(waker, |engine, id| engine.read_slice(id, out))
    }

    fn poll_with<R: Taken>(
        &mut self,
        waker: Option<&Waker>,
        read: impl FnOnce(&mut Engine, StreamId) -> Result<Option<R>, engine::ReadError>,
    ) -> Poll<Result<Option<R>, ReadError>> {
        match self.end {
            Some(End::Finished) => return Poll::Ready(Ok(None)),
            Some(End::Reset(code)) => return Poll::Ready(Err(ReadError::Reset(code))),
            Some(End::Stopped) => return Poll::Ready(Err(ReadError::ClosedStream)),
            None => {}
        }
        self.call(waker, read).map(|result| match result {
            Ok(Some(data)) => Ok(Some(data)),
            Ok(None) => {
                self.end = Some(End::Finished);
                Ok(None)
            }
            Err(engine::ReadError::Reset(code)) => {
                self.end = Some(End::Reset(code));
                Err(ReadError::Reset(code))
            }
            Err(engine::ReadError::ConnectionLost(error)) => Err(ReadError::ConnectionLost(error)),
            Err(engine::ReadError::IllegalOrderedRead) => Err(ReadError::IllegalOrderedRead),
            Err(engine::ReadError::ClosedStream | engine::ReadError::Blocked) => {
                Err(ReadError::ClosedStream)
            }
        })
    }

    /// One call of the engine. Pending: `waker` is woken when it is worth another.
    fn call<R: Taken>(
        &self,
        waker: Option<&Waker>,
        call: impl FnOnce(&mut Engine, StreamId) -> Result<R, engine::ReadError>,
    ) -> Poll<Result<R, engine::ReadError>> {
        let id = self.id;
        let (result, _replaced) = self.hooked(|engine, work| {
            let mut change = Change::None;
            let result = match engine {
                Some(engine) => {
                    // What waited before waits for the window, or for a turn that is to come.
                    let waited = engine.wants_transmit();
                    let result = match work.entry.protocol.is_some() {
                        true => {
                            // The engine forgets it with the end.
                            let size = engine.final_size(id);
                            let result = call(engine, id);
                            tell(work, engine, result, size)
                        }
                        false => call(engine, id),
                    };
                    // Most reads free too little credit to be worth a frame.
                    if !waited && engine.wants_transmit() {
                        change = Change::Made;
                    }
                    result
                }
                None => Err(engine::ReadError::ConnectionLost(lost(work.entry))),
            };
            match (result, &work.entry.error) {
                (Ok(data), _) => ((Poll::Ready(Ok(data)), None), change),
                (Err(engine::ReadError::Blocked), None) => {
                    let replaced =
                        waker.and_then(|waker| work.entry.recv.insert(id, waker.clone()));
                    ((Poll::Pending, replaced), Change::None)
                }
                (Err(engine::ReadError::Blocked), Some(error)) => {
                    let error = engine::ReadError::ConnectionLost(error.clone());
                    ((Poll::Ready(Err(error)), None), Change::None)
                }
                // A reset read gives the peer its stream back, which it must be told.
                (Err(error), _) => ((Poll::Ready(Err(error)), None), Change::Made),
            }
        });
        result
    }

    /// Under the lock, with what the connection's protocol may have to be told.
    fn hooked<R>(&self, f: impl FnOnce(Option<&mut Engine>, &mut Work<'_>) -> (R, Change)) -> R {
        let (reference, id) = (&*self.reference, self.id);
        reference.with_hooks(|engine, entry, wake| {
            let mut work = Work {
                reference,
                id,
                entry,
                wake,
            };
            f(engine, &mut work)
        })
    }
}

/// Tells the connection's protocol what was read of a stream of this final size, and gives codes the form
/// that handles are told.
fn tell<R: Taken>(
    work: &mut Work<'_>,
    engine: &mut Engine,
    result: Result<R, engine::ReadError>,
    size: Option<u64>,
) -> Result<R, engine::ReadError> {
    let result = match result {
        Ok(mut taken) => {
            let (entry, id) = (&*work.entry, work.id);
            taken.with_codes(&|code| code_for_handle(entry, id, code));
            work.on_read(engine, taken.bytes());
            Ok(taken)
        }
        Err(engine::ReadError::Reset(code)) => Err(engine::ReadError::Reset(code_for_handle(
            work.entry, work.id, code,
        ))),
        Err(error) => Err(error),
    };
    let is_over = match &result {
        Ok(taken) => taken.is_last(),
        Err(error) => matches!(error, engine::ReadError::Reset(_)),
    };
    if is_over {
        if let Some(size) = size {
            work.on_final_size(engine, size);
        }
        work.on_half_over(engine, Half::Receiving);
    }
    result
}

/// What a call took of a stream.
trait Taken {
    /// How many bytes.
    fn bytes(&self) -> usize {
        0
    }

    /// Whether there will be no more.
    fn is_last(&self) -> bool {
        false
    }

    /// Puts the codes in it into another form.
    fn with_codes(&mut self, form: &dyn Fn(u64) -> u64) {
        let _ = form;
    }
}

impl Taken for Bytes {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Taken for usize {
    fn bytes(&self) -> usize {
        *self
    }
}

impl Taken for ReceivedChunk {
    fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// `None` is the end of the stream.
impl<T: Taken> Taken for Option<T> {
    fn bytes(&self) -> usize {
        self.as_ref().map_or(0, T::bytes)
    }

    fn is_last(&self) -> bool {
        self.as_ref().is_none_or(T::is_last)
    }

    fn with_codes(&mut self, form: &dyn Fn(u64) -> u64) {
        if let Some(taken) = self {
            taken.with_codes(form);
        }
    }
}

/// What `read_chunks` filled, and how the stream ended behind it; the engine tells that once.
#[derive(Default)]
struct Filled {
    chunks: usize,
    bytes: usize,
    end: Option<End>,
}

impl Taken for Filled {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_last(&self) -> bool {
        self.end.is_some()
    }

    fn with_codes(&mut self, form: &dyn Fn(u64) -> u64) {
        if let Some(End::Reset(code)) = &mut self.end {
            *code = form(*code);
        }
    }
}

/// What `received_reset` found.
struct Asked {
    code: Option<u64>,
    is_over: bool,
}

impl Asked {
    fn end(&self) -> Option<End> {
        self.code.filter(|_| self.is_over).map(End::Reset)
    }
}

impl Taken for Asked {
    fn is_last(&self) -> bool {
        self.end().is_some()
    }

    fn with_codes(&mut self, form: &dyn Fn(u64) -> u64) {
        self.code = self.code.map(form);
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if self.end.is_none() {
            self.tell_stop(0);
        }
    }
}

impl fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvStream")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

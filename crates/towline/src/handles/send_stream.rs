//! [`SendStream`]: the sending half of a stream.
//!
//! Writes go straight into the engine's send buffer, which owns the bytes until the
//! peer has acknowledged them; a full buffer makes the caller wait.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use towline_quic::{self as engine, Connection as Engine, ConnectionError, ResetAtError};
use towline_wire::StreamId;

use super::entry::{Entry, SendSlot};
use super::error::WriteError;
use super::hooks::{Work, code_for_handle};
use super::protocol::Half;
use super::reference::{Reference, lost};
use super::waiter::Waiter;
use crate::io::Change;

/// The sending half of a stream.
///
/// # Dropping it
///
/// Dropped before [`finish`](Self::finish), it **resets** the stream with code 0: an early return or a
/// panic in the middle of a write must not look like a whole message. What was written may not arrive,
/// and the reader gets [`ReadError::Reset(0)`](super::ReadError::Reset). (quinn finishes such a stream.)
///
/// Dropped after it, the stream is delivered without its handle, for as long as the connection is open;
/// the last handle of a connection closes it. [`finished`](Self::finished) waits until all has arrived.
pub struct SendStream {
    reference: Arc<Reference>,
    id: StreamId,
    state: State,
}

/// What [`SendStream::write_chunks`] has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes, of all chunks.
    pub bytes: usize,
    /// Chunks from the first on that were taken whole.
    pub chunks: usize,
}

/// How far this side has taken the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Finished,
    Reset,
}

impl SendStream {
    pub(super) fn new(reference: Arc<Reference>, id: StreamId) -> Self {
        Self {
            reference,
            id,
            state: State::Open,
        }
    }

    /// The stream's number on the wire.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Writes as much of `data` as fits, at least one byte, and returns how much.
    ///
    /// Cancel safe: a dropped call wrote nothing.
    ///
    /// # Errors
    /// When the peer stopped the stream, this side ended it, or the connection is over.
    pub async fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        poll_fn(|cx| self.poll_write(cx, data)).await
    }

    /// As [`write`](Self::write), for callers that poll. One task: a later one takes the place of an earlier.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, WriteError>> {
        self.write_slice(data, Some(cx.waker()))
    }

    /// As [`write`](Self::write), but pending and not waiting while nothing fits.
    pub fn try_write(&mut self, data: &[u8]) -> Poll<Result<usize, WriteError>> {
        self.write_slice(data, None)
    }

    /// Writes all of `data`.
    ///
    /// Not cancel safe: a dropped call may have written a part.
    ///
    /// # Errors
    /// As [`write`](Self::write); a part may have been written.
    pub async fn write_all(&mut self, mut data: &[u8]) -> Result<(), WriteError> {
        while !data.is_empty() {
            let n = self.write(data).await?;
            data = &data[n..];
        }
        Ok(())
    }

    /// Writes as much of `data` as fits without copying it, at least one byte. What
    /// was taken is cut off its front.
    ///
    /// Cancel safe: a dropped call wrote nothing.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_some(&mut self, data: &mut Bytes) -> Result<usize, WriteError> {
        poll_fn(|cx| self.poll_write_some(cx, data)).await
    }

    /// As [`write_some`](Self::write_some), for callers that poll.
    pub fn poll_write_some(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<usize, WriteError>> {
        self.write_bytes(data, Some(cx.waker()))
    }

    /// As [`write_some`](Self::write_some), but pending and not waiting while nothing fits.
    pub fn try_write_some(&mut self, data: &mut Bytes) -> Poll<Result<usize, WriteError>> {
        self.write_bytes(data, None)
    }

    /// Writes as much of `chunks` as fits without copying it, at least one byte, and says how much. What
    /// was taken is cut off their fronts.
    ///
    /// Cancel safe: a dropped call wrote nothing.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_chunks(&mut self, chunks: &mut [Bytes]) -> Result<Written, WriteError> {
        poll_fn(|cx| self.poll_write_chunks(cx, chunks)).await
    }

    /// As [`write_chunks`](Self::write_chunks), for callers that poll.
    pub fn poll_write_chunks(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut [Bytes],
    ) -> Poll<Result<Written, WriteError>> {
        let mut written = Written::default();
        let bytes = ready!(self.write_with(Some(cx.waker()), |engine, id, most| {
            for chunk in chunks.iter_mut() {
                while !chunk.is_empty() {
                    match write_most(engine, id, chunk, most - written.bytes) {
                        Ok(bytes) => written.bytes += bytes,
                        Err(engine::WriteError::Blocked) if written.bytes > 0 => {
                            return Ok(written.bytes);
                        }
                        Err(error) => return Err(error),
                    }
                }
                written.chunks += 1;
            }
            Ok(written.bytes)
        }))?;
        Poll::Ready(Ok(Written { bytes, ..written }))
    }

    /// Writes all of `chunks` without copying them.
    ///
    /// Not cancel safe: a dropped call may have written a part.
    ///
    /// # Errors
    /// As [`write`](Self::write); a part may have been written.
    pub async fn write_all_chunks(&mut self, mut chunks: &mut [Bytes]) -> Result<(), WriteError> {
        while !chunks.is_empty() {
            let written = self.write_chunks(chunks).await?;
            chunks = &mut chunks[written.chunks..];
        }
        Ok(())
    }

    /// Writes all of `data` without copying it.
    ///
    /// Not cancel safe: a dropped call may have written a part.
    ///
    /// # Errors
    /// As [`write`](Self::write); a part may have been written.
    pub async fn write_chunk(&mut self, mut data: Bytes) -> Result<(), WriteError> {
        while !data.is_empty() {
            self.write_some(&mut data).await?;
        }
        Ok(())
    }

    /// How urgent the stream is among those of its [group](Self::set_send_group): higher goes first,
    /// 0 at the start, and equals take turns. W3C WebTransport calls it the send order.
    ///
    /// Takes effect with the next packet, for what was written before too. While this stream can
    /// send, streams of lower priority in its group send nothing, however long that lasts.
    ///
    /// # Errors
    /// When the stream or the connection is over.
    pub fn set_priority(&self, priority: i64) -> Result<(), WriteError> {
        self.place(|engine, id| engine.set_priority(id, priority))
    }

    /// Puts the stream into a group of the connection's streams, by any number; all are in group 0 at
    /// the start. Groups share what the path carries alike, whatever is in them, and priorities count
    /// inside one only.
    ///
    /// # Errors
    /// When the stream or the connection is over.
    pub fn set_send_group(&self, group: u32) -> Result<(), WriteError> {
        self.place(|engine, id| engine.set_send_group(id, group))
    }

    fn place(
        &self,
        change: impl FnOnce(&mut Engine, StreamId) -> Result<(), engine::WriteError>,
    ) -> Result<(), WriteError> {
        let id = self.id;
        self.reference.with(|engine, entry| {
            let result = with_engine(engine, entry, |engine| change(engine, id));
            (
                result.map_err(|error| outward(error, entry, id)),
                Change::None,
            )
        })
    }

    /// The priority of the stream; `None` once it was delivered, reset or its connection is over.
    pub fn priority(&self) -> Option<i64> {
        let id = self.id;
        self.reference
            .with(|engine, _| (engine.and_then(|engine| engine.priority(id)), Change::None))
    }

    /// Writes bytes that belong at `offset`, ahead of others or where some were left out; see
    /// [`write_at`](Engine::write_at) of the engine. What was dealt with is cut off their front.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_write_at(
        &mut self,
        cx: &mut Context<'_>,
        offset: u64,
        data: &mut Bytes,
    ) -> Poll<Result<usize, WriteError>> {
        self.write_with(Some(cx.waker()), |engine, id, _| {
            engine.write_at(id, offset, data)
        })
    }

    /// Ready with its code when the peer asked to stop, or with the error when the connection is
    /// over; otherwise the task is woken then. Shares its place with a blocked write.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_writer_stopped(&mut self, cx: &mut Context<'_>) -> Poll<WriteError> {
        let id = self.id;
        let (result, _replaced) = self.reference.with(|_, entry| {
            if let Some(error) = &entry.error {
                let error = WriteError::ConnectionLost(error.clone());
                return ((Poll::Ready(error), None), Change::None);
            }
            let slot = entry.send.entry(id).or_default();
            if let Some(code) = slot.stopped {
                return ((Poll::Ready(WriteError::Stopped(code)), None), Change::None);
            }
            let replaced = slot.writable.replace(cx.waker().clone());
            ((Poll::Pending, replaced), Change::None)
        });
        result
    }

    /// Whether this side has ended the stream with [`finish`](Self::finish).
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// Ends the stream: the peer reads what was written, then the end.
    ///
    /// # Errors
    /// When the peer stopped the stream, it was ended before, or the connection is over.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        let id = self.id;
        let result = self.hooked(|engine, work| {
            let result = with_engine(engine, work.entry, |engine| {
                engine.finish(id).map(|()| engine)
            });
            match result {
                Ok(engine) => {
                    work.on_finish(engine);
                    (Ok(()), Change::Made)
                }
                Err(error) => (Err(outward(error, work.entry, id)), Change::None),
            }
        });
        if result.is_ok() {
            self.state = State::Finished;
        }
        result
    }

    /// Gives the stream up with an application code: the peer may not get all that was
    /// written. Does nothing on a stream that was finished and delivered, or reset.
    pub fn reset(&mut self, code: u64) {
        let was_open = std::mem::replace(&mut self.state, State::Reset) == State::Open;
        self.hooked(|engine, work| {
            if let Some(engine) = engine {
                // On a stream that is over there is nothing to give up.
                let _ = work.reset(engine, code, 0);
                if was_open {
                    work.on_half_over(engine, Half::Sending);
                }
            }
            ((), Change::Made)
        });
    }

    /// Gives the stream up beyond its first `reliable_size` bytes, with an application code: the
    /// peer reads those, then the reset. May be called again to lower the size, as
    /// [`reset`](Self::reset) does to 0; the first code stays.
    ///
    /// # Errors
    /// When the peer does not understand RESET_STREAM_AT
    /// (draft-ietf-quic-reliable-stream-reset-07), unless the size is 0; when so much was not
    /// written yet; when the stream or the connection is over. The stream goes on as it was.
    pub fn reset_at(&mut self, code: u64, reliable_size: u64) -> Result<(), ResetAtError> {
        let is_open = self.state == State::Open;
        self.hooked(|engine, work| match (&work.entry.error, engine) {
            (None, Some(engine)) => {
                let result = work.reset(engine, code, reliable_size);
                if result.is_ok() && is_open {
                    work.on_half_over(engine, Half::Sending);
                }
                (result, Change::Made)
            }
            _ => {
                let error = ResetAtError::ConnectionLost(lost(work.entry));
                (Err(error), Change::None)
            }
        })?;
        self.state = State::Reset;
        Ok(())
    }

    /// Finishes the stream, if that was not done yet, and waits until everything
    /// written, and the end, was acknowledged by the peer's transport (which says
    /// nothing of its application).
    ///
    /// Cancel safe: the stream is finished, the wait can be taken up again.
    ///
    /// # Errors
    /// [`WriteError::ClosedStream`] if this side reset the stream; otherwise as
    /// [`write`](Self::write).
    pub async fn finished(&mut self) -> Result<(), WriteError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_finished(&mut waiter, cx)).await
    }

    /// As [`finished`](Self::finished), for callers that poll.
    pub fn poll_finished(
        &mut self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), WriteError>> {
        match self.state {
            State::Open => self.finish()?,
            State::Finished => {}
            State::Reset => return Poll::Ready(Err(WriteError::ClosedStream)),
        }
        let id = self.id;
        self.watch(waiter, cx, |engine, entry, slot| {
            if slot.finished {
                return Poll::Ready(Ok(()));
            }
            if let Some(code) = slot.stopped {
                return Poll::Ready(Err(WriteError::Stopped(code)));
            }
            if slot.ended {
                return Poll::Ready(Err(WriteError::ClosedStream));
            }
            match with_engine(engine, entry, |engine| engine.write_slice(id, &[])) {
                // A finished stream is closed for writing long before it is acknowledged.
                Err(engine::WriteError::ClosedStream)
                | Err(engine::WriteError::Blocked)
                | Ok(_) => Poll::Pending,
                Err(error) => Poll::Ready(Err(outward(error, entry, id))),
            }
        })
    }

    /// Waits until the peer asks to stop, and returns its code; `None` if the stream
    /// was delivered to its end instead, or this side has [reset](Self::reset) it.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn stopped(&mut self) -> Result<Option<u64>, ConnectionError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_stopped(&mut waiter, cx)).await
    }

    /// As [`stopped`](Self::stopped), for callers that poll.
    pub fn poll_stopped(
        &mut self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<u64>, ConnectionError>> {
        let id = self.id;
        // The peer has nothing to ask for any more, and the engine forgets the stream.
        let was_reset = self.state == State::Reset;
        self.watch(waiter, cx, |engine, entry, slot| {
            if let Some(code) = slot.stopped {
                return Poll::Ready(Ok(Some(code)));
            }
            if slot.finished || was_reset || slot.ended {
                return Poll::Ready(Ok(None));
            }
            match with_engine(engine, entry, |engine| engine.write_slice(id, &[])) {
                Err(engine::WriteError::Stopped(code)) => {
                    Poll::Ready(Ok(Some(code_for_handle(entry, id, code))))
                }
                Err(engine::WriteError::ConnectionLost(error)) => Poll::Ready(Err(error)),
                _ => Poll::Pending,
            }
        })
    }

    /// One attempt on behalf of a task that watches the stream.
    fn watch<R>(
        &mut self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
        attempt: impl FnOnce(Option<&mut Engine>, &Entry, &SendSlot) -> Poll<R>,
    ) -> Poll<R> {
        let (reference, id) = (&self.reference, self.id);
        let mut key = waiter.on_stream(reference, id);
        let (result, _replaced) = reference.with(|engine, entry| {
            let mut slot = entry.send.remove(&id).unwrap_or_default();
            let result = attempt(engine, entry, &slot);
            let replaced = match (result.is_pending(), key) {
                (true, _) => slot.watchers.register(&mut key, cx.waker()),
                (false, Some(left)) => slot.watchers.leave(left),
                (false, None) => None,
            };
            entry.send.insert(id, slot);
            ((result, replaced), Change::None)
        });
        if result.is_ready() {
            key = None;
        }
        waiter.keep_on_stream(reference, id, key);
        result
    }

    fn write_slice(
        &mut self,
        data: &[u8],
        waker: Option<&Waker>,
    ) -> Poll<Result<usize, WriteError>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.write_with(waker, |engine, id, most| {
            engine.write_slice(id, &data[..most.min(data.len())])
        })
    }

    fn write_bytes(
        &mut self,
        data: &mut Bytes,
        waker: Option<&Waker>,
    ) -> Poll<Result<usize, WriteError>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.write_with(waker, |engine, id, most| write_most(engine, id, data, most))
    }

    fn write_with(
        &mut self,
        waker: Option<&Waker>,
        write: impl FnOnce(&mut Engine, StreamId, usize) -> Result<usize, engine::WriteError>,
    ) -> Poll<Result<usize, WriteError>> {
        let id = self.id;
        let (result, _replaced) = self.hooked(|engine, work| {
            let mut asked = Change::None;
            let result = match (&work.entry.error, engine) {
                (None, Some(engine)) => match work.allowance(engine) {
                    // Whether the stream still takes anything is found out all the same.
                    0 => {
                        // The protocol may have asked the peer for more.
                        asked = Change::Made;
                        let taken = engine.write_slice(id, &[]);
                        taken.and(Err(engine::WriteError::Blocked))
                    }
                    most => write(engine, id, most),
                },
                _ => Err(engine::WriteError::ConnectionLost(lost(work.entry))),
            };
            match result {
                Ok(n) => {
                    work.on_written(n);
                    ((Poll::Ready(Ok(n)), None), Change::Made)
                }
                Err(engine::WriteError::Blocked) => {
                    let replaced = waker.and_then(|waker| {
                        let slot = work.entry.send.entry(id).or_default();
                        slot.writable.replace(waker.clone())
                    });
                    ((Poll::Pending, replaced), asked)
                }
                Err(error) => {
                    let error = outward(error, work.entry, id);
                    ((Poll::Ready(Err(error)), None), Change::None)
                }
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

/// Writes at most so many bytes, and cuts what was taken off the front of `data`.
fn write_most(
    engine: &mut Engine,
    id: StreamId,
    data: &mut Bytes,
    most: usize,
) -> Result<usize, engine::WriteError> {
    match (data.len() <= most, most) {
        (true, _) => engine.write(id, data),
        (false, 0) => Err(engine::WriteError::Blocked),
        (false, _) => {
            let written = engine.write(id, &mut data.slice(..most))?;
            data.advance(written);
            Ok(written)
        }
    }
}

/// Calls the engine, or says that the connection is gone.
fn with_engine<'a, R>(
    engine: Option<&'a mut Engine>,
    entry: &Entry,
    call: impl FnOnce(&'a mut Engine) -> Result<R, engine::WriteError>,
) -> Result<R, engine::WriteError> {
    match (&entry.error, engine) {
        (None, Some(engine)) => call(engine),
        _ => Err(engine::WriteError::ConnectionLost(lost(entry))),
    }
}

fn outward(error: engine::WriteError, entry: &Entry, id: StreamId) -> WriteError {
    let told = entry.send.get(&id).and_then(|slot| slot.stopped);
    match error {
        engine::WriteError::Stopped(code) => {
            WriteError::Stopped(told.unwrap_or_else(|| code_for_handle(entry, id, code)))
        }
        // The engine forgets a stopped stream once the peer has its reset.
        engine::WriteError::ClosedStream => match told {
            Some(code) => WriteError::Stopped(code),
            None => WriteError::ClosedStream,
        },
        engine::WriteError::MissingBytes => WriteError::MissingBytes,
        engine::WriteError::ConnectionLost(error) => WriteError::ConnectionLost(error),
        // Callers wait on `Blocked`; only an ended connection could bring it here.
        engine::WriteError::Blocked => WriteError::ConnectionLost(lost(entry)),
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let (id, open) = (self.id, self.state == State::Open);
        let _slot = self.hooked(|engine, work| {
            let slot = work.entry.send.remove(&id);
            match engine {
                Some(engine) if open && work.entry.error.is_none() => {
                    // Where the stream is over there is nothing to give up.
                    let _ = work.reset(engine, 0, 0);
                    work.on_half_over(engine, Half::Sending);
                }
                _ => return (slot, Change::None),
            }
            (slot, Change::Made)
        });
    }
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStream")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

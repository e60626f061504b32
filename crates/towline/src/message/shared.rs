//! One incoming message: its stream, what is buffered of it, and who still needs what.
//!
//! Every reader holds a [`Handle`]. Whoever finds too little in the buffer pulls from the stream
//! under the lock and wakes the others; nothing runs in between. Only what lies within
//! [`MAX_MESSAGE_BUFFER`] of the slowest reader is pulled: the rest stays in the stream's window.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use towline_wire::StreamId;

use super::CODE_MALFORMED;
use super::buffer::{Buffer, MAX_MESSAGE_BUFFER};
use super::error::MessageError;
use super::fan::Fan;
use super::ranges::Ranges;
use crate::quic::RecvStream;

/// Most bytes taken from the stream at once.
const CHUNK: usize = 64 << 10;

/// What came before the payload.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) id: StreamId,
    pub(super) metadata: Bytes,
    pub(super) length: Option<u64>,
    /// Bytes of the stream before the payload.
    pub(super) len: u64,
}

struct Reader {
    key: u64,
    /// What it has had.
    seen: Ranges,
}

struct State {
    stream: RecvStream,
    buffer: Buffer,
    readers: Vec<Reader>,
    next_key: u64,
    /// Bytes of payload pulled.
    received: u64,
    /// The payload's length, once all of it was pulled.
    end: Option<u64>,
    fault: Option<MessageError>,
    /// The place among the messages accepted at once.
    _permit: OwnedSemaphorePermit,
}

struct Shared {
    head: Head,
    fan: Arc<Fan>,
    /// `fan` as the stream knows it.
    waker: Waker,
    state: Mutex<State>,
}

/// One reader's share in a message.
pub(super) struct Handle {
    shared: Arc<Shared>,
    key: u64,
}

impl Handle {
    /// The first reader of a message whose header was read from `stream`, in order.
    pub(super) fn new(head: Head, stream: RecvStream, permit: OwnedSemaphorePermit) -> Self {
        let fan = Arc::new(Fan::default());
        let state = State {
            stream,
            buffer: Buffer::default(),
            readers: vec![Reader {
                key: 0,
                seen: Ranges::default(),
            }],
            next_key: 1,
            received: 0,
            end: None,
            fault: None,
            _permit: permit,
        };
        let shared = Shared {
            head,
            waker: Waker::from(Arc::clone(&fan)),
            fan,
            state: Mutex::new(state),
        };
        Self {
            shared: Arc::new(shared),
            key: 0,
        }
    }

    pub(super) fn head(&self) -> &Head {
        &self.shared.head
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// The first byte this reader has not had.
    pub(super) fn position(&self) -> u64 {
        self.lock().seen(self.key).first_gap()
    }

    /// The next bytes in order, at most `max`; `None` at the end.
    pub(super) fn poll_chunk(
        &self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, MessageError>> {
        self.poll_pulling(cx, |state, key| {
            let position = state.seen(key).first_gap();
            if let Some(mut chunk) = state.buffer.at(position) {
                chunk.truncate(max);
                return Found::This(Some((position, chunk)));
            }
            state.end_or_more(position)
        })
        .map_ok(|found| {
            let (position, chunk) = found?;
            self.consume(position, chunk.len());
            Some(chunk)
        })
    }

    /// Bytes at `offset`, at most `max`, which this reader keeps; `None` at the end.
    pub(super) fn poll_at(
        &self,
        cx: &mut Context<'_>,
        offset: u64,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, MessageError>> {
        let position = self.position();
        if offset < position {
            return Poll::Ready(Err(MessageError::Released { offset, position }));
        }
        let found = self.poll_pulling(cx, |state, _| {
            if let Some(mut chunk) = state.buffer.at(offset) {
                chunk.truncate(max);
                return Found::This(Some(chunk));
            }
            state.end_or_more(offset)
        });
        if found.is_pending() && offset - position >= MAX_MESSAGE_BUFFER {
            return Poll::Ready(Err(MessageError::OutOfReach { offset, position }));
        }
        found
    }

    /// The lowest bytes that are here and that this reader has not had; `None` when it had all.
    pub(super) fn poll_fragment(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<(u64, Bytes)>, MessageError>> {
        self.poll_pulling(cx, |state, key| {
            let seen = state.seen(key);
            let position = seen.first_gap();
            let unseen = state
                .buffer
                .ranges(position)
                .find_map(|piece| seen.first_missing(piece));
            let Some(unseen) = unseen else {
                return state.end_or_more(position);
            };
            let Some(mut data) = state.buffer.at(unseen.start) else {
                return Found::More { below: u64::MAX };
            };
            data.truncate(usize::try_from(unseen.end - unseen.start).unwrap_or(usize::MAX));
            let fragment = Some((unseen.start, data));
            if unseen.start == position || state.end.is_some() {
                return Found::This(fragment);
            }
            Found::Unless {
                below: unseen.start,
                otherwise: fragment,
            }
        })
    }

    /// Ready when the message can no longer be read; otherwise the task is woken then.
    pub(super) fn poll_fault(&self, cx: &mut Context<'_>) -> Poll<MessageError> {
        let watched = self.poll_pulling(cx, |state, _| match state.end {
            Some(_) => Found::This(()),
            None => Found::More { below: 0 },
        });
        match watched {
            Poll::Ready(Err(fault)) => Poll::Ready(fault),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    /// Looks for something, pulling from the stream while `find` asks for more.
    fn poll_pulling<T>(
        &self,
        cx: &mut Context<'_>,
        mut find: impl FnMut(&State, u64) -> Found<T>,
    ) -> Poll<Result<T, MessageError>> {
        let fan = &self.shared.fan;
        let mut registered = false;
        let mut pulled = false;
        let mut state = self.lock();
        let result = loop {
            if let Some(fault) = &state.fault {
                break Poll::Ready(Err(fault.clone()));
            }
            let (below, otherwise) = match find(&state, self.key) {
                Found::This(found) => break Poll::Ready(Ok(found)),
                Found::More { below } => (below, None),
                Found::Unless { below, otherwise } => (below, Some(otherwise)),
            };
            // Before the attempt: what arrives right after it must find the waker.
            if !std::mem::replace(&mut registered, true) {
                fan.register(self.key, cx.waker());
            }
            if state.pull(&self.shared, below) {
                pulled = true;
                continue;
            }
            break match otherwise {
                Some(found) => Poll::Ready(Ok(found)),
                None => Poll::Pending,
            };
        };
        drop(state);
        if registered && result.is_ready() {
            fan.remove(self.key);
        }
        if pulled {
            self.wake_others();
        }
        result
    }

    fn wake_others(&self) {
        for waker in self.shared.fan.take_others(self.key) {
            waker.wake();
        }
    }

    /// This reader has had `len` bytes from `offset` on.
    pub(super) fn consume(&self, offset: u64, len: usize) {
        self.skip(offset, offset.saturating_add(len as u64));
    }

    /// This reader does not need the bytes from `start` to `end`.
    pub(super) fn skip(&self, start: u64, end: u64) {
        let mut state = self.lock();
        let floor = state.floor();
        let key = self.key;
        if let Some(reader) = state.readers.iter_mut().find(|reader| reader.key == key) {
            reader.seen.insert(start..end);
        }
        state.release(start, end);
        let moved = state.floor() > floor;
        drop(state);
        if moved {
            // They may have waited for room.
            self.wake_others();
        }
    }

    /// Asks the sender to stop with `code`, unless others read the message too.
    pub(super) fn leave(&self, code: u64) {
        let mut state = self.lock();
        if state.readers.len() == 1 && state.end.is_none() && state.fault.is_none() {
            state.stream.stop(code);
            state.fault = Some(MessageError::Stopped);
        }
    }
}

/// What a reader found in the buffer.
enum Found<T> {
    This(T),
    /// Nothing; what lies below may help.
    More {
        below: u64,
    },
    /// Something, but what lies below would be better.
    Unless {
        below: u64,
        otherwise: T,
    },
}

impl State {
    fn seen(&self, key: u64) -> &Ranges {
        let reader = self.readers.iter().find(|reader| reader.key == key);
        &reader
            .expect("a reader is listed while its handle lives")
            .seen
    }

    /// The position of the slowest reader.
    fn floor(&self) -> u64 {
        let positions = self.readers.iter().map(|reader| reader.seen.first_gap());
        positions.min().unwrap_or(u64::MAX)
    }

    /// For a reader that finds nothing at `position`.
    fn end_or_more<T>(&self, position: u64) -> Found<Option<T>> {
        match self.end {
            Some(end) if position >= end => Found::This(None),
            _ => Found::More { below: u64::MAX },
        }
    }

    /// Takes a chunk from below payload offset `below`, the end, or a fault; `false` for nothing.
    fn pull(&mut self, shared: &Shared, below: u64) -> bool {
        if self.end.is_some() {
            return false;
        }
        let reach = self.floor().saturating_add(MAX_MESSAGE_BUFFER);
        let below = below.min(reach).saturating_add(shared.head.len);
        let mut cx = Context::from_waker(&shared.waker);
        match self.stream.poll_read_unordered(&mut cx, below, CHUNK) {
            Poll::Pending => return false,
            Poll::Ready(Ok(Some(chunk))) => {
                let offset = chunk.offset.saturating_sub(shared.head.len);
                self.take(&shared.head, offset, chunk.data);
            }
            Poll::Ready(Ok(None)) => {
                self.end = Some(self.received);
                if let Some(declared) = shared.head.length
                    && self.received < declared
                {
                    self.fault = Some(MessageError::TooShort {
                        declared,
                        received: self.received,
                    });
                }
            }
            Poll::Ready(Err(error)) => self.fault = Some(error.into()),
        }
        if self.fault.is_some() {
            self.buffer = Buffer::default();
        }
        true
    }

    fn take(&mut self, head: &Head, offset: u64, data: Bytes) {
        let end = offset + data.len() as u64;
        self.received += data.len() as u64;
        if let Some(declared) = head.length.filter(|declared| end > *declared) {
            self.fault = Some(MessageError::TooLong { declared });
            self.stream.stop(CODE_MALFORMED);
            return;
        }
        self.buffer.insert(offset, data);
        // A reader may have skipped what had not arrived.
        self.release(offset, end);
    }

    /// Drops what no reader needs of the pieces between `start` and `end`.
    fn release(&mut self, start: u64, end: u64) {
        let readers = &self.readers;
        self.buffer.release(start..end, |piece| {
            readers
                .iter()
                .any(|reader| reader.seen.first_missing(piece.clone()).is_some())
        });
    }
}

impl Clone for Handle {
    /// A reader that has had as much as this one.
    fn clone(&self) -> Self {
        let mut state = self.lock();
        let key = state.next_key;
        state.next_key += 1;
        let seen = state.seen(self.key).clone();
        state.readers.push(Reader { key, seen });
        drop(state);
        Self {
            shared: Arc::clone(&self.shared),
            key,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.fan.remove(self.key);
        let mut state = self.lock();
        state.readers.retain(|reader| reader.key != self.key);
        // Of the last one the stream goes with `shared`, and the sender is told to stop.
        state.release(0, u64::MAX);
        drop(state);
        self.wake_others();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("id", &self.shared.head.id)
            .field("length", &self.shared.head.length)
            .finish_non_exhaustive()
    }
}

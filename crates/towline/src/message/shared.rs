//! One incoming message: its stream, and its [`Payload`] for all readers.
//!
//! Every reader holds a [`Handle`]. Whoever finds too little in the buffer pulls from the stream
//! under the lock and wakes the others; nothing runs in between. Only what lies within
//! [`MAX_MESSAGE_BUFFER`] of the slowest reader is pulled: the rest stays in the stream's window.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use towline_message::{Found, Head, LengthError, MAX_MESSAGE_BUFFER, Payload, ReaderId};
use towline_wire::StreamId;

use super::CODE_MALFORMED;
use super::error::MessageError;
use super::fan::Fan;
use crate::handles::RecvStream;

/// Most bytes taken from the stream at once.
const CHUNK: usize = 64 << 10;

struct State {
    stream: RecvStream,
    payload: Payload,
    fault: Option<MessageError>,
    /// The place among the messages accepted at once.
    _permit: OwnedSemaphorePermit,
}

struct Shared {
    id: StreamId,
    head: Head,
    fan: Arc<Fan>,
    /// `fan` as the stream knows it.
    waker: Waker,
    state: Mutex<State>,
}

/// One reader's share in a message.
pub(super) struct Handle {
    shared: Arc<Shared>,
    key: ReaderId,
}

impl Handle {
    /// The first reader of a message whose header was read from `stream`, in order.
    pub(super) fn new(head: Head, stream: RecvStream, permit: OwnedSemaphorePermit) -> Self {
        let fan = Arc::new(Fan::default());
        let (payload, key) = Payload::new(head.length);
        let id = stream.id();
        let state = State {
            stream,
            payload,
            fault: None,
            _permit: permit,
        };
        let shared = Shared {
            id,
            head,
            waker: Waker::from(Arc::clone(&fan)),
            fan,
            state: Mutex::new(state),
        };
        Self {
            shared: Arc::new(shared),
            key,
        }
    }

    pub(super) fn id(&self) -> StreamId {
        self.shared.id
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
        self.lock().payload.position(self.key)
    }

    /// The next bytes in order, at most `max`; `None` at the end.
    pub(super) fn poll_chunk(
        &self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, MessageError>> {
        let found = self.poll_pulling(cx, |payload, key| payload.find_next(key, max));
        found.map_ok(|found| {
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
        let found = self.poll_pulling(cx, |payload, _| payload.find_at(offset, max));
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
        self.poll_pulling(cx, Payload::find_fragment)
    }

    /// Ready when the message can no longer be read; otherwise the task is woken then.
    pub(super) fn poll_fault(&self, cx: &mut Context<'_>) -> Poll<MessageError> {
        let watched = self.poll_pulling(cx, |payload, _| {
            if payload.is_ended() {
                Found::This(())
            } else {
                Found::More { below: 0 }
            }
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
        find: impl Fn(&Payload, ReaderId) -> Found<T>,
    ) -> Poll<Result<T, MessageError>> {
        let fan = &self.shared.fan;
        let mut registered = false;
        let mut pulled = false;
        let mut state = self.lock();
        let result = loop {
            if let Some(fault) = &state.fault {
                break Poll::Ready(Err(fault.clone()));
            }
            let (below, otherwise) = match find(&state.payload, self.key) {
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
        let made_room = self.lock().payload.on_had(self.key, start..end);
        if made_room {
            self.wake_others();
        }
    }

    /// Asks the sender to stop with `code`, unless others read the message too.
    pub(super) fn leave(&self, code: u64) {
        let mut state = self.lock();
        if state.payload.readers() == 1 && !state.payload.is_ended() && state.fault.is_none() {
            state.stream.stop(code);
            state.fault = Some(MessageError::Stopped);
        }
    }
}

impl State {
    /// Takes a chunk from below payload offset `below`, the end, or a fault; `false` for nothing.
    fn pull(&mut self, shared: &Shared, below: u64) -> bool {
        if self.payload.is_ended() {
            return false;
        }
        let below = self.payload.room_below(below);
        let below = below.saturating_add(shared.head.len);
        let mut cx = Context::from_waker(&shared.waker);
        let taken = match self.stream.poll_read_unordered(&mut cx, below, CHUNK) {
            Poll::Pending => return false,
            Poll::Ready(Ok(Some(chunk))) => {
                let offset = chunk.offset.saturating_sub(shared.head.len);
                self.payload.handle_data(offset, chunk.data)
            }
            Poll::Ready(Ok(None)) => self.payload.handle_end(),
            Poll::Ready(Err(error)) => {
                self.payload.clear();
                self.fault = Some(error.into());
                return true;
            }
        };
        if let Err(error) = taken {
            if let LengthError::TooLong { .. } = error {
                self.stream.stop(CODE_MALFORMED);
            }
            self.fault = Some(error.into());
        }
        true
    }
}

impl Clone for Handle {
    /// A reader that has had as much as this one.
    fn clone(&self) -> Self {
        let mut state = self.lock();
        let key = state.payload.join(self.key);
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
        // Of the last one the stream goes with `shared`, and the sender is told to stop.
        state.payload.leave(self.key);
        drop(state);
        self.wake_others();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("id", &self.shared.id)
            .field("length", &self.shared.head.length)
            .finish_non_exhaustive()
    }
}

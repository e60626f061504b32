//! [`IncomingMessage`]: a message whose header has arrived and that nobody has read yet.

use bytes::Bytes;
use towline_wire::StreamId;

use super::error::{MessageError, PipeError};
use super::pipe;
use super::reader::{FragmentReader, MessageReader};
use super::shared::Handle;
use crate::handles::Connection;

/// A message that arrived, or begins to: its metadata is here, its payload need not be.
///
/// It stands for a reader at the first byte. Clone it for every further reader, then turn each
/// into what it shall be. As long as one is kept as it is, the message stays buffered from its
/// first byte on and the sender is held back. When the last reader is dropped before the end, the
/// sender is asked to stop with code 0.
#[derive(Clone, Debug)]
pub struct IncomingMessage {
    handle: Handle,
}

impl IncomingMessage {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// The stream that carries it.
    pub fn id(&self) -> StreamId {
        self.handle.id()
    }

    /// What the sender says about it.
    pub fn metadata(&self) -> &Bytes {
        &self.handle.head().metadata
    }

    /// Bytes of payload, if the sender declared them. A message that turns out otherwise is a
    /// [`MessageError`]; do not allocate by this number.
    pub fn length(&self) -> Option<u64> {
        self.handle.head().length
    }

    /// Reads the payload in order.
    pub fn into_reader(self) -> MessageReader {
        MessageReader::new(self.handle)
    }

    /// Reads the payload as it arrives, in any order.
    pub fn into_fragments(self) -> FragmentReader {
        FragmentReader::new(self.handle)
    }

    /// Reads the whole payload, which may have at most `limit` bytes.
    ///
    /// Not cancel safe: a dropped call drops the message.
    ///
    /// # Errors
    /// At once when more than `limit` bytes are declared; otherwise as
    /// [`MessageReader::next_chunk`].
    pub async fn read_to_end(self, limit: usize) -> Result<Vec<u8>, MessageError> {
        self.into_reader().read_to_end(limit).await
    }

    /// Forwards the message to another connection: the same metadata, the same declared length,
    /// and each fragment at its place as soon as it arrives, whatever is missing before it.
    /// Returns the bytes of payload once the end is on its way.
    ///
    /// Back-pressure goes both ways: a slow next node holds the sender back. So does a failure: if
    /// the sender aborts, the next node gets its code (a broken declaration is
    /// [`CODE_MALFORMED`](super::CODE_MALFORMED), a lost connection
    /// [`CODE_RELAY_LOST`](super::CODE_RELAY_LOST)); if the next node stops, the sender does,
    /// unless this side has other readers, which go on.
    ///
    /// Keep `next` until the message is delivered: dropped, it loses what it has not sent. Not
    /// cancel safe: a dropped call aborts the message at both sides with code 0.
    ///
    /// # Errors
    /// When the message cannot be read to its end or passed on.
    pub async fn pipe_to(self, next: &Connection) -> Result<u64, PipeError> {
        self.pipe_with_priority(next, 0).await
    }

    /// As [`pipe_to`](Self::pipe_to), at a priority among the streams of `next`
    /// ([`SendStream::set_priority`](crate::SendStream::set_priority)).
    ///
    /// # Errors
    /// As [`pipe_to`](Self::pipe_to).
    pub async fn pipe_with_priority(
        self,
        next: &Connection,
        priority: i64,
    ) -> Result<u64, PipeError> {
        pipe::pipe(self.handle, next, priority).await
    }

    /// Does not want the message: the sender is told `code`, unless there are other readers.
    pub fn stop(self, code: u64) {
        self.handle.leave(code);
    }
}

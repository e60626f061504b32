//! The two kinds of readers: in order, and as it arrives.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

use super::error::MessageError;
use super::shared::Handle;

/// Reads a message in order, with a position of its own.
///
/// A clone is another reader at the same position. [`MessageReader::read_at`] looks ahead without
/// moving. A fault of the message fails every reader at its next call, whatever was buffered.
#[derive(Clone, Debug)]
pub struct MessageReader {
    handle: Handle,
}

impl MessageReader {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// What the sender says about the message.
    pub fn metadata(&self) -> &Bytes {
        &self.handle.head().metadata
    }

    /// Bytes of payload, if the sender declared them.
    pub fn length(&self) -> Option<u64> {
        self.handle.head().length
    }

    /// Offset of the next byte.
    pub fn position(&self) -> u64 {
        self.handle.position()
    }

    /// The next bytes in order, without copying as a rule; `None` at the end, when all that was
    /// declared has arrived.
    ///
    /// Cancel safe: a dropped call took nothing.
    ///
    /// # Errors
    /// When the sender aborted the message or broke its declaration, or the connection is over.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, MessageError> {
        poll_fn(|cx| self.poll_next_chunk(cx)).await
    }

    /// As [`next_chunk`](Self::next_chunk), for an implementation of a stream trait.
    ///
    /// # Errors
    /// As [`next_chunk`](Self::next_chunk).
    pub fn poll_next_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, MessageError>> {
        self.handle.poll_chunk(cx, usize::MAX)
    }

    /// Reads what is left, which may be at most `limit` bytes.
    ///
    /// Not cancel safe: a dropped call loses what it had taken.
    ///
    /// # Errors
    /// At once when more is declared; otherwise as [`next_chunk`](Self::next_chunk).
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, MessageError> {
        let declared = self.length();
        let over = MessageError::OverLimit { declared, limit };
        let left = declared.map(|l| l.saturating_sub(self.position()));
        if left.is_some_and(|left| left > limit as u64) {
            return Err(over);
        }
        let mut all = Vec::new();
        while let Some(chunk) = self.next_chunk().await? {
            if chunk.len() > limit - all.len() {
                return Err(over);
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    /// Copies bytes at `offset`, at or beyond the position, into `out` as soon as one has arrived,
    /// whatever is missing before; returns how many, 0 at the end. The position stays.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`MessageError::Released`] before the position, [`MessageError::OutOfReach`] too far ahead
    /// of it ([`MAX_MESSAGE_BUFFER`](super::MAX_MESSAGE_BUFFER)); otherwise as
    /// [`next_chunk`](Self::next_chunk).
    pub async fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<usize, MessageError> {
        if out.is_empty() {
            return Ok(0);
        }
        let chunk = poll_fn(|cx| self.handle.poll_at(cx, offset, out.len())).await?;
        let Some(chunk) = chunk else { return Ok(0) };
        out[..chunk.len()].copy_from_slice(&chunk);
        Ok(chunk.len())
    }

    /// Moves the position forward, past bytes that need not have arrived. They are let go of.
    ///
    /// # Errors
    /// [`MessageError::Released`] before the position.
    pub fn skip_to(&mut self, offset: u64) -> Result<(), MessageError> {
        let position = self.position();
        if offset < position {
            return Err(MessageError::Released { offset, position });
        }
        self.handle.skip(position, offset);
        Ok(())
    }

    /// Goes on from here as the rest arrives, in any order.
    pub fn into_fragments(self) -> FragmentReader {
        FragmentReader::new(self.handle)
    }

    /// Wants no more: the sender is told `code`, unless there are other readers.
    pub fn stop(self, code: u64) {
        self.handle.leave(code);
    }
}

impl AsyncRead for MessageReader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        match self.handle.poll_chunk(cx, out.remaining()) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(chunk) => {
                if let Some(chunk) = chunk? {
                    out.put_slice(&chunk);
                }
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// Bytes of a message and where they belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Offset of the first byte in the payload.
    pub offset: u64,
    /// The bytes; not empty.
    pub data: Bytes,
}

/// Reads a message as it arrives: each byte once, in any order.
///
/// A clone is another reader that has had the same fragments.
#[derive(Clone, Debug)]
pub struct FragmentReader {
    handle: Handle,
}

impl FragmentReader {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// What the sender says about the message.
    pub fn metadata(&self) -> &Bytes {
        &self.handle.head().metadata
    }

    /// Bytes of payload, if the sender declared them.
    pub fn length(&self) -> Option<u64> {
        self.handle.head().length
    }

    /// The first byte this reader has not had.
    pub fn position(&self) -> u64 {
        self.handle.position()
    }

    /// The lowest fragment that has arrived and that this reader has not had, whatever is missing
    /// before it; `None` when it has had all, and all that was declared.
    ///
    /// Cancel safe: a dropped call took nothing.
    ///
    /// # Errors
    /// As [`MessageReader::next_chunk`].
    pub async fn next(&mut self) -> Result<Option<Fragment>, MessageError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for an implementation of a stream trait.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Fragment>, MessageError>> {
        self.handle.poll_fragment(cx).map_ok(|fragment| {
            let (offset, data) = fragment?;
            self.handle.consume(offset, data.len());
            Some(Fragment { offset, data })
        })
    }

    /// Wants no more: the sender is told `code`, unless there are other readers.
    pub fn stop(self, code: u64) {
        self.handle.leave(code);
    }
}

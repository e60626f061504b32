//! [`MessageSender`] and [`MessageWriter`]: messages out.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use towline_wire::{MAX_MESSAGE_METADATA, MAX_VARINT, MessageHeader, StreamId};

use super::error::SendMessageError;
use crate::handles::{Connection, SendStream};

/// What is said about a message before its payload.
#[derive(Clone, Debug, Default)]
pub struct MessageOptions {
    pub(super) metadata: Bytes,
    pub(super) length: Option<u64>,
    pub(super) priority: i64,
}

impl MessageOptions {
    /// A message with this metadata, at most [`MAX_MESSAGE_METADATA`] bytes, which the receiver
    /// has before the payload.
    pub fn new(metadata: impl Into<Bytes>) -> Self {
        Self {
            metadata: metadata.into(),
            ..Self::default()
        }
    }

    /// Declares the length of the payload, at most 2^62-1 bytes. Exactly as many must be written.
    #[must_use]
    pub fn length(mut self, bytes: u64) -> Self {
        self.length = Some(bytes);
        self
    }

    /// How urgent it is, as of [`SendStream::set_priority`]: higher first, 0 by default. Messages
    /// of lower priority wait for as long as this one can send.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }
}

/// Sends messages on a connection. Clones are the same.
#[derive(Clone, Debug)]
pub struct MessageSender {
    connection: Connection,
}

impl MessageSender {
    /// A sender on `connection`, whose peer must expect messages on its unidirectional streams.
    pub fn new(connection: &Connection) -> Self {
        Self {
            connection: connection.clone(),
        }
    }

    /// Begins a message: takes a stream, for which it waits while the peer permits no more, and
    /// writes header and metadata.
    ///
    /// A dropped call begins nothing, or aborts what it began with code 0.
    ///
    /// # Errors
    /// When the options are impossible, the receiver refused already, or the connection is over.
    pub async fn open(&self, options: MessageOptions) -> Result<MessageWriter, SendMessageError> {
        let MessageOptions {
            metadata,
            length,
            priority,
        } = options;
        if metadata.len() > MAX_MESSAGE_METADATA {
            let len = metadata.len();
            return Err(SendMessageError::MetadataTooLong { len });
        }
        if let Some(declared) = length.filter(|length| *length > MAX_VARINT) {
            return Err(SendMessageError::ImpossibleLength { declared });
        }
        let mut stream = self.connection.open_uni().await?;
        if priority != 0 {
            stream.set_priority(priority)?;
        }
        let header = MessageHeader {
            metadata_len: metadata.len(),
            length,
        };
        let mut head = Vec::new();
        header.emit(&mut head);
        head.extend_from_slice(&metadata);
        let head_len = head.len() as u64;
        stream.write_chunk(head.into()).await?;
        Ok(MessageWriter {
            stream,
            head_len,
            declared: length,
            written: 0,
        })
    }

    /// Sends a message at once, with its length declared, and returns when all of it is in the
    /// send buffer. Keep the connection until it is delivered.
    ///
    /// A dropped call aborts the message with code 0.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn send(
        &self,
        metadata: impl Into<Bytes>,
        payload: impl Into<Bytes>,
    ) -> Result<(), SendMessageError> {
        let payload = payload.into();
        let options = MessageOptions::new(metadata).length(payload.len() as u64);
        let mut writer = self.open(options).await?;
        writer.write_chunk(payload).await?;
        writer.finish()
    }
}

/// A message being sent.
///
/// Dropped before [`finish`](Self::finish), it aborts the message with code 0: the receiver never
/// takes a part for the whole.
pub struct MessageWriter {
    stream: SendStream,
    head_len: u64,
    declared: Option<u64>,
    written: u64,
}

impl MessageWriter {
    /// The stream that carries it.
    pub fn id(&self) -> StreamId {
        self.stream.id()
    }

    /// Bytes of payload written.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn check(&self, len: usize) -> Result<(), SendMessageError> {
        match self.declared {
            Some(declared) if len as u64 > declared - self.written => {
                Err(SendMessageError::TooLong { declared })
            }
            _ => Ok(()),
        }
    }

    /// Writes as much of `data` as fits, at least one byte, and returns how much.
    ///
    /// Cancel safe: a dropped call wrote nothing.
    ///
    /// # Errors
    /// When all of `data` would be more than declared (nothing is written), the receiver stopped
    /// the message, it was ended before, or the connection is over.
    pub async fn write(&mut self, data: &[u8]) -> Result<usize, SendMessageError> {
        self.check(data.len())?;
        let n = self.stream.write(data).await?;
        self.written += n as u64;
        Ok(n)
    }

    /// Writes all of `data`.
    ///
    /// Not cancel safe: a dropped call may have written a part.
    ///
    /// # Errors
    /// As [`write`](Self::write); a part may have been written.
    pub async fn write_all(&mut self, mut data: &[u8]) -> Result<(), SendMessageError> {
        self.check(data.len())?;
        while !data.is_empty() {
            let n = self.write(data).await?;
            data = &data[n..];
        }
        Ok(())
    }

    /// Writes all of `data` without copying it.
    ///
    /// Not cancel safe: a dropped call may have written a part.
    ///
    /// # Errors
    /// As [`write`](Self::write); a part may have been written.
    pub async fn write_chunk(&mut self, mut data: Bytes) -> Result<(), SendMessageError> {
        self.check(data.len())?;
        while !data.is_empty() {
            self.written += self.stream.write_some(&mut data).await? as u64;
        }
        Ok(())
    }

    /// Changes how urgent the message is, also for what was written before.
    ///
    /// # Errors
    /// When the message was ended and delivered, or the connection is over.
    pub fn set_priority(&self, priority: i64) -> Result<(), SendMessageError> {
        Ok(self.stream.set_priority(priority)?)
    }

    /// Ends the message after what was written.
    ///
    /// # Errors
    /// [`SendMessageError::TooShort`] when bytes that were declared are missing: the message stays
    /// open. Otherwise as [`write`](Self::write).
    pub fn finish(&mut self) -> Result<(), SendMessageError> {
        if let Some(declared) = self.declared.filter(|declared| self.written < *declared) {
            let written = self.written;
            return Err(SendMessageError::TooShort { declared, written });
        }
        Ok(self.stream.finish()?)
    }

    /// Finishes the message, if that was not done yet, and waits until the receiver's transport
    /// has all of it, which says nothing of its application.
    ///
    /// Cancel safe: the message is finished, the wait can be taken up again.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub async fn delivered(&mut self) -> Result<(), SendMessageError> {
        if let Some(declared) = self.declared.filter(|declared| self.written < *declared) {
            let written = self.written;
            return Err(SendMessageError::TooShort { declared, written });
        }
        Ok(self.stream.finished().await?)
    }

    /// Waits until the receiver wants no more of the message and returns its code; `None` if it
    /// was delivered to its end instead. Cancel safe.
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn stopped(&mut self) -> Result<Option<u64>, SendMessageError> {
        Ok(self.stream.stopped().await?)
    }

    /// Gives the message up: its readers fail with `code`.
    pub fn abort(mut self, code: u64) {
        self.stream.reset(code);
    }

    /// For a relay, which keeps the declaration by what it forwards: the stream and the bytes in
    /// it before the payload.
    pub(super) fn into_parts(self) -> (SendStream, u64) {
        (self.stream, self.head_len)
    }
}

impl AsyncWrite for MessageWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(data.len())?;
        let written = self.stream.poll_write(cx, data);
        written
            .map_ok(|n| {
                self.written += n as u64;
                n
            })
            .map_err(|error| SendMessageError::from(error).into())
    }

    /// Nothing to do: the engine sends as soon as credit and window permit.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// [`finish`](MessageWriter::finish); it does not wait for the peer.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(declared) = self.declared.filter(|declared| self.written < *declared) {
            let written = self.written;
            return Poll::Ready(Err(SendMessageError::TooShort { declared, written }.into()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl fmt::Debug for MessageWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageWriter")
            .field("id", &self.stream.id())
            .field("declared", &self.declared)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

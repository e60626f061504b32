//! What can go wrong with a message, and whose fault it is.

use std::io;

use towline_message::LengthError;
use towline_quic::ConnectionError;
use towline_wire::{MAX_MESSAGE_METADATA, MAX_VARINT};

use super::{CODE_HEADER_TIMEOUT, CODE_MALFORMED, CODE_RELAY_LOST};
use crate::handles::{ReadError, WriteError, kind_of};

/// Why a message cannot be read (on).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The sender gave the message up, with this code.
    #[error("the sender aborted the message with code {0:#x}{why}", why = meaning(*.0))]
    Aborted(u64),
    /// The sender sent more than it had declared: its fault.
    #[error(
        "the sender declared {declared} bytes and sent more: its fault, throw away what was read"
    )]
    TooLong {
        /// Bytes of payload it had declared.
        declared: u64,
    },
    /// The sender ended the message before all it had declared: its fault.
    #[error(
        "the sender declared {declared} bytes and ended the message after {received}: its fault, \
         throw away what was read"
    )]
    TooShort {
        /// Bytes of payload it had declared.
        declared: u64,
        /// Bytes of payload it sent.
        received: u64,
    },
    /// The message is larger than the caller's limit.
    #[error("{}; read it in parts, or raise the limit", over(*declared, *limit))]
    OverLimit {
        /// Bytes of payload the sender declared, if it did.
        declared: Option<u64>,
        /// What the caller gave.
        limit: usize,
    },
    /// `read_at` or `skip_to` of bytes before the reader's position, which may be gone.
    #[error("offset {offset} lies before the reader's position {position}")]
    Released {
        /// What was asked for.
        offset: u64,
        /// Where the reader is.
        position: u64,
    },
    /// `read_at` of bytes so far ahead of the reader's position that they are not buffered.
    #[error("offset {offset} is not buffered while the reader is at {position}; skip there first")]
    OutOfReach {
        /// What was asked for.
        offset: u64,
        /// Where the reader is.
        position: u64,
    },
    /// This side stopped the message.
    #[error("this side has stopped the message")]
    Stopped,
    /// The connection is over.
    #[error("connection lost: {0}")]
    ConnectionLost(ConnectionError),
}

impl From<ReadError> for MessageError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::Aborted(code),
            // Messages are read by unordered reads alone.
            ReadError::ClosedStream | ReadError::IllegalOrderedRead => Self::Stopped,
            ReadError::ConnectionLost(error) => Self::ConnectionLost(error),
        }
    }
}

impl From<LengthError> for MessageError {
    fn from(error: LengthError) -> Self {
        match error {
            LengthError::TooLong { declared } => Self::TooLong { declared },
            LengthError::TooShort { declared, received } => Self::TooShort { declared, received },
        }
    }
}

impl From<MessageError> for io::Error {
    fn from(error: MessageError) -> Self {
        let kind = match &error {
            MessageError::Aborted(_) => io::ErrorKind::ConnectionReset,
            MessageError::TooLong { .. } | MessageError::OverLimit { .. } => {
                io::ErrorKind::InvalidData
            }
            MessageError::TooShort { .. } => io::ErrorKind::UnexpectedEof,
            MessageError::Released { .. } | MessageError::OutOfReach { .. } => {
                io::ErrorKind::InvalidInput
            }
            MessageError::Stopped => io::ErrorKind::NotConnected,
            MessageError::ConnectionLost(lost) => kind_of(lost),
        };
        Self::new(kind, error)
    }
}

/// Why a message cannot be sent (on).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendMessageError {
    /// More metadata than any receiver takes.
    #[error("{len} bytes of metadata; a message has room for {MAX_MESSAGE_METADATA}")]
    MetadataTooLong {
        /// Bytes given.
        len: usize,
    },
    /// The length to declare is beyond 2^62-1; nothing was begun.
    #[error("{declared} bytes were to be declared; a message has at most {MAX_VARINT}")]
    ImpossibleLength {
        /// Bytes of payload to declare.
        declared: u64,
    },
    /// The write goes beyond the declared length; nothing was written.
    #[error("this write would go beyond the {declared} bytes declared")]
    TooLong {
        /// Bytes of payload declared.
        declared: u64,
    },
    /// The message cannot be finished: bytes that were declared are missing.
    #[error("{declared} bytes were declared and {written} written; write the rest, or abort")]
    TooShort {
        /// Bytes of payload declared.
        declared: u64,
        /// Bytes of payload written.
        written: u64,
    },
    /// The receiver does not want (more of) the message, with this code.
    #[error("the receiver stopped the message with code {0:#x}{why}", why = meaning(*.0))]
    Stopped(u64),
    /// This side has finished or aborted the message.
    #[error("the message is already finished or aborted")]
    Closed,
    /// The connection is over.
    #[error("connection lost: {0}")]
    ConnectionLost(#[from] ConnectionError),
}

impl From<WriteError> for SendMessageError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::Stopped(code),
            // Only a relay leaves bytes out, and it finishes when it has them all.
            WriteError::ClosedStream | WriteError::MissingBytes => Self::Closed,
            WriteError::ConnectionLost(error) => Self::ConnectionLost(error),
        }
    }
}

impl From<SendMessageError> for io::Error {
    fn from(error: SendMessageError) -> Self {
        let kind = match &error {
            SendMessageError::MetadataTooLong { .. }
            | SendMessageError::ImpossibleLength { .. }
            | SendMessageError::TooLong { .. }
            | SendMessageError::TooShort { .. } => io::ErrorKind::InvalidInput,
            SendMessageError::Stopped(_) => io::ErrorKind::BrokenPipe,
            SendMessageError::Closed => io::ErrorKind::NotConnected,
            SendMessageError::ConnectionLost(lost) => kind_of(lost),
        };
        Self::new(kind, error)
    }
}

/// Why a message was not forwarded to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PipeError {
    /// It could not be read; the next node was told.
    #[error("the message could not be read to its end: {0}")]
    Incoming(#[source] MessageError),
    /// It could not be passed on; the sender was told, unless others still read it.
    #[error("the message could not be passed on: {0}")]
    Outgoing(#[source] SendMessageError),
}

/// What a code says that messages give themselves; others are the application's.
fn meaning(code: u64) -> &'static str {
    match code {
        CODE_MALFORMED => ": it breaks the format or its own declaration",
        CODE_HEADER_TIMEOUT => ": its header took too long",
        CODE_RELAY_LOST => ": a relay lost its other connection",
        _ => "",
    }
}

fn over(declared: Option<u64>, limit: usize) -> String {
    match declared {
        Some(declared) => {
            format!("the sender declares {declared} bytes, this reader takes at most {limit}")
        }
        None => format!("the sender sends more than the {limit} bytes this reader takes"),
    }
}

#[cfg(test)]
mod tests;

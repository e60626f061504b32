//! The header of a message: what a unidirectional stream of the message API begins with.
//!
//! ```text
//! Message {
//!   Type (i) = 0x2d4c..0x2d4d,
//!   Metadata Length (i),
//!   [Length (i)],
//!   Metadata (..),
//!   Payload (..),
//! }
//! ```
//!
//! The type names version 1; its lowest bit says that Length, the size of the payload, is there.
//! Without it the payload ends with the stream. Owned here: the fields before the metadata. Called
//! by the message API; never holds metadata or payload, never decides how much may be buffered.

use core::fmt;

use crate::cursor::{MAX_VARINT, Reader, emit_varint};

#[cfg(test)]
mod tests;

/// Type of a message of version 1 whose length is not declared.
const TYPE_V1: u64 = 0x2d4c;

/// Bit of the type: the length follows.
const HAS_LENGTH: u64 = 0x01;

/// Cap: bytes of metadata a message may declare.
pub const MAX_MESSAGE_METADATA: usize = 64 * 1024;

/// Most bytes the fields before the metadata take, in any encoding.
pub const MAX_MESSAGE_HEADER_LEN: usize = 24;

/// The fields before the metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageHeader {
    /// Bytes of metadata that follow.
    pub metadata_len: usize,
    /// Bytes of payload, where the sender declared them.
    pub length: Option<u64>,
}

/// Why a stream is no message this side can take. The peer's fault in each case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageHeaderError {
    /// It begins with another type than those of version 1.
    UnknownType(u64),
    /// It declares more metadata than [`MAX_MESSAGE_METADATA`].
    MetadataTooLong(u64),
}

impl fmt::Display for MessageHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(kind) => write!(
                f,
                "the peer's stream begins with type {kind:#x}, which is no message of version 1"
            ),
            Self::MetadataTooLong(len) => write!(
                f,
                "the peer declares {len} bytes of metadata; at most {MAX_MESSAGE_METADATA} are taken, \
                 more belongs into the payload"
            ),
        }
    }
}

impl core::error::Error for MessageHeaderError {}

impl MessageHeader {
    /// Reads the fields at the start of `bytes` and returns them with their length; `None` if more
    /// bytes are needed, at least one.
    ///
    /// # Errors
    /// When what is there can be no message, as early as that is certain.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, MessageHeaderError> {
        let mut r = Reader::new(bytes);
        let Ok(kind) = r.varint() else {
            return Ok(None);
        };
        if kind & !HAS_LENGTH != TYPE_V1 {
            return Err(MessageHeaderError::UnknownType(kind));
        }
        let Ok(declared) = r.varint() else {
            return Ok(None);
        };
        let metadata_len = usize::try_from(declared)
            .ok()
            .filter(|len| *len <= MAX_MESSAGE_METADATA)
            .ok_or(MessageHeaderError::MetadataTooLong(declared))?;
        let length = if kind & HAS_LENGTH == 0 {
            None
        } else {
            match r.varint() {
                Ok(length) => Some(length),
                Err(_) => return Ok(None),
            }
        };
        let header = Self {
            metadata_len,
            length,
        };
        Ok(Some((header, r.position())))
    }

    /// Appends the fields. A length above [`MAX_VARINT`] is a caller's mistake and is clamped.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let bit = if self.length.is_some() { HAS_LENGTH } else { 0 };
        emit_varint(out, TYPE_V1 | bit);
        emit_varint(out, self.metadata_len as u64);
        if let Some(length) = self.length {
            emit_varint(out, length.min(MAX_VARINT));
        }
    }
}

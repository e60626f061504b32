//! What comes before the payload: collected byte by byte if need be, and nothing beyond.

use bytes::Bytes;
use towline_wire::{MessageHeader, MessageHeaderError};

/// What came before the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the sender says about the message.
    pub metadata: Bytes,
    /// Bytes of payload, where the sender declared them.
    pub length: Option<u64>,
    /// Bytes of the stream before the payload.
    pub len: u64,
}

/// Collects the header and metadata of a message. Memory is taken for what arrives, never for what
/// is declared.
#[derive(Debug, Default)]
pub struct HeadReader {
    /// Header and metadata as far as they have arrived; nothing beyond.
    bytes: Vec<u8>,
    /// The fields before the metadata, and their length.
    header: Option<(MessageHeader, usize)>,
}

impl HeadReader {
    /// Bytes to read next, of which none belongs to the payload; 0 when all is here.
    ///
    /// # Errors
    /// When what is here can be no message.
    pub fn missing(&mut self) -> Result<usize, MessageHeaderError> {
        if self.header.is_none() {
            self.header = MessageHeader::parse(&self.bytes)?;
        }
        Ok(match &self.header {
            Some((header, fields)) => fields + header.metadata_len - self.bytes.len(),
            // Of the fields nobody knows how long they are.
            None => 1,
        })
    }

    /// Takes the next bytes of the stream, at most [`HeadReader::missing`].
    pub fn handle_data(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
    }

    /// What came, when nothing is missing.
    pub fn finish(self) -> Option<Head> {
        let (header, fields) = self.header?;
        let len = fields + header.metadata_len;
        (self.bytes.len() == len).then(|| Head {
            metadata: Bytes::from(self.bytes).slice(fields..),
            length: header.length,
            len: len as u64,
        })
    }
}

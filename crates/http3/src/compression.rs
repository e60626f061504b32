//! Field compression with a dynamic table: QPACK (RFC 9204).
//!
//! Owns the two tables of a connection, ours and the peer's, and says what goes onto the two
//! instruction streams. It touches no stream: whoever owns them hands in what arrived and takes out
//! what is to be sent. The byte formats are those of `towline_wire::qpack`.

mod decoder;
mod encoder;
mod table;

#[cfg(test)]
mod tests;

use core::fmt;

use towline_wire::http3::ErrorCode;

pub use decoder::{Decoded, Decoder};
pub use encoder::Encoder;

/// Cap: bytes of instructions that wait to be sent. With more of them the encoder inserts nothing,
/// and the decoder takes no sections.
const MAX_UNSENT_INSTRUCTIONS: usize = 16 * 1024;

/// Whether a field may be in a table, here or at the next hop (RFC 9204 §7.1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sensitivity {
    /// It may.
    Normal,
    /// It must not: it is a secret.
    Never,
}

/// What a peer did wrong: the connection is closed with this code (RFC 9204 §6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error {
    /// The code in CONNECTION_CLOSE.
    pub code: ErrorCode,
    /// What was wrong, for people.
    pub reason: &'static str,
}

impl Error {
    const fn decompression(reason: &'static str) -> Self {
        let code = ErrorCode::QPACK_DECOMPRESSION_FAILED;
        Self { code, reason }
    }

    const fn encoder_stream(reason: &'static str) -> Self {
        let code = ErrorCode::QPACK_ENCODER_STREAM_ERROR;
        Self { code, reason }
    }

    const fn decoder_stream(reason: &'static str) -> Self {
        let code = ErrorCode::QPACK_DECODER_STREAM_ERROR;
        Self { code, reason }
    }

    const fn load(reason: &'static str) -> Self {
        let code = ErrorCode::H3_EXCESSIVE_LOAD;
        Self { code, reason }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl core::error::Error for Error {}

//! Why a frame can't be read: what its parser returns, and what a parser of a body hands to it.

use core::fmt;

use super::kind::FrameType;
use crate::cursor::UnexpectedEnd;
use crate::error_code::TransportErrorCode;

/// Why a frame can't be read: the connection must be closed with `code`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameError {
    /// FRAME_ENCODING_ERROR or PROTOCOL_VIOLATION.
    pub code: TransportErrorCode,
    /// The frame's type, if it could be read.
    pub frame_type: Option<u64>,
    /// What is wrong, for the close reason and the log.
    pub what: &'static str,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.code)?;
        if let Some(ty) = self.frame_type {
            write!(f, "{}: ", FrameType::from_u64(ty))?;
        }
        f.write_str(self.what)
    }
}

impl core::error::Error for FrameError {}

/// A fault in a frame's body: all of them are FRAME_ENCODING_ERROR.
pub(super) struct Malformed(pub(super) &'static str);

impl From<UnexpectedEnd> for Malformed {
    #[inline]
    fn from(_: UnexpectedEnd) -> Self {
        Self("frame ends early")
    }
}

//! Transport error codes: the "code" of a CONNECTION_CLOSE frame of type 0x1c (RFC 9000 §20.1).
//!
//! Owns their numbers and names. Used by whoever finds a peer's mistake and by whoever prints
//! one. Application error codes are plain `u64`s and never go through this type.

use core::fmt;

#[cfg(test)]
mod tests;

/// A transport error code (RFC 9000 §20.1). Unknown codes are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportErrorCode(u64);

impl TransportErrorCode {
    /// An orderly close without an error.
    pub const NO_ERROR: Self = Self(0x00);
    /// The endpoint can't go on for a reason of its own.
    pub const INTERNAL_ERROR: Self = Self(0x01);
    /// The server refused the connection.
    pub const CONNECTION_REFUSED: Self = Self(0x02);
    /// More data than was permitted.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x03);
    /// More streams than were permitted.
    pub const STREAM_LIMIT_ERROR: Self = Self(0x04);
    /// A frame for a stream in a state that doesn't permit it.
    pub const STREAM_STATE_ERROR: Self = Self(0x05);
    /// A stream's final size changed or was exceeded.
    pub const FINAL_SIZE_ERROR: Self = Self(0x06);
    /// A badly formatted or unknown frame.
    pub const FRAME_ENCODING_ERROR: Self = Self(0x07);
    /// Badly formatted, missing or forbidden transport parameters.
    pub const TRANSPORT_PARAMETER_ERROR: Self = Self(0x08);
    /// More connection IDs than were permitted.
    pub const CONNECTION_ID_LIMIT_ERROR: Self = Self(0x09);
    /// A breach that has no code of its own.
    pub const PROTOCOL_VIOLATION: Self = Self(0x0a);
    /// A client's Initial carried an invalid Retry token.
    pub const INVALID_TOKEN: Self = Self(0x0b);
    /// The application or its protocol closed the connection before it could say so itself.
    pub const APPLICATION_ERROR: Self = Self(0x0c);
    /// More CRYPTO data than can be buffered.
    pub const CRYPTO_BUFFER_EXCEEDED: Self = Self(0x0d);
    /// An error in a key update.
    pub const KEY_UPDATE_ERROR: Self = Self(0x0e);
    /// The limit of an AEAD's use was reached.
    pub const AEAD_LIMIT_REACHED: Self = Self(0x0f);
    /// No path can carry QUIC.
    pub const NO_VIABLE_PATH: Self = Self(0x10);
    /// Version negotiation was tampered with (RFC 9368 §7.3).
    pub const VERSION_NEGOTIATION_ERROR: Self = Self(0x11);

    /// The code for a TLS alert, `0x100 + alert`: CRYPTO_ERROR (RFC 9001 §4.8).
    #[inline]
    pub const fn crypto(alert: u8) -> Self {
        Self(0x100 | alert as u64)
    }

    /// The TLS alert in a CRYPTO_ERROR; `None` for every other code.
    #[inline]
    pub const fn is_crypto(self) -> Option<u8> {
        if self.0 >> 8 == 1 {
            Some(self.0 as u8)
        } else {
            None
        }
    }

    /// The code as it came off the wire.
    #[inline]
    pub const fn from_u64(code: u64) -> Self {
        Self(code)
    }

    /// The number on the wire.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NO_ERROR => "NO_ERROR",
            Self::INTERNAL_ERROR => "INTERNAL_ERROR",
            Self::CONNECTION_REFUSED => "CONNECTION_REFUSED",
            Self::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            Self::STREAM_LIMIT_ERROR => "STREAM_LIMIT_ERROR",
            Self::STREAM_STATE_ERROR => "STREAM_STATE_ERROR",
            Self::FINAL_SIZE_ERROR => "FINAL_SIZE_ERROR",
            Self::FRAME_ENCODING_ERROR => "FRAME_ENCODING_ERROR",
            Self::TRANSPORT_PARAMETER_ERROR => "TRANSPORT_PARAMETER_ERROR",
            Self::CONNECTION_ID_LIMIT_ERROR => "CONNECTION_ID_LIMIT_ERROR",
            Self::PROTOCOL_VIOLATION => "PROTOCOL_VIOLATION",
            Self::INVALID_TOKEN => "INVALID_TOKEN",
            Self::APPLICATION_ERROR => "APPLICATION_ERROR",
            Self::CRYPTO_BUFFER_EXCEEDED => "CRYPTO_BUFFER_EXCEEDED",
            Self::KEY_UPDATE_ERROR => "KEY_UPDATE_ERROR",
            Self::AEAD_LIMIT_REACHED => "AEAD_LIMIT_REACHED",
            Self::NO_VIABLE_PATH => "NO_VIABLE_PATH",
            Self::VERSION_NEGOTIATION_ERROR => "VERSION_NEGOTIATION_ERROR",
            _ => return None,
        })
    }
}

impl fmt::Display for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.is_crypto()) {
            (Some(name), _) => f.write_str(name),
            (None, Some(alert)) => write!(f, "CRYPTO_ERROR (TLS alert {alert})"),
            (None, None) => write!(f, "error {:#x}", self.0),
        }
    }
}

impl fmt::Debug for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<TransportErrorCode> for u64 {
    fn from(code: TransportErrorCode) -> Self {
        code.0
    }
}

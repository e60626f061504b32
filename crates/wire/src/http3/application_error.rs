//! Error codes of a WebTransport application, within the error codes of HTTP/3.
//!
//! RESET_STREAM and STOP_SENDING carry one number for HTTP/3 and for the applications above it. A
//! range of it belongs to WebTransport (draft-ietf-webtrans-http3-16 §4.4). The reserved codes
//! `0x1f * N + 0x21` in it (RFC 9114 §8.1) stand for nothing and are left out of the count.

use super::error_code::ErrorCode;

/// The HTTP/3 code of the application's code 0.
const FIRST: u64 = 0x52e4_a40f_a8db;

/// How many codes lie between two reserved ones. [`FIRST`] follows upon a reserved one.
const RUN: u64 = 0x1e;

/// How wide the range of application codes is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApplicationErrorRange {
    /// 0 to 2^8 - 1 (draft-ietf-webtrans-http3-02 §4.3).
    EightBits,
    /// 0 to 2^32 - 1 (draft-ietf-webtrans-http3-16 §4.4).
    ThirtyTwoBits,
}

impl ApplicationErrorRange {
    /// The greatest code an application can name.
    #[inline]
    pub const fn max(self) -> u32 {
        match self {
            Self::EightBits => 0xff,
            Self::ThirtyTwoBits => u32::MAX,
        }
    }

    /// The HTTP/3 code of an application's code; `None` above [`max`](Self::max).
    pub const fn to_http3(self, code: u32) -> Option<ErrorCode> {
        if code > self.max() {
            return None;
        }
        let code = code as u64;
        Some(ErrorCode::from_u64(FIRST + code + code / RUN))
    }

    /// The application's code of an HTTP/3 code; `None` outside the range and for reserved codes.
    pub fn to_application(self, code: ErrorCode) -> Option<u32> {
        let offset = code.as_u64().checked_sub(FIRST)?;
        if code.is_reserved() {
            return None;
        }
        let code = u32::try_from(offset - offset / (RUN + 1)).ok()?;
        (code <= self.max()).then_some(code)
    }
}

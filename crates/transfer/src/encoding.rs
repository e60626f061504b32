//! What every part of the format is written with: varints, and the error of bytes that are none of
//! it. Below messages and reasons, which both use it; knows neither.

use towline_wire::{UnexpectedEnd, varint_len};

/// Why bytes from a peer are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl From<UnexpectedEnd> for Malformed {
    fn from(_: UnexpectedEnd) -> Self {
        Self("a message ends too early")
    }
}

/// Appends a QUIC variable-length integer (RFC 9000 §16); larger values are cut to the maximum.
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    let value = value.min(towline_wire::MAX_VARINT);
    let bytes = value.to_be_bytes();
    let length = varint_len(value);
    let start = out.len();
    out.extend_from_slice(&bytes[8 - length..]);
    out[start] |= (length.trailing_zeros() as u8) << 6;
}

/// A varint in its four-byte form, for lengths known only after the data; `value` < 2^30.
pub(crate) fn varint4(value: u32) -> [u8; 4] {
    (value | 0x8000_0000).to_be_bytes()
}

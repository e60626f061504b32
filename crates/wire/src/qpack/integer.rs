//! Integers that share their first byte with flags (RFC 7541 §5.1, RFC 9204 §4.1.1).

use core::fmt;

use crate::cursor::{MAX_VARINT, Reader, UnexpectedEnd};

/// Why bytes are no QPACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpackError {
    /// They end before the value does; more bytes may come.
    Truncated,
    /// An integer above 2^62 - 1, or one spelled with more bytes than any needs (RFC 9204 §7.4).
    IntegerTooLarge,
    /// A string whose Huffman code is none: it holds the end of a string, or its padding is longer than
    /// 7 bits or holds a 0 (RFC 7541 §5.2).
    Huffman,
}

impl fmt::Display for QpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "input ends early",
            Self::IntegerTooLarge => "an integer is above 2^62 - 1",
            Self::Huffman => "a string's Huffman code is invalid",
        })
    }
}

impl core::error::Error for QpackError {}

impl From<UnexpectedEnd> for QpackError {
    fn from(_: UnexpectedEnd) -> Self {
        Self::Truncated
    }
}

/// Most bytes of an integer after its first: 7 bits each, 62 bits in all.
const MAX_CONTINUATION: u32 = 9;

const fn mask(prefix: u32) -> u8 {
    debug_assert!(prefix >= 1 && prefix <= 8);
    0xff >> (8 - prefix)
}

/// Reads an integer whose first `prefix` bits (1 to 8) are the lowest of the next byte. A failed
/// read leaves the position where it was.
///
/// # Errors
/// When the bytes end, or the integer is above 2^62 - 1.
pub fn parse_integer(reader: &mut Reader<'_>, prefix: u32) -> Result<u64, QpackError> {
    let mut ahead = reader.clone();
    let mut value = u64::from(ahead.u8()? & mask(prefix));
    if value == u64::from(mask(prefix)) {
        for at in 0..=MAX_CONTINUATION {
            if at == MAX_CONTINUATION {
                return Err(QpackError::IntegerTooLarge);
            }
            let byte = ahead.u8()?;
            value += u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                break;
            }
        }
    }
    if value > MAX_VARINT {
        return Err(QpackError::IntegerTooLarge);
    }
    *reader = ahead;
    Ok(value)
}

/// Appends an integer behind the flags in `first`, whose lowest `prefix` bits (1 to 8) must be 0.
pub fn emit_integer(out: &mut Vec<u8>, first: u8, prefix: u32, value: u64) {
    let max = mask(prefix);
    debug_assert!(first & max == 0);
    if value < u64::from(max) {
        out.push(first | value as u8);
        return;
    }
    out.push(first | max);
    let mut rest = value - u64::from(max);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

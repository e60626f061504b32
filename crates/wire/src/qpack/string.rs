//! String literals (RFC 7541 §5.2, RFC 9204 §4.1.2).

use super::huffman::{huffman_decode, huffman_encode, huffman_len};
use super::integer::{QpackError, emit_integer, parse_integer};
use crate::cursor::Reader;

/// A string as it stands on the wire: plain, or in the Huffman code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StringLiteral<'a> {
    /// Whether `bytes` are in the Huffman code.
    pub huffman: bool,
    /// The bytes on the wire.
    pub bytes: &'a [u8],
}

impl<'a> StringLiteral<'a> {
    /// Reads a literal whose length has its first `prefix` bits (1 to 7) in the next byte, behind
    /// the bit for Huffman.
    ///
    /// # Errors
    /// When the bytes end, or the length is no integer.
    pub(super) fn parse(reader: &mut Reader<'a>, prefix: u32) -> Result<Self, QpackError> {
        let mut ahead = reader.clone();
        let flags = ahead.peek_u8().ok_or(QpackError::Truncated)?;
        let len = parse_integer(&mut ahead, prefix)?;
        let len = usize::try_from(len).map_err(|_| QpackError::IntegerTooLarge)?;
        let bytes = ahead.bytes(len)?;
        *reader = ahead;
        Ok(Self {
            huffman: flags >> prefix & 1 == 1,
            bytes,
        })
    }

    /// Appends the string that this literal stands for.
    ///
    /// # Errors
    /// When the Huffman code is none.
    pub fn decode(&self, out: &mut Vec<u8>) -> Result<(), QpackError> {
        if self.huffman {
            huffman_decode(self.bytes, out)
        } else {
            out.extend_from_slice(self.bytes);
            Ok(())
        }
    }

    /// The least number of bytes it can stand for, without looking at them.
    pub const fn min_len(&self) -> usize {
        if self.huffman {
            // The longest code has 30 bits, and 7 may be padding.
            (self.bytes.len() * 8).saturating_sub(7) / 30
        } else {
            self.bytes.len()
        }
    }
}

/// Appends `text` as a literal behind the flags in `first`, in the shorter of its two forms.
pub(super) fn emit_string(out: &mut Vec<u8>, first: u8, prefix: u32, text: &[u8]) {
    let coded = huffman_len(text);
    if coded < text.len() {
        emit_integer(out, first | 1 << prefix, prefix, coded as u64);
        huffman_encode(text, out);
    } else {
        emit_integer(out, first, prefix, text.len() as u64);
        out.extend_from_slice(text);
    }
}

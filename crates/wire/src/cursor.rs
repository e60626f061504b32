//! Variable-length integers and the two cursors over byte slices.
//!
//! Owns `Reader` (borrows from a received datagram) and `Writer` (fills a caller's buffer).
//! Called by every parser and emitter. Neither allocates; neither panics: a short read is
//! `UnexpectedEnd`, a write that doesn't fit sets `overflowed()` and nothing more is written.

use core::fmt;

#[cfg(test)]
mod tests;

/// The largest value a QUIC variable-length integer can carry, 2^62 - 1 (RFC 9000 §16).
pub const MAX_VARINT: u64 = (1 << 62) - 1;

/// Bytes of the shortest encoding of `value`: 1, 2, 4 or 8 (RFC 9000 §16).
///
/// Values above [`MAX_VARINT`] have no encoding; they count as 8.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    if value < 1 << 6 {
        1
    } else if value < 1 << 14 {
        2
    } else if value < 1 << 30 {
        4
    } else {
        8
    }
}

/// Appends the shortest encoding of `value` to a vector, for messages built off the hot path.
///
/// Values above [`MAX_VARINT`] are a caller's mistake and are clamped to it.
pub fn emit_varint(out: &mut Vec<u8>, value: u64) {
    debug_assert!(value <= MAX_VARINT);
    let mut bytes = [0; 8];
    let mut writer = Writer::new(&mut bytes);
    writer.varint(value.min(MAX_VARINT));
    out.extend_from_slice(writer.written());
}

/// The input ended before the value did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnexpectedEnd;

impl fmt::Display for UnexpectedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("input ends early")
    }
}

impl core::error::Error for UnexpectedEnd {}

/// A read position in a byte slice. A failed read leaves the position where it was.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            total: bytes.len(),
        }
    }

    /// Bytes not read yet.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether every byte has been read.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes read so far.
    #[inline]
    pub const fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// The bytes not read yet, without reading them.
    #[inline]
    pub const fn as_slice(&self) -> &'a [u8] {
        self.rest
    }

    /// The next byte, without reading it.
    #[inline]
    pub fn peek_u8(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Reads everything that is left.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// Reads the next `N` bytes by value.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], UnexpectedEnd> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(UnexpectedEnd)?;
        self.rest = tail;
        Ok(*head)
    }

    /// Reads the next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], UnexpectedEnd> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(UnexpectedEnd)?;
        self.rest = tail;
        Ok(head)
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, UnexpectedEnd> {
        let (head, tail) = self.rest.split_first().ok_or(UnexpectedEnd)?;
        self.rest = tail;
        Ok(*head)
    }

    /// Reads a big-endian 16-bit integer.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, UnexpectedEnd> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a big-endian 32-bit integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, UnexpectedEnd> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a variable-length integer in any of its encodings (RFC 9000 §16).
    #[inline]
    pub fn varint(&mut self) -> Result<u64, UnexpectedEnd> {
        let first = *self.rest.first().ok_or(UnexpectedEnd)?;
        match first >> 6 {
            0 => {
                self.rest = &self.rest[1..];
                Ok(u64::from(first))
            }
            1 => self
                .array()
                .map(|b| u64::from(u16::from_be_bytes(b) & 0x3fff)),
            2 => self
                .array()
                .map(|b| u64::from(u32::from_be_bytes(b) & 0x3fff_ffff)),
            _ => self.array().map(|b| u64::from_be_bytes(b) & MAX_VARINT),
        }
    }

    /// Reads a variable-length integer and that many bytes.
    #[inline]
    pub fn varint_bytes(&mut self) -> Result<&'a [u8], UnexpectedEnd> {
        let mut ahead = self.clone();
        let len = usize::try_from(ahead.varint()?).map_err(|_| UnexpectedEnd)?;
        let bytes = ahead.bytes(len)?;
        *self = ahead;
        Ok(bytes)
    }
}

/// A write position in a caller's buffer.
///
/// A write that doesn't fit writes nothing, sets [`overflowed`](Self::overflowed) and takes away
/// the room that was left, so that the bytes written so far stay a clean prefix.
#[derive(Debug)]
pub struct Writer<'a> {
    buf: &'a mut [u8],
    len: usize,
    overflowed: bool,
}

impl<'a> Writer<'a> {
    /// A writer at the start of `buf`.
    #[inline]
    pub const fn new(buf: &'a mut [u8]) -> Self {
        Self {
            buf,
            len: 0,
            overflowed: false,
        }
    }

    /// Bytes that still fit; 0 after an overflow.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.buf.len() - self.len
    }

    /// Bytes written.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has been written.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a write didn't fit.
    #[inline]
    pub const fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// The bytes written.
    #[inline]
    pub fn written(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    /// The bytes written, to patch a field in place.
    #[inline]
    pub fn written_mut(&mut self) -> &mut [u8] {
        &mut self.buf[..self.len]
    }

    /// Takes the next `len` bytes for the caller to fill, or `None` (and overflow) if they don't
    /// fit. Their former content is unspecified.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.remaining() {
            self.overflow();
            return None;
        }
        let start = self.len;
        self.len += len;
        Some(&mut self.buf[start..start + len])
    }

    /// Writes `bytes`.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        if let Some(room) = self.reserve(bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    /// Writes `len` zero bytes.
    #[inline]
    pub fn zeros(&mut self, len: usize) {
        if let Some(room) = self.reserve(len) {
            room.fill(0);
        }
    }

    /// Writes one byte.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.array([value]);
    }

    /// Writes a big-endian 16-bit integer.
    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.array(value.to_be_bytes());
    }

    /// Writes a big-endian 32-bit integer.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.array(value.to_be_bytes());
    }

    /// Writes the shortest encoding of `value` (RFC 9000 §16); above [`MAX_VARINT`] it overflows.
    #[inline]
    pub fn varint(&mut self, value: u64) {
        if value < 1 << 6 {
            self.array([value as u8]);
        } else if value < 1 << 14 {
            self.array((value as u16 | 0x4000).to_be_bytes());
        } else if value < 1 << 30 {
            self.array((value as u32 | 0x8000_0000).to_be_bytes());
        } else if value <= MAX_VARINT {
            self.array((value | 0xc000_0000_0000_0000).to_be_bytes());
        } else {
            self.overflow();
        }
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, value: [u8; N]) {
        match self.buf[self.len..].first_chunk_mut::<N>() {
            Some(room) => {
                *room = value;
                self.len += N;
            }
            None => self.overflow(),
        }
    }

    #[cold]
    fn overflow(&mut self) {
        self.overflowed = true;
        let buf = core::mem::take(&mut self.buf);
        self.buf = &mut buf[..self.len];
    }
}

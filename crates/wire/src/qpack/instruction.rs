//! Instructions on the encoder stream (RFC 9204 §4.3) and the decoder stream (§4.4).

use super::integer::{QpackError, emit_integer, parse_integer};
use super::string::{StringLiteral, emit_string};
use crate::cursor::Reader;
use crate::ids::StreamId;

/// What an encoder tells the decoder of the other end (RFC 9204 §4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncoderInstruction<'a> {
    /// Set Dynamic Table Capacity, in bytes (§4.3.1).
    SetCapacity(u64),
    /// Insert with Name Reference to the static table (§4.3.2).
    InsertStaticName {
        /// The entry of the static table.
        index: u64,
        /// The value.
        value: StringLiteral<'a>,
    },
    /// Insert with Name Reference to the dynamic table (§4.3.2).
    InsertDynamicName {
        /// The entry, counted back from the newest.
        relative: u64,
        /// The value.
        value: StringLiteral<'a>,
    },
    /// Insert with Literal Name (§4.3.3).
    InsertLiteralName {
        /// The name.
        name: StringLiteral<'a>,
        /// The value.
        value: StringLiteral<'a>,
    },
    /// Duplicate: inserts this entry again, counted back from the newest (§4.3.4).
    Duplicate(u64),
}

impl<'a> EncoderInstruction<'a> {
    /// Reads the next instruction; a failed read leaves the position where it was.
    ///
    /// # Errors
    /// [`QpackError::Truncated`] if more bytes are needed.
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, QpackError> {
        let mut ahead = reader.clone();
        let r = &mut ahead;
        let first = r.peek_u8().ok_or(QpackError::Truncated)?;
        let instruction = if first & 0x80 != 0 {
            let index = parse_integer(r, 6)?;
            let value = StringLiteral::parse(r, 7)?;
            if first & 0x40 != 0 {
                Self::InsertStaticName { index, value }
            } else {
                let relative = index;
                Self::InsertDynamicName { relative, value }
            }
        } else if first & 0x40 != 0 {
            let name = StringLiteral::parse(r, 5)?;
            let value = StringLiteral::parse(r, 7)?;
            Self::InsertLiteralName { name, value }
        } else if first & 0x20 != 0 {
            Self::SetCapacity(parse_integer(r, 5)?)
        } else {
            Self::Duplicate(parse_integer(r, 5)?)
        };
        *reader = ahead;
        Ok(instruction)
    }

    /// Appends Set Dynamic Table Capacity.
    pub fn emit_set_capacity(out: &mut Vec<u8>, capacity: u64) {
        emit_integer(out, 0x20, 5, capacity);
    }

    /// Appends Insert with Name Reference to the static table.
    pub fn emit_insert_static_name(out: &mut Vec<u8>, index: u64, value: &[u8]) {
        emit_integer(out, 0xc0, 6, index);
        emit_string(out, 0, 7, value);
    }

    /// Appends Insert with Name Reference to the dynamic table.
    pub fn emit_insert_dynamic_name(out: &mut Vec<u8>, relative: u64, value: &[u8]) {
        emit_integer(out, 0x80, 6, relative);
        emit_string(out, 0, 7, value);
    }

    /// Appends Insert with Literal Name.
    pub fn emit_insert_literal_name(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        emit_string(out, 0x40, 5, name);
        emit_string(out, 0, 7, value);
    }

    /// Appends Duplicate.
    pub fn emit_duplicate(out: &mut Vec<u8>, relative: u64) {
        emit_integer(out, 0, 5, relative);
    }
}

/// What a decoder tells the encoder of the other end (RFC 9204 §4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecoderInstruction {
    /// Section Acknowledgment: the oldest unacknowledged section of this stream was decoded (§4.4.1).
    SectionAcknowledgment(StreamId),
    /// Stream Cancellation: the sections of this stream will not be decoded (§4.4.2).
    StreamCancellation(StreamId),
    /// Insert Count Increment: so many more entries were inserted (§4.4.3).
    InsertCountIncrement(u64),
}

impl DecoderInstruction {
    /// Reads the next instruction; a failed read leaves the position where it was.
    ///
    /// # Errors
    /// [`QpackError::Truncated`] if more bytes are needed.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, QpackError> {
        let first = reader.peek_u8().ok_or(QpackError::Truncated)?;
        if first & 0x80 != 0 {
            let stream = parse_integer(reader, 7)?;
            Ok(Self::SectionAcknowledgment(StreamId::from_u64(stream)))
        } else if first & 0x40 != 0 {
            let stream = parse_integer(reader, 6)?;
            Ok(Self::StreamCancellation(StreamId::from_u64(stream)))
        } else {
            Ok(Self::InsertCountIncrement(parse_integer(reader, 6)?))
        }
    }

    /// Appends the instruction.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::SectionAcknowledgment(stream) => emit_integer(out, 0x80, 7, stream.as_u64()),
            Self::StreamCancellation(stream) => emit_integer(out, 0x40, 6, stream.as_u64()),
            Self::InsertCountIncrement(increment) => emit_integer(out, 0, 6, *increment),
        }
    }
}

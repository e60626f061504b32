//! Encoded field sections: their prefix and the representations of field lines (RFC 9204 §4.5).

use super::integer::{QpackError, emit_integer, parse_integer};
use super::string::{StringLiteral, emit_string};
use crate::cursor::Reader;

/// What an encoded field section begins with (RFC 9204 §4.5.1), as it stands on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectionPrefix {
    /// Required Insert Count, encoded: the decoder's table says what it means (§4.5.1.1).
    pub encoded_insert_count: u64,
    /// Whether Base is below Required Insert Count (§4.5.1.2).
    pub negative: bool,
    /// How far Base is away from it; one less where `negative`.
    pub delta_base: u64,
}

impl SectionPrefix {
    /// Reads the prefix.
    ///
    /// # Errors
    /// When the bytes end or hold no integer.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, QpackError> {
        let encoded_insert_count = parse_integer(reader, 8)?;
        let flags = reader.peek_u8().ok_or(QpackError::Truncated)?;
        Ok(Self {
            encoded_insert_count,
            negative: flags & 0x80 != 0,
            delta_base: parse_integer(reader, 7)?,
        })
    }

    /// Appends the prefix.
    pub fn emit(&self, out: &mut Vec<u8>) {
        emit_integer(out, 0, 8, self.encoded_insert_count);
        emit_integer(out, u8::from(self.negative) << 7, 7, self.delta_base);
    }
}

/// One field line as it stands in a section (RFC 9204 §4.5.2 to §4.5.6).
///
/// `never_indexed` says that whoever passes the line on must not put it into a table either.
/// A `relative` index counts back from Base, a `post_base` index forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldLine<'a> {
    /// Name and value are those of this entry of the static table.
    IndexedStatic(u64),
    /// Name and value are those of this entry of the dynamic table: a relative index.
    IndexedDynamic(u64),
    /// Name and value are those of this entry of the dynamic table: a post-base index.
    IndexedPostBase(u64),
    /// The name is that of an entry of the static table.
    StaticName {
        /// The entry.
        index: u64,
        /// The value.
        value: StringLiteral<'a>,
        /// Belongs into no table.
        never_indexed: bool,
    },
    /// The name is that of an entry of the dynamic table.
    DynamicName {
        /// The entry.
        relative: u64,
        /// The value.
        value: StringLiteral<'a>,
        /// Belongs into no table.
        never_indexed: bool,
    },
    /// The name is that of an entry of the dynamic table, behind Base.
    PostBaseName {
        /// The entry.
        post_base: u64,
        /// The value.
        value: StringLiteral<'a>,
        /// Belongs into no table.
        never_indexed: bool,
    },
    /// Name and value are written out.
    Literal {
        /// The name.
        name: StringLiteral<'a>,
        /// The value.
        value: StringLiteral<'a>,
        /// Belongs into no table.
        never_indexed: bool,
    },
}

impl<'a> FieldLine<'a> {
    /// Reads the next field line.
    ///
    /// # Errors
    /// When the bytes end or hold no integer.
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, QpackError> {
        let first = reader.peek_u8().ok_or(QpackError::Truncated)?;
        let bit = |mask: u8| first & mask != 0;
        Ok(match first {
            0xc0.. => Self::IndexedStatic(parse_integer(reader, 6)?),
            0x80.. => Self::IndexedDynamic(parse_integer(reader, 6)?),
            0x40.. => {
                let index = parse_integer(reader, 4)?;
                let value = StringLiteral::parse(reader, 7)?;
                let never_indexed = bit(0x20);
                if bit(0x10) {
                    Self::StaticName {
                        index,
                        value,
                        never_indexed,
                    }
                } else {
                    Self::DynamicName {
                        relative: index,
                        value,
                        never_indexed,
                    }
                }
            }
            0x20.. => Self::Literal {
                name: StringLiteral::parse(reader, 3)?,
                value: StringLiteral::parse(reader, 7)?,
                never_indexed: bit(0x10),
            },
            0x10.. => Self::IndexedPostBase(parse_integer(reader, 4)?),
            _ => Self::PostBaseName {
                post_base: parse_integer(reader, 3)?,
                value: StringLiteral::parse(reader, 7)?,
                never_indexed: bit(0x08),
            },
        })
    }

    /// Appends a line that is an entry of the static table.
    pub fn emit_indexed_static(out: &mut Vec<u8>, index: u64) {
        emit_integer(out, 0xc0, 6, index);
    }

    /// Appends a line that is an entry of the dynamic table.
    pub fn emit_indexed_dynamic(out: &mut Vec<u8>, relative: u64) {
        emit_integer(out, 0x80, 6, relative);
    }

    /// Appends a line that is an entry of the dynamic table behind Base.
    pub fn emit_indexed_post_base(out: &mut Vec<u8>, post_base: u64) {
        emit_integer(out, 0x10, 4, post_base);
    }

    /// Appends a line whose name is in the static table.
    pub fn emit_static_name(out: &mut Vec<u8>, index: u64, value: &[u8], never_indexed: bool) {
        emit_integer(out, 0x50 | u8::from(never_indexed) << 5, 4, index);
        emit_string(out, 0, 7, value);
    }

    /// Appends a line whose name is in the dynamic table.
    pub fn emit_dynamic_name(out: &mut Vec<u8>, relative: u64, value: &[u8], never_indexed: bool) {
        emit_integer(out, 0x40 | u8::from(never_indexed) << 5, 4, relative);
        emit_string(out, 0, 7, value);
    }

    /// Appends a line whose name is in the dynamic table behind Base.
    pub fn emit_post_base_name(
        out: &mut Vec<u8>,
        post_base: u64,
        value: &[u8],
        never_indexed: bool,
    ) {
        emit_integer(out, u8::from(never_indexed) << 3, 3, post_base);
        emit_string(out, 0, 7, value);
    }

    /// Appends a line that is written out.
    pub fn emit_literal(out: &mut Vec<u8>, name: &[u8], value: &[u8], never_indexed: bool) {
        emit_string(out, 0x20 | u8::from(never_indexed) << 4, 3, name);
        emit_string(out, 0, 7, value);
    }
}

//! The formats of QPACK (RFC 9204): how field sections and the two instruction streams look.
//!
//! Owns prefixed integers and string literals (RFC 7541 §5), the Huffman code, the static table,
//! encoder and decoder instructions (RFC 9204 §4.3, §4.4) and field line representations (§4.5).
//! Called by the encoder and the decoder of `towline-http3`. Holds no dynamic table and no state;
//! parsing borrows, and nothing is allocated by a length that a peer announced.

mod codes;
mod field_line;
mod huffman;
mod instruction;
mod integer;
mod static_table;
mod string;

#[cfg(test)]
mod tests;

pub use field_line::{FieldLine, SectionPrefix};
pub use huffman::{huffman_decode, huffman_encode, huffman_len};
pub use instruction::{DecoderInstruction, EncoderInstruction};
pub use integer::{QpackError, emit_integer, parse_integer};
pub use static_table::{StaticMatch, find_static, static_entry};
pub use string::StringLiteral;

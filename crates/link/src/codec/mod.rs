//! Batches of JSON objects in few bytes, exactly.
//!
//! An [`Encoder`] codes batches of [`Record`]s against what both ends have learned from the batches before,
//! a [`Decoder`] gives them back: keys in their order, integers exactly, doubles to the last bit. A batch
//! refers only to batches that are known to have arrived, so that any may be lost, late, or come twice.
//!
//! ```
//! use towline_link::codec::{Decoder, Encoder, Record};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
//! let record = Record::parse(br#"{"path":"navigation.speedOverGround","value":2.829445161237219}"#)?;
//! let number = encoder.push(vec![record.clone()])?;
//! let mut message = Vec::new();
//! assert!(encoder.encode(number, &mut message));
//! assert_eq!(*decoder.decode(&message)?.records, [record]);
//! encoder.on_decoded(0..decoder.decoded_below());
//! # Ok(()) }
//! ```

mod coder;
mod column;
mod ends;
mod layout;
mod lines;
mod memory;
mod message;
mod mixer;
mod model;
mod number;
mod record;
mod symbols;
mod template;
mod time;
mod walk;

pub use ends::{DecodeError, Decoded, Decoder, Encoder, MAX_IN_FLIGHT, PushError};
pub(crate) use record::{Keys, Node};
pub use record::{MAX_DEPTH, MAX_NODES, MAX_TEXT, Malformed, Record};

/// Why bytes are no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// A head that makes no sense.
    #[error("its head makes no sense")]
    Form,
    /// Bytes are left over.
    #[error("bytes are left over")]
    Rest,
    /// The bytes end too early.
    #[error("the bytes end too early")]
    Short,
    /// It has more in it than a batch may.
    #[error("it is larger than a batch may be")]
    TooMuch,
    /// A name that nobody gave, or no text.
    #[error("it has a name that is not known")]
    Name,
    /// A number that JSON does not have.
    #[error("it has a number that JSON does not have")]
    Number,
    /// What was compressed is no list of records.
    #[error("what was compressed is no list of records")]
    Lines,
    /// A record that is no object.
    #[error("it has a record that is no object")]
    NoObject,
}

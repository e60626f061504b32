//! Sans-I/O HTTP/3 (RFC 9114).
//!
//! Stands on a [`Transport`], which is what it asks of a QUIC connection: open, read and write streams.
//! Whoever owns the transport tells it of the transport's events.
//!
//! Never does: I/O, clocks, cryptography, or a copy of the payload. It reads from a stream just the
//! bytes that frame it, and leaves the rest to the application.
#![forbid(unsafe_code)]

pub mod compression;
mod transport;

#[cfg(test)]
mod pair;

pub use towline_wire::{Direction, Side, StreamId};
pub use transport::{ReadError, Transport, WriteError};

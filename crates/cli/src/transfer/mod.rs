//! The transfer protocol: files and folders over the streams of one connection.
//!
//! Generic over its streams, so that it is tested without a network. `send` and `receive`
//! are the two halves; who opened the connection does not matter to them. `open` does the
//! opening messages, `quic` has Towline's own streams. The format is documented in `docs/transfer-format.md`.

pub(crate) mod caps;
pub(crate) mod claims;
pub(crate) mod cpu;
pub(crate) mod message;
pub(crate) mod open;
pub(crate) mod path;
pub(crate) mod pipe;
pub(crate) mod progress;
pub(crate) mod quic;
mod reason;
pub(crate) mod receive;
pub(crate) mod report;
pub(crate) mod send;
pub(crate) mod source;
pub(crate) mod store;
pub(crate) mod walk;

#[cfg(test)]
mod tests;

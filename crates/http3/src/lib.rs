//! Sans-I/O HTTP/3 (RFC 9114).
//!
//! A [`Connection`] stands on a [`Transport`], which is what it asks of a QUIC connection: open, read and
//! write streams. Whoever owns the transport tells the connection of the transport's events, takes the
//! connection's own with [`Connection::poll_event`] until there is none, and calls
//! [`Connection::resume`] later while [`Connection::again`] says so.
//!
//! Never does: I/O, clocks, cryptography, or a copy of the payload. It reads from a stream just the
//! bytes that frame it, and leaves the rest to the application.
#![forbid(unsafe_code)]

mod account;
pub mod compression;
mod config;
mod connection;
mod counts;
mod error;
mod event;
mod fields;
pub mod observe;
mod settings;
mod transport;
pub mod webtransport;

#[cfg(any(test, feature = "testing"))]
pub mod pair;

pub use account::{Account, Charge};
pub use config::Config;
pub use connection::{Connection, Priority};
pub use counts::{Count, Counters};
pub use error::{BodyError, DatagramError, Error, SendError, StreamError};
pub use event::Event;
pub use towline_wire::http3::{ErrorCode, SettingId, Settings};
pub use towline_wire::{Direction, Side, StreamId};
pub use transport::{ReadError, Transport, WriteError};

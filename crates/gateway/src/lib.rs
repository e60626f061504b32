//! The delta link's real ends: where its records come from, and where they go.
//!
//! A [`Source`] yields records: a Signal K server, NMEA 0183 instruments, or lines of JSON. A [`Sink`] takes them: a
//! *live* sink shows the newest state and may miss what newer records replace, a *log* keeps every one. Each end is a
//! feature of this crate (`signalk`, `nmea0183`, `nats`, `postgres`); lines are always there. Nothing here knows of
//! QUIC, spools or batches: a program puts the link between a source and a sink.
//!
//! | sink | kind | each record |
//! |---|---|---|
//! | Signal K, over WebSocket, TCP or UDP | live | once for each connection, or replaced by a newer one |
//! | PostgreSQL | log | exactly once: our cursor is in the records' transaction |
//! | NATS JetStream | log | exactly once within the stream's `duplicate_window` |
//! | lines to a file or to standard output | log or live | at least once, with its number when asked for |

#![cfg_attr(
    not(all(feature = "signalk", feature = "nmea0183")),
    allow(dead_code, unused_variables, reason = "the ends share parts")
)]

mod backoff;
mod boat;
#[cfg(any(feature = "signalk", feature = "nmea0183"))]
mod connect;
mod lines;
mod live;
mod lock;
#[cfg(feature = "nmea0183")]
mod nmea0183;
mod ranges;
mod shore;
mod sink;
mod source;
#[cfg(feature = "_tls")]
mod tls;
mod url;
#[cfg(feature = "signalk")]
mod websocket;
mod worker;

pub use backoff::Backoff;
pub use boat::feed;
#[cfg(feature = "nmea0183")]
pub use nmea0183::{Refused, Translator};
pub use ranges::Ranges;
pub use shore::{MAX_HELD, MAX_HELD_BYTES, SenderStatus, Shore};
#[cfg(feature = "nats")]
pub use sink::nats::NatsOptions;
#[cfg(feature = "postgres")]
pub use sink::postgres::PostgresOptions;
#[cfg(feature = "signalk")]
pub use sink::signalk::SignalKSinkOptions;
pub use sink::{Kind, LinesOptions, Sink, SinkError};
#[cfg(feature = "nmea0183")]
pub use source::nmea0183::Nmea0183Options;
#[cfg(feature = "signalk")]
pub use source::signalk::SignalKOptions;
pub use source::{Counts, Source, SourceError};
#[cfg(feature = "_tls")]
pub use tls::system_roots;
pub use url::BadUrl;
pub use worker::SinkStatus;

use towline_link::codec::Record;

/// Which source's records: the boat's name and the id of its sequence space, which is that of its spool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The boat.
    pub name: String,
    /// The sequence space; a new spool has a new one.
    pub id: u64,
}

/// One record and its sequence number in its [`Stream`].
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The number; a stream's first is 0, and none is used twice.
    pub seq: u64,
    /// The record.
    pub record: Record,
}

/// How a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The first attempt, or a new one, is under way.
    Connecting,
    /// It works.
    Up,
    /// It does not; a new attempt follows by itself.
    Down {
        /// The reason, for a person.
        why: String,
    },
}

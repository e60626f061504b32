//! One secure, congestion-controlled transport: sockets, clock and the tokio API.
//!
//! The crate a Rust user adds. [`io`] has sockets and endpoint shards, [`handles`] over it
//! [`Endpoint`], [`Connection`] and the streams, both without a runtime; the default feature
//! `tokio` drives them ([`tokio`]). An endpoint may use several cores
//! ([`EndpointBuilder::shards`]); [`message`] sends messages over its streams. [`stcp`] is
//! secure TCP: streams as TCP's, encrypted. `qlog`, a feature, logs connections; `link`, another, is the disk under
//! the delta link. [`config`] makes ready configurations, [`engine`]
//! is the QUIC engine below, for its types. Protocol rules live in the engine, not here.

pub mod config;
pub mod handles;
#[cfg(feature = "http3")]
pub mod http3;
pub mod io;
#[cfg(feature = "link")]
pub mod link;
#[cfg(feature = "tokio")]
pub mod message;
#[cfg(feature = "qlog")]
pub mod qlog;
mod setters;
pub mod stats;
#[cfg(feature = "stcp")]
pub mod stcp;
#[cfg(feature = "tokio")]
pub mod tokio;

#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "webtransport")]
pub mod webtransport;

pub use towline_identity as identity;
pub use towline_quic as engine;
pub use towline_wire::{Direction, Side, StreamId, Time, TransportErrorCode};

pub use handles::{
    ConnectError, Connecting, Connection, Endpoint, EndpointBuilder, Incoming, NetworkPath,
    ReadError, ReadExactError, ReadToEndError, RecvStream, RetryError, SendStream, ShardStats,
    WeakConnection, WriteError, Written,
};
pub use towline_identity::PeerIdentity;
pub use towline_quic::{
    ConnectionError, DatagramFate, DatagramOptions, MAX_INCOMING_WAIT, MigrateError, ReceivedChunk,
    ResetAtError, SendDatagramError,
};

//! One secure, congestion-controlled transport: sockets, clock and the tokio API.
//!
//! The crate a Rust user adds. [`io`] has sockets and endpoint shards without a
//! runtime; over it, with the default feature `tokio`, stand [`Endpoint`],
//! [`Connection`] and the streams; an endpoint may use several cores
//! ([`EndpointBuilder::shards`]); [`message`] sends messages over its streams. [`stcp`] is
//! secure TCP: streams as TCP's, encrypted. [`config`] makes ready configurations, [`engine`]
//! is the QUIC engine below, for its types. Protocol rules live in the engine, not here.

pub mod config;
pub mod io;
#[cfg(feature = "tokio")]
pub mod message;
#[cfg(feature = "tokio")]
pub mod quic;
pub mod stats;
#[cfg(feature = "stcp")]
pub mod stcp;

pub use towline_identity as identity;
pub use towline_quic as engine;
pub use towline_wire::{Direction, Side, StreamId, Time, TransportErrorCode};

#[cfg(feature = "tokio")]
pub use quic::{
    ConnectError, Connection, Endpoint, EndpointBuilder, ReadError, ReadExactError, ReadToEndError,
    RecvStream, SendStream, ShardStats, WriteError,
};
pub use towline_identity::PeerIdentity;
pub use towline_quic::{ConnectionError, ReceivedChunk, SendDatagramError};

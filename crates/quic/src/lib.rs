//! Sans-I/O QUIC v1 engine (RFC 8999, 9000, 9001, 9002, 9221).
//!
//! ```text
//!   Endpoint      routes datagrams, admits clients, owns its connections
//!     └─ Connection   components side by side: handshake acks cids paths datagrams streams
//! ```
//!
//! Contract: **drain before you wait.** After any number of `handle_*` calls and uses of
//! [`Endpoint::connection_mut`], and before you wait for anything, call
//! [`Endpoint::poll_transmit`] and [`Endpoint::poll_event`] until they return `None`, and arm one
//! timer for [`Endpoint::next_timeout`]. Time and entropy are arguments; there is no socket,
//! thread or clock in here.
#![forbid(unsafe_code)]

pub mod config;
mod connection;
mod crypto;
mod endpoint;
mod error;
pub mod observe;
pub mod stats;

pub use config::{
    BandwidthShare, CidGenerator, ClientConfig, EndpointConfig, InvalidTransport, MAX_ACK_DELAY,
    MAX_INITIAL_RTT, MAX_MTU, MAX_PACKETS_PER_ACK, MIN_ACK_DELAY, MIN_INITIAL_RTT, MIN_MTU, NoCids,
    ProtocolConfig, RetryPolicy, ServerConfig, ShardedCid, TransportConfig,
};
pub use connection::Connection;
pub use connection::assemble::TrainBuf;
pub use connection::component::Ecn;
pub use connection::datagrams::DatagramOptions;
pub use connection::datagrams::fates::DatagramFate;
pub use connection::events::Event;
pub use connection::stats::Stats;
pub use connection::streams::ReceivedChunk;
pub use connection::timers::Timer;
pub use endpoint::{
    ConnectionHandle, DatagramMeta, Endpoint, EndpointStats, Incoming, IncomingHandle,
    MAX_INCOMING_WAIT, Transmit,
};
pub use error::{
    AcceptError, Close, ConnectError, ConnectionError, MigrateError, ReadError, ResetAtError,
    SendDatagramError, TimeoutReason, WriteError,
};
pub use towline_identity::PeerIdentity;
/// What a congestion controller of one's own implements, and the samples it is told.
pub use towline_recovery::congestion;
pub use towline_recovery::{
    Algorithm, ControllerFactory, HostController, Pool, PoolMember, TrafficClass, UnknownAlgorithm,
};
pub use towline_wire::{Direction, Side, StreamId, Time, TransportErrorCode};

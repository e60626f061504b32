//! The tokio API over [`io`](crate::io): endpoints, connections, streams.
//!
//! One driver task per shard of an endpoint owns a socket; an endpoint has one shard
//! unless [`EndpointBuilder::shards`] asks for more. Handles lock the shard's engine for the
//! length of one call and wake the driver when they gave it something to send. No
//! message and no second task stands between a write and the engine. Every handle
//! may be used from any thread and outside of tokio; only binding needs a runtime.
//!
//! # Cancellation
//!
//! A dropped future never loses or repeats data unless its documentation says so:
//! `write_all`, `write_all_chunks`, `read_exact` and `read_to_end` do several steps,
//! of which the done ones stay done.

mod alarm;
mod connection;
mod driver;
mod endpoint;
mod error;
mod recv_stream;
mod registry;
mod send_stream;
mod waiters;

pub use connection::Connection;
pub use endpoint::{Endpoint, EndpointBuilder, ShardStats};
pub(crate) use error::kind_of;
pub use error::{ConnectError, ReadError, ReadExactError, ReadToEndError, WriteError};
pub use recv_stream::RecvStream;
pub use registry::MAX_ACCEPT_QUEUE;
pub use send_stream::SendStream;

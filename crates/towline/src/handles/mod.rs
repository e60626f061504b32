//! Endpoints, connections and streams over [`io`](crate::io), with no runtime.
//!
//! [`EndpointBuilder`] makes an [`Endpoint`] and the shards under it; whoever owns a loop drives those
//! (`towline::tokio` does it for tokio). Handles lock the shard's engine for the length of one call and
//! wake its driver when they gave it something to send. No message and no second task stands between a
//! write and the engine. Every handle may be used from any thread.
//!
//! What may have to wait comes in three forms: `async fn`s, which run on any executor; `poll_…` for who
//! implements `Future` or something like it, with a [`Waiter`] where several may wait for one thing; and
//! `try_…`, which never wait: `Poll::Pending` says that there is nothing now.
//!
//! # Several protocols on one port
//!
//! A server's configuration may name several application protocols, each with transport settings of its
//! own ([`ServerConfig::protocols`](towline_quic::ServerConfig::protocols)). Each can have a [`Door`],
//! where its connections are accepted, and a [`Protocol`], which stands between them and their handles.
//!
//! # Cancellation
//!
//! A dropped future never loses or repeats data unless its documentation says so:
//! `write_all`, `write_chunk`, `read_exact` and `read_to_end` do several steps,
//! of which the done ones stay done.

mod accept_queue;
mod adopt;
mod connecting;
mod connection;
mod datagrams;
mod doors;
mod endpoint;
mod entry;
mod error;
mod hooks;
mod incoming;
mod path;
mod protocol;
mod race;
mod recv_stream;
mod reference;
mod send_stream;
mod sessions;
mod shards;
mod shutdown;
mod waiter;
mod waiters;

pub use connecting::Connecting;
pub use connection::{Connection, WeakConnection};
pub use doors::Door;
pub use endpoint::{Endpoint, EndpointBuilder, ShardStats};
pub use entry::MAX_DATAGRAM_FATES;
#[cfg(feature = "tokio")]
pub(crate) use error::kind_of;
pub use error::{ConnectError, ReadError, ReadExactError, ReadToEndError, WriteError};
pub use incoming::{Incoming, RetryError};
pub use path::NetworkPath;
pub use protocol::{Half, Protocol, ProtocolFactory, Turn};
pub use race::{ATTEMPT_DELAY, Race};
pub use recv_stream::RecvStream;
pub use send_stream::{SendStream, Written};
pub use sessions::{MAX_ACCEPT_QUEUE, Sessions};
pub use waiter::Waiter;
#[cfg(feature = "http3")]
pub(crate) use waiters::{WaiterKey, Waiters};

/// Handles go to any thread, and are used from several at once.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    const fn is_send<T: Send>() {}

    is_send_and_sync::<Endpoint>();
    is_send_and_sync::<Connecting>();
    is_send_and_sync::<Door>();
    is_send_and_sync::<Incoming>();
    is_send_and_sync::<Race>();
    is_send_and_sync::<Connection>();
    is_send_and_sync::<WeakConnection>();
    is_send_and_sync::<SendStream>();
    is_send_and_sync::<RecvStream>();
    is_send_and_sync::<Waiter>();
    is_send_and_sync::<crate::io::Handle<Sessions>>();
    is_send::<EndpointBuilder>();
    // One thread at a time drives it.
    is_send::<crate::io::Shard<crate::io::UdpSocket, Sessions>>();
};

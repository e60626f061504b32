//! [`Incoming`]: a client that asks for a connection, and what the application may answer.
//!
//! Only an endpoint that was [made for it](super::EndpointBuilder::incoming) has them. The engine
//! keeps what the client has sent; this is a handle that names it, and refuses the client when it is
//! dropped.

use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, Waker};

use towline_quic::{self as engine, IncomingHandle, ServerConfig};
use towline_wire::{Side, Time};

use super::connecting::Connecting;
use super::endpoint::Endpoint;
use super::error::ConnectError;
use super::reference::Reference;
use super::sessions::Sessions;
use super::shards::Queue;
use super::waiter::Waiter;
use crate::io::{Change, Handle};

impl Endpoint {
    /// The next client that asks for a connection, before a TLS session is made for it; `None` once
    /// the endpoint was [closed](Self::close) or [shuts down](Self::shutdown), and where it was not
    /// [made for this](super::EndpointBuilder::incoming).
    ///
    /// Each client waits for [`MAX_INCOMING_WAIT`](crate::MAX_INCOMING_WAIT) at most, the time until it
    /// is taken from here included, and holds one of the server's places for handshakes.
    ///
    /// ```no_run
    /// # async fn serve(endpoint: towline::Endpoint, is_welcome: fn(std::net::IpAddr) -> bool) {
    /// while let Some(incoming) = endpoint.incoming().await {
    ///     if !is_welcome(incoming.remote_addr().ip()) {
    ///         incoming.refuse();
    ///         continue;
    ///     }
    ///     if let Ok(connecting) = incoming.accept() {
    ///         tokio::spawn(async move {
    ///             let connection = connecting.await?;
    ///             // …
    ///             # connection.close(0, b"");
    ///             # Ok::<_, towline::ConnectError>(())
    ///         });
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// Cancel safe: a dropped call took no client.
    pub async fn incoming(&self) -> Option<Incoming> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_incoming(&mut waiter, cx)).await
    }

    /// As [`incoming`](Self::incoming), for callers that poll.
    pub fn poll_incoming(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Incoming>> {
        self.take_incoming(waiter, Some(cx.waker()))
    }

    /// As [`incoming`](Self::incoming), but pending and not waiting while there is none.
    pub fn try_incoming(&self) -> Poll<Option<Incoming>> {
        self.take_incoming(&mut Waiter::new(), None)
    }

    fn take_incoming(&self, waiter: &mut Waiter, waker: Option<&Waker>) -> Poll<Option<Incoming>> {
        let take = |endpoint: &mut engine::Endpoint, sessions: &mut Sessions, key| {
            if !endpoint.holds_incoming() || sessions.takes_nobody() {
                return Poll::Ready(None);
            }
            let may_take = sessions
                .deciders
                .may_take(key, endpoint.unpolled_incoming());
            match may_take.then(|| endpoint.poll_incoming()).flatten() {
                Some(client) => Poll::Ready(Some(client)),
                None => Poll::Pending,
            }
        };
        let taken = self.take_from_any(Queue::Deciders, waiter, waker, take);
        taken.map(|taken| {
            let (shard, client) = taken?;
            Some(Incoming {
                shard: shard.clone(),
                client,
                decided: false,
            })
        })
    }
}

/// A client that asks for a connection. Nothing was made for it yet; drop it to refuse it.
#[must_use = "dropped, it refuses the client"]
pub struct Incoming {
    shard: Handle<Sessions>,
    client: engine::Incoming,
    decided: bool,
}

impl Incoming {
    /// The client's address. Anyone could have written it into the packet, unless it
    /// [is validated](Self::is_validated).
    pub fn remote_addr(&self) -> SocketAddr {
        self.client.remote
    }

    /// The address of ours that the client sends to, where the socket tells it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.client.local_ip
    }

    /// Whether the client has answered a Retry, and so receives what is sent to its address
    /// (RFC 9000 §8.1.2).
    pub fn is_validated(&self) -> bool {
        self.client.is_validated
    }

    /// The connection ID that the client sent its first packet of all to (RFC 9000 §7.3): the name
    /// of the connection in captures and in qlog.
    pub fn original_destination(&self) -> &[u8] {
        self.client.original_destination.as_slice()
    }

    /// Begins the handshake. The connection comes from what this returns, and not from
    /// [`Endpoint::accept`].
    ///
    /// # Errors
    /// When the client waits no longer, or the server or its memory is full by now, or it was closed.
    pub fn accept(self) -> Result<Connecting, ConnectError> {
        self.begin(None)
    }

    /// As [`accept`](Self::accept), with another configuration than the endpoint's. Its limits of
    /// connections and handshakes, and when it asks for Retry, are the endpoint's in any case.
    ///
    /// # Errors
    /// As `accept`; and when the configuration makes no sense.
    pub fn accept_with(self, config: &ServerConfig) -> Result<Connecting, ConnectError> {
        self.begin(Some(config))
    }

    fn begin(mut self, config: Option<&ServerConfig>) -> Result<Connecting, ConnectError> {
        self.decided = true;
        let (now, client) = (self.shard.clock().now(), self.client);
        let slot = self.shard.with(|endpoint, sessions| {
            if sessions.closed.is_some() || sessions.stopped {
                return (Err(ConnectError::EndpointClosed), Change::None);
            }
            let slot = match endpoint.accept_incoming(now, client.handle, config) {
                Ok(handle) => Ok(sessions.insert(handle, client.remote)),
                Err(error) => Err(error.into()),
            };
            // Where it failed, the client may have to be told so.
            (slot, Change::Made)
        })?;
        let shard = self.shard.clone();
        let reference = Reference::adopt(shard, slot, client.remote, Side::Server);
        Ok(Connecting::new(reference))
    }

    /// Tells the client that it gets no connection (`CONNECTION_REFUSED`).
    pub fn refuse(self) {
        // By being dropped.
    }

    /// Forgets the client and tells it nothing. It will ask again, until it gives up.
    pub fn ignore(mut self) {
        self.decide(|endpoint, _, handle| endpoint.ignore_incoming(handle));
    }

    /// Has the client prove its address (Retry, RFC 9000 §8.1.2): it asks again as another `Incoming`,
    /// which is [validated](Self::is_validated).
    ///
    /// # Errors
    /// When it is validated already; the error gives it back.
    pub fn retry(mut self) -> Result<(), RetryError> {
        if self.is_validated() {
            return Err(RetryError(self));
        }
        self.decide(|endpoint, now, handle| {
            endpoint.retry_incoming(now, handle);
        });
        Ok(())
    }

    fn decide(&mut self, decision: impl FnOnce(&mut engine::Endpoint, Time, IncomingHandle)) {
        self.decided = true;
        let (now, handle) = (self.shard.clock().now(), self.client.handle);
        self.shard.with(|endpoint, _| {
            decision(endpoint, now, handle);
            ((), Change::Made)
        });
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.decided {
            self.decide(|endpoint, now, handle| endpoint.refuse_incoming(now, handle));
        }
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("remote", &self.client.remote)
            .field("is_validated", &self.client.is_validated)
            .finish_non_exhaustive()
    }
}

/// A client was to prove its address a second time. It still waits.
#[derive(Debug, thiserror::Error)]
#[error("the client has proved its address and takes no second Retry; accept, refuse or ignore it")]
pub struct RetryError(Incoming);

impl RetryError {
    /// The client.
    pub fn into_incoming(self) -> Incoming {
        self.0
    }
}

//! How an endpoint comes to speak HTTP/3, and where its connections come from.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use towline_http3::{Config, Counters};
use towline_quic::ClientConfig;

use super::connection::Connection;
use super::error::ConnectError;
use super::protocol::Http3;
use crate::handles::{Door, Endpoint, EndpointBuilder, Waiter};

/// The protocol's name in ALPN (RFC 9114 §3.1).
pub const ALPN: &str = "h3";

impl EndpointBuilder {
    /// Has the endpoint's connections speak HTTP/3 where both ends agree on [`ALPN`](crate::http3::ALPN):
    /// those of clients are accepted by a [`Server`](crate::http3::Server), and no more by
    /// [`Endpoint::accept`]. The server's configuration names the protocol too.
    pub fn http3(self, config: Config) -> Self {
        self.speak_http3(config, false)
    }

    /// With `refuses_requests`, sessions alone are taken.
    pub(crate) fn speak_http3(self, config: Config, refuses_requests: bool) -> Self {
        let counters = Arc::new(Counters::default());
        let shared = Arc::clone(&counters);
        let speaks = self.protocol(ALPN, move |engine| {
            let counters = Arc::clone(&counters);
            let (side, config) = (engine.side(), config.clone());
            Box::new(Http3::new(side, config, refuses_requests, counters))
        });
        speaks.sharing(shared)
    }
}

/// Where clients that speak HTTP/3 come in. Clones are the same; it keeps the endpoint as a clone of it
/// does.
#[derive(Clone)]
pub struct Server {
    door: Door,
}

impl Server {
    /// `None` where the endpoint was made without [HTTP/3](EndpointBuilder::http3).
    pub fn new(endpoint: &Endpoint) -> Option<Self> {
        endpoint.door(ALPN.as_bytes()).map(|door| Self { door })
    }

    pub(super) fn door(&self) -> &Door {
        &self.door
    }

    /// The next client's connection; `None` when the endpoint is closed.
    ///
    /// Cancel safe: a dropped call took no connection.
    pub async fn accept(&self) -> Option<Connection> {
        let mut waiter = Waiter::new();
        std::future::poll_fn(|cx| self.poll_accept(&mut waiter, cx)).await
    }

    /// As [`accept`](Self::accept), for callers that poll.
    pub fn poll_accept(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Connection>> {
        loop {
            match ready!(self.door.poll_accept(waiter, cx)) {
                None => return Poll::Ready(None),
                Some(transport) => {
                    // A door of that name without HTTP/3 behind it is the application's own.
                    if let Some(connection) = Connection::new(transport) {
                        return Poll::Ready(Some(connection));
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// Connects to a server that speaks HTTP/3. `config` names [`ALPN`](super::ALPN) first.
///
/// Cancel safe: a dropped call gives the attempt up.
///
/// # Errors
/// When there is no connection, or it speaks something else.
pub async fn connect(
    endpoint: &Endpoint,
    remote: SocketAddr,
    server_name: &str,
    config: &ClientConfig,
) -> Result<Connection, ConnectError> {
    let transport = endpoint.connect(remote, server_name, config).await?;
    Connection::new(transport).ok_or(ConnectError::NotHttp3)
}

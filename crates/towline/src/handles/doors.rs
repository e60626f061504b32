//! [`Door`]: where connections of one application protocol are accepted.
//!
//! Several protocols share an endpoint's port: [`Endpoint::accept`] gives the connections of those
//! that have no door, and each door those of its own. Which protocols a server agrees on, and with what
//! settings, its configuration says.

#[cfg(feature = "http3")]
use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use towline_quic::Connection as Engine;

use super::accept_queue::DoorPlan;
use super::connection::Connection;
use super::endpoint::{Endpoint, EndpointBuilder};
use super::protocol::{Protocol, ProtocolFactory};
use super::waiter::Waiter;

impl EndpointBuilder {
    /// Connections that agree on the application protocol `alpn` are accepted at a
    /// [`Door`](Door) of their own, and no more by [`Endpoint::accept`]. The server's
    /// configuration says whether it is [spoken](towline_quic::ProtocolConfig).
    pub fn door(mut self, alpn: impl Into<Vec<u8>>) -> Self {
        self.doors.push(DoorPlan {
            alpn: alpn.into(),
            factory: None,
            shared: None,
        });
        self
    }

    /// As [`door`](Self::door), with a [`Protocol`] that `make` makes for each of these connections,
    /// whichever end began: it stands between them and their handles from the handshake's end on.
    pub fn protocol(
        mut self,
        alpn: impl Into<Vec<u8>>,
        make: impl Fn(&Engine) -> Box<dyn Protocol> + Send + Sync + 'static,
    ) -> Self {
        let make: ProtocolFactory = Arc::new(make);
        self.doors.push(DoorPlan {
            alpn: alpn.into(),
            factory: Some(make),
            shared: None,
        });
        self
    }

    /// Has the endpoint keep what the parts of the protocol that was named last share.
    #[cfg(feature = "http3")]
    pub(crate) fn sharing<T: Any + Send + Sync>(mut self, shared: Arc<T>) -> Self {
        if let Some(plan) = self.doors.last_mut() {
            plan.shared = Some(shared);
        }
        self
    }
}

impl Endpoint {
    /// Where connections that agree on `alpn` are accepted; `None` where the endpoint was
    /// [made](super::EndpointBuilder::door) without a door for it.
    pub fn door(&self, alpn: &[u8]) -> Option<Door> {
        let queue = self.plans().queue_of(Some(alpn));
        (queue > 0).then(|| Door {
            endpoint: self.clone(),
            queue,
        })
    }

    /// What the parts of the protocol `alpn` share, if it is a `T`.
    #[cfg(feature = "http3")]
    pub(crate) fn shared_of<T: Any + Send + Sync>(&self, alpn: &[u8]) -> Option<Arc<T>> {
        self.plans().shared_of(alpn)?.downcast().ok()
    }
}

/// Where connections of one application protocol are accepted. Clones are the same door; it keeps the
/// endpoint as an [`Endpoint`] does.
#[derive(Clone)]
pub struct Door {
    endpoint: Endpoint,
    queue: usize,
}

impl Door {
    /// The name of its protocol in ALPN.
    pub fn alpn(&self) -> &[u8] {
        self.endpoint.plans().alpn(self.queue)
    }

    /// The next connection of this protocol whose handshake has finished, as [`Endpoint::accept`].
    ///
    /// Cancel safe: a dropped call took no connection. At most
    /// [`MAX_ACCEPT_QUEUE`](super::MAX_ACCEPT_QUEUE) wait at each door of a shard.
    pub async fn accept(&self) -> Option<Connection> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_accept(&mut waiter, cx)).await
    }

    /// As [`accept`](Self::accept), for callers that poll.
    pub fn poll_accept(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Connection>> {
        self.endpoint
            .take_accepted(self.queue, waiter, Some(cx.waker()))
    }

    /// As [`accept`](Self::accept), but pending and not waiting while there is none.
    pub fn try_accept(&self) -> Poll<Option<Connection>> {
        self.endpoint
            .take_accepted(self.queue, &mut Waiter::new(), None)
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("alpn", &self.alpn().escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

//! [`Connecting`]: a handshake under way, as a future.
//!
//! Made by endpoints that connect and by clients that were accepted.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::connection::Connection;
use super::entry::Interest;
use super::error::ConnectError;
use super::reference::Reference;
use super::waiter::Waiter;
use crate::io::Change;

/// A handshake under way, this side's attempt or a client's that was
/// [accepted](super::Incoming::accept): a future that ends with it. Dropped, it gives the handshake
/// up.
#[must_use = "dropped, it gives the handshake up"]
pub struct Connecting {
    reference: Arc<Reference>,
    waiter: Waiter,
}

impl Connecting {
    pub(super) fn new(reference: Arc<Reference>) -> Self {
        Self {
            reference,
            waiter: Waiter::new(),
        }
    }

    /// The peer's address, as of the last packet; before the first one, the address that was asked for.
    pub fn remote_addr(&self) -> SocketAddr {
        self.reference.remote_addr()
    }

    /// As [`Connection::local_ip`]: `None` at a client before the first packet from the server.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.reference.local_ip()
    }
}

impl Future for Connecting {
    type Output = Result<Connection, ConnectError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { reference, waiter } = &mut *self;
        let waker = Some(cx.waker());
        ready!(
            waiter.poll_connection(reference, Interest::Established, waker, |_, entry| {
                match (&entry.error, entry.established) {
                    // Established and closed at once still was established: what the peer sent
                    // before it closed can be read, and the connection says why it ended.
                    (_, true) => Poll::Ready((Ok(()), Change::None)),
                    (Some(error), false) => Poll::Ready((Err(error.clone()), Change::None)),
                    (None, false) => Poll::Pending,
                }
            })
        )?;
        tracing::debug!(remote = %reference.remote(), "connected");
        Poll::Ready(Ok(Connection::new(Arc::clone(reference))))
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting")
            .field("remote", &self.reference.remote())
            .finish_non_exhaustive()
    }
}

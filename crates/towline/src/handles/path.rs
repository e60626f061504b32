//! Which path a connection's data takes, and how to hear that it takes another one.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use towline_quic::{Connection as Engine, ConnectionError, Stats};

use super::connection::Connection;
use super::entry::Interest;
use super::reference::lost;
use super::waiter::Waiter;
use crate::io::Change;

/// The path that a connection's data takes: see [`Connection::path_changed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkPath {
    /// The peer's address on it.
    pub remote_addr: SocketAddr,
    /// UDP payload bytes of the largest packets it was found to carry.
    pub mtu: u16,
    /// Times that data took another path before: `stats().path_changes`. A client that moves to another
    /// address or socket has another path to the same address of the server.
    pub changes: u64,
}

impl NetworkPath {
    fn new(remote_addr: SocketAddr, stats: &Stats) -> Self {
        Self {
            remote_addr,
            mtu: stats.mtu,
            changes: stats.path_changes,
        }
    }

    fn of(engine: &Engine) -> Self {
        Self::new(engine.remote(), &engine.stats())
    }
}

impl Connection {
    /// The path that data takes now; after the end, the last one.
    pub fn path(&self) -> NetworkPath {
        let now = self.reference.look(|engine, _| engine.map(NetworkPath::of));
        now.unwrap_or_else(|| NetworkPath::new(self.remote_addr(), &self.stats()))
    }

    /// Waits until the path is another one than `known`, or was found to carry packets of another size,
    /// and says what it is. Cancel safe. What came and went in between is not told.
    ///
    /// A server's client may not have proved yet that it is where its packets came from (RFC 9000 §9):
    /// what is told here is for a log, and no proof of who is there.
    ///
    /// ```
    /// # use towline::Connection;
    /// async fn log_paths(connection: Connection) {
    ///     let mut path = connection.path();
    ///     while let Ok(now) = connection.path_changed(&path).await {
    ///         println!("now over {}, MTU {}", now.remote_addr, now.mtu);
    ///         path = now;
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn path_changed(&self, known: &NetworkPath) -> Result<NetworkPath, ConnectionError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_path_changed(&mut waiter, cx, known)).await
    }

    /// As [`path_changed`](Self::path_changed), for callers that poll.
    pub fn poll_path_changed(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
        known: &NetworkPath,
    ) -> Poll<Result<NetworkPath, ConnectionError>> {
        let (interest, waker) = (Interest::Path, Some(cx.waker()));
        waiter.poll_connection(&self.reference, interest, waker, |engine, entry| {
            let (None, Some(engine)) = (&entry.error, engine) else {
                return Poll::Ready((Err(lost(entry)), Change::None));
            };
            match NetworkPath::of(engine) {
                path if path == *known => Poll::Pending,
                path => Poll::Ready((Ok(path), Change::None)),
            }
        })
    }
}

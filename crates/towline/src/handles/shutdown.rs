//! How an endpoint takes other connections than before, none, or comes to its end in good order.
//!
//! Methods of [`Endpoint`] that change what all its shards take. The deadline of a shutdown is the
//! sessions', so that it passes under any driver, and with no task that waits for it.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use towline_quic::{InvalidTransport, ServerConfig};

use super::endpoint::Endpoint;
use super::waiters::wake_all;
use crate::io::{Change, share_limits};

impl Endpoint {
    /// Connections that begin from now on are made with `config`. With `None` there are none: clients
    /// are told `CONNECTION_REFUSED`, those that [wait](Self::incoming) as well; connections that have
    /// begun go on, and [`accept`](Self::accept) waits for a configuration to come.
    ///
    /// An endpoint that only connected may become a server so. No effect on one that was
    /// [closed](Self::close) or [shuts down](Self::shutdown).
    ///
    /// # Errors
    /// When the transport settings make no sense; nothing was changed.
    pub fn set_server_config(&self, config: Option<ServerConfig>) -> Result<(), InvalidTransport> {
        if let Some(config) = &config {
            config.validate()?;
        }
        let count = self.shards().len();
        let config = config.map(|config| Arc::new(share_limits(config, count)));
        for shard in self.shards() {
            let now = shard.clock().now();
            shard.with(|endpoint, sessions| {
                if sessions.takes_nobody() {
                    return ((), Change::None);
                }
                endpoint.set_server_config(now, config.clone());
                ((), Change::Made)
            });
        }
        Ok(())
    }

    /// Shuts down in good order, and waits until no connection is left: nobody new is accepted, what
    /// runs may go on for `grace`, and what is left then is [closed](Self::close) with `code` and
    /// `reason`.
    ///
    /// | who | what happens |
    /// |---|---|
    /// | a client that asks now, or [waits](Self::incoming) | is told `CONNECTION_REFUSED` |
    /// | a client whose handshake is under way | gets its connection; [`accept`](Self::accept) gives it out, and `None` after the last |
    /// | a peer with a connection | sees nothing until that is closed: by itself, by this side's application, or after `grace` with `code` and `reason` |
    ///
    /// QUIC has no word for "finish what you are at": tell the peers in the application's protocol,
    /// or close each connection when its work is done. This side may go on to connect meanwhile.
    ///
    /// Once called it goes on by itself: a dropped call only stops waiting. Of several calls the
    /// earliest end counts.
    pub async fn shutdown(&self, grace: Duration, code: u64, reason: &[u8]) {
        self.start_shutdown(grace, code, reason);
        self.wait_idle().await;
    }

    /// As [`shutdown`](Self::shutdown), without waiting.
    pub fn start_shutdown(&self, grace: Duration, code: u64, reason: &[u8]) {
        let at = self.now() + grace;
        // Woken when no lock is held.
        let mut wake: Vec<Waker> = Vec::new();
        for shard in self.shards() {
            let now = shard.clock().now();
            shard.with(|endpoint, sessions| {
                if sessions.closed.is_none() && !sessions.stopped {
                    sessions.begin_shutdown(endpoint, now, at, code, reason);
                    sessions.deciders.wake_all(&mut wake);
                }
                ((), Change::Made)
            });
        }
        wake_all(wake);
    }
}

//! The server's side: handshakes in parallel, and only finished ones are handed out.
//!
//! A peer that says nothing costs a task and a descriptor until its time is over or until so many
//! wait that one has to go of those with the most; it never stands before one that does speak. TCP connections
//! are taken from the kernel while [`accept`](Listener::accept) is awaited, as TCP's backlog has it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use towline_stcp::{Handshake, ServerConfig};

use super::error::ConnectError;
use super::handshake::{TIMEOUT, shake_hands};
use super::refusals::RefusalLog;
use super::slots::{Party, Slots};
use super::stream::Stream;
use crate::setters::setters;

/// Cap: handshakes under way, unless [`Limits`] say otherwise; for a new one the oldest goes of the prefix
/// with the most.
const MAX_UNFINISHED_HANDSHAKES: usize = 1024;

/// What a listener grants to peers it does not know yet.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Handshakes under way at once; for one more, the oldest is dropped of the prefix that has the most.
    pub unfinished_handshakes: usize,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
}

impl Limits {
    setters! {
        unfinished_handshakes: usize,
        handshake_timeout: Duration,
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            unfinished_handshakes: MAX_UNFINISHED_HANDSHAKES,
            handshake_timeout: TIMEOUT,
        }
    }
}

/// What became of the peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounters {
    /// Handed out.
    pub accepted: u64,
    /// Not TLS, not believed, or gone during the handshake.
    pub refused: u64,
    /// Without an end of the handshake in time.
    pub timed_out: u64,
    /// Those that had to go when too many were under way, and those that the end of the listener met.
    pub dropped: u64,
}

towline_quic::visit_fields! { ListenerCounters:
    Counter accepted: Count, "Peers whose handshake ended well";
    Counter refused: Count, "Peers not TLS, not believed, or gone during the handshake";
    Counter timed_out: Count, "Peers without an end of the handshake in time";
    Counter dropped: Count, "Peers that had to go when too many handshakes were under way";
}

/// Accepts connections. Dropped, it drops the handshakes under way as well.
pub struct Listener {
    tcp: TcpListener,
    config: ServerConfig,
    limits: Limits,
    handshakes: JoinSet<Outcome>,
    slots: Slots,
    counters: watch::Sender<ListenerCounters>,
    log: RefusalLog,
}

/// `None`: it had to go.
type Outcome = (SocketAddr, Option<Result<Stream, ConnectError>>);

/// Listens on `address`.
///
/// # Errors
/// The address cannot be listened on.
pub async fn listen(address: impl ToSocketAddrs, config: ServerConfig) -> io::Result<Listener> {
    Ok(Listener::new(TcpListener::bind(address).await?, config))
}

impl Listener {
    /// Over a TCP listener that is there already.
    pub fn new(tcp: TcpListener, config: ServerConfig) -> Self {
        Self {
            tcp,
            config,
            limits: Limits::default(),
            handshakes: JoinSet::new(),
            slots: Slots::new(MAX_UNFINISHED_HANDSHAKES),
            counters: watch::Sender::default(),
            log: RefusalLog::default(),
        }
    }

    /// Other limits than the default ones.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self.slots = Slots::new(limits.unfinished_handshakes);
        self
    }

    /// Another configuration for the handshakes that begin from now on.
    pub fn set_config(&mut self, config: ServerConfig) {
        self.config = config;
    }

    /// The address listened on.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// What became of the peers so far.
    pub fn counters(&self) -> ListenerCounters {
        *self.counters.borrow()
    }

    /// The same for who does not have the listener.
    pub fn watch_counters(&self) -> watch::Receiver<ListenerCounters> {
        self.counters.subscribe()
    }

    /// Handshakes under way.
    pub fn unfinished(&self) -> usize {
        self.handshakes.len()
    }

    /// The next peer whose handshake is finished. Peers that fail are logged and counted, and never
    /// end the wait. May be dropped and called again without losing anybody.
    ///
    /// # Errors
    /// Those of TCP's accept, such as too many open files; the next call may do better.
    pub async fn accept(&mut self) -> io::Result<(Stream, SocketAddr)> {
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.handshakes.join_next() => {
                    if let Some(accepted) = self.on_ended(ended) {
                        return Ok(accepted);
                    }
                }
                accepted = self.tcp.accept() => match accepted {
                    Ok((tcp, peer)) => self.on_connection(tcp, peer),
                    // The peer was gone before we looked.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// Ends listening and tells what became of all peers.
    pub async fn close(mut self) -> ListenerCounters {
        self.handshakes.abort_all();
        while let Some(ended) = self.handshakes.join_next().await {
            // One that had failed before still has its reason.
            if self.on_ended(ended).is_some() {
                self.counters.send_modify(|counters| {
                    counters.accepted -= 1;
                    counters.dropped += 1;
                });
            }
        }
        self.counters()
    }

    fn on_connection(&mut self, tcp: TcpStream, peer: SocketAddr) {
        let (slot, evicted) = self.slots.enter(Party::new(0, peer.ip()));
        let (config, patience) = (self.config.clone(), self.limits.handshake_timeout);
        self.handshakes.spawn(async move {
            let _slot = slot;
            tokio::select! {
                shaken = tokio::time::timeout(patience, serve_over(tcp, &config)) => {
                    let result = shaken.unwrap_or(Err(ConnectError::TimedOut(patience)));
                    (peer, Some(result))
                }
                () = evicted => (peer, None),
            }
        });
    }

    fn on_ended(&mut self, ended: Result<Outcome, JoinError>) -> Option<(Stream, SocketAddr)> {
        match ended {
            Ok((peer, Some(Ok(stream)))) => {
                self.counters.send_modify(|counters| counters.accepted += 1);
                return Some((stream, peer));
            }
            Ok((peer, Some(Err(why)))) => {
                self.counters.send_modify(|counters| match why {
                    ConnectError::TimedOut(_) => counters.timed_out += 1,
                    _ => counters.refused += 1,
                });
                self.log.say(why, |line| tracing::warn!(%peer, "{line}"));
            }
            Ok((_, None)) | Err(_) => {
                self.counters.send_modify(|counters| counters.dropped += 1);
            }
        }
        None
    }
}

async fn serve_over(tcp: TcpStream, config: &ServerConfig) -> Result<Stream, ConnectError> {
    tcp.set_nodelay(true)?;
    shake_hands(tcp, Handshake::server(config)?, config.records()).await
}

//! What a relay is told, what it counts, and why it may refuse to start.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use towline_sim::{LinkConfig, LinkConfigError, LinkStats, NatConfig};

/// Clients served at once unless [`RelayConfig::max_clients`] says otherwise; each costs a socket.
pub const DEFAULT_MAX_CLIENTS: usize = 256;

/// How long a client may be silent, both ways, before its upstream socket is closed.
pub const DEFAULT_CLIENT_IDLE: Duration = Duration::from_secs(120);

/// Where a relay stands and what its two links do.
#[derive(Clone, Debug, PartialEq)]
pub struct RelayConfig {
    /// The UDP address clients send to; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The server behind the relay.
    pub upstream: SocketAddr,
    /// The link from all clients to the server.
    pub to_upstream: LinkConfig,
    /// The link from the server to all clients.
    pub to_client: LinkConfig,
    /// The NAT that all clients are behind, as the server sees it: the socket that stands for a client
    /// is its mapping. Its times count from the relay's start; `idle` is looked at each 100 ms.
    pub nat: NatConfig,
    /// Seed of the links' random choices. The choices repeat with it; the real clock does not.
    pub seed: u64,
    /// Most clients at once; datagrams of further ones are dropped and counted.
    pub max_clients: usize,
    /// Silence after which a client is forgotten.
    pub client_idle: Duration,
}

impl RelayConfig {
    /// A relay whose links do nothing, for up to [`DEFAULT_MAX_CLIENTS`] clients, seed 0.
    pub fn new(listen: SocketAddr, upstream: SocketAddr) -> Self {
        Self {
            listen,
            upstream,
            to_upstream: LinkConfig::default(),
            to_client: LinkConfig::default(),
            nat: NatConfig::default(),
            seed: 0,
            max_clients: DEFAULT_MAX_CLIENTS,
            client_idle: DEFAULT_CLIENT_IDLE,
        }
    }

    /// The same with `link` in both directions.
    #[must_use]
    pub fn with_link(mut self, link: LinkConfig) -> Self {
        self.to_upstream = link.clone();
        self.to_client = link;
        self
    }
}

/// One of a relay's two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayDirection {
    /// From the clients to the server.
    ToUpstream,
    /// From the server to the clients.
    ToClient,
}

impl fmt::Display for RelayDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToUpstream => "to upstream",
            Self::ToClient => "to client",
        })
    }
}

/// What a relay did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Clients known now.
    pub clients: usize,
    /// Clients ever served; one that comes back after expiry counts again.
    pub clients_total: u64,
    /// Clients forgotten after [`RelayConfig::client_idle`].
    pub clients_expired: u64,
    /// Datagrams of clients dropped because [`RelayConfig::max_clients`] were there already, or
    /// because the system had no socket for one more.
    pub datagrams_refused: u64,
    /// Mappings that [`RelayConfig::nat`] made in place of one it had forgotten.
    pub rebindings: u64,
    /// Datagrams of the server for a mapping that was forgotten.
    pub datagrams_unmapped: u64,
    /// Datagrams that came out of a link for a client already forgotten.
    pub datagrams_orphaned: u64,
    /// Datagrams that the system did not take (full socket buffer, no route, too long).
    pub send_failures: u64,
    /// Errors the system reported when reading, such as a server's port that is closed.
    pub receive_failures: u64,
    /// The link from the clients to the server.
    pub to_upstream: LinkStats,
    /// The link from the server to the clients.
    pub to_client: LinkStats,
    /// Bytes waiting for the bottleneck towards the server now.
    pub to_upstream_queue_bytes: u64,
    /// Bytes waiting for the bottleneck towards the clients now.
    pub to_client_queue_bytes: u64,
}

/// Why a relay does not start; the user's to put right.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A link is configured to do the impossible.
    #[error("link {direction}: {error}")]
    Link {
        /// Which of the two.
        direction: RelayDirection,
        /// What is wrong with it.
        error: LinkConfigError,
    },
    /// A setting of whole IP packets, for datagrams between sockets.
    #[error(
        "link {direction}: `{setting}` needs whole IP packets, which only the TUN form carries"
    )]
    NeedsPackets {
        /// Which of the two.
        direction: RelayDirection,
        /// Its name in text.
        setting: &'static str,
    },
    /// The NAT is configured to do the impossible.
    #[error("NAT: {0}")]
    Nat(LinkConfigError),
    /// The NAT cannot have other addresses: only those of loopback are this machine's anyway.
    #[error(
        "NAT: change=address needs an upstream in 127.0.0.0/8 here, or the TUN form; {upstream} is not"
    )]
    NatAddress {
        /// The upstream given.
        upstream: SocketAddr,
    },
    /// The address to listen on is taken, or not this machine's.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The relay would forward to itself.
    #[error("the relay's own address {address} cannot be its upstream")]
    Loop {
        /// Both addresses.
        address: SocketAddr,
    },
    /// No client could ever be served.
    #[error("a relay for 0 clients forwards nothing; max_clients must be at least 1")]
    NoClients,
}

//! What a relay between namespaces is told, the addresses it gives, and what it counts.

use std::net::{Ipv4Addr, Ipv6Addr};

use towline_sim::{LinkConfig, LinkStats, NatConfig};

/// The namespace of the clients unless another is named.
pub const DEFAULT_CLIENT_NAMESPACE: &str = "towline-client";

/// The namespace of the server unless another is named.
pub const DEFAULT_SERVER_NAMESPACE: &str = "towline-server";

/// The device's name in both namespaces.
pub const DEVICE_NAME: &str = "towline0";

/// Longest packet the devices take, bytes; a link's `mtu` may be smaller.
pub const DEVICE_MTU: u16 = 1500;

/// The clients' addresses. They may repeat in other namespaces: nothing leaves these two.
pub const CLIENT_ADDRESSES: TunAddresses = TunAddresses {
    v4: Ipv4Addr::new(10, 77, 1, 2),
    v6: Ipv6Addr::new(0xfd77, 1, 0, 0, 0, 0, 0, 2),
};

/// The server's addresses.
pub const SERVER_ADDRESSES: TunAddresses = TunAddresses {
    v4: Ipv4Addr::new(10, 77, 2, 2),
    v6: Ipv6Addr::new(0xfd77, 2, 0, 0, 0, 0, 0, 2),
};

/// The addresses of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunAddresses {
    /// In a /24.
    pub v4: Ipv4Addr,
    /// In a /64.
    pub v6: Ipv6Addr,
}

/// Which namespaces a relay joins and what its two links do.
#[derive(Clone, Debug, PartialEq)]
pub struct TunConfig {
    /// Name of the clients' namespace, as `ip netns` has it.
    pub client_namespace: String,
    /// Name of the server's namespace.
    pub server_namespace: String,
    /// Whether the relay makes both, and removes them when it is dropped.
    pub create: bool,
    /// The link from the clients to the server.
    pub to_server: LinkConfig,
    /// The link from the server to the clients.
    pub to_client: LinkConfig,
    /// The NAT that the clients are behind; its times count from the relay's start. It translates
    /// UDP and TCP; by default it does nothing.
    pub nat: NatConfig,
    /// Seed of the links' random choices. The choices repeat with it; the real clock does not.
    pub seed: u64,
}

impl Default for TunConfig {
    fn default() -> Self {
        Self {
            client_namespace: DEFAULT_CLIENT_NAMESPACE.to_owned(),
            server_namespace: DEFAULT_SERVER_NAMESPACE.to_owned(),
            create: false,
            to_server: LinkConfig::default(),
            to_client: LinkConfig::default(),
            nat: NatConfig::default(),
            seed: 0,
        }
    }
}

impl TunConfig {
    /// The same with `link` in both directions.
    #[must_use]
    pub fn with_link(mut self, link: LinkConfig) -> Self {
        self.to_server = link.clone();
        self.to_client = link;
        self
    }
}

/// What a relay between namespaces did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunCounters {
    /// Packets that no wire to elsewhere carries: multicast, link-local, or not IP at all.
    pub not_forwarded: u64,
    /// Packets that the receiving kernel did not take.
    pub send_failures: u64,
    /// Errors the system reported when reading from a device.
    pub receive_failures: u64,
    /// Mappings that [`TunConfig::nat`] made in place of one it had forgotten.
    pub rebindings: u64,
    /// Packets that [`TunConfig::nat`] had no mapping for.
    pub packets_unmapped: u64,
    /// ICMP errors sent for packets longer than a link's `mtu`.
    pub too_big_told: u64,
    /// Packets the kernels dropped before the relay could read them, because it was too slow.
    /// Brought up to date when `TunRelay::run` returns.
    pub lost_before_link: u64,
    /// The link from the clients to the server.
    pub to_server: LinkStats,
    /// The link from the server to the clients.
    pub to_client: LinkStats,
    /// Bytes waiting for the bottleneck towards the server now.
    pub to_server_queue_bytes: u64,
    /// Bytes waiting for the bottleneck towards the clients now.
    pub to_client_queue_bytes: u64,
}

//! How a server takes clients, in one application protocol or several.

use std::fmt;
use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use super::{InvalidTransport, TransportConfig};

/// How to accept connections.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// rustls configuration: TLS 1.3 only, with the ALPN list.
    pub tls: Arc<rustls::ServerConfig>,
    /// Transport settings.
    pub transport: Arc<TransportConfig>,
    /// Protocols with settings of their own, best first: the first that a client offers is agreed on.
    /// A client that offers none of them is met with `tls` and `transport`. Default none.
    pub protocols: Arc<[ProtocolConfig]>,
    /// When a client must prove its address first (RFC 9000 §8.1.2).
    pub retry: RetryPolicy,
    /// Connections this endpoint holds at most; beyond, new clients are told `CONNECTION_REFUSED`
    /// (RFC 9000 §5.2.2). Default 100,000.
    pub max_connections: usize,
    /// Handshakes in progress at most; beyond, new clients are ignored, for they try again and
    /// there will be room. They are shared out by prefix (IPv4 /24, IPv6 /48): one alone gets
    /// three fifths, and a quarter is kept for prefixes that have fewer than three. A handshake
    /// that fails counts until it would have timed out. Default 4,000.
    pub max_handshakes: usize,
    /// Handshakes in progress of clients that did not prove their address, above which
    /// `RetryPolicy::UnderLoad` asks for Retry; shared out in the same way, so that a prefix with
    /// many is asked sooner than others. Default 1,000.
    pub retry_threshold: usize,
    /// Where clients of each family should move after the handshake: another address of this server's
    /// at which the endpoint gets its datagrams as well, from a socket that tells it so
    /// (RFC 9000 §9.6). Default none.
    pub preferred_ipv4: Option<SocketAddrV4>,
    /// The same for IPv6.
    pub preferred_ipv6: Option<SocketAddrV6>,
}

impl ServerConfig {
    /// Default settings over `tls`.
    pub fn new(tls: Arc<rustls::ServerConfig>) -> Self {
        Self {
            tls,
            transport: Arc::default(),
            protocols: Arc::default(),
            retry: RetryPolicy::UnderLoad,
            max_connections: 100_000,
            max_handshakes: 4_000,
            retry_threshold: 1_000,
            preferred_ipv4: None,
            preferred_ipv6: None,
        }
    }

    setters! {
        tls: Arc<rustls::ServerConfig>,
        retry: RetryPolicy,
        max_connections: usize,
        max_handshakes: usize,
        retry_threshold: usize,
        preferred_ipv4: Option<SocketAddrV4>,
        preferred_ipv6: Option<SocketAddrV6>,
    }

    /// Sets the field `transport`.
    #[must_use]
    pub fn transport(mut self, transport: impl Into<Arc<TransportConfig>>) -> Self {
        self.transport = transport.into();
        self
    }

    /// Sets the field `protocols`.
    #[must_use]
    pub fn protocols(mut self, protocols: impl IntoIterator<Item = ProtocolConfig>) -> Self {
        self.protocols = protocols.into_iter().collect();
        self
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("transport", &self.transport)
            .field("protocols", &self.protocols)
            .field("retry", &self.retry)
            .field("max_connections", &self.max_connections)
            .finish_non_exhaustive()
    }
}

/// When a server answers an Initial with Retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RetryPolicy {
    /// Never.
    Never,
    /// While the client's prefix has its share of `ServerConfig::retry_threshold` handshakes.
    #[default]
    UnderLoad,
    /// Always.
    Always,
}

/// An application protocol of a server that speaks several, and how its connections are made.
///
/// The server reads the client's whole TLS hello before it makes a session, so that each protocol has
/// transport settings of its own, and a certificate or even a kind of identity, on one UDP port.
///
/// ```
/// # use towline_quic::{ProtocolConfig, ServerConfig, TransportConfig};
/// # fn several(server: ServerConfig) -> ServerConfig {
/// let telemetry = TransportConfig::default().max_concurrent_bidi_streams(0);
/// server.protocols([
///     ProtocolConfig::new("telemetry").transport(telemetry),
///     ProtocolConfig::new("chat"),
/// ])
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ProtocolConfig {
    /// Its name in ALPN (RFC 7301), 1 to 255 bytes.
    pub alpn: Vec<u8>,
    /// Transport settings of its connections. Some are needed before the client's hello is there, and
    /// those of [`ServerConfig::transport`] hold for every protocol: `initial_rtt`,
    /// `handshake_timeout`, `ecn` and the sizes of packets (`initial_mtu`, `min_mtu`, `max_mtu`,
    /// `mtu_search`), which here count for nothing. So do the server's limits and Retry, and the
    /// endpoint's connection IDs.
    pub transport: Arc<TransportConfig>,
    /// Certificates, client authentication and the rest of TLS, instead of [`ServerConfig::tls`]; its
    /// list of protocols does not count.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl ProtocolConfig {
    /// Default transport settings, under the server's own TLS configuration.
    pub fn new(alpn: impl Into<Vec<u8>>) -> Self {
        Self {
            alpn: alpn.into(),
            transport: Arc::default(),
            tls: None,
        }
    }

    /// Sets the field `transport`.
    #[must_use]
    pub fn transport(mut self, transport: impl Into<Arc<TransportConfig>>) -> Self {
        self.transport = transport.into();
        self
    }

    setters! {
        tls: Option<Arc<rustls::ServerConfig>>,
    }

    fn validate(&self) -> Result<(), InvalidTransport> {
        let bytes = |len| format!("{len} bytes");
        InvalidTransport::check("alpn", self.alpn.len(), 1..=255, bytes)?;
        self.transport.validate()
    }
}

impl fmt::Debug for ProtocolConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtocolConfig")
            .field("alpn", &self.alpn.escape_ascii().to_string())
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

impl ServerConfig {
    /// Refuses what makes no sense, in the transport settings of any protocol.
    ///
    /// # Errors
    /// Names the setting, and what it can be.
    pub fn validate(&self) -> Result<(), InvalidTransport> {
        self.transport.validate()?;
        let mut protocols = self.protocols.iter();
        protocols.try_for_each(ProtocolConfig::validate)
    }

    /// Whether a client that offers `alpn`, and nothing else, gets a connection.
    pub fn speaks(&self, alpn: &[u8]) -> bool {
        self.protocols.iter().any(|own| own.alpn == alpn)
            || self.tls.alpn_protocols.iter().any(|own| own == alpn)
    }
}

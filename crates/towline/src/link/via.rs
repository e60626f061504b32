//! [`Via`]: what carries a link.

/// What carries the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// QUIC.
    Udp,
    /// TLS over TCP.
    Tls,
}

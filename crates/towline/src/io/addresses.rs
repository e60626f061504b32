//! IPv4 addresses at a socket that may reach them under mapped IPv6 ones, on their way in and out.
//!
//! Everyone above sees plain IPv4 addresses. Called by who talks to the system.

use std::net::{IpAddr, SocketAddr};

/// A peer's address as a socket wants it that reaches IPv4 under `mapped` addresses, or not.
pub(super) fn outward(remote: SocketAddr, mapped: bool) -> SocketAddr {
    match remote {
        SocketAddr::V4(v4) if mapped => {
            SocketAddr::new(IpAddr::V6(v4.ip().to_ipv6_mapped()), v4.port())
        }
        other => other,
    }
}

/// As [`outward`], for a local address.
pub(super) fn outward_ip(ip: IpAddr, mapped: bool) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if mapped => IpAddr::V6(v4.to_ipv6_mapped()),
        other => other,
    }
}

/// An IPv4 peer is an IPv4 address to everyone above, whatever socket it came through.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(IpAddr::V4(v4), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

//! Which connections stay on this machine.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::super::relay::unspecified;

/// Where a connection would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To loopback.
    Loopback,
    /// To another address of this machine.
    Own,
    /// To another machine.
    Away,
}

/// Where a connection `to` there would go.
pub(super) fn place(to: SocketAddr) -> Place {
    // Linux takes "no address" for loopback.
    if to.ip().is_loopback() || to.ip().is_unspecified() {
        return Place::Loopback;
    }
    match is_own(to) {
        true => Place::Own,
        false => Place::Away,
    }
}

/// Whether a connection with these ends stays here. The kernel lets nobody else come from our
/// address (and what we answered would not leave).
pub(super) fn stays_here(local: SocketAddr, peer: SocketAddr) -> bool {
    let [local, peer] = [local, peer].map(|address| address.ip().to_canonical());
    local == peer || (local.is_loopback() && peer.is_loopback())
}

/// Linux chooses the destination for the source exactly where it is our own.
fn is_own(to: SocketAddr) -> bool {
    let source = || {
        let socket = UdpSocket::bind((unspecified(to.ip()), 0))?;
        socket.connect(to)?;
        socket.local_addr()
    };
    source().is_ok_and(|source| source.ip() == to.ip())
}

/// An IPv4 address as such, also where a socket of IPv6 has it.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

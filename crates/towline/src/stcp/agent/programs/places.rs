//! Which connections stay on this machine.

use std::io;
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
///
/// # Errors
/// What a program would be told at once: there is no way.
pub(super) fn place(to: SocketAddr) -> io::Result<Place> {
    // Linux takes "no address" for loopback.
    if to.ip().is_loopback() || to.ip().is_unspecified() {
        return Ok(Place::Loopback);
    }
    let socket = UdpSocket::bind((unspecified(to.ip()), 0))?;
    socket.connect(to)?;
    // Linux chooses the destination for the source exactly where it is our own.
    Ok(match socket.local_addr()?.ip() == to.ip() {
        true => Place::Own,
        false => Place::Away,
    })
}

/// Whether a connection with these ends stays here. The kernel lets nobody else come from our
/// address (and what we answered would not leave).
pub(super) fn stays_here(local: SocketAddr, peer: SocketAddr) -> bool {
    let [local, peer] = [local, peer].map(|address| address.ip().to_canonical());
    local == peer || (local.is_loopback() && peer.is_loopback())
}

/// An IPv4 address as such, also where a socket of IPv6 has it.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

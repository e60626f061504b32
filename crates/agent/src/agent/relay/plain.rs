//! TCP connections that the agent itself makes, to a server or to a program: nothing secured yet.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// How long the way to a program or a server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A plain connection, `from` this address of ours.
pub(in crate::agent) async fn dial(from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket_for(to)?;
    // To bind takes a port from all destinations.
    if from != anywhere(to) {
        socket.set_reuseaddr(from.port() != 0)?;
        socket.bind(from)?;
    }
    connect(socket, to).await
}

/// A socket of the family of `to`.
pub(super) fn socket_for(to: SocketAddr) -> io::Result<TcpSocket> {
    match to {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }
}

/// Connects it, and gives up in the end.
pub(super) async fn connect(socket: TcpSocket, to: SocketAddr) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_TIMEOUT, socket.connect(to))
        .await
        .map_err(|_| io::Error::from_raw_os_error(libc::ETIMEDOUT))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// No address and no port, of the family of `to`.
pub(super) fn anywhere(to: SocketAddr) -> SocketAddr {
    SocketAddr::new(unspecified(to.ip()), 0)
}

/// No address, of the family of `ip`.
pub(in crate::agent) fn unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

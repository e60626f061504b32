//! The way to a program for a peer from outside: a connection that has the peer's own address.
//!
//! Programs decide by their peer's address (`pg_hba.conf`, a log, a limit for each address), so none
//! may ever see this host's in its place. The socket is bound to an address that is not ours
//! (IP_TRANSPARENT) and bears the relay's mark, by which the caller's rules bring the program's answers
//! back here. That the program sees what it should is not believed: other rules of a firewall may
//! rewrite addresses, so the kernel is asked which socket is at the other end, before a byte is given.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::super::failure::Failure;
use super::super::places::{canonical, kernel_tells, stays_here};
use super::plain::{self, unspecified};

/// For the other end, before it counts as another than it should be.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Addresses that nobody has (RFC 5737, RFC 3849).
const NOBODY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// A connection to a program here, `from` the address of its peer, with this mark.
///
/// # Errors
/// What the system said, and where the program would see another address than the peer's.
pub(super) async fn dial_as(
    from: SocketAddr,
    to: SocketAddr,
    mark: u32,
) -> Result<TcpStream, Failure> {
    let (from, to) = (canonical(from), canonical(to));
    let connected = match connect(from, to, mark).await {
        // Another socket has this port, or lately had. Rules go by addresses.
        Err(error) if is_in_use(&error) => connect(SocketAddr::new(from.ip(), 0), to, mark).await?,
        connected => connected?,
    };
    let shown = connected.local_addr()?;
    // The kernel may need a moment to make the other end.
    for _ in 0..LOOKS {
        if stays_here(shown, to) {
            return Ok(connected);
        }
        sleep(BETWEEN_LOOKS).await;
    }
    Err(Failure::Disguised(from))
}

/// Whether a program that listens at `port` of every address can be reached from its peers' addresses. Where no
/// route leads to other hosts, none of them comes.
///
/// # Errors
/// As for [`dial_as`].
pub(super) async fn try_way_in(port: u16, mark: u32) -> Result<(), Failure> {
    let [nobody, nobody_v6] = NOBODY.map(|ip| SocketAddr::new(ip, 0));
    if !kernel_tells()? {
        return Err(Failure::Disguised(nobody));
    }
    for nobody in [nobody, nobody_v6] {
        if let Some(own) = own_address_towards(nobody.ip()) {
            dial_as(nobody, SocketAddr::new(own, port), mark).await?;
        }
    }
    Ok(())
}

/// The address that this host would have on the way to another.
fn own_address_towards(other: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((unspecified(other), 0)).ok()?;
    // Nothing is sent.
    socket.connect((other, 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    // One of a link alone leads to its neighbours only.
    let is_of_link = matches!(own, IpAddr::V6(own) if own.is_unicast_link_local());
    (!own.is_loopback() && !is_of_link).then_some(own)
}

async fn connect(from: SocketAddr, to: SocketAddr, mark: u32) -> io::Result<TcpStream> {
    let socket = plain::socket_for(to)?;
    let options = SockRef::from(&socket);
    match to {
        SocketAddr::V4(_) => options.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => options.set_ip_transparent_v6(true)?,
    }
    options.set_mark(mark)?;
    options.set_reuse_address(from.port() != 0)?;
    socket.bind(from)?;
    plain::connect(socket, to).await
}

fn is_in_use(error: &io::Error) -> bool {
    [io::ErrorKind::AddrInUse, io::ErrorKind::AddrNotAvailable].contains(&error.kind())
}

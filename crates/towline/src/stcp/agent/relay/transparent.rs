//! The way to a program for a peer from outside: a connection that has the peer's own address.
//!
//! Programs decide by their peer's address (`pg_hba.conf`, a log, a limit for each address), so none
//! may ever see this host's in its place. The socket is bound to an address that is not ours
//! (IP_TRANSPARENT) and bears the relay's mark, by which the caller's rules bring the program's answers
//! back here. That the program sees what it should is not believed: other rules of a firewall may
//! rewrite addresses, so the kernel is asked which socket is at the other end, before a byte is given.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::super::Failure;
use super::super::places::{canonical, stays_here};

/// For the other end, before it counts as another than it should be.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

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

async fn connect(from: SocketAddr, to: SocketAddr, mark: u32) -> io::Result<TcpStream> {
    let socket = super::socket_for(to)?;
    let options = SockRef::from(&socket);
    match to {
        SocketAddr::V4(_) => options.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => options.set_ip_transparent_v6(true)?,
    }
    options.set_mark(mark)?;
    options.set_reuse_address(from.port() != 0)?;
    socket.bind(from)?;
    super::connect(socket, to).await
}

fn is_in_use(error: &io::Error) -> bool {
    [io::ErrorKind::AddrInUse, io::ErrorKind::AddrNotAvailable].contains(&error.kind())
}

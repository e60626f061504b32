//! A program's socket connected to this process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{Domain, Socket};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::super::places::canonical;
use super::super::relay::reset;
use super::{Names, Programs};

/// Loopback answers at once.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Linux: the next `connect()` waits for data. It must not.
const TCP_FASTOPEN_CONNECT: libc::c_int = 30;

/// Connects a program's socket to this process, over IPv6 if `v6`; returns our end of it, and what
/// the program would see of it.
pub(super) async fn join(socket: &Socket, v6: bool) -> io::Result<(TcpStream, Names)> {
    let loopback = match v6 {
        true => IpAddr::from(Ipv6Addr::LOCALHOST),
        false => Ipv4Addr::LOCALHOST.into(),
    };
    let door = TcpListener::bind((loopback, 0)).await?;
    let mut to = door.local_addr()?;
    if let (Domain::IPV6, IpAddr::V4(ip)) = (socket.domain()?, to.ip()) {
        to.set_ip(ip.to_ipv6_mapped().into());
    }
    do_not_wait_for_data(socket);
    let _borrowed = Borrowed::take(socket, to)?;
    let connecting = socket.connect(&to.into());
    let joined = async {
        match connecting {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        let local = bound_to(socket)?;
        loop {
            let (ours, from) = door.accept().await?;
            // Whoever else came is let go.
            if canonical(from) == canonical(local) {
                ours.set_nodelay(true)?;
                return Ok((ours, Names { local, peer: to }));
            }
        }
    };
    let joined = timeout(JOIN_TIMEOUT, joined).await;
    joined.map_err(|_| io::Error::from_raw_os_error(libc::ENETUNREACH))?
}

/// A program's socket while it is connected `to` us without waiting. Its flags are the program's as well, so
/// they are as before afterwards, also where nobody waits for the end any more.
struct Borrowed<'s> {
    socket: &'s Socket,
    to: SocketAddr,
    waits: bool,
}

impl<'s> Borrowed<'s> {
    fn take(socket: &'s Socket, to: SocketAddr) -> io::Result<Self> {
        let waits = !socket.nonblocking()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, to, waits })
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if self.waits {
            // The second call is the one that says so; the program's next is one too many.
            let _ = self.socket.connect(&self.to.into());
            let _ = self.socket.set_nonblocking(false);
        }
    }
}

impl Programs {
    /// Copies between a program and its peer on this machine, to the end, as long as the `real` ends
    /// are here.
    pub(super) async fn copy(&self, mut ours: TcpStream, mut near: TcpStream, real: Names) {
        let is_whole = tokio::select! {
            copied = copy_bidirectional(&mut ours, &mut near) => copied.is_ok(),
            () = self.addresses.until_gone([real.local, real.peer]) => false,
        };
        if !is_whole {
            reset(&ours);
            reset(&near);
        }
    }
}

/// The socket's own address.
pub(super) fn bound_to(socket: &Socket) -> io::Result<SocketAddr> {
    socket
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn do_not_wait_for_data(socket: &Socket) {
    let off: libc::c_int = 0;
    // SAFETY: the descriptor is open; pointer and length are those of one integer, which is only
    // read. A kernel that does not know the option cannot have it on.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_FASTOPEN_CONNECT,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use socket2::Domain;

    use super::super::confined;
    use super::join;

    #[tokio::test]
    async fn a_socket_waits_again_for_a_program_that_gave_up() {
        for (waits, gives_up) in [(true, true), (true, false), (false, true), (false, false)] {
            let socket = confined(Domain::IPV4).unwrap();
            socket.set_nonblocking(!waits).unwrap();
            if gives_up {
                // Nobody looks at it a second time.
                tokio::select! {
                    biased;
                    joined = join(&socket, false) => drop(joined.unwrap()),
                    () = ready(()) => {}
                }
            } else {
                join(&socket, false).await.unwrap();
            }
            assert_eq!(!socket.nonblocking().unwrap(), waits, "{gives_up}");
        }
    }
}

//! Connections whose records the kernel makes (kTLS): the program gets the real socket, once the
//! kernel has its keys, and never before.
//!
//! A program's own socket will not do: another of its threads could write before the keys are there.
//! What the kernel does not take is relayed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use towline_stcp::Established;

use super::super::relay::{CONNECT_TIMEOUT, Relaying, reset};
use super::super::{Asker, Failure};
use super::held::{Held, Way};
use super::open::inode;
use super::{Programs, confined};
use crate::stcp::ktls;

/// What programs set before they connect or listen.
const INHERITED: &[(libc::c_int, libc::c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
];

/// A connection after its handshake.
pub(super) enum Keyed {
    /// The kernel has its keys. The socket waits, as a new one does.
    Kernel(Socket),
    /// The kernel does not take it: the peer has closed its part already. Its records are ours to make.
    Here(TcpStream, Box<Established>),
}

impl Programs {
    /// A connection in the place of the program's `socket`.
    pub(super) async fn connect_keyed(
        self: &Arc<Self>,
        held: &Held,
        socket: &Socket,
        from: SocketAddr,
        to: SocketAddr,
        asker: &Asker,
    ) -> Result<Socket, Failure> {
        let relaying = Relaying::new(&self.agent);
        let connected = match dial(socket, from, to).await {
            Ok(stream) => self.keyed(stream, asker).await,
            Err(error) => Err(error.into()),
        };
        match connected.inspect_err(|why| self.agent.on_refused(asker, why))? {
            Keyed::Kernel(connected) => {
                held.keep(
                    connected.try_clone()?,
                    inode(&connected)?,
                    Way::Answer,
                    None,
                );
                Ok(connected)
            }
            Keyed::Here(secure, established) => {
                let instead = confined(socket.domain()?)?;
                self.relay(&instead, (secure, *established), to, relaying)
                    .await?;
                Ok(instead)
            }
        }
    }

    /// The handshake, and the keys to the kernel.
    pub(super) async fn keyed(&self, stream: TcpStream, asker: &Asker) -> Result<Keyed, Failure> {
        let keying = async {
            let (established, admitted) = self.agent.establish(&stream, asker).await?;
            let keys = established.kernel_keys().ok_or(Failure::NotForTheKernel)?;
            let is_taken = ktls::install_transmit(stream.as_fd(), keys).is_ok();
            if is_taken {
                ktls::install_receive(stream.as_fd(), keys)?;
                ktls::mark(stream.as_fd())?;
            }
            self.agent.on_established(asker, &admitted);
            Ok::<_, Failure>((established, is_taken))
        };
        match keying.await {
            Ok((_, true)) => {
                let stream = stream.into_std()?;
                stream.set_nonblocking(false)?;
                Ok(Keyed::Kernel(stream.into()))
            }
            Ok((established, false)) => Ok(Keyed::Here(stream, Box::new(established))),
            Err(why) => {
                reset(&stream);
                Err(why)
            }
        }
    }
}

/// A connection with the family, the address and the options of the program's socket.
async fn dial(like: &Socket, from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let domain = like.domain()?;
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    inherit(like, &socket);
    if from.port() != 0 {
        socket.set_reuse_address(true)?;
        socket.bind(&like.local_addr()?)?;
    }
    socket.set_nonblocking(true)?;
    let mut to = to;
    if let (Domain::IPV6, IpAddr::V4(ip)) = (domain, to.ip()) {
        to.set_ip(Ipv4Addr::to_ipv6_mapped(&ip).into());
    }
    let connecting = TcpSocket::from_std_stream(socket.into()).connect(to);
    timeout(CONNECT_TIMEOUT, connecting)
        .await
        .map_err(|_| io::Error::from_raw_os_error(libc::ETIMEDOUT))?
}

/// Gives `to` the options of `from`. What cannot be had is left as it is.
pub(super) fn inherit(from: &Socket, to: &Socket) {
    for (level, name) in INHERITED {
        inherit_option(from, to, *level, *name);
    }
    // One that was never set is the kernel's to choose. It doubles what it is given.
    if let (Ok(wanted), Ok(usual)) = (from.send_buffer_size(), to.send_buffer_size())
        && wanted != usual
    {
        let _ = to.set_send_buffer_size(wanted / 2);
    }
    if let (Ok(wanted), Ok(usual)) = (from.recv_buffer_size(), to.recv_buffer_size())
        && wanted != usual
    {
        let _ = to.set_recv_buffer_size(wanted / 2);
    }
}

fn inherit_option(from: &Socket, to: &Socket, level: libc::c_int, name: libc::c_int) {
    let mut value = [0_u64; 4];
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: both descriptors are open; the kernel writes at most `len` bytes of the buffer, and
    // reads as many as it has written.
    unsafe {
        let at = value.as_mut_ptr();
        if libc::getsockopt(from.as_raw_fd(), level, name, at.cast(), &raw mut len) == 0 {
            libc::setsockopt(to.as_raw_fd(), level, name, at.cast(), len);
        }
    }
}

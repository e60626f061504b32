//! Where a redirected connection wanted to go, as the kernel's connection tracking remembers it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use tokio::net::TcpStream;

/// `SO_ORIGINAL_DST` and `IP6T_SO_ORIGINAL_DST` of Linux's netfilter headers.
const ORIGINAL_DST: libc::c_int = 80;

/// The destination before the redirect.
///
/// # Errors
/// When the connection was not redirected: its destination is this very socket, and to go there
/// would be to call oneself.
pub(super) fn destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    let local = stream.local_addr()?;
    let to = match local.ip().to_canonical().is_ipv4() {
        true => original_v4(stream)?,
        false => original_v6(stream)?,
    };
    if SocketAddr::new(local.ip().to_canonical(), local.port()) == to {
        return Err(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "it was made to the agent's own port",
        ));
    }
    Ok(to)
}

fn original_v4(stream: &TcpStream) -> io::Result<SocketAddr> {
    // SAFETY: all-zero is a valid sockaddr_in.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    option(stream, libc::SOL_IP, &mut address)?;
    let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
    Ok((ip, u16::from_be(address.sin_port)).into())
}

fn original_v6(stream: &TcpStream) -> io::Result<SocketAddr> {
    // SAFETY: all-zero is a valid sockaddr_in6.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    option(stream, libc::SOL_IPV6, &mut address)?;
    let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
    let port = u16::from_be(address.sin6_port);
    Ok(std::net::SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into())
}

fn option<T>(stream: &TcpStream, level: libc::c_int, out: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `out`, a plain C struct for which
    // any bytes are valid.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            level,
            ORIGINAL_DST,
            std::ptr::from_mut(out).cast(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

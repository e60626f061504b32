//! Which connections stay on this machine: by its routes beforehand, by its own sockets afterwards.
//!
//! To bind to an address would not tell whether it is ours (with `ip_nonlocal_bind` any will do), and
//! neither does the source that Linux chooses for it: a second address is reached from the first one.
//! Where a connection really goes no address tells, as firewalls rewrite them. It stays here if, and
//! only if, its other end is a socket here.

use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Protocol, Socket, Type};

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
/// Bytes of a `struct nlmsghdr`.
const HEADER: usize = 16;

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTN_LOCAL: u8 = 2;
const RTN_BROADCAST: u8 = 3;
const RTN_MULTICAST: u8 = 5;
/// Bytes of a `struct rtmsg`, and of a `struct rtattr`.
const ROUTE: usize = 12;
const ATTRIBUTE: usize = 4;

const NETLINK_SOCK_DIAG: libc::c_int = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP_LISTEN: u8 = 10;
/// The number of loopback's device. Sockets that are bound to it are found by it, and others too.
const LOOPBACK: u32 = 1;

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
    if let SocketAddr::V6(to) = to
        && to.ip().is_unicast_link_local()
        && to.scope_id() == 0
    {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(match is_own(to)? {
        true => Place::Own,
        false => Place::Away,
    })
}

/// Whether the other end of a connection with these ends is a socket of this machine (and of this
/// network namespace). Where nobody can tell, it is not.
pub(super) fn stays_here(local: SocketAddr, peer: SocketAddr) -> bool {
    let [local, peer] = [local, peer].map(canonical);
    let body = socket_question(peer, local);
    match ask(NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, &body) {
        // Where no such socket is, whoever listens at its address is the answer: `idiag_state`.
        Ok((SOCK_DIAG_BY_FAMILY, answer)) => answer.get(1).is_some_and(|at| *at != TCP_LISTEN),
        Ok(_) => false,
        Err(error) => {
            tracing::debug!(%local, %peer, "no such socket here: {error}");
            false
        }
    }
}

/// Whether the kernel answers such questions; asked the first time, Linux loads what it needs for it.
pub(super) fn kernel_tells() -> io::Result<bool> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    Ok(stays_here(near.local_addr()?, near.peer_addr()?))
}

/// An IPv4 address as such, also where a socket of IPv6 has it.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Whether what is sent `to` there stays here, as far as routes go.
fn is_own(to: SocketAddr) -> io::Result<bool> {
    let nowhere = || io::Error::from_raw_os_error(libc::ENETUNREACH);
    match ask(libc::NETLINK_ROUTE, RTM_GETROUTE, &route_question(to))? {
        // `rtm_type`; TCP goes to one host.
        (RTM_NEWROUTE, route) => match route.get(7) {
            None | Some(&(RTN_BROADCAST | RTN_MULTICAST)) => Err(nowhere()),
            Some(kind) => Ok(*kind == RTN_LOCAL),
        },
        _ => Err(nowhere()),
    }
}

/// Which route leads `to` there.
fn route_question(to: SocketAddr) -> Vec<u8> {
    let (family, address, scope) = parts(to);
    let mut body = vec![family, 8 * address.len() as u8];
    body.extend([0; ROUTE - 2]);
    let mut attribute = |kind: u16, value: &[u8]| {
        body.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    };
    attribute(RTA_DST, &address);
    if scope != 0 {
        attribute(RTA_OIF, &scope.to_ne_bytes());
    }
    body
}

/// Which TCP socket has these addresses: a `struct inet_diag_req_v2`.
fn socket_question(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    let (family, mut from, scope) = parts(local);
    let (_, mut to, _) = parts(peer);
    from.resize(16, 0);
    to.resize(16, 0);
    let mut body = vec![family, libc::IPPROTO_TCP as u8, 0, 0];
    // In all states.
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(local.port().to_be_bytes());
    body.extend(peer.port().to_be_bytes());
    body.extend(from);
    body.extend(to);
    let device = if scope == 0 { LOOPBACK } else { scope };
    body.extend(device.to_ne_bytes());
    // Whatever its cookie is.
    body.extend([u8::MAX; 8]);
    body
}

/// Family, address and scope, as the kernel has them.
fn parts(address: SocketAddr) -> (u8, Vec<u8>, u32) {
    match address {
        SocketAddr::V4(v4) => (libc::AF_INET as u8, v4.ip().octets().to_vec(), 0),
        SocketAddr::V6(v6) => (
            libc::AF_INET6 as u8,
            v6.ip().octets().to_vec(),
            v6.scope_id(),
        ),
    }
}

/// Asks the kernel over netlink: the type of the answer, and what follows its header.
fn ask(family: libc::c_int, kind: u16, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let socket = Socket::new(
        Domain::from(libc::AF_NETLINK),
        Type::RAW,
        Some(Protocol::from(family)),
    )?;
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Its number and ours: nobody else is asked.
    message.extend([0; 8]);
    message.extend(body);
    socket.send(&message)?;
    let mut answer = [0; 1024];
    let len = (&socket).read(&mut answer)?;
    let Some((header, rest)) = answer[..len].split_at_checked(HEADER) else {
        return Err(ErrorKind::InvalidData.into());
    };
    match (u16::from_ne_bytes([header[4], header[5]]), rest) {
        (NLMSG_ERROR, [a, b, c, d, ..]) => {
            let error = i32::from_ne_bytes([*a, *b, *c, *d]);
            Err(io::Error::from_raw_os_error(error.saturating_neg()))
        }
        (kind, rest) => Ok((kind, rest.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_on_this_machine_is_its_own() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        for here in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "0.0.0.0:1",
            "[::1]:1",
            "[::]:1",
        ] {
            assert_eq!(place(address(here)).ok(), Some(Place::Loopback), "{here}");
        }
        // Documentation addresses are nobody's, and TcpListener may bind to our own only.
        for there in ["192.0.2.200:1", "203.0.113.9:1", "[2001:db8::9]:1"] {
            if TcpListener::bind((address(there).ip(), 0)).is_err() {
                // There may be no way at all.
                let found = place(address(there)).unwrap_or(Place::Away);
                assert_eq!(found, Place::Away, "{there}");
            }
        }
    }

    #[test]
    fn a_connection_stays_here_if_its_other_end_is_a_socket_here() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(at) else {
                // No IPv6 here.
                continue;
            };
            let listening = listener.local_addr().unwrap();
            let near = TcpStream::connect(listening).unwrap();
            let from = near.local_addr().unwrap();
            assert!(stays_here(from, listening), "not yet accepted");
            let (far, _) = listener.accept().unwrap();
            assert!(stays_here(from, listening));
            assert!(stays_here(listening, from));
            let other = SocketAddr::new(from.ip(), from.port() ^ 1);
            assert!(!stays_here(other, listening), "it only listens");
            assert!(!stays_here(listening, other));
            drop(far);
        }
    }

    #[test]
    fn a_socket_of_ipv6_is_found_by_its_address_of_ipv4() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            return;
        };
        let to = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let near = TcpStream::connect(to).unwrap();
        let (far, from) = listener.accept().unwrap();
        assert!(stays_here(near.local_addr().unwrap(), to));
        assert!(stays_here(far.local_addr().unwrap(), from));
    }
}

//! Which connections stay on this machine, as its routes have it.
//!
//! To bind to an address would not tell whether it is ours (with `ip_nonlocal_bind` any will do), and
//! neither does the source that Linux chooses for it: a second address is reached from the first one.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

const NLMSG_ERROR: u16 = 2;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTN_LOCAL: u8 = 2;
const RTN_BROADCAST: u8 = 3;
const RTN_MULTICAST: u8 = 5;
/// Bytes of a `struct nlmsghdr`, of a `struct rtmsg`, and of a `struct rtattr`.
const HEADER: usize = 16;
const ROUTE: usize = 12;
const ATTRIBUTE: usize = 4;

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

/// Whether a connection with these ends stays here. Nobody else can have one that comes from our
/// address: what we answered would not leave.
pub(super) fn stays_here(local: SocketAddr, peer: SocketAddr) -> bool {
    let [local, peer] = [local, peer].map(canonical);
    local.ip() == peer.ip() || place(peer).is_ok_and(|place| place != Place::Away)
}

/// An IPv4 address as such, also where a socket of IPv6 has it.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Whether what is sent `to` there stays here.
fn is_own(to: SocketAddr) -> io::Result<bool> {
    let socket = Socket::new(
        Domain::from(libc::AF_NETLINK),
        Type::RAW,
        Some(Protocol::from(libc::NETLINK_ROUTE)),
    )?;
    socket.send(&question(to))?;
    let mut answer = [0; 1024];
    let len = (&socket).read(&mut answer)?;
    let error = io::Error::from_raw_os_error;
    let broken = || error(libc::ENETUNREACH);
    let (header, body) = answer[..len].split_at_checked(HEADER).ok_or_else(broken)?;
    match (u16::from_ne_bytes([header[4], header[5]]), body) {
        // `rtm_type`; TCP goes to one host.
        (RTM_NEWROUTE, [_, _, _, _, _, _, _, kind, ..]) => match *kind {
            RTN_BROADCAST | RTN_MULTICAST => Err(broken()),
            kind => Ok(kind == RTN_LOCAL),
        },
        (NLMSG_ERROR, [a, b, c, d, ..]) => {
            Err(error(i32::from_ne_bytes([*a, *b, *c, *d]).saturating_neg()))
        }
        _ => Err(broken()),
    }
}

/// Which route leads `to` there.
fn question(to: SocketAddr) -> Vec<u8> {
    let (family, address, scope) = match to {
        SocketAddr::V4(to) => (libc::AF_INET, to.ip().octets().to_vec(), 0),
        SocketAddr::V6(to) => (libc::AF_INET6, to.ip().octets().to_vec(), to.scope_id()),
    };
    let bits = 8 * address.len() as u8;
    let mut body = vec![family as u8, bits];
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
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(RTM_GETROUTE.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Its number and ours: nobody else is asked.
    message.extend([0; 8]);
    message.extend(body);
    message
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use super::{Place, place, stays_here};

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
        let ends = |local, peer| stays_here(address(local), address(peer));
        assert!(ends("198.51.100.1:1", "198.51.100.1:2"));
        assert!(ends("198.51.100.1:1", "[::ffff:198.51.100.1]:2"));
        assert!(ends("127.0.0.1:1", "127.0.0.2:2"));
        assert!(!ends("198.51.100.1:1", "198.51.100.2:2"));
        assert!(!ends("127.0.0.1:1", "198.51.100.2:2"));
    }
}

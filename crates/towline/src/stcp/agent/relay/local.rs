//! Whether an address is this machine's own, as its routes have it.

use std::io::{self, Read as _};
use std::net::IpAddr;

use socket2::{Domain, Protocol, Socket, Type};

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const RTA_DST: u16 = 1;
const RTN_LOCAL: u8 = 2;
/// Bytes of a `struct nlmsghdr`, of a `struct rtmsg`, and of a `struct rtattr`.
const HEADER: usize = 16;
const ROUTE: usize = 12;
const ATTRIBUTE: usize = 4;

/// Whether what is sent to `ip` stays here. To bind to it would not tell: with `ip_nonlocal_bind`
/// any address will do.
///
/// # Errors
/// When the kernel does not say, or there is no way there.
pub(super) fn is_local(ip: IpAddr) -> io::Result<bool> {
    let socket = Socket::new(
        Domain::from(libc::AF_NETLINK),
        Type::RAW,
        Some(Protocol::from(libc::NETLINK_ROUTE)),
    )?;
    socket.send(&question(ip))?;
    let mut answer = [0; 1024];
    let len = (&socket).read(&mut answer)?;
    match answer.get(..len) {
        Some([_, _, _, _, kind @ ..]) if kind.starts_with(&RTM_NEWROUTE.to_ne_bytes()) => {
            // `rtm_type`.
            Ok(answer[HEADER + 7] == RTN_LOCAL)
        }
        _ => Err(io::ErrorKind::NetworkUnreachable.into()),
    }
}

/// Which route leads to `ip`.
fn question(ip: IpAddr) -> Vec<u8> {
    let (family, address) = match ip {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    let len = HEADER + ROUTE + ATTRIBUTE + address.len();
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(RTM_GETROUTE.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Its number and ours: nobody else is asked.
    message.extend([0; 8]);
    message.extend([family as u8, 8 * address.len() as u8]);
    message.extend([0; ROUTE - 2]);
    message.extend(((ATTRIBUTE + address.len()) as u16).to_ne_bytes());
    message.extend(RTA_DST.to_ne_bytes());
    message.extend(address);
    message
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn only_addresses_of_this_machine_are_local() {
        for ours in ["127.0.0.1", "127.1.2.3", "::1"] {
            assert!(is_local(ours.parse().unwrap()).unwrap(), "{ours}");
        }
        // For documentation; there may be no way there at all.
        for others in ["192.0.2.1", "2001:db8::1"] {
            let is_ours = is_local(others.parse().unwrap());
            assert!(!is_ours.is_ok_and(|is_ours| is_ours), "{others}");
        }
    }
}

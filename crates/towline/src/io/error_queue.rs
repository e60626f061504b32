//! The error queue of a UDP socket on Linux: what routers say of datagrams that were too big
//! (`IP_RECVERR`, ip(7)).
//!
//! What waits there also makes the next call on the socket fail, whatever that call is about: see
//! [`may_be_of_another`]. Called by [`UdpSocket`](super::UdpSocket) only.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::SockAddr;

use super::addresses::canonical;
use super::socket::{Notice, TooBig};

/// Bytes of a datagram that are looked at: the longest connection ID, and what header protection
/// needs behind it.
const QUOTED_BYTES: usize = 64;

/// Room for an error, for who sent it, and for what other options have the kernel add.
const CONTROL_BYTES: usize = 512;

/// Headers of IP without options and of UDP.
const IPV4_AND_UDP: usize = 20 + 8;
const IPV6_AND_UDP: usize = 40 + 8;

#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Has the kernel keep what it hears of datagrams that were sent. An IPv6 socket may reach IPv4
/// peers as well.
pub(super) fn keep(fd: BorrowedFd<'_>, is_ipv6: bool) -> io::Result<()> {
    if is_ipv6 {
        switch_on(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR)?;
    }
    switch_on(fd, libc::IPPROTO_IP, libc::IP_RECVERR)
}

fn switch_on(fd: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and pointer and length describe `on`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a call may have failed because of what somebody said of an earlier datagram: the errors
/// that the kernel makes of ICMP messages.
pub(super) fn may_be_of_another(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EMSGSIZE
                | libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EPROTO
                | libc::EACCES
        )
    )
}

/// Takes the oldest message out of the queue; `None` if there is none.
pub(super) fn take(fd: BorrowedFd<'_>) -> Option<Notice> {
    let mut quoted = [0; QUOTED_BYTES];
    let mut control = Control([0; CONTROL_BYTES]);
    let mut place = libc::iovec {
        iov_base: quoted.as_mut_ptr().cast(),
        iov_len: QUOTED_BYTES,
    };
    // SAFETY: a header is plain integers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut place;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the descriptor is open, and the header points to room that outlives the call, of the
    // lengths it says. The kernel writes a socket address and its length, or a length of zero.
    let received = unsafe {
        SockAddr::try_init(|name, len| {
            header.msg_name = name.cast();
            header.msg_namelen = *len;
            let received = libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags);
            *len = header.msg_namelen;
            usize::try_from(received).map_err(|_| io::Error::last_os_error())
        })
    };
    let (len, remote) = received.ok()?;
    let too_big = || {
        Some(TooBig {
            remote: canonical(remote.as_socket()?),
            mtu: passing(&extended_error(&header)?)?,
            quoted: quoted.get(..len)?.to_vec(),
        })
    };
    Some(too_big().map_or(Notice::Other, Notice::TooBig))
}

/// Bytes of UDP payload that pass, where the error says that something was too big for a router.
fn passing(error: &libc::sock_extended_err) -> Option<usize> {
    let mtu = usize::try_from(error.ee_info).ok()?;
    let headers = match error.ee_origin {
        libc::SO_EE_ORIGIN_ICMP => IPV4_AND_UDP,
        libc::SO_EE_ORIGIN_ICMP6 => IPV6_AND_UDP,
        _ => return None,
    };
    (error.ee_errno == libc::EMSGSIZE as u32).then(|| mtu.saturating_sub(headers))
}

/// The error among the control messages of a header that `recvmsg` filled.
fn extended_error(header: &libc::msghdr) -> Option<libc::sock_extended_err> {
    // SAFETY: the header's control messages are those that the kernel wrote, and still there.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    for _ in 0..CONTROL_BYTES / size_of::<libc::cmsghdr>() {
        if message.is_null() {
            return None;
        }
        // SAFETY: it is not null, so a whole control header is there.
        let head = unsafe { message.read_unaligned() };
        let is_error = matches!(
            (head.cmsg_level, head.cmsg_type),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        // SAFETY: only arithmetic.
        let least = unsafe { libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as _) };
        if is_error && head.cmsg_len as usize >= least as usize {
            // SAFETY: so many bytes lie behind the header, and any are a value.
            return Some(unsafe {
                libc::CMSG_DATA(message)
                    .cast::<libc::sock_extended_err>()
                    .read_unaligned()
            });
        }
        // SAFETY: as for the first; the kernel's lengths keep the walk inside.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    None
}

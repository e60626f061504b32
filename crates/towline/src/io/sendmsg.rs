//! Sending on Linux: `sendmsg` for one train, `sendmmsg` for trains of several peers.
//!
//! Builds the headers and control messages (UDP_SEGMENT, ECN, source address) that
//! quinn-udp builds too, for as many trains as one call takes. Errors pass through
//! untouched; what they mean is the outbox's business. Called by [`UdpSocket`](super::UdpSocket) only.

use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use towline_quic::Ecn;

use super::addresses::{outward, outward_ip};
use super::socket::{MAX_SEND_BATCH, Outgoing};

/// Room for the three control messages: an int, a u16 and the larger of the packet infos.
const CONTROL_BYTES: usize =
    space_of::<libc::c_int>() + space_of::<u16>() + space_of::<libc::in6_pktinfo>();

/// Sends one train.
pub(super) fn send_one(fd: BorrowedFd<'_>, train: &Outgoing<'_>, mapped: bool) -> io::Result<()> {
    let mut message = Message::new();
    let header = message.prepare(train, mapped);
    // SAFETY: the descriptor is open, `header` points into `message` and `train`, which both
    // outlive the call, and sendmsg only reads.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sends the first of `trains` in one call; says how many.
pub(super) fn send_many(
    fd: BorrowedFd<'_>,
    trains: &[Outgoing<'_>],
    mapped: bool,
) -> io::Result<usize> {
    let mut messages = [const { Message::new() }; MAX_SEND_BATCH];
    // SAFETY: a header is plain integers and pointers, for which zero is a value.
    let mut headers: [libc::mmsghdr; MAX_SEND_BATCH] = unsafe { zeroed() };
    let count = trains.len().min(MAX_SEND_BATCH);
    for ((header, message), train) in headers.iter_mut().zip(&mut messages).zip(trains) {
        header.msg_hdr = message.prepare(train, mapped);
    }
    // SAFETY: the descriptor is open, the first `count` headers point into `messages` and
    // `trains`, which outlive the call and were not moved since. The kernel writes only `msg_len`.
    let sent = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            0,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// What a header points to: address, the place of the bytes, control messages.
struct Message {
    name: Name,
    place: libc::iovec,
    control: Control,
}

#[repr(C)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Message {
    const fn new() -> Self {
        Self {
            // SAFETY: socket addresses are plain integers, for which zero is a value.
            name: unsafe { zeroed() },
            place: libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            },
            control: Control {
                bytes: [0; CONTROL_BYTES],
                used: 0,
            },
        }
    }

    /// Fills the message; the header points to it and must not outlive it, nor `train`.
    fn prepare(&mut self, train: &Outgoing<'_>, mapped: bool) -> libc::msghdr {
        let remote = outward(train.remote, mapped);
        let name_len = match remote {
            SocketAddr::V4(v4) => {
                self.name.v4.sin_family = libc::AF_INET as libc::sa_family_t;
                self.name.v4.sin_port = v4.port().to_be();
                self.name.v4.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                self.name.v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                self.name.v6.sin6_port = v6.port().to_be();
                self.name.v6.sin6_flowinfo = v6.flowinfo();
                self.name.v6.sin6_addr.s6_addr = v6.ip().octets();
                self.name.v6.sin6_scope_id = v6.scope_id();
                size_of::<libc::sockaddr_in6>()
            }
        };
        self.place = libc::iovec {
            iov_base: train.contents.as_ptr().cast_mut().cast(),
            iov_len: train.contents.len(),
        };
        if let Some(ecn) = train.ecn {
            let bits: libc::c_int = match ecn {
                Ecn::Ect1 => 1,
                Ecn::Ect0 => 2,
                Ecn::Ce => 3,
            };
            // Towards a mapped address the packet is an IPv4 one.
            if remote.ip().to_canonical().is_ipv4() {
                self.control.push(libc::IPPROTO_IP, libc::IP_TOS, bits);
            } else {
                self.control
                    .push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, bits);
            }
        }
        if train.segment_size < train.contents.len() {
            // At most 65,507, since a train is no longer.
            let size = train.segment_size as u16;
            self.control.push(libc::SOL_UDP, libc::UDP_SEGMENT, size);
        }
        match train.local_ip.map(|ip| outward_ip(ip, mapped)) {
            Some(IpAddr::V4(ip)) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from_ne_bytes(ip.octets()),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                self.control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            Some(IpAddr::V6(ip)) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    ipi6_ifindex: 0,
                };
                self.control
                    .push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
            None => {}
        }
        // SAFETY: a header is plain integers and pointers, for which zero is a value.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_name = (&raw mut self.name).cast();
        header.msg_namelen = name_len as libc::socklen_t;
        header.msg_iov = &raw mut self.place;
        header.msg_iovlen = 1;
        if self.control.used > 0 {
            header.msg_control = self.control.bytes.as_mut_ptr().cast();
            header.msg_controllen = self.control.used as _;
        }
        header
    }
}

/// Control messages back to back, aligned as `cmsghdr` wants it.
#[repr(C, align(8))]
struct Control {
    bytes: [u8; CONTROL_BYTES],
    used: usize,
}

impl Control {
    fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        let end = self.used + space_of::<T>();
        assert!(end <= CONTROL_BYTES, "room for all three kinds");
        // SAFETY: a control header is plain integers, for which zero is a value.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        // SAFETY: only arithmetic.
        let len = unsafe { libc::CMSG_LEN(size_of::<T>() as libc::c_uint) };
        header.cmsg_len = len as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: only arithmetic.
        let data = unsafe { libc::CMSG_LEN(0) } as usize;
        let at = self.bytes[self.used..end].as_mut_ptr();
        // SAFETY: header and value lie inside the `space_of::<T>()` bytes just cut out, and are
        // plain values written without any claim on alignment.
        unsafe {
            at.cast::<libc::cmsghdr>().write_unaligned(header);
            at.add(data).cast::<T>().write_unaligned(value);
        }
        self.used = end;
    }
}

/// Bytes one control message with a `T` takes.
const fn space_of<T>() -> usize {
    // SAFETY: only arithmetic.
    unsafe { libc::CMSG_SPACE(size_of::<T>() as libc::c_uint) as usize }
}

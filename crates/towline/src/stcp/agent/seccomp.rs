//! No TCP sockets but the module's, or none at all: a seccomp filter for programs with the preload shim.
//!
//! The shim reaches dynamic programs only. Whatever goes past it, a static child say, asks the
//! kernel for plain TCP, and that is what the filter answers with EPROTONOSUPPORT. It needs no
//! root, lasts through fork and exec, and cannot be taken off. Another filter keeps a cgroup's programs
//! from sockets whose packets the cgroup's guard does not see.

use std::io;

use super::privileges::forbid_new_privileges;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// No filter is known for others; [`forbid_clear_tcp`] refuses there.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// The architecture of 32 bits that this one runs as well, and the number of its `socket`.
#[cfg(target_arch = "x86_64")]
const NARROW: (u32, u32) = (0x4000_0003, 359);
#[cfg(target_arch = "aarch64")]
const NARROW: (u32, u32) = (0x4000_0028, 281);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NARROW: (u32, u32) = (0, 0);

/// x86-64 numbers its x32 calls from here.
const X32: u32 = 0x4000_0000;

// Offsets in `struct seccomp_data`; arguments are 64 bits, lower half first.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENT: [u32; 4] = [16, 24, 32, 40];

/// SMC goes back to TCP where the peer has none.
const AF_SMC: u32 = 43;
/// RDS makes TCP connections of its own.
const AF_RDS: u32 = 21;
/// As SO_BINDTODEVICE, by the device's number.
const SO_BINDTOIFINDEX: u32 = 62;
/// No socket's protocol.
const NO_PROTOCOL: u32 = u32::MAX;

const fn load(offset: u32) -> libc::sock_filter {
    statement(0x20, offset)
}
const fn and(value: u32) -> libc::sock_filter {
    statement(0x54, value)
}
const fn answer(value: u32) -> libc::sock_filter {
    statement(0x06, value)
}
const fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}
/// Jumps over `yes` instructions if equal, else over `no`.
const fn if_equal(k: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: 0x15,
        jt: yes,
        jf: no,
        k,
    }
}
/// Jumps over `yes` instructions if a bit of `k` is set, else over `no`.
const fn if_any(k: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: 0x45,
        jt: yes,
        jf: no,
        k,
    }
}
const fn jump(over: u32) -> libc::sock_filter {
    statement(0x05, over)
}
const fn if_at_least(k: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: 0x35,
        jt: yes,
        jf: no,
        k,
    }
}

/// Forbids this process, and what comes of it, internet sockets other than UDP's and raw ones; but of
/// `protocol` they are allowed. MSG_FASTOPEN as well, and io_uring, which would make sockets unseen.
/// Without a `protocol`, raw sockets are for ICMP only, and none can be bound to another device: that
/// TCP sockets are bound to loopback's is what confines them, also where the program is root's.
///
/// # Errors
/// When the kernel has no seccomp filters.
pub fn forbid_clear_tcp(protocol: Option<u16>) -> io::Result<()> {
    if ARCHITECTURE == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let no_tcp = [
        load(ARCH),
        if_equal(ARCHITECTURE, 0, 25),
        load(NUMBER),
        if_at_least(X32, 23, 0),
        if_equal(libc::SYS_io_uring_setup as u32, 22, 0),
        if_equal(libc::SYS_sendto as u32, 14, 0),
        if_equal(libc::SYS_sendmmsg as u32, 13, 0),
        if_equal(libc::SYS_sendmsg as u32, 14, 0),
        if_equal(libc::SYS_socket as u32, 0, 15),
        load(ARGUMENT[0]),
        if_equal(AF_SMC, 14, 0),
        if_equal(AF_RDS, 13, 0),
        if_equal(libc::AF_INET as u32, 1, 0),
        if_equal(libc::AF_INET6 as u32, 0, 10),
        load(ARGUMENT[1]),
        // Without SOCK_NONBLOCK and SOCK_CLOEXEC.
        and(15),
        if_equal(libc::SOCK_DGRAM as u32, 7, 0),
        if_equal(libc::SOCK_RAW as u32, 6, 0),
        load(ARGUMENT[2]),
        if_equal(protocol.map_or(NO_PROTOCOL, u32::from), 4, 5),
        // The flags of sendto and sendmmsg, and of sendmsg.
        load(ARGUMENT[3]),
        jump(1),
        load(ARGUMENT[2]),
        if_any(libc::MSG_FASTOPEN as u32, 2, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32),
        answer(libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32),
        answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    forbid_new_privileges()?;
    install(&no_tcp)?;
    if protocol.is_some() {
        return Ok(());
    }
    // Other architectures are refused already.
    install(&[
        load(ARCH),
        if_equal(ARCHITECTURE, 0, 18),
        load(NUMBER),
        if_equal(libc::SYS_setsockopt as u32, 0, 5),
        load(ARGUMENT[1]),
        if_equal(libc::SOL_SOCKET as u32, 0, 14),
        load(ARGUMENT[2]),
        if_equal(libc::SO_BINDTODEVICE as u32, 13, 0),
        if_equal(SO_BINDTOIFINDEX, 12, 11),
        if_equal(libc::SYS_socket as u32, 0, 10),
        load(ARGUMENT[0]),
        if_equal(libc::AF_INET as u32, 1, 0),
        if_equal(libc::AF_INET6 as u32, 0, 7),
        load(ARGUMENT[1]),
        and(15),
        if_equal(libc::SOCK_RAW as u32, 0, 4),
        load(ARGUMENT[2]),
        if_equal(libc::IPPROTO_ICMP as u32, 2, 0),
        if_equal(libc::IPPROTO_ICMPV6 as u32, 1, 0),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ])
}

/// Forbids this process, and what comes of it, sockets that put packets on the wire past the cgroup
/// (AF_PACKET, AF_XDP): whoever needs them is no program of TCP. For root, whose programs may gain
/// privileges still. What is not seen: sockets that io_uring makes, and those of old programs of 32 bits
/// (`socketcall`).
///
/// # Errors
/// When the kernel has no seccomp filters, or the caller is not root.
pub fn forbid_packets() -> io::Result<()> {
    if ARCHITECTURE == 0 {
        tracing::warn!("no filter is known for this architecture: packet sockets are not refused");
        return Ok(());
    }
    install(&no_packets())
}

fn no_packets() -> [libc::sock_filter; 13] {
    [
        load(ARCH),
        if_equal(NARROW.0, 0, 2),
        load(NUMBER),
        if_equal(NARROW.1, 4, 7),
        if_equal(ARCHITECTURE, 0, 6),
        load(NUMBER),
        and(!X32),
        if_equal(libc::SYS_socket as u32, 0, 3),
        load(ARGUMENT[0]),
        if_equal(libc::AF_PACKET as u32, 2, 0),
        if_equal(libc::AF_XDP as u32, 1, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ]
}

/// Adds a filter to those of this process.
fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, whose pointer and length are those of one slice that
    // outlives the call; the other arguments are integers.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a filter answers to a call, as the kernel would run it.
    fn run(filter: &[libc::sock_filter], architecture: u32, number: u32, family: i32) -> u32 {
        let mut data = [0_u8; 64];
        let mut put = |at: u32, word: u32| {
            data[at as usize..][..4].copy_from_slice(&word.to_ne_bytes());
        };
        put(NUMBER, number);
        put(ARCH, architecture);
        put(ARGUMENT[0], family as u32);
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let one = filter[at];
            at += 1;
            match one.code {
                0x20 => {
                    let word = &data[one.k as usize..][..4];
                    accumulator = u32::from_ne_bytes(word.try_into().unwrap());
                }
                0x54 => accumulator &= one.k,
                0x15 => {
                    at += usize::from(match accumulator == one.k {
                        true => one.jt,
                        false => one.jf,
                    });
                }
                0x06 => return one.k,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn packet_sockets_are_refused_however_they_are_asked_for_and_others_are_not() {
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let native = (ARCHITECTURE, libc::SYS_socket as u32);
        let x32 = (ARCHITECTURE, libc::SYS_socket as u32 | X32);
        for (architecture, number) in [native, x32, NARROW] {
            for (family, expected) in [
                (libc::AF_PACKET, refused),
                (libc::AF_XDP, refused),
                (libc::AF_INET, libc::SECCOMP_RET_ALLOW),
                (libc::AF_UNIX, libc::SECCOMP_RET_ALLOW),
                (libc::AF_NETLINK, libc::SECCOMP_RET_ALLOW),
            ] {
                let answered = run(&no_packets(), architecture, number, family);
                assert_eq!(answered, expected, "{number} {family}");
            }
        }
        // Other calls, whatever they are given.
        for architecture in [ARCHITECTURE, NARROW.0, 0] {
            let answered = run(&no_packets(), architecture, 1, libc::AF_PACKET);
            assert_eq!(answered, libc::SECCOMP_RET_ALLOW);
        }
    }
}

//! No TCP sockets but the module's, or none at all: a seccomp filter for programs with the preload shim.
//!
//! The shim reaches dynamic programs only. Whatever goes past it, a static child say, asks the
//! kernel for plain TCP, and that is what the filter answers with EPROTONOSUPPORT. It needs no
//! root, lasts through fork and exec, and cannot be taken off.

use std::io;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// No filter is known for others; [`forbid_clear_tcp`] refuses there.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

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

/// Adds a filter to those of this process.
fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, whose pointer and length are those of one slice that
    // outlives the call; the other arguments are integers.
    let result = unsafe {
        match libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) {
            0 => libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ),
            failed => failed,
        }
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

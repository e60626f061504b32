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

/// Families whose sockets would go past every tier, for each filter here and in `upgrade`: AF_PACKET and
/// AF_XDP put packets on the wire themselves; AF_SMC goes back to TCP where the peer has no SMC; AF_RDS
/// makes TCP connections of its own, outside the cgroup; AF_TIPC has a wire of its own.
pub(super) const PAST_THE_TIERS: [i32; 5] = [libc::AF_PACKET, libc::AF_XDP, 43, 21, libc::AF_TIPC];
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
/// `protocol` they are allowed. Families past the tiers and MSG_FASTOPEN as well, and io_uring, which
/// would make sockets unseen. Without a `protocol`, raw sockets are for ICMP only, and none can be bound to
/// another device: that TCP sockets are bound to loopback's is what confines them, also where the program
/// is root's.
///
/// # Errors
/// When the kernel has no seccomp filters.
pub fn forbid_clear_tcp(protocol: Option<u16>) -> io::Result<()> {
    if ARCHITECTURE == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    forbid_new_privileges()?;
    install(&no_families(libc::EPROTONOSUPPORT))?;
    install(&no_tcp(protocol))?;
    if protocol.is_some() {
        return Ok(());
    }
    install(&no_raw())
}

/// Raw sockets but ICMP's fail, and sockets are not bound to devices.
fn no_raw() -> Vec<libc::sock_filter> {
    let bound = [
        load(ARCH),
        // Others are refused already.
        if_equal(ARCHITECTURE, 0, 18),
        load(NUMBER),
        if_equal(libc::SYS_setsockopt as u32, 0, 5),
        load(ARGUMENT[1]),
        if_equal(libc::SOL_SOCKET as u32, 0, 14),
        load(ARGUMENT[2]),
        if_equal(libc::SO_BINDTODEVICE as u32, 13, 0),
        if_equal(SO_BINDTOIFINDEX, 12, 11),
    ];
    let raw = [
        if_equal(libc::SOCK_RAW as u32, 0, 4),
        load(ARGUMENT[2]),
        if_equal(libc::IPPROTO_ICMP as u32, 2, 0),
        if_equal(libc::IPPROTO_ICMPV6 as u32, 1, 0),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    [&bound[..], &internet_type(5), &raw].concat()
}

/// Loads the type of the internet socket that is asked for; any other call jumps over `others` instructions
/// behind these.
fn internet_type(others: u8) -> [libc::sock_filter; 6] {
    [
        if_equal(libc::SYS_socket as u32, 0, others + 5),
        load(ARGUMENT[0]),
        if_equal(libc::AF_INET as u32, 1, 0),
        if_equal(libc::AF_INET6 as u32, 0, others + 2),
        load(ARGUMENT[1]),
        // Without SOCK_NONBLOCK and SOCK_CLOEXEC.
        and(15),
    ]
}

fn no_tcp(protocol: Option<u16>) -> Vec<libc::sock_filter> {
    let calls = [
        load(ARCH),
        if_equal(ARCHITECTURE, 0, 23),
        load(NUMBER),
        if_at_least(X32, 21, 0),
        if_equal(libc::SYS_io_uring_setup as u32, 20, 0),
        if_equal(libc::SYS_sendto as u32, 12, 0),
        if_equal(libc::SYS_sendmmsg as u32, 11, 0),
        if_equal(libc::SYS_sendmsg as u32, 12, 0),
    ];
    let types = [
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
    [&calls[..], &internet_type(8), &types].concat()
}

/// Forbids this process, and what comes of it, sockets that go past the cgroup: those that put packets on
/// the wire themselves (AF_PACKET, AF_XDP), and those whose connections the kernel makes for them or whose wire
/// is not the internet's (AF_SMC, AF_RDS, AF_TIPC). For root, whose programs may gain privileges still. What is
/// not seen: sockets that io_uring makes, and those of old programs of 32 bits (`socketcall`).
///
/// # Errors
/// When the kernel has no seccomp filters, or the caller is not root.
pub fn forbid_packets() -> io::Result<()> {
    if ARCHITECTURE == 0 {
        tracing::warn!("no filter is known for this architecture: packet sockets are not refused");
        return Ok(());
    }
    install(&no_families(libc::EPERM))
}

/// Sockets of families past the tiers fail with `error`, however they are asked for.
fn no_families(error: i32) -> Vec<libc::sock_filter> {
    const MANY: u8 = PAST_THE_TIERS.len() as u8;
    let mut filter = vec![
        load(ARCH),
        if_equal(NARROW.0, 0, 2),
        load(NUMBER),
        if_equal(NARROW.1, 4, MANY + 5),
        if_equal(ARCHITECTURE, 0, MANY + 4),
        load(NUMBER),
        and(!X32),
        if_equal(libc::SYS_socket as u32, 0, MANY + 1),
        load(ARGUMENT[0]),
    ];
    filter.extend((0..MANY).map(|at| {
        let family = PAST_THE_TIERS[usize::from(at)];
        if_equal(family as u32, MANY - at, 0)
    }));
    filter.extend([
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_ERRNO | error as u32),
    ]);
    filter
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
    fn run(
        filter: &[libc::sock_filter],
        architecture: u32,
        number: u32,
        arguments: [u32; 4],
    ) -> u32 {
        let mut data = [0_u8; 64];
        let mut put = |at: u32, word: u32| {
            data[at as usize..][..4].copy_from_slice(&word.to_ne_bytes());
        };
        put(NUMBER, number);
        put(ARCH, architecture);
        for (at, argument) in ARGUMENT.into_iter().zip(arguments) {
            put(at, argument);
        }
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let one = filter[at];
            at += 1;
            let is_so = match one.code {
                0x20 => {
                    let word = &data[one.k as usize..][..4];
                    accumulator = u32::from_ne_bytes(word.try_into().unwrap());
                    continue;
                }
                0x54 => {
                    accumulator &= one.k;
                    continue;
                }
                0x05 => {
                    at += one.k as usize;
                    continue;
                }
                0x15 => accumulator == one.k,
                0x35 => accumulator >= one.k,
                0x45 => accumulator & one.k != 0,
                0x06 => return one.k,
                code => panic!("instruction {code:#x}"),
            };
            at += usize::from(match is_so {
                true => one.jt,
                false => one.jf,
            });
        }
    }

    const SOCKET: u32 = libc::SYS_socket as u32;
    const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;

    fn refused(error: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | error as u32
    }

    #[test]
    fn families_past_the_tiers_are_refused_however_they_are_asked_for_and_others_are_not() {
        for error in [libc::EPERM, libc::EPROTONOSUPPORT] {
            let filter = no_families(error);
            let native = (ARCHITECTURE, SOCKET);
            let x32 = (ARCHITECTURE, SOCKET | X32);
            for (architecture, number) in [native, x32, NARROW] {
                let ask =
                    |family: i32| run(&filter, architecture, number, [family as u32, 0, 0, 0]);
                // AF_SMC and AF_RDS by number.
                for family in [libc::AF_PACKET, libc::AF_XDP, 43, 21, libc::AF_TIPC] {
                    assert_eq!(ask(family), refused(error), "{number} {family}");
                }
                for family in [
                    libc::AF_INET,
                    libc::AF_INET6,
                    libc::AF_UNIX,
                    libc::AF_NETLINK,
                ] {
                    assert_eq!(ask(family), ALLOWED, "{number} {family}");
                }
            }
            // Other calls, whatever they are given.
            for architecture in [ARCHITECTURE, NARROW.0, 0] {
                let family = libc::AF_PACKET as u32;
                let answered = run(&filter, architecture, 1, [family, 0, 0, 0]);
                assert_eq!(answered, ALLOWED);
            }
        }
    }

    #[test]
    fn raw_sockets_but_icmps_and_sockets_of_one_device_are_refused() {
        let filter = no_raw();
        let ask =
            |number: libc::c_long, arguments| run(&filter, ARCHITECTURE, number as u32, arguments);
        let no_protocol = refused(libc::EPROTONOSUPPORT);
        let raw = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        for (family, others) in [
            (libc::AF_INET, no_protocol),
            (libc::AF_INET6, no_protocol),
            (libc::AF_UNIX, ALLOWED),
        ] {
            for (kind, protocol, answer) in [
                (raw, libc::IPPROTO_ICMP, ALLOWED),
                (raw, libc::IPPROTO_ICMPV6, ALLOWED),
                (raw, libc::IPPROTO_TCP, others),
                (raw, libc::IPPROTO_RAW, others),
                (libc::SOCK_DGRAM, 0, ALLOWED),
            ] {
                let arguments = [family as u32, kind as u32, protocol as u32, 0];
                let answered = ask(libc::SYS_socket, arguments);
                assert_eq!(answered, answer, "{family} {kind} {protocol}");
            }
        }
        let device = libc::SO_BINDTODEVICE as u32;
        for (level, option, answer) in [
            (libc::SOL_SOCKET, device, refused(libc::EPERM)),
            (libc::SOL_SOCKET, SO_BINDTOIFINDEX, refused(libc::EPERM)),
            (libc::SOL_SOCKET, libc::SO_REUSEADDR as u32, ALLOWED),
            (libc::SOL_TCP, device, ALLOWED),
        ] {
            let answered = ask(libc::SYS_setsockopt, [0, level as u32, option, 0]);
            assert_eq!(answered, answer, "{level} {option}");
        }
        assert_eq!(ask(libc::SYS_close, [0; 4]), ALLOWED);
    }

    #[test]
    fn clear_tcp_is_refused_however_it_is_asked_for() {
        const MODULES: u16 = 261;
        let stream = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let fast = libc::MSG_FASTOPEN as u32;
        let no_protocol = refused(libc::EPROTONOSUPPORT);
        for protocol in [None, Some(MODULES)] {
            let filter = no_tcp(protocol);
            let ask = |number: libc::c_long, arguments| {
                run(&filter, ARCHITECTURE, number as u32, arguments)
            };
            let socket = |family: i32, kind: i32, protocol: i32| {
                ask(
                    libc::SYS_socket,
                    [family as u32, kind as u32, protocol as u32, 0],
                )
            };
            for family in [libc::AF_INET, libc::AF_INET6] {
                for asked in [
                    0,
                    libc::IPPROTO_TCP,
                    libc::IPPROTO_MPTCP,
                    libc::IPPROTO_SCTP,
                ] {
                    assert_eq!(socket(family, stream, asked), no_protocol);
                }
                assert_eq!(socket(family, libc::SOCK_DGRAM, 0), ALLOWED);
                assert_eq!(socket(family, libc::SOCK_RAW, libc::IPPROTO_ICMP), ALLOWED);
                let modules = match protocol {
                    Some(_) => ALLOWED,
                    None => no_protocol,
                };
                assert_eq!(socket(family, stream, MODULES.into()), modules);
            }
            assert_eq!(socket(libc::AF_UNIX, stream, 0), ALLOWED);
            for (number, arguments) in [
                (libc::SYS_sendto, [0, 0, 0, fast]),
                (libc::SYS_sendmmsg, [0, 0, 0, fast]),
                (libc::SYS_sendmsg, [0, 0, fast, 0]),
            ] {
                assert_eq!(ask(number, arguments), refused(libc::EOPNOTSUPP));
                assert_eq!(ask(number, [0; 4]), ALLOWED);
            }
            let unknown = refused(libc::ENOSYS);
            assert_eq!(ask(libc::SYS_io_uring_setup, [0; 4]), unknown);
            assert_eq!(run(&filter, NARROW.0, 1, [0; 4]), unknown);
            assert_eq!(run(&filter, ARCHITECTURE, SOCKET | X32, [0; 4]), unknown);
            assert_eq!(ask(libc::SYS_close, [0; 4]), ALLOWED);
        }
    }
}

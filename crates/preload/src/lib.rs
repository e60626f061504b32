//! The preload shim: TCP of a dynamic program, by the kernel module or by the agent.
//!
//! `towline stcp run` sets `LD_PRELOAD` to this library and says in the environment who makes TCP
//! sockets (`environment`): the module, which needs no more than another protocol in `socket()`, or
//! the agent (`tcp`). It forbids the kernel to make other TCP sockets, so that a program which goes
//! past this library gets an error and not a clear connection. The library holds no keys and no state
//! but what it read at the start, allocates nothing, and calls only what a signal handler may. Its
//! functions pass on what is not TCP, and are no points of cancellation of threads.

mod agent;
mod environment;
mod system;
mod tcp;

use core::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};

use environment::{Agent, Maker, maker};
use system::{fail, read_address, write_address};

/// The type's lower bits; the others are SOCK_NONBLOCK and SOCK_CLOEXEC.
const TYPE_MASK: c_int = 15;

fn agent() -> Option<&'static Agent> {
    match maker() {
        Maker::Agent(agent) => Some(agent),
        Maker::Kernel | Maker::Module(_) => None,
    }
}

/// As socket(2).
///
/// # Safety
/// That of the C library's function: any arguments will do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let is_internet = domain == libc::AF_INET || domain == libc::AF_INET6;
    let is_tcp = is_internet
        && kind & TYPE_MASK == libc::SOCK_STREAM
        && [0, libc::IPPROTO_TCP, libc::IPPROTO_MPTCP].contains(&protocol);
    let protocol = match maker() {
        Maker::Agent(agent) if is_tcp => {
            return tcp::socket(agent, domain, kind & !TYPE_MASK).unwrap_or_else(fail);
        }
        Maker::Module(wanted) if is_tcp => *wanted,
        _ => protocol,
    };
    // SAFETY: integers only; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
}

/// As connect(2).
///
/// # Safety
/// That of the C library's function: `len` bytes can be read at `address`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if let Some(agent) = agent() {
        // SAFETY: the caller's promise.
        let to = unsafe { read_address(address, len) };
        match to.map_or(Ok(false), |to| tcp::connect(agent, socket, to)) {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(error) => return fail(error),
        }
    }
    // SAFETY: the caller's promise; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_connect, socket, address, len) as c_int }
}

/// As listen(2).
///
/// # Safety
/// That of the C library's function: any arguments will do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(socket: c_int, backlog: c_int) -> c_int {
    if let Some(agent) = agent() {
        match tcp::listen(agent, socket) {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(error) => return fail(error),
        }
    }
    // SAFETY: integers only; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_listen, socket, backlog) as c_int }
}

/// As accept(2).
///
/// # Safety
/// That of the C library's function: `address` is null, or `*len` bytes can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { accept4(socket, address, len, 0) }
}

/// As accept4(2).
///
/// # Safety
/// That of the C library's function: `address` is null, or `*len` bytes can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if let Some(agent) = agent()
        && tcp::is_listening(socket).is_some()
    {
        return match tcp::accept(agent, socket, flags) {
            Ok((accepted, peer)) => {
                // SAFETY: the caller's promise.
                unsafe { write_address(peer, address, len) };
                accepted
            }
            Err(error) => fail(error),
        };
    }
    // SAFETY: the caller's promise; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_accept4, socket, address, len, flags) as c_int }
}

/// As getsockname(2).
///
/// # Safety
/// That of the C library's function: `*len` bytes can be written at `address`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let real = agent().map_or(Ok(None), |agent| match tcp::is_listening(socket) {
        Some(listening) => Ok(Some(listening)),
        None => tcp::real_names(agent, socket).map(|names| names.map(|(local, _)| local)),
    });
    match real {
        Ok(Some(real)) => {
            // SAFETY: the caller's promise.
            unsafe { write_address(real, address, len) };
            return 0;
        }
        Ok(None) => {}
        Err(error) => return fail(error),
    }
    // SAFETY: the caller's promise; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_getsockname, socket, address, len) as c_int }
}

/// As getpeername(2).
///
/// # Safety
/// That of the C library's function: `*len` bytes can be written at `address`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    match agent().map_or(Ok(None), |agent| tcp::real_names(agent, socket)) {
        Ok(Some((_, real))) => {
            // SAFETY: the caller's promise.
            unsafe { write_address(real, address, len) };
            return 0;
        }
        Ok(None) => {}
        Err(error) => return fail(error),
    }
    if agent().is_some() && tcp::is_listening(socket).is_some() {
        return fail(libc::ENOTCONN);
    }
    // SAFETY: the caller's promise; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_getpeername, socket, address, len) as c_int }
}

/// As getsockopt(2).
///
/// # Safety
/// That of the C library's function: `*len` bytes can be written at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if agent().is_some()
        && level == libc::SOL_SOCKET
        && let Some(address) = tcp::is_listening(socket)
        && let Some(answer) = tcp::listening_option(address, name)
        && !value.is_null()
        && !len.is_null()
    {
        let bytes = answer.to_ne_bytes();
        // SAFETY: the caller's promise; no more is written than both have.
        unsafe {
            *len = (*len).min(bytes.len() as socklen_t);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), *len as usize);
        }
        return 0;
    }
    // SAFETY: the caller's promise; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_getsockopt, socket, level, name, value, len) as c_int }
}

/// As setsockopt(2). What is set of TCP or IP on a listening socket has no effect.
///
/// # Safety
/// That of the C library's function: `len` bytes can be read at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if agent().is_some() && level != libc::SOL_SOCKET && tcp::is_listening(socket).is_some() {
        return 0;
    }
    // SAFETY: the caller's promise; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_setsockopt, socket, level, name, value, len) as c_int }
}

/// As shutdown(2).
///
/// # Safety
/// That of the C library's function: any arguments will do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(socket: c_int, how: c_int) -> c_int {
    if agent().is_some() && tcp::is_listening(socket).is_some() {
        return match tcp::stop_listening(socket, how) {
            Ok(()) => 0,
            Err(error) => fail(error),
        };
    }
    // SAFETY: integers only; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_shutdown, socket, how) as c_int }
}

//! The preload shim: `socket()` of a dynamic program, answered with sockets of the kernel module.
//!
//! `towline stcp run` sets `LD_PRELOAD` to this library and `TOWLINE_STCP_PROTOCOL` to the module's
//! number, and forbids the kernel to make other TCP sockets, so that a program which goes past this
//! library gets an error and not a clear connection. It holds no keys and no state, allocates
//! nothing, and calls only what a signal handler may.

use core::ffi::{c_char, c_int};

/// Set by `towline stcp run`.
const VARIABLE: &[u8] = b"TOWLINE_STCP_PROTOCOL=";

/// The type's lower bits; the others are SOCK_NONBLOCK and SOCK_CLOEXEC.
const TYPE_MASK: c_int = 15;

unsafe extern "C" {
    /// The environment, as the C library keeps it.
    static environ: *const *const c_char;
}

/// As socket(2); TCP becomes the module's protocol.
///
/// # Safety
/// That of the C library's function: any arguments will do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let is_internet = domain == libc::AF_INET || domain == libc::AF_INET6;
    let is_tcp = is_internet
        && kind & TYPE_MASK == libc::SOCK_STREAM
        && [0, libc::IPPROTO_TCP, libc::IPPROTO_MPTCP].contains(&protocol);
    let protocol = match wanted_protocol() {
        Some(wanted) if is_tcp => wanted,
        _ => protocol,
    };
    // SAFETY: integers only; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
}

/// The variable's number. Read each time: the environment belongs to the program.
fn wanted_protocol() -> Option<c_int> {
    // SAFETY: `environ` is null or an array of C strings that ends with a null pointer. A program
    // that changes it while another thread makes a socket breaks getenv in the same way.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            if let Some(value) = after_name(*entry) {
                return number(value);
            }
            entry = entry.add(1);
        }
    }
    None
}

/// What follows `VARIABLE`, if the string begins so.
///
/// # Safety
/// `text` is a C string.
unsafe fn after_name(text: *const c_char) -> Option<*const c_char> {
    for (at, expected) in VARIABLE.iter().enumerate() {
        // SAFETY: the bytes before were not zero, so this one belongs to the string.
        if unsafe { *text.add(at) } as u8 != *expected {
            return None;
        }
    }
    // SAFETY: the string has at least its final zero after the name.
    Some(unsafe { text.add(VARIABLE.len()) })
}

/// A decimal number of at most five digits.
///
/// # Safety
/// `text` is a C string.
unsafe fn number(text: *const c_char) -> Option<c_int> {
    let mut value = 0;
    for at in 0..6 {
        // SAFETY: the bytes before were digits, so this one belongs to the string.
        match unsafe { *text.add(at) } as u8 {
            0 if at > 0 => return Some(value),
            digit @ b'0'..=b'9' => value = value * 10 + c_int::from(digit - b'0'),
            _ => return None,
        }
    }
    None
}

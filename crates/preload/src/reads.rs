//! The functions that read and end streams: as the C library's, but for connections whose records the
//! kernel makes (`ktls`). All others cost nothing, or one call at the end of a file.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use towline_wire::Operation;

use crate::agent::tell;
use crate::ktls::{self, Reading, judge};
use crate::next::next;
use crate::system::{errno, fail};
use crate::tcp;

/// Linux takes no more in a call (UIO_MAXIOV).
const MOST_VECTORS: usize = 1024;

/// Makes a call that reads until it has data, an end or an error. Without room 0 is no end.
fn reading(socket: c_int, has_room: bool, call: impl Fn() -> Option<ssize_t>) -> ssize_t {
    loop {
        let Some(said) = call() else {
            return fail(libc::ENOSYS) as ssize_t;
        };
        // Nearly always.
        if said > 0 || !has_room || crate::agent().is_none() {
            return said;
        }
        match judge(socket, said) {
            Reading::AsSaid => return said,
            Reading::Again => {}
            Reading::End => return 0,
            Reading::Failed(error) => return fail(error) as ssize_t,
        }
    }
}

/// As read(2).
///
/// # Safety
/// That of the C library's function: `len` bytes can be written at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(socket: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    let call = || unsafe { next().read.map(|read| read(socket, buffer, len)) };
    reading(socket, len > 0, call)
}

/// As readv(2).
///
/// # Safety
/// That of the C library's function: `vectors` are so many that can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(
    socket: c_int,
    vectors: *const iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    let call = || unsafe { next().readv.map(|readv| readv(socket, vectors, count)) };
    // SAFETY: the caller's promise.
    let has_room = unsafe { have_room(vectors, usize::try_from(count).unwrap_or_default()) };
    reading(socket, has_room, call)
}

/// As recv(2).
///
/// # Safety
/// That of the C library's function: `len` bytes can be written at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recv(
    socket: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    let call = || unsafe { next().recv.map(|recv| recv(socket, buffer, len, flags)) };
    reading(socket, len > 0, call)
}

/// As recvfrom(2).
///
/// # Safety
/// That of the C library's function: `len` bytes can be written at `buffer`, and `*address_len` at
/// `address`, if that is not null.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvfrom(
    socket: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    let call = || {
        let recvfrom = next().recvfrom?;
        // SAFETY: the caller's promise.
        Some(unsafe { recvfrom(socket, buffer, len, flags, address, address_len) })
    };
    reading(socket, len > 0, call)
}

/// As recvmsg(2).
///
/// # Safety
/// That of the C library's function: the message points at what can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(
    socket: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    let Some(recvmsg) = next().recvmsg else {
        return fail(libc::ENOSYS) as ssize_t;
    };
    // Left to the kernel, as are the errors of sockets, which are no records.
    if message.is_null() || flags & libc::MSG_ERRQUEUE != 0 {
        // SAFETY: the caller's promise.
        return unsafe { recvmsg(socket, message, flags) };
    }
    // SAFETY: the caller's promise; it is not null.
    let (has_room, has_control) = unsafe {
        let has_room = have_room((*message).msg_iov, (*message).msg_iovlen);
        (has_room, (*message).msg_controllen > 0)
    };
    // With room for control messages every record would be handed up as if it were data.
    if has_control && ktls::is_keyed(socket) {
        let call = || {
            // SAFETY: the caller's promise; what the kernel changes is a copy.
            unsafe {
                let mut bare = *message;
                bare.msg_control = null_mut();
                bare.msg_controllen = 0;
                let said = recvmsg(socket, &raw mut bare, flags);
                if said >= 0 {
                    (*message).msg_namelen = bare.msg_namelen;
                    (*message).msg_flags = bare.msg_flags;
                    (*message).msg_controllen = 0;
                }
                Some(said)
            }
        };
        return reading(socket, has_room, call);
    }
    // SAFETY: the caller's promise.
    reading(socket, has_room, || unsafe {
        Some(recvmsg(socket, message, flags))
    })
}

/// Whether any of the vectors has room.
///
/// # Safety
/// There are `count` of them.
unsafe fn have_room(vectors: *const iovec, count: usize) -> bool {
    // More of them are an error of the call, not of the stream.
    let are_fit = !vectors.is_null() && count <= MOST_VECTORS;
    // SAFETY: the caller's promise.
    are_fit && (0..count).any(|at| unsafe { (*vectors.add(at)).iov_len > 0 })
}

/// As glibc's `read` of programs that were built with checks.
///
/// # Safety
/// That of [`read`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(
    socket: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    check(len, room);
    // SAFETY: the caller's promise.
    unsafe { read(socket, buffer, len) }
}

/// As glibc's `recv` of programs that were built with checks.
///
/// # Safety
/// That of [`recv`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recv_chk(
    socket: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check(len, room);
    // SAFETY: the caller's promise.
    unsafe { recv(socket, buffer, len, flags) }
}

/// As glibc's `recvfrom` of programs that were built with checks.
///
/// # Safety
/// That of [`recvfrom`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    socket: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    check(len, room);
    // SAFETY: the caller's promise.
    unsafe { recvfrom(socket, buffer, len, flags, address, address_len) }
}

/// A program that would write past its buffer ends.
fn check(len: size_t, room: size_t) {
    if len > room {
        // SAFETY: it has no arguments and does not return.
        unsafe { libc::abort() };
    }
}

/// As shutdown(2).
///
/// # Safety
/// That of the C library's function: any arguments will do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(socket: c_int, how: c_int) -> c_int {
    if let Some(agent) = crate::agent() {
        let ended = match ktls::is_keyed(socket) {
            true => Some(ktls::shutdown(agent, socket, how)),
            false => tcp::is_listening(socket).map(|_| tcp::stop_listening(socket, how)),
        };
        match ended {
            Some(Ok(())) => return 0,
            Some(Err(error)) => return fail(error),
            None => {}
        }
    }
    // SAFETY: integers only; the C library sets errno.
    unsafe { libc::syscall(libc::SYS_shutdown, socket, how) as c_int }
}

/// As close(2). The agent is told, so that it looks whether that was the last.
///
/// # Safety
/// That of the C library's function: any arguments will do.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(descriptor: c_int) -> c_int {
    let Some(close) = next().close else {
        return fail(libc::ENOSYS);
    };
    let agent = crate::agent().filter(|_| ktls::is_keyed(descriptor));
    // SAFETY: the caller's promise.
    let result = unsafe { close(descriptor) };
    if let Some(agent) = agent {
        let before = errno();
        tell(agent, Operation::Closed);
        fail(before);
    }
    result
}

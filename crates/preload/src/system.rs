//! The kernel's own calls, past the functions that this library takes the place of. Those of the C
//! library may be points of cancellation, and a thread must not be unwound in here.

use core::ffi::{c_int, c_void};
use core::mem::size_of;
use core::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use towline_wire::{AGENT_ADDRESS_LEN, emit_address, parse_address};

/// A buffer for the address of any socket.
pub(crate) type Address = [u8; size_of::<libc::sockaddr_storage>()];

/// A descriptor that is closed when this is dropped.
pub(crate) struct Descriptor(pub(crate) c_int);

impl Descriptor {
    /// It is the program's from now on.
    pub(crate) fn into_raw(self) -> c_int {
        let number = self.0;
        core::mem::forget(self);
        number
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody else has it.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// -1 with this errno.
pub(crate) fn fail(number: c_int) -> c_int {
    // SAFETY: the C library's errno of this thread.
    unsafe { *libc::__errno_location() = number };
    -1
}

/// The errno of the call before.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library's errno of this thread.
    unsafe { *libc::__errno_location() }
}

/// The own address of a socket, or if `peer` the other end's.
pub(crate) fn name_of(socket: c_int, peer: bool) -> Option<(Address, usize)> {
    let call = match peer {
        true => libc::SYS_getpeername,
        false => libc::SYS_getsockname,
    };
    let mut address = [0; size_of::<libc::sockaddr_storage>()];
    let mut len = address.len() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of the buffer, and one integer.
    let result = unsafe { libc::syscall(call, socket, address.as_mut_ptr(), &raw mut len) };
    (result == 0).then_some((address, (len as usize).min(size_of::<Address>())))
}

/// An internet address among those of [`name_of`].
pub(crate) fn internet(address: &Address) -> Option<SocketAddr> {
    parse_address(address.first_chunk::<AGENT_ADDRESS_LEN>()?).ok()
}

/// An internet address of a program; `None` if it is none, or cut short.
///
/// # Safety
/// `len` bytes can be read at `address`, if it is not null.
pub(crate) unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    /// Without the scope (RFC 2133), which Linux takes as well.
    const SHORT_V6: usize = 24;
    let len = (len as usize).min(AGENT_ADDRESS_LEN);
    if address.is_null() || len < size_of::<libc::sockaddr_in>() {
        return None;
    }
    let mut bytes = [0; AGENT_ADDRESS_LEN];
    // SAFETY: `len` bytes can be read, and there is room for them.
    unsafe { core::ptr::copy_nonoverlapping(address.cast(), bytes.as_mut_ptr(), len) };
    let address = parse_address(&bytes).ok()?;
    (address.is_ipv4() || len >= SHORT_V6).then_some(address)
}

/// Gives a program an address, cut to the room that it has, and its whole length.
///
/// # Safety
/// That of getsockname(2): `len` can be read and written, and so many bytes written at `address`.
pub(crate) unsafe fn write_address(value: SocketAddr, address: *mut sockaddr, len: *mut socklen_t) {
    if address.is_null() || len.is_null() {
        return;
    }
    let bytes = emit_address(value);
    let whole = match value {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    // SAFETY: the caller's promise; `whole` is at most what `bytes` has.
    unsafe {
        let room = (*len as usize).min(whole);
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), room);
        *len = whole as socklen_t;
    }
}

/// An integer option of a socket.
pub(crate) fn option(socket: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    let at: *mut c_void = (&raw mut value).cast();
    // SAFETY: the kernel writes at most `len` bytes, those of one integer.
    let result =
        unsafe { libc::syscall(libc::SYS_getsockopt, socket, level, name, at, &raw mut len) };
    (result == 0).then_some(value)
}

/// SO_RCVTIMEO or SO_SNDTIMEO of a socket, if it has one.
pub(crate) fn timeout(socket: c_int, name: c_int) -> Option<libc::timeval> {
    let mut value = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let mut len = size_of::<libc::timeval>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, those of one struct.
    let result = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            socket,
            libc::SOL_SOCKET,
            name,
            &raw mut value,
            &raw mut len,
        )
    };
    (result == 0 && (value.tv_sec, value.tv_usec) != (0, 0)).then_some(value)
}

/// Sets SO_RCVTIMEO or SO_SNDTIMEO of a socket of ours, which cannot fail.
pub(crate) fn set_timeout(socket: c_int, name: c_int, value: &libc::timeval) {
    // SAFETY: pointer and length are those of one struct, which is only read.
    unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            socket,
            libc::SOL_SOCKET,
            name,
            core::ptr::from_ref(value),
            size_of::<libc::timeval>(),
        );
    }
}

/// Whether it is a TCP socket of the kernel.
pub(crate) fn is_tcp(socket: c_int) -> bool {
    option(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
        && option(socket, libc::SOL_SOCKET, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

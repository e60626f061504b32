//! The C library's own functions, of which this library takes the place: those that wait, or whose
//! calls may be points of cancellation of threads. They stay so: what calls them here has nothing that
//! is to be dropped, and may be unwound.

use core::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

pub(crate) type Close = unsafe extern "C-unwind" fn(c_int) -> c_int;
pub(crate) type Read = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t) -> ssize_t;
pub(crate) type ReadV = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t;
pub(crate) type Recv = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;
pub(crate) type RecvFrom = unsafe extern "C-unwind" fn(
    c_int,
    *mut c_void,
    size_t,
    c_int,
    *mut sockaddr,
    *mut socklen_t,
) -> ssize_t;
pub(crate) type RecvMsg = unsafe extern "C-unwind" fn(c_int, *mut msghdr, c_int) -> ssize_t;

/// `None` of what the C library does not have.
pub(crate) struct Next {
    pub(crate) close: Option<Close>,
    pub(crate) read: Option<Read>,
    pub(crate) readv: Option<ReadV>,
    pub(crate) recv: Option<Recv>,
    pub(crate) recvfrom: Option<RecvFrom>,
    pub(crate) recvmsg: Option<RecvMsg>,
}

/// Found when the library is loaded: to look for them is nothing for a signal handler.
pub(crate) fn next() -> &'static Next {
    static NEXT: OnceLock<Next> = OnceLock::new();
    // SAFETY: these are the functions that POSIX has under these names.
    NEXT.get_or_init(|| unsafe {
        Next {
            close: find(c"close"),
            read: find(c"read"),
            readv: find(c"readv"),
            recv: find(c"recv"),
            recvfrom: find(c"recvfrom"),
            recvmsg: find(c"recvmsg"),
        }
    })
}

/// The function with this name in the libraries after this one.
///
/// # Safety
/// `F` is the type of a pointer to it.
unsafe fn find<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the name ends with a zero; a pointer that is not null is one to the function.
    unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        (!found.is_null()).then(|| core::mem::transmute_copy(&found))
    }
}

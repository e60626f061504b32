//! Root, given up.

use std::io;

/// Turns the whole process into that of `uid` and `gid`, without other groups and without a way
/// back. Descriptors that are open stay open.
///
/// # Errors
/// When the system refuses; the process must then end.
pub fn drop_privileges(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: each call takes integers, or no group and no pointer; the C library changes all
    // threads of the process.
    let results = unsafe {
        [
            libc::setgroups(0, std::ptr::null()),
            libc::setresgid(gid, gid, gid),
            libc::setresuid(uid, uid, uid),
        ]
    };
    if results.iter().any(|result| *result != 0) {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Programs that this one starts get no more than it has. It holds for this thread and those that
/// it makes from now on, so it comes before all others.
///
/// # Errors
/// When the system refuses.
pub fn forbid_new_privileges() -> io::Result<()> {
    // SAFETY: the call takes integers.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

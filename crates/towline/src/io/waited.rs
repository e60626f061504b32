//! How long the datagram read last lay in its socket, by the kernel's receive timestamp.
//!
//! Linux keeps that stamp for `SIOCGSTAMPNS` from the first time it is asked; there is no need of a
//! control message with each datagram. Elsewhere nobody knows.

use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Time since the datagram read last from `fd` arrived; `None` where the system does not say. The
/// first call makes the kernel begin.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(super) fn since_arrival(fd: BorrowedFd<'_>) -> Option<Duration> {
    use std::os::fd::AsRawFd;

    /// `SIOCGSTAMPNS` of `asm-generic/sockios.h`, for a `timespec` of two 64-bit words.
    const SIOCGSTAMPNS: u32 = 0x8907;

    let mut stamp = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the descriptor is open, and the call writes one `timespec` to where `stamp` is.
    let asked = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCGSTAMPNS as _, &raw mut stamp) };
    let mut now = stamp;
    // SAFETY: the call writes one `timespec` to where `now` is.
    let told = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    if asked != 0 || told != 0 {
        return None;
    }
    let time = |t: libc::timespec| {
        let seconds = u64::try_from(t.tv_sec).ok()?;
        Some(Duration::new(seconds, u32::try_from(t.tv_nsec).ok()?))
    };
    // Before its own arrival only if the clock was set in between.
    Some(time(now)?.saturating_sub(time(stamp)?))
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
pub(super) fn since_arrival(_: BorrowedFd<'_>) -> Option<Duration> {
    None
}

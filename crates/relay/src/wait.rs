//! Waiting for readable sockets: the relay's one system call without a safe form in std.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// A set of descriptors to wait for, in the order they were added.
#[derive(Default)]
pub(super) struct WaitSet(Vec<libc::pollfd>);

impl WaitSet {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn add(&mut self, socket: &impl AsRawFd) {
        self.0.push(poll_entry(socket.as_raw_fd()));
    }

    /// Whether the `index`th descriptor has data or an error to read, as of the last `wait`.
    pub(super) fn is_ready(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|entry| entry.revents != 0)
    }

    /// Blocks until a descriptor is ready or `timeout` has passed. An interruption by a signal
    /// counts as nothing ready.
    pub(super) fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        for entry in &mut self.0 {
            entry.revents = 0;
        }
        if poll(&mut self.0, timeout) >= 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        }
    }
}

fn poll_entry(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// ppoll(2): links are faster than poll(2)'s milliseconds.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn poll(entries: &mut [libc::pollfd], timeout: Duration) -> libc::c_int {
    // SAFETY: all-zero is a valid timespec: it holds integers only.
    let mut limit: libc::timespec = unsafe { std::mem::zeroed() };
    limit.tv_sec = libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX);
    // Below 10^9, so it fits every platform's type.
    limit.tv_nsec = timeout.subsec_nanos() as _;
    // SAFETY: `entries` is a valid array of exactly that length for the whole call, `limit` lives
    // as long, and a null signal mask leaves the mask alone.
    unsafe {
        libc::ppoll(
            entries.as_mut_ptr(),
            entries.len() as libc::nfds_t,
            &raw const limit,
            std::ptr::null(),
        )
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn poll(entries: &mut [libc::pollfd], timeout: Duration) -> libc::c_int {
    // Rounded up, so that a wait shorter than a millisecond does not spin.
    let millis = timeout.as_nanos().div_ceil(1_000_000);
    let millis = libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX);
    // SAFETY: `entries` is a valid array of exactly that length for the whole call.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, millis) }
}

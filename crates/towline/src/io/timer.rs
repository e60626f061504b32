//! A timer finer than a runtime's: tokio rounds up to the next millisecond, in which a paced
//! sender at 100 Mbit/s would miss ten packets.
//!
//! Linux's timerfd behind a descriptor that any reactor can wait for. Where there is none the
//! driver keeps to its runtime's timer and pacing becomes coarser, not wrong.

#[cfg(not(target_os = "linux"))]
pub use elsewhere::FineTimer;
#[cfg(target_os = "linux")]
pub use linux::FineTimer;

/// A timer known to tokio's reactor. Must be called inside a runtime with I/O enabled.
#[cfg(feature = "tokio")]
pub(crate) fn registered() -> std::io::Result<tokio::io::unix::AsyncFd<FineTimer>> {
    let timer = FineTimer::new()?;
    // SAFETY: the timer owns its descriptor, which stays open and the same until it is dropped.
    let registered = unsafe { tokio::io::unix::AsyncFd::register(timer) };
    registered.map_err(std::io::Error::from)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
    use std::time::Duration;

    /// A one-shot timer; its descriptor is readable once it has fired.
    #[derive(Debug)]
    pub struct FineTimer {
        fd: OwnedFd,
    }

    impl FineTimer {
        /// A timer that is not set.
        ///
        /// # Errors
        /// The system has none left.
        pub fn new() -> io::Result<Self> {
            // SAFETY: the call takes no pointer, and its result is checked before it is owned.
            let fd = unsafe {
                libc::timerfd_create(
                    libc::CLOCK_MONOTONIC,
                    libc::TFD_NONBLOCK | libc::TFD_CLOEXEC,
                )
            };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: `fd` was just opened and nobody else has it.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            Ok(Self { fd })
        }

        /// Fires once, `after` from now, instead of whenever it was set to fire.
        ///
        /// # Errors
        /// The system refuses the time.
        pub fn set(&self, after: Duration) -> io::Result<()> {
            // All zero would switch it off.
            let after = after.max(Duration::from_nanos(1));
            let value = libc::timespec {
                tv_sec: libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: libc::c_long::from(after.subsec_nanos() as i32),
            };
            let spec = libc::itimerspec {
                it_interval: libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                it_value: value,
            };
            // SAFETY: `spec` lives through the call; a null old value is allowed.
            let result = unsafe {
                libc::timerfd_settime(
                    self.fd.as_raw_fd(),
                    0,
                    &raw const spec,
                    std::ptr::null_mut(),
                )
            };
            match result {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }

        /// Takes note that it fired; false if it has not.
        pub fn acknowledge(&self) -> bool {
            let mut count = [0u8; 8];
            // SAFETY: the buffer is eight bytes, as a timerfd writes them.
            let read =
                unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
            read == count.len() as isize
        }
    }

    impl AsRawFd for FineTimer {
        fn as_raw_fd(&self) -> RawFd {
            self.fd.as_raw_fd()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::convert::Infallible;
    use std::io;
    use std::os::fd::{AsRawFd, RawFd};
    use std::time::Duration;

    /// There is no such timer on this system, and so no value of this type.
    #[derive(Debug)]
    pub struct FineTimer(Infallible);

    impl FineTimer {
        /// Always fails.
        ///
        /// # Errors
        /// The system has no such timer.
        pub fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        /// Never called.
        ///
        /// # Errors
        /// Never called.
        pub fn set(&self, _after: Duration) -> io::Result<()> {
            match self.0 {}
        }

        /// Never called.
        pub fn acknowledge(&self) -> bool {
            match self.0 {}
        }
    }

    impl AsRawFd for FineTimer {
        fn as_raw_fd(&self) -> RawFd {
            match self.0 {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use super::*;

    #[test]
    fn fires_once_and_only_after_its_time() {
        let timer = FineTimer::new().expect("a timer");
        timer.set(Duration::from_secs(3600)).expect("set");
        assert!(!timer.acknowledge());
        timer.set(Duration::ZERO).expect("set");
        let mut poll = libc::pollfd {
            fd: timer.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 10_000) };
        assert_eq!(ready, 1);
        assert!(timer.acknowledge());
        assert!(!timer.acknowledge(), "once");
    }
}

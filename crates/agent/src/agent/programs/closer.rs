//! The thread that closes what clients without the token have sent along.
//!
//! The last close of a TCP socket waits for as long as SO_LINGER says, hours if the sender wants it, and
//! such sockets can lie in a Unix socket that is closed. The kernel ends that wait at a signal, so while
//! the thread closes a timer sends it one, again and again: nothing it closes holds up the next.

use std::io;
use std::marker::PhantomData;
use std::sync::{Once, mpsc};

/// A close takes no longer, or hardly. It is short, as a flood of such sockets is closed before a program's turn
/// comes; shares by user would not change that: a client waits to be closed, and only that frees its place.
const PATIENCE_NS: libc::c_long = 100_000;

/// What nobody hears of: by default it is ignored.
const SIGNAL: libc::c_int = libc::SIGURG;

/// The thread; it ends with this.
#[derive(Debug)]
pub(super) struct Closer<T>(mpsc::Sender<T>);

impl<T: Send + 'static> Closer<T> {
    pub(super) fn new() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel::<T>();
        let thread = std::thread::Builder::new().name("closer".to_owned());
        thread.spawn(move || {
            let alarm = Alarm::new()
                .inspect_err(|error| {
                    tracing::warn!(
                        "no timer ({error}): sockets that other users send along may hold up others"
                    );
                })
                .ok();
            for gone in receiver {
                let ringing = alarm.as_ref().map(Alarm::ring);
                drop(gone);
                drop(ringing);
            }
        })?;
        Ok(Self(sender))
    }

    /// Drops it there.
    pub(super) fn close(&self, gone: T) {
        // The thread lives as long as this.
        let _ = self.0.send(gone);
    }
}

/// A timer of this thread. The pointer keeps it from being sent to another.
struct Alarm(libc::timer_t, PhantomData<*mut ()>);

impl Alarm {
    fn new() -> io::Result<Self> {
        static HEARD: Once = Once::new();
        HEARD.call_once(hear);
        // SAFETY: a `sigset_t` and a `sigevent` of zeroes are valid; the calls take pointers to locals,
        // and the timer's number is written before it is read.
        unsafe {
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut signals, SIGNAL);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut());
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::mem::zeroed();
            match libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) {
                0 => Ok(Self(timer, PhantomData)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Rings until the result is dropped.
    fn ring(&self) -> Ringing<'_> {
        self.set(PATIENCE_NS);
        Ringing(self)
    }

    fn set(&self, nanoseconds: libc::c_long) {
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: nanoseconds,
        };
        let times = libc::itimerspec {
            it_interval: time,
            it_value: time,
        };
        // SAFETY: the timer is there as long as this; the kernel reads the times.
        unsafe { libc::timer_settime(self.0, 0, &raw const times, std::ptr::null_mut()) };
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: it was made by this, and nobody else knows its number.
        unsafe { libc::timer_delete(self.0) };
    }
}

struct Ringing<'a>(&'a Alarm);

impl Drop for Ringing<'_> {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

/// A signal that is ignored interrupts nothing; so it is heard, and nothing done. A handler that is there
/// already does as well.
fn hear() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a `sigaction` of zeroes has no flags and blocks nothing; the handler does nothing, which is
    // safe at any time, and both structs are locals.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(SIGNAL, std::ptr::null(), &raw mut before);
        if [libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::os::fd::AsRawFd as _;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
    use std::time::Duration;

    use socket2::{Domain, Socket, Type};

    use super::super::super::tests::send_with_descriptor;
    use super::Closer;

    /// Has `many` sockets closed whose last close would wait, as long as the listener is there; the receiver
    /// hears of the end.
    fn close(many: usize) -> (Socket, Receiver<()>) {
        const LINGER: Duration = Duration::from_secs(10_000);
        let closer: Closer<Box<dyn Send>> = Closer::new().unwrap();
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.set_recv_buffer_size(4096).unwrap();
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        // Nobody accepts.
        listener.listen(4096).unwrap();
        for _ in 0..many {
            let slow = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            slow.set_send_buffer_size(4096).unwrap();
            slow.connect(&listener.local_addr().unwrap()).unwrap();
            // Nobody takes what was written, so the last close waits.
            slow.set_nonblocking(true).unwrap();
            while slow.send(&[0; 65536]).is_ok() {}
            slow.set_nonblocking(false).unwrap();
            slow.set_linger(Some(LINGER)).unwrap();
            let (theirs, ours) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
            send_with_descriptor(&theirs, b"x", slow.as_raw_fd());
            // What was sent along is the last copy.
            drop(slow);
            closer.close(Box::new(ours));
        }
        let (last, closed) = channel::<()>();
        closer.close(Box::new(last));
        (listener, closed)
    }

    #[test]
    fn what_unproven_clients_send_along_holds_up_no_closing() {
        let (_listener, closed) = close(20);
        let closed = closed.recv_timeout(Duration::from_secs(60));
        assert_eq!(
            closed,
            Err(RecvTimeoutError::Disconnected),
            "one is waited for"
        );
    }

    #[test]
    fn a_flood_of_such_sockets_is_closed_as_fast_as_it_comes() {
        // Five milliseconds for each would be three seconds.
        let (_listener, closed) = close(600);
        let closed = closed.recv_timeout(Duration::from_millis(1500));
        assert_eq!(
            closed,
            Err(RecvTimeoutError::Disconnected),
            "they are behind"
        );
    }
}

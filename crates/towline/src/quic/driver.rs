//! The one task of a shard: drives it whenever the socket, a timer or a
//! handle asks for it.
//!
//! Spawned by [`Endpoint`](super::Endpoint), ends with the last connection after the
//! last endpoint handle is gone. One poll takes one turn of at most about a
//! millisecond, then lets other tasks run. When the task is dropped, with its
//! runtime or by a panic, everyone who waits is told.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep};
use towline_wire::Time;

use super::registry::Registry;
use crate::io::{Change, Clock, FineTimer, Shard, Turn, UdpSocket, timer};

/// Deadlines nearer than this get the fine timer: pacing, at any rate that needs it.
const NEAR: Duration = Duration::from_millis(10);

pub(super) struct Driver {
    shard: Shard<UdpSocket, Registry>,
    /// A second descriptor of the shard's socket, known to tokio's reactor. Only its
    /// readiness is used; the shard makes the system calls.
    reactor: tokio::net::UdpSocket,
    alarm: Alarm,
    want_write: bool,
}

/// Wakes the driver for the shard's next timeout.
struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// `sleep` was set and has not fired: one that has fired stays ready for ever.
    sleeping: bool,
    /// For deadlines that are near; `None` where the system has none.
    fine: Option<AsyncFd<FineTimer>>,
    /// What the timers are set to, if they have not fired.
    armed: Option<Time>,
}

impl Alarm {
    fn new() -> Self {
        Self {
            sleep: Box::pin(tokio::time::sleep_until(Instant::now())),
            sleeping: false,
            fine: timer::registered().ok(),
            armed: None,
        }
    }

    /// Arms for `next`; true if a timer fired or `next` is already due.
    fn poll(&mut self, cx: &mut Context<'_>, clock: Clock, next: Time) -> bool {
        let now = clock.now();
        if next <= now {
            return true;
        }
        // A timer set too early costs one empty turn; setting it anew each time costs more.
        if self.armed.is_none_or(|armed| next < armed) {
            let near = next.saturating_duration_since(now);
            let is_fine = near < NEAR
                && self
                    .fine
                    .as_ref()
                    .is_some_and(|fine| fine.get_ref().set(near).is_ok());
            if !is_fine {
                let Some(instant) = clock.instant(next) else {
                    return false;
                };
                self.sleep.as_mut().reset(Instant::from_std(instant));
                self.sleeping = true;
            }
            self.armed = Some(next);
        }
        let fired = self.poll_fine(cx) | self.poll_sleep(cx);
        if fired {
            self.armed = None;
        }
        fired
    }

    fn poll_sleep(&mut self, cx: &mut Context<'_>) -> bool {
        let fired = self.sleeping && self.sleep.as_mut().poll(cx).is_ready();
        self.sleeping &= !fired;
        fired
    }

    fn poll_fine(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(fine) = &self.fine else {
            return false;
        };
        let mut fired = false;
        while let Poll::Ready(Ok(mut ready)) = fine.poll_read_ready(cx) {
            match fine.get_ref().acknowledge() {
                true => fired = true,
                false => ready.clear_ready(),
            }
        }
        fired
    }
}

impl Driver {
    /// A driver for `shard`. Must be called inside a tokio runtime with I/O and time enabled.
    pub(super) fn new(shard: Shard<UdpSocket, Registry>) -> io::Result<Self> {
        let reactor = tokio::net::UdpSocket::from_std(shard.socket().try_clone_std()?)?;
        Ok(Self {
            shard,
            reactor,
            alarm: Alarm::new(),
            want_write: false,
        })
    }

    /// One turn: send what was held back, read if there is something to read, transmit.
    fn turn(&mut self, cx: &mut Context<'_>) -> io::Result<Turn> {
        let now = self.shard.clock().now();
        if self.want_write {
            self.flush(cx, now)?;
        }
        if self.reactor.poll_recv_ready(cx)?.is_pending() {
            return self.shard.drive_if(now, false);
        }
        // The reads must happen inside `try_io`: an empty socket clears the readiness,
        // unless the reactor saw something new meanwhile.
        let mut outcome = None;
        let shard = &mut self.shard;
        let _ = self.reactor.try_io(Interest::READABLE, || {
            let turn = shard.drive_if(now, true);
            let drained = matches!(turn, Ok(turn) if turn.drained);
            outcome = Some(turn);
            if drained {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(())
            }
        });
        // `try_io` makes no call at all when the readiness has gone meanwhile.
        outcome.unwrap_or_else(|| self.shard.drive_if(now, false))
    }

    /// Sends the held-back train if the socket takes it; else stays registered for it.
    fn flush(&mut self, cx: &mut Context<'_>, now: Time) -> io::Result<()> {
        while self.reactor.poll_send_ready(cx)?.is_ready() {
            let shard = &mut self.shard;
            let mut result = Ok(());
            let _ = self.reactor.try_io(Interest::WRITABLE, || {
                result = shard.flush(now);
                match &result {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        Err(io::ErrorKind::WouldBlock.into())
                    }
                    _ => Ok(()),
                }
            });
            match result {
                Ok(()) => {
                    self.want_write = false;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Arms the timer for the shard's next timeout; true if that is already due.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let clock = self.shard.clock();
        match self.shard.next_timeout() {
            Some(next) => self.alarm.poll(cx, clock, next),
            None => false,
        }
    }

    fn poll_turns(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shard.set_waker(cx.waker());
        let turn = self.turn(cx)?;
        self.want_write = turn.want_write;
        let over =
            |endpoint: &towline_quic::Endpoint, registry: &Registry| registry.is_over(endpoint);
        if !turn.again && !turn.want_write && self.shard.handle().read(over) {
            return Poll::Ready(Ok(()));
        }
        let again = turn.again
            // Registers for the next datagram, or finds one that came meanwhile.
            || (turn.drained && self.reactor.poll_recv_ready(cx)?.is_ready())
            || (turn.want_write && self.reactor.poll_send_ready(cx)?.is_ready())
            || self.arm(cx);
        if again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Err(error) = ready!(self.poll_turns(cx)) {
            tracing::error!(%error, "the shard's socket is unusable; all its connections end");
        }
        Poll::Ready(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut wake = Vec::new();
        self.shard.handle().with(|_, registry| {
            registry.stop(&mut wake);
            ((), Change::None)
        });
        for waker in wake {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_sleep_that_is_over_does_not_fire_for_the_deadlines_after_it() {
        let clock = Clock::start();
        let mut alarm = Alarm::new();
        let far = clock.now() + NEAR * 2;
        poll_fn(|cx| match alarm.poll(cx, clock, far) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        for _ in 0..3 {
            let near = clock.now() + NEAR * 9 / 10;
            let mut early = 0;
            poll_fn(|cx| {
                while clock.now() < near {
                    if !alarm.poll(cx, clock, near) {
                        return Poll::Pending;
                    }
                    early += 1;
                }
                Poll::Ready(())
            })
            .await;
            // The timer of before may fire once more.
            assert!(early <= 2, "{early} turns for nothing");
        }
    }
}

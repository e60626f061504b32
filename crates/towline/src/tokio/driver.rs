//! The one task of a shard: drives it whenever the socket, a timer or a
//! handle asks for it.
//!
//! Spawned by [`Endpoint`](crate::Endpoint), ends with the last connection after the
//! last endpoint handle is gone. One poll takes one turn of at most about a
//! millisecond, then lets other tasks run. When the task is dropped, with its
//! runtime or by a panic, everyone who waits is told.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use towline_wire::Time;

use super::alarm::Alarm;
use crate::handles::Sessions;
use crate::io::{Shard, Turn, UdpSocket};

/// Times that a socket said to be writable takes nothing, before other tasks run.
const FLUSH_REFUSALS: u32 = 8;

pub(super) struct Driver {
    shard: Shard<UdpSocket, Sessions>,
    /// A second descriptor of the shard's socket, known to tokio's reactor. Only its
    /// readiness is used; the shard makes the system calls.
    reactor: tokio::net::UdpSocket,
    alarm: Alarm,
    want_write: bool,
}

impl Driver {
    /// A driver for `shard`. Must be called inside a tokio runtime with I/O and time enabled.
    pub(super) fn new(shard: Shard<UdpSocket, Sessions>) -> io::Result<Self> {
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

    /// Registers with the reactor anew. Where the socket had an error, as what routers say is called, the
    /// reactor would take it for writable for ever.
    fn register(&mut self) -> io::Result<()> {
        let descriptor = self.shard.socket().try_clone_std()?;
        self.reactor = tokio::net::UdpSocket::from_std(descriptor)?;
        Ok(())
    }

    /// Sends the held-back train if the socket takes it; else stays registered for it.
    fn flush(&mut self, cx: &mut Context<'_>, now: Time) -> io::Result<()> {
        let mut refusals = 0;
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
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    refusals += 1;
                    if refusals == FLUSH_REFUSALS {
                        cx.waker().wake_by_ref();
                        return Ok(());
                    }
                    if self.shard.take_heard() || refusals > 1 {
                        self.register()?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Arms the timer for the shard's next timeout; true if that is already due.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        match self.shard.next_timeout() {
            Some(next) => self.alarm.poll(cx, self.shard.clock(), next),
            None => false,
        }
    }

    fn poll_turns(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shard.set_waker(cx.waker());
        let mut turn = self.turn(cx)?;
        if self.shard.take_rebound() | self.shard.take_heard() {
            self.register()?;
            // Waits for what comes there.
            turn.again = true;
        }
        self.want_write = turn.want_write;
        if !turn.again && !turn.want_write && self.shard.is_over() {
            return Poll::Ready(Ok(()));
        }
        let again = turn.again
            // Registers for the next datagram, or finds one that came meanwhile.
            || (turn.drained && self.reactor.poll_recv_ready(cx)?.is_ready())
            || (turn.want_write && self.reactor.poll_send_ready(cx)?.is_ready())
            || self.arm(cx);
        if again {
            // Unlike a wake-up, this lets everybody else run before: the future of `block_on`, too,
            // which a runtime of one thread polls once in 61 polls of tasks.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
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

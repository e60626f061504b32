//! What wakes a driver at the shard's next timeout: the runtime's timer, or for deadlines that are
//! near the system's finer one. Asked by the driver at the end of each turn. Never drives a shard.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep};
use towline_wire::Time;

use crate::io::{Clock, FineTimer, timer};

/// Deadlines nearer than this get the fine timer: pacing, at any rate that needs it.
const NEAR: Duration = Duration::from_millis(10);

pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// For deadlines that are near; `None` where the system has none.
    fine: Option<AsyncFd<FineTimer>>,
    /// What is set, if it has not fired.
    armed: Option<Armed>,
}

/// A timer that is set.
#[derive(Clone, Copy)]
struct Armed {
    at: Time,
    /// It is the fine one. The other may have fired long ago, and would say so for ever.
    is_fine: bool,
}

impl Alarm {
    /// Nothing set. Must be called inside a tokio runtime with I/O and time enabled.
    pub(super) fn new() -> Self {
        Self {
            sleep: Box::pin(tokio::time::sleep_until(Instant::now())),
            fine: timer::registered().ok(),
            armed: None,
        }
    }

    /// Whether `next` is due, or something that was set earlier; else the task is woken then.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, clock: &Clock, next: Time) -> bool {
        let now = clock.now();
        if next <= now {
            // Whoever woke the task: to hear of it again would cost an empty turn.
            self.armed = self.armed.filter(|armed| armed.at > now);
            return true;
        }
        // A timer set too early costs one empty turn; setting it anew each time costs more.
        if self.armed.is_none_or(|armed| next < armed.at) {
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
            }
            self.armed = Some(Armed { at: next, is_fine });
        }
        let fired = match self.armed {
            Some(Armed { is_fine: true, .. }) => self.poll_fine(cx),
            _ => self.sleep.as_mut().poll(cx).is_ready(),
        };
        if fired {
            self.armed = None;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_near_deadline_after_one_that_passed_is_waited_for() {
        let clock = Clock::start();
        let mut alarm = Alarm::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        // As new, the runtime's timer has fired; so it has after this.
        let far = clock.now() + NEAR + Duration::from_millis(1);
        while !alarm.poll(&mut cx, &clock, far) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut waits = 0;
        for _ in 0..50 {
            let near = clock.now() + NEAR / 2;
            let fired = alarm.poll(&mut cx, &clock, near);
            // A busy machine may take that long; not each time.
            waits += u32::from(!fired);
            let due = std::future::poll_fn(|cx| match alarm.poll(cx, &clock, near) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            let in_time = tokio::time::timeout(Duration::from_secs(20), due).await;
            assert!(in_time.is_ok(), "nobody woke the task");
            assert!(fired || clock.now() >= near, "woken early");
        }
        assert!(waits > 0, "what passed is told for ever");
    }
}

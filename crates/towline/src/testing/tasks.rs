//! Tasks and timers of a world in virtual time: one thread, first woken, first run.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use towline_wire::Time;

use crate::io::ManualClock;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Spawns tasks and makes timers in a [`Simulation`](super::Simulation). Clones are the same world's.
#[derive(Clone)]
pub struct Tasks {
    /// By number; a task that runs, or has ended, is taken out.
    tasks: Rc<RefCell<BTreeMap<u64, Task>>>,
    next: Rc<RefCell<u64>>,
    ready: Arc<Mutex<VecDeque<u64>>>,
    timers: Timers,
}

impl Tasks {
    pub(super) fn new(timers: Timers) -> Self {
        Self {
            tasks: Rc::default(),
            next: Rc::default(),
            ready: Arc::default(),
            timers,
        }
    }

    /// Runs `future` beside the others, from the next step on.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let mut next = self.next.borrow_mut();
        self.tasks.borrow_mut().insert(*next, Box::pin(future));
        lock(&self.ready).push_back(*next);
        *next += 1;
    }

    /// Ready when so much time has passed in this world.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep {
            at: self.timers.clock.now() + duration,
            number: None,
            timers: self.timers.clone(),
        }
    }

    /// Runs whoever was woken, timers included; false if that was nobody.
    pub(super) fn run(&self, now: Time) -> bool {
        self.timers.fire(now);
        let woken = std::mem::take(&mut *lock(&self.ready));
        let busy = !woken.is_empty();
        for number in woken {
            let Some(mut task) = self.tasks.borrow_mut().remove(&number) else {
                continue;
            };
            let waker = Waker::from(Arc::new(Woken {
                number,
                ready: Arc::clone(&self.ready),
            }));
            if task
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
            {
                self.tasks.borrow_mut().insert(number, task);
            }
        }
        busy
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let (at, _) = *lock(&self.timers.waiting).keys().next()?;
        Some(at)
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

struct Woken {
    number: u64,
    ready: Arc<Mutex<VecDeque<u64>>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let mut ready = lock(&self.ready);
        if !ready.contains(&self.number) {
            ready.push_back(self.number);
        }
    }
}

/// Who waits for which time; the first to come of the same time is the first to be woken.
#[derive(Clone)]
pub(super) struct Timers {
    clock: ManualClock,
    waiting: Arc<Mutex<BTreeMap<(Time, u64), Waker>>>,
    next: Arc<Mutex<u64>>,
}

impl Timers {
    pub(super) fn new(clock: ManualClock) -> Self {
        Self {
            clock,
            waiting: Arc::default(),
            next: Arc::default(),
        }
    }

    fn fire(&self, now: Time) {
        let due = {
            let mut waiting = lock(&self.waiting);
            let later = waiting.split_off(&(now, u64::MAX));
            std::mem::replace(&mut *waiting, later)
        };
        for waker in due.into_values() {
            waker.wake();
        }
    }
}

/// See [`Tasks::sleep`].
#[must_use = "it does nothing until it is awaited"]
pub struct Sleep {
    at: Time,
    /// Its place among those of the same time.
    number: Option<u64>,
    timers: Timers,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.timers.clock.now() >= self.at {
            return Poll::Ready(());
        }
        let number = match self.number {
            Some(number) => number,
            None => {
                let mut next = lock(&self.timers.next);
                *next += 1;
                *next
            }
        };
        self.number = Some(number);
        lock(&self.timers.waiting).insert((self.at, number), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let left = lock(&self.timers.waiting).remove(&(self.at, number));
            drop(left);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("at", &self.at).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

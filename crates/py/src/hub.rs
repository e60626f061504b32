//! [`Hub`]: what a driver and its handles share: who was called, whether there is work, and the timer.
//!
//! Every wait of a handle has a token, a number, and a waker that puts the token into a list here. The
//! loop takes the list after each turn. Wakers run under no lock of ours and touch no Python object.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use towline::Time;
use towline::io::{Clock, FineTimer};

use crate::errors::Failure;

/// A caller that panicked left what it locked as it was before its call.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a driver and its handles share.
pub(crate) struct Hub {
    clock: Clock,
    next_token: AtomicU64,
    /// Tokens that were called since the list was taken.
    ready: Mutex<Vec<u64>>,
    has_ready: AtomicBool,
    /// A handle gave the shard something to do.
    has_work: AtomicBool,
    /// This process is a fork of the one that made it: the shard's lock may be held for ever.
    forked: AtomicBool,
    alarm: Mutex<Alarm>,
}

struct Alarm {
    timer: Timer,
    /// What is set, if it has not been heard.
    armed: Option<Time>,
}

enum Timer {
    /// A descriptor that the loop waits for.
    System(FineTimer),
    /// The loop asks when the time is, and moves the clock itself.
    Virtual,
    /// The driver was closed.
    Gone,
}

impl Timer {
    fn set(&self, after: Duration) -> io::Result<()> {
        match self {
            Self::System(timer) => timer.set(after),
            Self::Virtual | Self::Gone => Ok(()),
        }
    }

    /// Whether it has fired, which it should have.
    fn acknowledge(&self) -> bool {
        match self {
            Self::System(timer) => timer.acknowledge(),
            Self::Virtual => true,
            Self::Gone => false,
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }
}

impl Hub {
    pub(crate) fn new(clock: Clock) -> io::Result<Arc<Self>> {
        let timer = FineTimer::new().map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => {
                io::Error::other("towline for Python needs Linux: the system has no timerfd")
            }
            _ => error,
        })?;
        Ok(Self::with_timer(clock, Timer::System(timer)))
    }

    /// Of a driver in virtual time.
    pub(crate) fn in_virtual_time(clock: Clock) -> Arc<Self> {
        Self::with_timer(clock, Timer::Virtual)
    }

    fn with_timer(clock: Clock, timer: Timer) -> Arc<Self> {
        Arc::new(Self {
            clock,
            next_token: AtomicU64::new(0),
            ready: Mutex::default(),
            has_ready: AtomicBool::new(false),
            has_work: AtomicBool::new(false),
            forked: AtomicBool::new(false),
            alarm: Mutex::new(Alarm { timer, armed: None }),
        })
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// So many tokens in a row; the first.
    pub(crate) fn tokens(&self, count: u64) -> u64 {
        self.next_token.fetch_add(count, Ordering::Relaxed)
    }

    /// Calls a token.
    pub(crate) fn waker(self: &Arc<Self>, token: u64) -> Waker {
        let hub = Arc::clone(self);
        Waker::from(Arc::new(Token { hub, token }))
    }

    /// Notes that the shard has something to do.
    pub(crate) fn work_waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(Work(Arc::clone(self))))
    }

    /// Whether a turn is due: the shard has work, or somebody was called.
    pub(crate) fn wants_turn(&self) -> bool {
        self.has_work.load(Ordering::Acquire) || self.has_ready()
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.has_ready.load(Ordering::Acquire)
    }

    pub(crate) fn take_ready(&self) -> Vec<u64> {
        let mut ready = lock(&self.ready);
        self.has_ready.store(false, Ordering::Release);
        std::mem::take(&mut *ready)
    }

    /// A turn begins: what is done from now on is work for the next one.
    pub(crate) fn on_turn(&self) {
        self.has_work.store(false, Ordering::Release);
        let now = self.now();
        let mut alarm = lock(&self.alarm);
        let due = alarm.armed.is_some_and(|at| at <= now);
        // What has not fired yet is about to, and is heard in the turn that it brings.
        if due && alarm.timer.acknowledge() {
            alarm.armed = None;
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Acquire)
    }

    /// Has the timer bring a turn at `next`; true if that is due already.
    pub(crate) fn arm(&self, next: Time) -> io::Result<bool> {
        let now = self.now();
        if next <= now {
            return Ok(true);
        }
        let mut alarm = lock(&self.alarm);
        // A timer that fires too early costs one empty turn; setting it anew each time costs more.
        if alarm.armed.is_some_and(|at| at <= next) {
            return Ok(false);
        }
        if !alarm.timer.is_gone() {
            alarm.timer.set(next.saturating_duration_since(now))?;
            alarm.armed = Some(next);
        }
        Ok(false)
    }

    /// Brings a turn where nobody looks whether one is due: a handle was dropped, by any thread.
    pub(crate) fn ring(&self) {
        if self.is_forked() || !self.wants_turn() {
            return;
        }
        let now = self.now();
        let mut alarm = lock(&self.alarm);
        if alarm.armed.is_some_and(|at| at <= now) {
            return;
        }
        if !alarm.timer.is_gone() && alarm.timer.set(Duration::ZERO).is_ok() {
            alarm.armed = Some(now);
        }
    }

    /// The timer's descriptor, if it has one.
    pub(crate) fn timer_fd(&self) -> RawFd {
        match &lock(&self.alarm).timer {
            Timer::System(timer) => timer.as_raw_fd(),
            Timer::Virtual | Timer::Gone => -1,
        }
    }

    /// What a virtual timer is set to.
    pub(crate) fn armed(&self) -> Option<Time> {
        lock(&self.alarm).armed
    }

    /// Whether the driver was closed.
    pub(crate) fn is_gone(&self) -> bool {
        lock(&self.alarm).timer.is_gone()
    }

    /// Gives the timer's descriptor back.
    pub(crate) fn close(&self) {
        let mut alarm = lock(&self.alarm);
        alarm.timer = Timer::Gone;
        alarm.armed = None;
    }

    pub(crate) fn on_fork(&self) {
        self.forked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// # Errors
    /// In a fork.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.is_forked() {
            true => Err(Failure::Forked),
            false => Ok(()),
        }
    }

    /// Drops a handle, if there is one; true if it did. In a fork that would wait for a lock that nobody
    /// gives back: there it is left.
    pub(crate) fn drop_handle<T>(&self, handle: Option<T>) -> bool {
        let Some(handle) = handle else { return false };
        match self.is_forked() {
            true => std::mem::forget(handle),
            false => drop(handle),
        }
        true
    }
}

struct Token {
    hub: Arc<Hub>,
    token: u64,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut ready = lock(&self.hub.ready);
        ready.push(self.token);
        self.hub.has_ready.store(true, Ordering::Release);
    }
}

struct Work(Arc<Hub>);

impl Wake for Work {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.has_work.store(true, Ordering::Release);
    }
}

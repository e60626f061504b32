//! The one place that reads a clock: `Instant` to and from the engine's [`Time`].
//!
//! Every shard and everything over it maps time through one [`Clock`], so a
//! `Time` handed to the engine and a timer armed in a runtime mean the same
//! moment. The engine never sees an `Instant`. Where time is virtual, whoever
//! has the [`ManualClock`] moves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use towline_wire::Time;

/// A monotonic clock: the system's, or one that stands still until it is moved.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Its origin.
    System(Instant),
    Manual(ManualClock),
}

/// Moves the [`Clock`]s that were made from it. Clones move the same ones.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// One that stands at `start`.
    pub fn new(start: Time) -> Self {
        Self(Arc::new(AtomicU64::new(start.as_nanos())))
    }

    /// A clock that shows its time.
    pub fn clock(&self) -> Clock {
        Clock(Source::Manual(self.clone()))
    }

    /// The time it shows.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// Moves it on to `time`; a time that has passed changes nothing.
    pub fn advance_to(&self, time: Time) {
        self.0.fetch_max(time.as_nanos(), Ordering::AcqRel);
    }
}

impl Clock {
    /// The system's clock. Its origin is a little before the first call in this process, so that "a
    /// moment ago" is always representable. All clocks of a process have one origin: connections of
    /// different shards may share a bandwidth pool or a background controller, which compares their
    /// times.
    pub fn start() -> Self {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let origin = *ORIGIN.get_or_init(|| {
            let now = read();
            now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
        });
        Self(Source::System(origin))
    }

    /// The time now.
    pub fn now(&self) -> Time {
        match &self.0 {
            Source::System(origin) => since(*origin, read()),
            Source::Manual(clock) => clock.now(),
        }
    }

    /// `instant` on the system's clock; instants before its origin become [`Time::ZERO`]. A manual clock
    /// knows no instants: its own time.
    pub fn time(&self, instant: Instant) -> Time {
        match &self.0 {
            Source::System(origin) => since(*origin, instant),
            Source::Manual(clock) => clock.now(),
        }
    }

    /// `time` as an `Instant`; `None` where the platform cannot represent it ("never"), and on a
    /// manual clock.
    pub fn instant(&self, time: Time) -> Option<Instant> {
        match &self.0 {
            Source::System(origin) => origin.checked_add(Duration::from_nanos(time.as_nanos())),
            Source::Manual(_) => None,
        }
    }
}

fn since(origin: Instant, instant: Instant) -> Time {
    Time::ZERO + instant.saturating_duration_since(origin)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the driver owns the clock; this is its only reading"
)]
fn read() -> Instant {
    Instant::now()
}

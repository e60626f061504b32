//! The one place that reads a clock: `Instant` to and from the engine's [`Time`].
//!
//! Every shard and everything over it maps time through one [`Clock`], so a
//! `Time` handed to the engine and a timer armed in a runtime mean the same
//! moment. The engine never sees an `Instant`.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use towline_wire::Time;

/// A monotonic clock. All clocks of a process have one origin: connections of different shards may
/// share a bandwidth pool or a background controller, which compares their times.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// The clock of this process. Its origin is a little before the first call, so that "a moment
    /// ago" is always representable.
    pub fn start() -> Self {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let origin = *ORIGIN.get_or_init(|| {
            let now = read();
            now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
        });
        Self { origin }
    }

    /// The time now.
    pub fn now(&self) -> Time {
        self.time(read())
    }

    /// `instant` on this clock; instants before the origin become [`Time::ZERO`].
    pub fn time(&self, instant: Instant) -> Time {
        Time::ZERO + instant.saturating_duration_since(self.origin)
    }

    /// `time` as an `Instant`, or `None` where the platform cannot represent it ("never").
    pub fn instant(&self, time: Time) -> Option<Instant> {
        self.origin
            .checked_add(Duration::from_nanos(time.as_nanos()))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the driver owns the clock; this is its only reading"
)]
fn read() -> Instant {
    Instant::now()
}

//! The wall clock of a test: a number that moves only when the test moves it.
//!
//! rustls asks it for certificate dates and ticket ages. It never reads the system's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// 2026-01-01 00:00:00 UTC, where the clocks of [`tls_pair`](crate::tls_pair) start.
pub const DEFAULT_UNIX_SECONDS: u64 = 1_767_225_600;

/// A `TimeProvider` that stands still until it is told otherwise. Shared through `Arc`.
#[derive(Debug)]
pub struct FixedTime {
    milliseconds: AtomicU64,
}

impl FixedTime {
    /// A clock standing at `unix_seconds` since 1970-01-01 UTC.
    pub fn new(unix_seconds: u64) -> FixedTime {
        FixedTime {
            milliseconds: AtomicU64::new(unix_seconds.saturating_mul(1000)),
        }
    }

    /// Moves the clock to `unix_seconds`, forwards or backwards.
    pub fn set(&self, unix_seconds: u64) {
        self.milliseconds
            .store(unix_seconds.saturating_mul(1000), Ordering::Relaxed);
    }

    /// Moves the clock forwards by `by`, counted in whole milliseconds.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        let now = self.milliseconds.load(Ordering::Relaxed);
        self.milliseconds
            .store(now.saturating_add(by), Ordering::Relaxed);
    }

    /// Whole seconds since 1970-01-01 UTC.
    pub fn unix_seconds(&self) -> u64 {
        self.milliseconds.load(Ordering::Relaxed) / 1000
    }
}

impl Default for FixedTime {
    fn default() -> FixedTime {
        FixedTime::new(DEFAULT_UNIX_SECONDS)
    }
}

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(
            self.milliseconds.load(Ordering::Relaxed),
        )))
    }
}

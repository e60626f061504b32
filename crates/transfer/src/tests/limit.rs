//! Slow lanes: a token bucket that the lanes of one sender share.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// Bytes the bucket holds, as time at the configured rate.
const BURST: Duration = Duration::from_millis(100);

/// A rate limit in bytes per second.
pub(super) struct Limiter {
    bytes_per_second: u64,
    bucket: Mutex<Bucket>,
}

struct Bucket {
    /// When the bucket would have been exactly empty.
    empty_at: Instant,
}

impl Limiter {
    /// A limiter for `bytes_per_second` (at least 1).
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            bucket: Mutex::new(Bucket {
                empty_at: Instant::now(),
            }),
        }
    }

    /// Waits until `bytes` may go.
    pub(super) async fn take(&self, bytes: usize) {
        let mut bucket = self.bucket.lock().await;
        let oldest = Instant::now()
            .checked_sub(BURST)
            .unwrap_or_else(Instant::now);
        let from = bucket.empty_at.max(oldest);
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        tokio::time::sleep_until(from + cost).await;
        bucket.empty_at = from + cost;
    }
}

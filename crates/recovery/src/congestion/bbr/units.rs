//! Arithmetic on bytes, rates and gains that saturates instead of overflowing, and the generator
//! behind the probing times. Owns no state of the path.

use core::time::Duration;

/// Gains and shares are whole hundredths: integers give the same trace on every platform.
pub(super) type Hundredths = u64;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// `value * gain`.
pub(super) fn scale(value: u64, gain: Hundredths) -> u64 {
    narrow(u128::from(value) * u128::from(gain) / 100)
}

/// Bytes that `rate` (bytes per second) carries in `time`.
pub(super) fn carried(rate: u64, time: Duration) -> u64 {
    let nanos = u128::from(crate::rtt::nanos(time));
    narrow(u128::from(rate).saturating_mul(nanos) / NANOS_PER_SECOND)
}

/// `bytes` per `time`, in bytes per second.
pub(super) fn rate(bytes: u64, time: Duration) -> u64 {
    let nanos = u128::from(crate::rtt::nanos(time)).max(1);
    narrow(u128::from(bytes) * NANOS_PER_SECOND / nanos)
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// splitmix64: enough to keep flows from probing in step, and nothing secret hangs on it.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `[0, limit)`, whole nanoseconds.
    pub(super) fn below(&mut self, limit: Duration) -> Duration {
        let nanos = crate::rtt::nanos(limit);
        let product = u128::from(self.bits()) * u128::from(nanos);
        Duration::from_nanos((product >> 64) as u64)
    }
}

//! How much a scenario's text may ask for.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Longest scenario.
pub(super) const MAX_DURATION: Duration = Duration::from_secs(3600);
/// Shortest time.
pub(super) const NO_TIME: Duration = Duration::ZERO;
/// Shortest and longest time between two samples.
pub(super) const SAMPLES: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(60);
/// Samples of all flows together: about 100 MB.
pub(super) const MAX_SAMPLES: u128 = 1_000_000;
/// Longest text, bytes.
pub(super) const MAX_TEXT: usize = 1 << 20;
/// Changes of the links.
pub(super) const MAX_CHANGES: usize = 1000;
/// Steps, blackouts and listed drops of all changes together, for each holds them anew: about 50 MB.
pub(super) const MAX_CHANGED_ITEMS: usize = 2_000_000;
/// Bytes of raw datagrams under way on the access links of all flows together.
pub(super) const MAX_UNDER_WAY: u128 = 1 << 30;

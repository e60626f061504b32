//! When a background flow that made way may take the path back faster than by a packet or less a
//! round trip: those it made way for are gone.
//!
//! Only the host's controller does so (ADR 0012). It asks with each ACK and is told how the
//! comeback ended; it knows no window.

use core::time::Duration;

use towline_wire::Time;

/// A queue up to this share of the target is none.
const CLEAR_SHARE: u64 = 4;
/// A path has to be clear for so many round trips, and for so long, before the first comeback.
const CLEAR_ROUNDS: u32 = 8;
const CLEAR_TIME: Duration = Duration::from_millis(500);
/// Comebacks that end in a loss double the wait, so often at most.
const MOST_DOUBLINGS: u32 = 6;

/// The watch over an empty queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Comeback {
    clear_since: Option<Time>,
    doublings: u32,
    /// When the latest one ended with a queue, and the doublings before: its last flight may yet
    /// prove lost.
    ended: Option<(Time, u32)>,
}

impl Comeback {
    /// Whether the path has been clear for long enough. `queue` and `target` are nanoseconds.
    pub(super) fn is_due(&mut self, now: Time, queue: u64, target: u64, round: Duration) -> bool {
        if queue > target / CLEAR_SHARE {
            self.clear_since = None;
            return false;
        }
        let since = *self.clear_since.get_or_insert(now);
        let wait = CLEAR_TIME.max(round.saturating_mul(CLEAR_ROUNDS));
        now >= since + wait.saturating_mul(1u32 << self.doublings)
    }

    /// The flow itself emptied the queue: that says nothing of others.
    pub(super) fn interrupt(&mut self) {
        self.clear_since = None;
    }

    /// It ended with a queue, as the first slow start does.
    pub(super) fn on_queue(&mut self, now: Time) {
        *self = Self {
            ended: Some((now, self.doublings)),
            ..Self::default()
        };
    }

    /// A packet was lost that was sent at `sent`: if it was of the latest comeback, that one ended
    /// with a loss after all.
    pub(super) fn on_late_loss(&mut self, sent: Time) {
        if let Some((_, doublings)) = self.ended.take_if(|(ended, _)| sent <= *ended) {
            self.doublings = doublings;
            self.on_loss();
        }
    }

    /// It ended with a loss: the buffer is too small for a queue that would show, so those who
    /// share the path may be there all the same.
    pub(super) fn on_loss(&mut self) {
        self.clear_since = None;
        self.ended = None;
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }
}

#[cfg(test)]
mod tests;

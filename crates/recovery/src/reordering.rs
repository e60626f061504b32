//! How much reordering loss detection bears, and when a late acknowledgement is believed.
//!
//! Starts with the thresholds of RFC 9002 §6.1. A loss that proves spurious widens them, as RACK
//! does (RFC 8985 §6.2): first three later packets are no proof of loss any more, then the time
//! threshold doubles its share of a round trip up to a whole one. Sixteen reductions without a
//! spurious loss take one step back.
//!
//! A reduction is undone only if the losses behind it made the thresholds wider, or were declared
//! before they were. A receiver that claims what it never got can therefore hide no more than four
//! reductions, and one in sixteen after that, even if it never claims a number that was not sent.

use core::time::Duration;

use crate::rtt::{RttEstimator, nanos};

/// `kPacketThreshold` of RFC 9002 §6.1.1.
const PACKET_THRESHOLD: u64 = 3;

/// Each step's time threshold beyond a round trip, in eighths of one. Steps above the first have no
/// packet threshold; the last is RFC 8985's bound.
const EIGHTHS: [u64; 5] = [1, 1, 2, 4, 8];

/// Reductions without a spurious loss after which the thresholds are narrowed by a step, RFC 8985's
/// `RACK.reo_wnd_persist`.
const PERSISTENCE: u8 = 16;

/// When a packet is lost, all numbers up to the largest acknowledged given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    /// So many later packets were sent up to the largest acknowledged.
    pub(crate) packets: Option<u64>,
    /// So long ago it was sent.
    pub(crate) delay: Duration,
    /// How often they have been widened.
    pub(crate) widened: u32,
}

/// What is known of a path's reordering.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reordering {
    step: usize,
    widened: u32,
    /// Reductions since the last spurious loss or change of step.
    quiet: u8,
}

impl Reordering {
    pub(crate) fn thresholds(&self, rtt: &RttEstimator) -> Thresholds {
        let round = nanos(rtt.smoothed().max(rtt.latest()));
        let more = Self::allowance(self.step, round) - Self::allowance(0, round);
        Thresholds {
            packets: (self.step == 0).then_some(PACKET_THRESHOLD),
            delay: rtt.loss_delay().saturating_add(Duration::from_nanos(more)),
            widened: self.widened,
        }
    }

    /// How often the thresholds have been widened.
    pub(crate) fn widened(&self) -> u32 {
        self.widened
    }

    /// A packet that present thresholds called lost was acknowledged, `age` after it was sent:
    /// widens them until they would have borne it, by one step at least. `false` if they are as
    /// wide as they may be: then nothing follows from the claim.
    pub(crate) fn widen(&mut self, age: Duration, rtt: &RttEstimator) -> bool {
        self.quiet = 0;
        if self.step + 1 >= EIGHTHS.len() {
            return false;
        }
        let round = nanos(rtt.smoothed().max(rtt.latest()));
        let late = nanos(age).saturating_sub(round);
        self.step += 1;
        while self.step + 1 < EIGHTHS.len() && Self::allowance(self.step, round) < late {
            self.step += 1;
        }
        self.widened = self.widened.wrapping_add(1);
        true
    }

    /// Losses reduced the window.
    pub(crate) fn on_reduced(&mut self) {
        self.quiet += 1;
        if self.quiet >= PERSISTENCE {
            self.quiet = 0;
            self.step = self.step.saturating_sub(1);
        }
    }

    fn allowance(step: usize, round: u64) -> u64 {
        let eighths = EIGHTHS.get(step).copied().unwrap_or(1);
        (round / 8).saturating_mul(eighths)
    }
}

#[cfg(test)]
mod tests;

//! The share of packets that the path loses whatever is sent: radio, a bad cable, a noisy line.
//!
//! Congestion answers a sender that slows down; this loss does not. So it is learnt only from
//! periods in which no queue stood, and only as the least share of several periods in a row: BBR
//! reacts to losses first, as the draft says, and comes to bear those that its reaction did not
//! get rid of. `Model` feeds it and asks it; it sets nothing.

use core::time::Duration;

use towline_wire::Time;

/// Least packets of a period: with fewer, chance decides the share.
const LEAST_PACKETS: u64 = 500;
/// Periods of which the least share counts.
const PERIODS: usize = 4;
/// Millionths.
pub(super) const ONE: u64 = 1_000_000;
/// A share above this is an overload, or no path worth modelling.
pub(super) const MOST_SHARE: u64 = ONE / 10;
/// What was learnt holds for this long.
const MEMORY: Duration = Duration::from_secs(10);

/// Shares are millionths.
#[derive(Clone, Debug, Default)]
pub(super) struct PathLoss {
    /// Bytes acknowledged and lost in the present round.
    acked: u64,
    lost: u64,
    /// Those of the rounds before it in this period.
    period_acked: u64,
    period_lost: u64,
    /// Of the latest periods.
    shares: [u64; PERIODS],
    next: usize,
    learnt: Option<Time>,
}

impl PathLoss {
    pub(super) fn on_ack(&mut self, bytes: u64) {
        self.acked = self.acked.saturating_add(bytes);
    }

    pub(super) fn on_lost(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_add(bytes);
    }

    /// A round ended: whether it lost more than the path always does, at most twice its share.
    /// The round teaches something if no queue stood.
    pub(super) fn end_round(&mut self, now: Time, datagram: u64, queue_stood: bool) -> bool {
        let (acked, lost) = (
            core::mem::take(&mut self.acked),
            core::mem::take(&mut self.lost),
        );
        let is_more = share(lost, acked) > 2 * self.share(now);
        if !queue_stood {
            self.period_acked = self.period_acked.saturating_add(acked);
            self.period_lost = self.period_lost.saturating_add(lost);
            if self.period_acked.saturating_add(self.period_lost) >= LEAST_PACKETS * datagram {
                self.end_period(now);
            }
        }
        is_more
    }

    fn end_period(&mut self, now: Time) {
        let (acked, lost) = (
            core::mem::take(&mut self.period_acked),
            core::mem::take(&mut self.period_lost),
        );
        if self.is_stale(now) {
            self.shares = [0; PERIODS];
        }
        let share = share(lost, acked);
        self.shares[self.next] = match share > MOST_SHARE {
            true => 0,
            false => share,
        };
        self.next = (self.next + 1) % PERIODS;
        self.learnt = Some(now);
    }

    fn is_stale(&self, now: Time) -> bool {
        self.learnt.is_none_or(|at| now > at + MEMORY)
    }

    /// What the path loses by itself.
    pub(super) fn share(&self, now: Time) -> u64 {
        match self.is_stale(now) {
            true => 0,
            false => self.shares.iter().copied().min().unwrap_or(0),
        }
    }

    /// Losses turned out to be none: nothing learnt from any is to be trusted.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// `lost` as a share of all.
fn share(lost: u64, acked: u64) -> u64 {
    let all = u128::from(lost) + u128::from(acked);
    (u128::from(lost) * u128::from(ONE) / all.max(1)) as u64
}

#[cfg(test)]
mod tests;

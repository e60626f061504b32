//! The strict rate limit: a token bucket over every packet, those without need of a permit too.
//!
//! `Recovery` asks it beside the pacer and charges it for acknowledgements, probes and
//! retransmissions alike. What it promises: any window of at least 100 ms carries no more than
//! rate x window + one burst, the burst being what the rate earns in 1 ms, or two datagrams.
//! A bucket of one burst would promise that for every window, but a timer that is a millisecond
//! late would halve the rate. So a sender that waited may catch up on 10 ms, and pays it back
//! within 100 ms: a late timer costs a hundredth of what it would.
//!
//! Counted in billionths of a byte, so that no fraction is ever lost.

use core::num::NonZeroU64;
use core::time::Duration;

use towline_wire::Time;

use crate::rtt::{GRANULARITY, nanos};

/// Billionths of a byte.
const BYTE: i128 = 1_000_000_000;

/// The least burst, in datagrams: one is kept for packets that need no permit.
const MIN_BURST_DATAGRAMS: u64 = 2;

/// What a sender that waited may catch up on.
const LATENESS: Duration = Duration::from_millis(10);

/// Rates above this, 8 Tbit/s, are taken as this: the sums stay far from overflow.
const MAX_RATE: NonZeroU64 = NonZeroU64::new(1_000_000_000_000).unwrap();

const SLOT_NANOS: u64 = 10_000_000;
const SLOTS: usize = 10;

/// A bucket in debt never forgets it.
#[derive(Clone, Debug)]
pub(crate) struct RateLimit {
    rate: NonZeroU64,
    /// Earned less spent.
    balance: i128,
    last: Time,
    /// Highest balance of each of the last ten 10 ms slots, by its number modulo ten.
    recent: [i128; SLOTS],
    slot: u64,
    /// Highest balance of all time before: a window that starts there must hold the promise.
    peak: i128,
    /// The sender was refused when it last asked, here or elsewhere, so what it missed since may be
    /// caught up on.
    waiting: bool,
}

impl RateLimit {
    /// A full bucket of `rate` bytes per second.
    pub(crate) fn new(now: Time, rate: NonZeroU64) -> Self {
        Self {
            rate: rate.min(MAX_RATE),
            balance: 0,
            last: now,
            recent: [0; SLOTS],
            slot: now.as_nanos() / SLOT_NANOS,
            peak: 0,
            waiting: false,
        }
    }

    /// Another rate from `now` on; a debt is cut to what the new rate could have made.
    pub(crate) fn set_rate(&mut self, now: Time, rate: NonZeroU64, datagram: u64) {
        let rate = rate.min(MAX_RATE);
        if rate != self.rate {
            self.advance(now);
            self.rate = rate;
            self.balance = self.balance.max(self.peak - self.burst(datagram));
        }
    }

    /// Bytes per second.
    pub(crate) fn rate(&self) -> NonZeroU64 {
        self.rate
    }

    /// Bytes that may leave now in packets that need a permit, at least one datagram, or the time
    /// to ask again.
    pub(crate) fn permit(&mut self, now: Time, datagram: u64) -> Result<u64, Time> {
        self.advance(now);
        let reserve = i128::from(datagram) * BYTE;
        let burst = self.burst(datagram);
        let available = self.balance - self.peak + burst - reserve;
        self.waiting = available < reserve;
        if !self.waiting {
            return Ok(u64::try_from(available / BYTE).unwrap_or(u64::MAX));
        }
        Err(now + self.time_to_earn(burst - reserve - available))
    }

    /// What was permitted may not leave for another reason: short waits there, one for each train,
    /// would else lower the rate.
    pub(crate) fn keep_waiting(&mut self) {
        self.waiting = true;
    }

    /// Before which time not even a packet of `size` bytes that needs no permit may leave.
    pub(crate) fn exempt(&mut self, now: Time, size: u64, datagram: u64) -> Option<Time> {
        self.advance(now);
        let burst = self.burst(datagram);
        let wanted = (i128::from(size) * BYTE).min(burst);
        let missing = wanted - (self.balance - self.peak + burst);
        (missing > 0).then(|| now + self.time_to_earn(missing))
    }

    /// Charges a packet.
    pub(crate) fn on_sent(&mut self, now: Time, size: u64) {
        self.advance(now);
        self.balance = self.balance.saturating_sub(i128::from(size) * BYTE);
    }

    fn advance(&mut self, now: Time) {
        let elapsed = nanos(now.saturating_duration_since(self.last));
        self.last = self.last.max(now);
        let earned = i128::from(self.rate.get()) * i128::from(elapsed);
        let most = match self.waiting {
            true => self.peak.saturating_add(self.earned_in(LATENESS)),
            false => self.peak,
        };
        let filled = self.balance.saturating_add(earned).min(most);
        self.balance = self.balance.max(filled);
        self.turn_slots(now);
    }

    /// The balance only rises between calls: its value now is no less than any it had in the
    /// slots passed.
    fn turn_slots(&mut self, now: Time) {
        let index = |slot: u64| (slot % SLOTS as u64) as usize;
        let slot = (now.as_nanos() / SLOT_NANOS).max(self.slot);
        let here = &mut self.recent[index(self.slot)];
        *here = (*here).max(self.balance);
        for passed in 1..=(slot - self.slot).min(SLOTS as u64) {
            let reused = &mut self.recent[index(self.slot + passed)];
            self.peak = self.peak.max(*reused);
            *reused = self.balance;
        }
        if slot - self.slot > SLOTS as u64 {
            self.peak = self.peak.max(self.balance);
        }
        self.slot = slot;
    }

    fn burst(&self, datagram: u64) -> i128 {
        let least = i128::from(MIN_BURST_DATAGRAMS * datagram) * BYTE;
        self.earned_in(GRANULARITY).max(least)
    }

    fn earned_in(&self, duration: Duration) -> i128 {
        i128::from(self.rate.get()) * i128::from(nanos(duration))
    }

    /// Rounded up, and never nothing.
    fn time_to_earn(&self, missing: i128) -> Duration {
        let rate = u128::from(self.rate.get());
        let nanos = missing.max(1).unsigned_abs().div_ceil(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;

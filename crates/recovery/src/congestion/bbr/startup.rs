//! When the pipe is full: the plateau of the delivery rate and the losses that end Startup
//! (draft §5.3.1).
//!
//! `FullPipe` serves Startup and ProbeBW_UP; `LossExit` counts lost ranges per round. Both only
//! answer; `Bbr` changes the state.

use crate::congestion::interface::{AckSample, LostPacket};

/// Rounds without growth that make a plateau (§5.3.1.2).
const PLATEAU_ROUNDS: u8 = 3;
/// Separate lost ranges in one round without which losses do not end Startup (§2.13).
const FULL_LOSS_RANGES: u32 = 6;

/// The plateau detector.
#[derive(Clone, Debug, Default)]
pub(super) struct FullPipe {
    /// The pipe was full once: Startup is over.
    pub(super) reached: bool,
    /// It is full in the present search.
    pub(super) now: bool,
    /// The latest round delivered so much more than those before it.
    pub(super) growing: bool,
    /// A round of this search did so.
    pub(super) grew: bool,
    bw: u64,
    count: u8,
}

impl FullPipe {
    /// Starts a new search from a baseline; zero for none.
    pub(super) fn restart(&mut self, bw: u64) {
        self.now = false;
        self.count = 0;
        self.bw = bw;
        self.grew = false;
    }

    /// Looks at an ACK; once per round, and only where the application did not limit the rate.
    pub(super) fn on_ack(&mut self, sample: &AckSample, round_start: bool) {
        if !round_start {
            return;
        }
        self.growing = sample
            .delivery_rate
            .is_some_and(|rate| u128::from(rate) * 4 >= u128::from(self.bw) * 5);
        if self.now || sample.app_limited {
            return;
        }
        // No rate at all says nothing about growth.
        let Some(rate) = sample.delivery_rate else {
            return;
        };
        if self.growing {
            self.restart(rate);
            self.grew = true;
            return;
        }
        self.count += 1;
        self.now = self.count >= PLATEAU_ROUNDS;
        self.reached |= self.now;
    }
}

/// Lost ranges of the present round.
#[derive(Clone, Debug, Default)]
pub(super) struct LossExit {
    ranges: u32,
    last: Option<u64>,
}

impl LossExit {
    /// Counts ranges, not packets: a burst is reported in several batches and is still one event.
    pub(super) fn on_lost(&mut self, packet: &LostPacket) {
        if self
            .last
            .is_none_or(|last| packet.packet_number != last + 1)
        {
            self.ranges = self.ranges.saturating_add(1);
        }
        self.last = Some(packet.packet_number);
    }

    /// At the end of a round: whether its losses were enough events. Starts the next count.
    pub(super) fn end_round(&mut self) -> bool {
        core::mem::take(&mut self.ranges) >= FULL_LOSS_RANGES
    }
}

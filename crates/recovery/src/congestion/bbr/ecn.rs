//! Congestion Experienced marks as congestion (draft §3.7 leaves the response open).
//!
//! The values are those BBRv2 was deployed with: the share of marked packets is smoothed over
//! rounds, a round with marks takes a third of it off the short-term volume, and a round with more
//! marked packets than not counts as too much in flight. Fed by each ACK; answers once per round.

/// Millionths.
const ONE: u64 = 1_000_000;
/// Weight of the newest round is 1/16.
const ALPHA_SHIFT: u32 = 4;
/// Share of alpha that the volume loses, in hundredths.
const FACTOR: u64 = 33;
/// Rounds of mostly marked packets that end Startup.
const FULL_ROUNDS: u8 = 2;

#[derive(Clone, Debug)]
pub(super) struct Ecn {
    /// Smoothed share of marked packets in millionths; starts high so that the first mark counts.
    alpha: u64,
    packets: u64,
    marks: u64,
    high_rounds: u8,
}

/// What the marks of a round that just ended ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundMarks {
    /// Share of the short-term volume to give up, in millionths.
    pub(super) cut: u64,
    /// More than half of the packets were marked.
    pub(super) too_high: bool,
    /// That for long enough to end Startup.
    pub(super) ends_startup: bool,
}

impl Ecn {
    pub(super) fn new() -> Self {
        Self {
            alpha: ONE,
            packets: 0,
            marks: 0,
            high_rounds: 0,
        }
    }

    /// Counts packets acknowledged and marks reported.
    pub(super) fn on_ack(&mut self, packets: u64, marks: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.marks = self.marks.saturating_add(marks);
    }

    /// A round ended.
    pub(super) fn end_round(&mut self) -> RoundMarks {
        let marks = core::mem::take(&mut self.marks);
        let packets = core::mem::take(&mut self.packets).max(marks).max(1);
        let share = (u128::from(marks) * u128::from(ONE) / u128::from(packets)) as u64;
        self.alpha = self.alpha - (self.alpha >> ALPHA_SHIFT) + (share >> ALPHA_SHIFT);
        let too_high = share > ONE / 2;
        self.high_rounds = match too_high {
            true => self.high_rounds.saturating_add(1),
            false => 0,
        };
        RoundMarks {
            cut: match marks > 0 {
                true => (self.alpha * FACTOR / 100).max(1),
                false => 0,
            },
            too_high,
            ends_startup: self.high_rounds >= FULL_ROUNDS,
        }
    }
}

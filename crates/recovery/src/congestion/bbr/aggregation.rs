//! How much more than expected is acknowledged at once (draft §5.5.9).
//!
//! Wi-Fi, cellular links and thinned ACKs deliver in lumps; the window must cover the silences
//! between them. Fed by each ACK, read for the window.

use towline_wire::Time;

use super::units::carried;

/// The maximum holds this many rounds and the present one (§2.12).
const FILTER_LENGTH: usize = 10;
/// The same in Startup.
const FILTER_LENGTH_STARTUP: usize = 1;

#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    /// Start of the present lump; `None` before the first ACK.
    start: Option<Time>,
    delivered: u64,
    /// Largest excess of each of the latest rounds, the present one at `round % len`.
    maxima: [u64; FILTER_LENGTH + 1],
    round: u64,
    extra: u64,
}

impl Aggregation {
    pub(super) fn new() -> Self {
        Self {
            start: None,
            delivered: 0,
            maxima: [0; FILTER_LENGTH + 1],
            round: 0,
            extra: 0,
        }
    }

    /// Bytes acknowledged in excess of the bandwidth lately.
    pub(super) fn extra_acked(&self) -> u64 {
        self.extra
    }

    /// Sending starts again after a pause: neither its time nor what was acknowledged before is
    /// part of a lump.
    pub(super) fn on_restart(&mut self, now: Time) {
        self.start = Some(now);
        self.delivered = 0;
    }

    pub(super) fn on_ack(
        &mut self,
        now: Time,
        acked: u64,
        bw: u64,
        window: u64,
        round: u64,
        in_startup: bool,
    ) {
        let start = *self.start.get_or_insert(now);
        let mut expected = carried(bw, now.saturating_duration_since(start));
        if self.delivered <= expected {
            self.delivered = 0;
            self.start = Some(now);
            expected = 0;
        }
        self.delivered = self.delivered.saturating_add(acked);
        let excess = self.delivered.saturating_sub(expected).min(window);

        let length = self.maxima.len();
        let slot = |round: u64| (round % length as u64) as usize;
        for passed in 1..=round.saturating_sub(self.round).min(length as u64) {
            self.maxima[slot(self.round.wrapping_add(passed))] = 0;
        }
        self.round = round;
        let present = slot(round);
        self.maxima[present] = self.maxima[present].max(excess);
        let memory = match in_startup {
            true => FILTER_LENGTH_STARTUP,
            false => FILTER_LENGTH,
        };
        self.extra = (0..=memory)
            .map(|back| self.maxima[(present + length - back) % length])
            .max()
            .unwrap_or(0);
    }
}

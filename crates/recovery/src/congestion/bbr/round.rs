//! The packet-timed round trip that BBR restarts whenever it changes what it sends (draft §5.5.1),
//! and the count of bytes that it goes by.

use crate::congestion::interface::AckSample;

#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub(super) count: u64,
    /// Whether the present ACK starts a round.
    pub(super) start: bool,
    /// All bytes delivered.
    pub(super) delivered: u64,
    next_delivered: u64,
}

impl Round {
    /// The first round on another path; the bytes go on.
    pub(super) fn renewed(&self) -> Self {
        Self {
            delivered: self.delivered,
            ..Self::default()
        }
    }

    /// A round starts with what is sent from now on.
    pub(super) fn restart(&mut self) {
        self.next_delivered = self.delivered;
    }

    pub(super) fn on_ack(&mut self, sample: &AckSample) {
        self.start = sample.prior_delivered >= self.next_delivered;
        if self.start {
            self.next_delivered = sample.delivered;
            self.count = self.count.saturating_add(1);
        }
    }
}

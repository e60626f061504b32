//! The anti-amplification limit (RFC 9000 §8.1): at most three times what was received.

/// Factor between bytes received and bytes that may be sent to an unproven address.
/// Before the address is proven (RFC 9000 §8).
const LIMIT: u64 = 3;

#[derive(Debug)]
pub(crate) struct Amplification {
    validated: bool,
    received: u64,
    sent: u64,
}

impl Amplification {
    pub(crate) fn new(validated: bool) -> Self {
        Self {
            validated,
            received: 0,
            sent: 0,
        }
    }

    pub(crate) fn validate(&mut self) {
        self.validated = true;
    }

    pub(crate) fn on_received(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes as u64);
    }

    pub(crate) fn on_sent(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
        debug_assert!(self.validated || self.sent <= self.received * LIMIT);
    }

    pub(crate) fn budget(&self) -> u64 {
        if self.validated {
            return u64::MAX;
        }
        self.received
            .saturating_mul(LIMIT)
            .saturating_sub(self.sent)
    }
}

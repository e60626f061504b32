//! What is in flight on a path, and whether it fills what window and pacer allow.
//!
//! `Recovery` tells it of each packet in flight that leaves, of all bytes whose fate is known, and
//! of what the pacer answered. Only the ACKs of a full flight may grow the window (RFC 9002 §7.8).

/// Bytes in flight on a path, of all spaces together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flight {
    bytes: u64,
    /// Bytes that ever left flight: acknowledged, lost or discarded.
    settled: u64,
    /// Bytes up to which flights filled the window: growth counts while `settled` is below.
    utilised_until: u64,
    /// The same before the pacer refused, until it is known whether there was something to send.
    utilised_before_wait: Option<u64>,
}

impl Flight {
    /// Bytes sent that are neither acknowledged nor lost.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The path is in use again, and so much of what was sent on it is still in flight.
    pub(crate) fn restart(&mut self, bytes: u64) {
        *self = Self {
            bytes,
            ..Self::default()
        };
    }

    /// A packet in flight was sent.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// The fate of so many bytes is known.
    #[inline]
    pub(crate) fn settle(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "only bytes in flight can leave it");
        self.bytes = self.bytes.saturating_sub(bytes);
        self.settled += bytes;
    }

    /// Whether what is settled next belongs to a flight that was full.
    #[inline]
    pub(crate) fn is_utilised(&self) -> bool {
        self.settled < self.utilised_until
    }

    /// All that is in flight was sent as fast as window and pacer allow: its ACKs may grow the
    /// window. Kept as a byte count, so that neither several ACKs handled before the next send
    /// nor an application that stops after a full flight looks like an unused window.
    #[inline]
    pub(crate) fn on_utilised(&mut self) {
        self.utilised_before_wait = None;
        self.utilised_until = self.settled.saturating_add(self.bytes);
    }

    /// The pacer refused: the flight is full, unless nobody wanted to send.
    #[inline]
    pub(crate) fn on_paced(&mut self) {
        let before = self.utilised_before_wait.unwrap_or(self.utilised_until);
        self.on_utilised();
        self.utilised_before_wait = Some(before);
    }

    /// There is something to send, or it may be sent: the last refusal counts.
    #[inline]
    pub(crate) fn on_wanted(&mut self) {
        self.utilised_before_wait = None;
    }

    /// There is nothing to send: the last refusal held nobody back.
    #[inline]
    pub(crate) fn on_app_limited(&mut self) {
        if let Some(before) = self.utilised_before_wait.take() {
            self.utilised_until = before;
        }
    }
}

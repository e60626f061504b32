//! Persistent congestion: a run of losses longer than three PTOs (RFC 9002 §7.6).
//!
//! Each space keeps one run of consecutive losses. Loss detection walks the packets in order and
//! tells it of every loss and of every acknowledged packet between, so a run may span several ACKs
//! but never an acknowledged packet. It decides nothing; `Recovery` compares the span.

use core::time::Duration;

use towline_wire::Time;

/// The duration's multiple of the PTO, RFC 9002's `kPersistentCongestionThreshold`.
/// RFC 9002 §7.6.1.
pub(crate) const THRESHOLD: u32 = 3;

/// The current run of lost packets of one space.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossRun {
    run: Option<Run>,
}

#[derive(Clone, Debug)]
struct Run {
    first_packet: u64,
    last_packet: u64,
    first_sent: Time,
}

impl LossRun {
    /// An ack-eliciting packet sent after the first RTT sample was lost. Returns when the first
    /// packet of the run was sent, and the time from there to this one.
    pub(crate) fn on_lost(&mut self, packet_number: u64, sent_time: Time) -> (Time, Duration) {
        let run = self.run.get_or_insert(Run {
            first_packet: packet_number,
            last_packet: packet_number,
            first_sent: sent_time,
        });
        run.last_packet = packet_number;
        (
            run.first_sent,
            sent_time.saturating_duration_since(run.first_sent),
        )
    }

    /// The next packet in order was acknowledged: the run ends here.
    pub(crate) fn cut(&mut self) {
        self.run = None;
    }

    /// A packet declared lost was acknowledged after all.
    pub(crate) fn on_late_ack(&mut self, packet_number: u64) {
        if self
            .run
            .as_ref()
            .is_some_and(|run| (run.first_packet..=run.last_packet).contains(&packet_number))
        {
            self.run = None;
        }
    }
}

#[cfg(test)]
mod tests;

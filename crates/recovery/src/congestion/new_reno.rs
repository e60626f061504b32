//! NewReno as RFC 9002 §7 and Appendix B have it: the reference every other controller is held to.
//!
//! Slow start by bytes acknowledged, one datagram per window acknowledged after it, half the
//! window on a loss or CE mark, once per recovery period. A spurious reduction it does not undo
//! itself: `Recovery` puts it back as it was.

use towline_wire::Time;

use super::hystart::{HyStart, N_RTT_SAMPLE};
use super::interface::{
    AckSample, CongestionController, Handover, LEAST_ACKS_OTHERWISE, LeastAckRate, LossSample,
    opens_recovery,
};
use super::window::{initial_window, minimum_window, resized_window};

/// RFC 9002's `kLossReductionFactor`, 0.5.
const LOSS_REDUCTION_DIVISOR: u64 = 2;

/// The controller of RFC 9002.
#[derive(Clone, Debug)]
pub struct NewReno {
    max_datagram_size: u16,
    window: u64,
    ssthresh: Option<u64>,
    recovery_start: Option<Time>,
    /// Bytes acknowledged in avoidance that have not grown the window yet.
    acked: u64,
    hystart: HyStart,
    hystart_wanted: bool,
    paced: bool,
}

impl NewReno {
    /// A controller at its initial window.
    pub fn new(max_datagram_size: u16, hystart: bool, paced: bool) -> Self {
        Self {
            max_datagram_size,
            window: initial_window(max_datagram_size),
            ssthresh: None,
            recovery_start: None,
            acked: 0,
            hystart: HyStart::new(hystart, paced),
            hystart_wanted: hystart,
            paced,
        }
    }

    /// A loss or a mark ends slow start (RFC 9002 §7.3.1) and halves the window (§7.3.2).
    fn on_congestion(&mut self, now: Time, sent: Time) -> bool {
        if !opens_recovery(self.recovery_start, sent) {
            return false;
        }
        self.recovery_start = Some(now);
        let ssthresh = self.window / LOSS_REDUCTION_DIVISOR;
        self.window = ssthresh.max(minimum_window(self.max_datagram_size));
        self.ssthresh = Some(ssthresh);
        self.acked = 0;
        self.hystart.stop();
        true
    }
}

impl CongestionController for NewReno {
    fn on_ack(&mut self, sample: &AckSample) -> bool {
        if sample.ce_marks > 0 && self.on_congestion(sample.now, sample.newest_sent_time) {
            return true;
        }
        // A loss seen in the same ACK may have opened recovery after the bytes were counted.
        let acked = sample.acked_bytes_after_recovery;
        let in_recovery = !opens_recovery(self.recovery_start, sample.newest_sent_time);
        if in_recovery || !sample.cwnd_limited || acked == 0 {
            return false;
        }
        let datagram = u64::from(self.max_datagram_size);
        if self.in_slow_start() {
            let growth = self.hystart.on_ack(sample, acked, datagram);
            self.window = self.window.saturating_add(growth.bytes);
            if growth.leave {
                self.ssthresh = Some(self.window);
            }
            return false;
        }
        self.acked = self.acked.saturating_add(acked);
        if self.acked >= self.window {
            // At most one datagram a window (RFC 9002 §7.3.3).
            self.acked -= self.window;
            self.window = self.window.saturating_add(datagram);
        }
        false
    }

    fn on_lost(&mut self, sample: &LossSample<'_>) -> bool {
        self.on_congestion(sample.now, sample.largest_sent_time)
    }

    fn on_persistent_congestion(&mut self, _now: Time) {
        // RFC 9002 §7.6.2.
        self.window = minimum_window(self.max_datagram_size);
        self.recovery_start = None;
        self.acked = 0;
    }

    fn on_max_datagram_size(&mut self, max_datagram_size: u16, during_handshake: bool) {
        let old = self.max_datagram_size;
        self.max_datagram_size = max_datagram_size;
        self.window = resized_window(self.window, old, max_datagram_size, during_handshake);
    }

    fn on_path_change(&mut self, now: Time, max_datagram_size: u16) {
        *self = Self::new(max_datagram_size, self.hystart_wanted, self.paced);
        // Fates of packets sent on the old path say nothing about this one.
        self.recovery_start = Some(now);
    }

    fn take_over(&mut self, handover: &Handover) {
        self.window = handover.window.max(minimum_window(self.max_datagram_size));
        if !handover.in_slow_start {
            self.ssthresh = Some(self.window);
            self.hystart.stop();
        }
        // What was sent before was not sent under this controller.
        self.recovery_start = Some(handover.now);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn ssthresh(&self) -> Option<u64> {
        self.ssthresh
    }

    fn recovery_start(&self) -> Option<Time> {
        self.recovery_start
    }

    fn least_ack_rate(&self) -> LeastAckRate {
        match self.in_slow_start() && self.hystart.is_active() {
            true => LeastAckRate {
                per_round: N_RTT_SAMPLE,
            },
            false => LEAST_ACKS_OTHERWISE,
        }
    }
}

#[cfg(test)]
mod tests;

//! CUBIC (RFC 9438): the window follows a cubic of the time since the last reduction.
//!
//! With HyStart++ in the first slow start, fast convergence, the Reno-friendly region, time spent
//! application-limited taken out of the curve, and spurious reductions undone (§4.9.2). Windows
//! are fractions of a byte here, because a truncated byte per ACK is a sixth of the growth.

use core::time::Duration;

use towline_wire::Time;

use super::hystart::{HyStart, N_RTT_SAMPLE};
use super::interface::{
    AckSample, CongestionController, Handover, LEAST_ACKS_OTHERWISE, LeastAckRate, LossSample,
    SendSample, opens_recovery,
};
use super::window::{initial_window, minimum_window, resized_window};

/// Multiplicative decrease (§4.6).
const BETA: f64 = 0.7;
/// Aggressiveness in segments per second cubed (§5.1).
const C: f64 = 0.4;
/// Reno-friendly additive increase, `3 * (1 - BETA) / (1 + BETA)` (§4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The target never asks for more than half a window of growth per round trip (§4.2).
const MAX_GROWTH: f64 = 1.5;

/// The controller of RFC 9438.
#[derive(Clone, Debug)]
pub struct Cubic {
    max_datagram_size: u16,
    recovery_start: Option<Time>,
    hystart: HyStart,
    hystart_wanted: bool,
    paced: bool,
    /// The next epoch starts at its plateau: after persistent congestion (§4.8).
    after_timeout: bool,
    curve: Curve,
    /// Until the reduction has proved right; most connections never have one.
    undo: Option<Box<Undo>>,
    /// Newest ACK or restart from idle in this epoch.
    last_active: Time,
}

/// All that a congestion event changes and an undo restores.
#[derive(Clone, Copy, Debug)]
struct Curve {
    window: f64,
    /// Infinite before the first event.
    ssthresh: f64,
    window_prior: f64,
    window_max: f64,
    /// Seconds from the start of the epoch to the plateau.
    k: f64,
    epoch: Option<Time>,
    /// Time in the epoch during which the window was not in use.
    idle: Duration,
    /// What Reno would have by now.
    window_reno: f64,
}

#[derive(Clone, Debug)]
struct Undo {
    curve: Curve,
    recovery_start: Option<Time>,
    hystart: HyStart,
    last_active: Time,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Signal {
    Loss,
    Mark,
}

impl Cubic {
    /// A controller at its initial window.
    pub fn new(max_datagram_size: u16, hystart: bool, paced: bool) -> Self {
        Self {
            max_datagram_size,
            recovery_start: None,
            hystart: HyStart::new(hystart, paced),
            hystart_wanted: hystart,
            paced,
            after_timeout: false,
            curve: Curve {
                window: initial_window(max_datagram_size) as f64,
                ssthresh: f64::INFINITY,
                window_prior: 0.0,
                window_max: 0.0,
                k: 0.0,
                epoch: None,
                idle: Duration::ZERO,
                window_reno: 0.0,
            },
            undo: None,
            last_active: Time::ZERO,
        }
    }

    fn datagram(&self) -> f64 {
        f64::from(self.max_datagram_size)
    }

    fn on_congestion(&mut self, now: Time, sent: Time, flight: f64, signal: Signal) -> bool {
        if !opens_recovery(self.recovery_start, sent) {
            return false;
        }
        // CE marks are never spurious.
        self.undo = (signal == Signal::Loss).then(|| {
            Box::new(Undo {
                curve: self.curve,
                recovery_start: self.recovery_start,
                hystart: self.hystart,
                last_active: self.last_active,
            })
        });
        let datagram = self.datagram();
        let curve = &mut self.curve;
        // Fast convergence (§4.7): a flow that lost ground makes room for a newcomer.
        curve.window_max = match curve.window < curve.window_max {
            true => curve.window * (1.0 + BETA) / 2.0,
            false => curve.window,
        };
        let reduced = flight * BETA;
        curve.window_prior = curve.window;
        // RFC 9002 §7.2 bounds the response to a mark as well; RFC 9438 §4.6 would allow one datagram.
        curve.window = reduced.max(2.0 * datagram);
        curve.ssthresh = curve.window;
        curve.epoch = None;
        self.recovery_start = Some(now);
        self.hystart.stop();
        true
    }

    /// The flight a reduction starts from. While the window is in use that is the window: several
    /// ACKs handled before the next send would make the bytes in flight look smaller than the
    /// flight that met the loss.
    fn flight(&self, cwnd_limited: bool, bytes_in_flight_before: u64) -> f64 {
        match cwnd_limited {
            true => self.curve.window,
            false => self.curve.window.min(bytes_in_flight_before as f64),
        }
    }

    fn avoid(&mut self, now: Time, acked: f64, smoothed_rtt: Duration) {
        let datagram = self.datagram();
        let curve = &mut self.curve;
        let epoch = match curve.epoch {
            Some(epoch) => epoch,
            None => {
                curve.epoch = Some(now);
                curve.idle = Duration::ZERO;
                curve.window_reno = curve.window;
                self.last_active = now;
                if self.after_timeout || curve.window_max <= curve.window {
                    curve.window_max = curve.window;
                    curve.k = 0.0;
                } else {
                    let segments = (curve.window_max - curve.window) / datagram;
                    curve.k = cube_root(segments / C);
                }
                self.after_timeout = false;
                now
            }
        };
        let elapsed = now
            .saturating_duration_since(epoch)
            .saturating_sub(curve.idle);
        let cubic = |t: Duration| {
            let x = t.as_secs_f64() - curve.k;
            C * x * x * x * datagram + curve.window_max
        };
        let now_at = cubic(elapsed);
        let target = cubic(elapsed.saturating_add(smoothed_rtt))
            .clamp(curve.window, MAX_GROWTH * curve.window);
        let alpha = if curve.window_reno >= curve.window_prior {
            1.0
        } else {
            ALPHA
        };
        curve.window_reno += alpha * datagram * acked / curve.window;
        if now_at < curve.window_reno {
            curve.window = curve.window.max(curve.window_reno);
        } else {
            curve.window += (target - curve.window) * acked / curve.window;
        }
    }

    /// Takes `since..now` out of the curve's time.
    fn take_out_idle(&mut self, now: Time) {
        if self.curve.epoch.is_some() {
            let gap = now.saturating_duration_since(self.last_active);
            self.curve.idle = self.curve.idle.saturating_add(gap);
            self.last_active = now;
        }
    }
}

impl CongestionController for Cubic {
    fn on_sent(&mut self, sample: &SendSample) {
        if sample.bytes_in_flight == 0 {
            self.take_out_idle(sample.now);
        }
    }

    fn on_ack(&mut self, sample: &AckSample) -> bool {
        if sample.ce_marks > 0 {
            let flight = self.flight(sample.cwnd_limited, sample.bytes_in_flight_before);
            let sent = sample.newest_sent_time;
            if self.on_congestion(sample.now, sent, flight, Signal::Mark) {
                return true;
            }
        }
        if !sample.cwnd_limited {
            self.take_out_idle(sample.now);
            return false;
        }
        // A loss seen in the same ACK may have opened recovery after the bytes were counted.
        let acked = sample.acked_bytes_after_recovery;
        if !opens_recovery(self.recovery_start, sample.newest_sent_time) || acked == 0 {
            return false;
        }
        if self.in_slow_start() {
            let datagram = u64::from(self.max_datagram_size);
            let growth = self.hystart.on_ack(sample, acked, datagram);
            self.curve.window += growth.bytes as f64;
            if growth.leave {
                self.curve.ssthresh = self.curve.window;
            }
        } else {
            self.avoid(sample.now, acked as f64, sample.smoothed_rtt);
            self.last_active = sample.now;
        }
        false
    }

    fn on_lost(&mut self, sample: &LossSample<'_>) -> bool {
        let flight = self.flight(sample.cwnd_limited, sample.bytes_in_flight_before);
        self.on_congestion(sample.now, sample.largest_sent_time, flight, Signal::Loss)
    }

    fn on_spurious_loss(&mut self, now: Time) -> bool {
        let Some(undo) = self.undo.take() else {
            return false;
        };
        if self.curve.window >= undo.curve.window {
            return false;
        }
        self.curve = undo.curve;
        self.recovery_start = undo.recovery_start;
        self.hystart = undo.hystart;
        self.last_active = undo.last_active;
        // The curve did not advance while the reduction lasted.
        self.take_out_idle(now);
        true
    }

    fn on_persistent_congestion(&mut self, _now: Time) {
        self.curve.window = minimum_window(self.max_datagram_size) as f64;
        self.curve.epoch = None;
        self.recovery_start = None;
        self.after_timeout = true;
        self.undo = None;
    }

    fn on_max_datagram_size(&mut self, max_datagram_size: u16, during_handshake: bool) {
        let (old, window) = (self.max_datagram_size, self.window());
        self.max_datagram_size = max_datagram_size;
        self.curve.window = resized_window(window, old, max_datagram_size, during_handshake) as f64;
    }

    fn on_path_change(&mut self, now: Time, max_datagram_size: u16) {
        *self = Self::new(max_datagram_size, self.hystart_wanted, self.paced);
        // Fates of packets sent on the old path say nothing about this one.
        self.recovery_start = Some(now);
    }

    fn take_over(&mut self, handover: &Handover) {
        let window = handover.window.max(minimum_window(self.max_datagram_size));
        self.curve.window = window as f64;
        if !handover.in_slow_start {
            self.curve.ssthresh = window as f64;
            self.hystart.stop();
        }
        // What was sent before was not sent under this controller.
        self.recovery_start = Some(handover.now);
        self.last_active = handover.now;
    }

    fn window(&self) -> u64 {
        self.curve.window as u64
    }

    fn ssthresh(&self) -> Option<u64> {
        self.curve
            .ssthresh
            .is_finite()
            .then_some(self.curve.ssthresh as u64)
    }

    fn in_slow_start(&self) -> bool {
        self.curve.window < self.curve.ssthresh
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

/// Cube root by Newton's method: the platform's own differs in the last bit from one C library to
/// the next, and a seed must give the same trace everywhere.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // A third of the exponent is a guess within 6 %; four steps are more than enough.
    let guess = x.to_bits() / 3 + 0x2A9F_7893_0000_0000;
    let mut root = f64::from_bits(guess);
    for _ in 0..4 {
        root = (2.0 * root + x / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests;

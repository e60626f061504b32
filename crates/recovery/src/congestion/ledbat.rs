//! LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus): a background flow that steps aside when the
//! queue it shares with others grows.
//!
//! `Ledbat` is the controller of one connection; `Core` is its window machine in packets, which
//! `host` drives with the ACKs of many connections; `delay` tells it how long the queue is. The
//! signal is the round trip less the ACK delay, not the one-way delay. A probe timeout never
//! reaches it: only losses, CE marks and persistent congestion do.

mod comeback;
mod delay;

use core::time::Duration;

use towline_wire::Time;

use self::comeback::Comeback;
pub(super) use delay::QueueDelay;

use super::interface::{
    AckSample, CongestionController, Handover, LeastAckRate, LossSample, SendSample, opens_recovery,
};
use crate::pacing;
use crate::rtt::{GRANULARITY, nanos};

/// The queue delay that the draft aims at (§4.5).
pub const LEDBAT_TARGET: Duration = Duration::from_millis(60);

/// The largest divisor of the gain (§4.2).
const MAX_GAIN_DIVISOR: u64 = 16;
/// Slow start ends at three quarters of the target (§4.1).
const EXIT: f64 = 0.75;
/// The constant C of the multiplicative decrease (§4.3).
const DECREASE: f64 = 1.0;
/// The window at start, in a slowdown and at the least (RFC 6817 §2.4.1), in packets.
const LEAST_WINDOW: f64 = 2.0;
/// Below this a slowdown has nothing to drain.
const SLOWDOWN_WINDOW: f64 = 4.0;
/// A slowdown costs at most a tenth of the time: the next one waits nine times as long (§4.4).
const SLOWDOWN_SPACING: u32 = 9;
/// For the host's controller a fortieth, since that tenth is what it left unused: the base it looks
/// for holds for ten minutes.
const SLOWDOWN_SPACING_HOST: u32 = 39;
/// A slowdown freezes the window for so many round trips; the first one waits as long (§4.4).
const FREEZE_ROUNDS: u32 = 2;

/// Samples per round trip that the filter of the current delay needs (RFC 6817 §2.4.1).
const LEAST_SAMPLES: LeastAckRate = LeastAckRate { per_round: 4 };

/// Pacing gains as fractions: above the window's own pace, so that the window decides.
const PACING_GAIN: (u64, u64) = (5, 4);
const PACING_GAIN_FROZEN: (u64, u64) = (1, 1);

/// The controller of one connection.
#[derive(Clone, Debug)]
pub struct Ledbat {
    max_datagram_size: u16,
    core: Core,
    delay: QueueDelay,
    smoothed_rtt: Option<Duration>,
}

impl Ledbat {
    /// A controller at its initial window, aiming at the draft's 60 ms.
    pub fn new(max_datagram_size: u16) -> Self {
        Self::with_target(max_datagram_size, LEDBAT_TARGET)
    }

    /// As `new`, aiming at another queue delay. Zero would never send more than two datagrams a
    /// round trip and is taken as 1 ms.
    pub fn with_target(max_datagram_size: u16, target: Duration) -> Self {
        Self {
            max_datagram_size,
            core: Core::new(target),
            delay: QueueDelay::default(),
            smoothed_rtt: None,
        }
    }

    /// The queue delay it sees now; `None` before the first sample.
    pub fn queue_delay(&self) -> Option<Duration> {
        self.delay.queue().map(Duration::from_nanos)
    }

    /// The lowest round trip of the last ten minutes; `None` before the first sample.
    pub fn base_delay(&self) -> Option<Duration> {
        self.delay.base().map(Duration::from_nanos)
    }

    fn packets(&self, bytes: u64) -> f64 {
        bytes as f64 / f64::from(self.max_datagram_size)
    }

    fn bytes(&self, packets: f64) -> u64 {
        (packets * f64::from(self.max_datagram_size)) as u64
    }
}

impl CongestionController for Ledbat {
    fn on_sent(&mut self, sample: &SendSample) {
        self.core.on_time(sample.now);
    }

    fn on_ack(&mut self, sample: &AckSample) -> bool {
        self.smoothed_rtt = Some(sample.smoothed_rtt);
        if let Some(rtt) = sample.adjusted_rtt
            && self.delay.on_sample(sample.now, rtt, sample.smoothed_rtt)
        {
            self.core.restart();
        }
        let reduced = sample.ce_marks > 0
            && self
                .core
                .on_congestion(sample.now, sample.newest_sent_time, sample.smoothed_rtt);
        self.core.on_ack(&Acked {
            now: sample.now,
            sent: sample.newest_sent_time,
            flight_then: self.packets(sample.tx_in_flight),
            flight: self.packets(sample.bytes_in_flight),
            packets: self.packets(sample.acked_bytes),
            growing: match sample.cwnd_limited && !reduced {
                true => self.packets(sample.acked_bytes_after_recovery),
                false => 0.0,
            },
            smoothed_rtt: sample.smoothed_rtt,
            base: self.delay.base(),
            queue: self.delay.queue(),
        });
        reduced
    }

    fn on_lost(&mut self, sample: &LossSample<'_>) -> bool {
        let rtt = self.smoothed_rtt.unwrap_or(GRANULARITY);
        self.core
            .on_congestion(sample.now, sample.largest_sent_time, rtt)
    }

    fn on_persistent_congestion(&mut self, now: Time) {
        self.core.on_persistent_congestion(now);
    }

    fn on_max_datagram_size(&mut self, max_datagram_size: u16, during_handshake: bool) {
        let lowered = max_datagram_size < self.max_datagram_size;
        let ratio = f64::from(self.max_datagram_size) / f64::from(max_datagram_size);
        self.max_datagram_size = max_datagram_size;
        match during_handshake && lowered {
            true => self.core.restart(),
            false => self.core.rescale(ratio),
        }
    }

    fn on_path_change(&mut self, now: Time, max_datagram_size: u16) {
        *self = Self::with_target(max_datagram_size, self.core.target());
        self.core.recovery_start = Some(now);
    }

    fn take_over(&mut self, handover: &Handover) {
        self.smoothed_rtt = Some(handover.smoothed_rtt);
        self.core.take_over(
            handover.now,
            self.packets(handover.window),
            handover.smoothed_rtt,
        );
    }

    fn next_timeout(&self) -> Option<Time> {
        self.core.next_timeout()
    }

    fn on_timeout(&mut self, now: Time) {
        self.core.on_time(now);
    }

    fn window(&self) -> u64 {
        self.bytes(self.core.window)
    }

    fn ssthresh(&self) -> Option<u64> {
        self.core
            .ssthresh
            .is_finite()
            .then(|| self.bytes(self.core.ssthresh))
    }

    fn in_slow_start(&self) -> bool {
        self.core.in_slow_start()
    }

    fn recovery_start(&self) -> Option<Time> {
        self.core.recovery_start
    }

    fn pacing_rate(&self) -> Option<u64> {
        pacing::rate(self.window(), self.core.pacing_gain(), self.smoothed_rtt?)
    }

    fn least_ack_rate(&self) -> LeastAckRate {
        LEAST_SAMPLES
    }
}

/// What an ACK means to the window machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    pub(super) now: Time,
    /// When the newest of them was sent, and the packets in flight after it.
    pub(super) sent: Time,
    pub(super) flight_then: f64,
    /// Packets in flight now.
    pub(super) flight: f64,
    /// Packets (and fractions) newly acknowledged.
    pub(super) packets: f64,
    /// Those of them that may grow the window.
    pub(super) growing: f64,
    pub(super) smoothed_rtt: Duration,
    /// Base and queue delay in nanoseconds, once known.
    pub(super) base: Option<u64>,
    pub(super) queue: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first one: ends when the queue grows.
    SlowStart,
    Avoidance,
    /// A slowdown: two packets in flight, so that the base delay shows.
    Frozen,
    /// Back to the threshold, whatever the delay: others' queues must not keep it down.
    Ramp,
    /// Slow start once more: those it made way for are gone.
    Comeback,
}

/// The window machine, in packets.
#[derive(Clone, Debug)]
pub(super) struct Core {
    phase: Phase,
    pub(super) window: f64,
    /// Infinite in the first slow start.
    pub(super) ssthresh: f64,
    /// Nanoseconds.
    target: u64,
    /// When the next slowdown is due.
    next_slowdown: Option<Time>,
    slowdown_start: Time,
    freeze_until: Time,
    /// The window when the slowdown began.
    window_before: f64,
    /// Base and queue delay then; for the first one, at the end of slow start.
    delay_before: (u64, u64),
    /// What the last slowdown took, ramp included.
    last_slowdown: Duration,
    /// The decrease of one round trip is at most half the window it began with (§4.3).
    decrease_until: Time,
    decrease_quota: f64,
    pub(super) recovery_start: Option<Time>,
    /// The flight of the first slow start is still above the window that ended it.
    draining: bool,
    /// Since when it is not: the queue that earlier packets met was that of a window given up.
    drained: Option<Time>,
    /// How long a slowdown waits, in lengths of the one before.
    slowdown_spacing: u32,
    /// Only the host's controller comes back faster than it grows.
    comeback: Option<Comeback>,
}

impl Core {
    /// The machine of a whole host, which leaves the draft in two places.
    pub(super) fn for_host(target: Duration) -> Self {
        Self {
            slowdown_spacing: SLOWDOWN_SPACING_HOST,
            comeback: Some(Comeback::default()),
            ..Self::new(target)
        }
    }

    pub(super) fn new(target: Duration) -> Self {
        Self {
            phase: Phase::SlowStart,
            window: LEAST_WINDOW,
            ssthresh: f64::INFINITY,
            target: nanos(target.max(GRANULARITY)),
            next_slowdown: None,
            slowdown_start: Time::ZERO,
            freeze_until: Time::ZERO,
            window_before: 0.0,
            delay_before: (0, 0),
            last_slowdown: Duration::ZERO,
            decrease_until: Time::ZERO,
            decrease_quota: 0.0,
            recovery_start: None,
            draining: false,
            drained: None,
            slowdown_spacing: SLOWDOWN_SPACING,
            comeback: None,
        }
    }

    /// Goes on from a window that another controller found, and soon looks for the base delay
    /// behind the queue that it may have built.
    pub(super) fn take_over(&mut self, now: Time, window: f64, smoothed_rtt: Duration) {
        self.window = window.max(LEAST_WINDOW);
        self.recovery_start = Some(now);
        self.end_slow_start(now, smoothed_rtt.max(GRANULARITY));
    }

    pub(super) fn target(&self) -> Duration {
        Duration::from_nanos(self.target)
    }

    /// Nothing is known of the path any more.
    pub(super) fn restart(&mut self) {
        *self = Self {
            recovery_start: self.recovery_start,
            slowdown_spacing: self.slowdown_spacing,
            comeback: self.comeback.as_ref().map(|_| Comeback::default()),
            ..Self::new(self.target())
        };
    }

    /// Packets changed their size; the window in bytes stays.
    pub(super) fn rescale(&mut self, ratio: f64) {
        self.window = (self.window * ratio).max(LEAST_WINDOW);
        self.ssthresh = (self.ssthresh * ratio).max(LEAST_WINDOW);
    }

    pub(super) fn in_slow_start(&self) -> bool {
        matches!(self.phase, Phase::SlowStart | Phase::Ramp | Phase::Comeback)
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.phase == Phase::Frozen
    }

    pub(super) fn pacing_gain(&self) -> (u64, u64) {
        match self.phase {
            Phase::Frozen => PACING_GAIN_FROZEN,
            _ => PACING_GAIN,
        }
    }

    /// Only the end of a freeze needs a timer: a slowdown starts with an ACK, and an idle
    /// connection is not woken for one.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.is_frozen().then_some(self.freeze_until)
    }

    /// Ends a freeze that is over.
    pub(super) fn on_time(&mut self, now: Time) {
        if self.is_frozen() && now >= self.freeze_until {
            self.phase = Phase::Ramp;
        }
    }

    /// The slowdown machine first, growth second: a ramp looked at as slow start would never end.
    pub(super) fn on_ack(&mut self, acked: &Acked) {
        let Acked { now, .. } = *acked;
        let round = acked.smoothed_rtt.max(GRANULARITY);
        self.on_time(now);
        if self.is_frozen() || self.starts_slowdown(acked, round) {
            return;
        }
        self.watch_for_comeback(acked, round);
        match self.phase {
            Phase::SlowStart | Phase::Comeback => {
                let queue = acked.queue.unwrap_or(0) as f64;
                if queue > EXIT * self.target as f64 {
                    // The queue is that of the flight one round trip ago. The window has grown
                    // since; left there, it would have to fall for a round trip and, on a long
                    // path, far below what the path holds.
                    self.window = self.window.min(acked.flight_then).max(LEAST_WINDOW);
                    self.draining = true;
                    self.drained = Some(now);
                    if self.phase == Phase::Comeback {
                        self.end_comeback(|comeback| comeback.on_queue(now));
                    } else {
                        self.delay_before = (acked.base.unwrap_or(0), acked.queue.unwrap_or(0));
                        self.end_slow_start(now, round);
                    }
                } else {
                    self.window += acked.growing * self.gain(acked.base);
                }
            }
            Phase::Ramp => {
                self.correct_threshold(acked.base);
                self.window += acked.packets;
                if self.window >= self.ssthresh {
                    self.window = self.ssthresh;
                    self.end_ramp(now, round);
                }
            }
            Phase::Avoidance => self.avoid(acked, round),
            Phase::Frozen => {}
        }
    }

    /// Begins a comeback once the path has been clear of others for long enough.
    fn watch_for_comeback(&mut self, acked: &Acked, round: Duration) {
        let (Some(comeback), Some(queue)) = (&mut self.comeback, acked.queue) else {
            return;
        };
        match self.phase {
            Phase::Avoidance if comeback.is_due(acked.now, queue, self.target, round) => {
                self.phase = Phase::Comeback;
            }
            Phase::Avoidance | Phase::Comeback => {}
            _ => comeback.interrupt(),
        }
    }

    fn end_comeback(&mut self, tell: impl FnOnce(&mut Comeback)) {
        self.ssthresh = self.window;
        self.phase = Phase::Avoidance;
        if let Some(comeback) = &mut self.comeback {
            tell(comeback);
        }
    }

    /// Begins a slowdown that is due.
    fn starts_slowdown(&mut self, acked: &Acked, round: Duration) -> bool {
        let now = acked.now;
        let due = self.next_slowdown.is_some_and(|at| now >= at);
        if self.phase != Phase::Avoidance || !due {
            return false;
        }
        // Nor has one while keep-alives are all there is in flight.
        if self.window.min(acked.flight_then) <= SLOWDOWN_WINDOW {
            self.schedule_slowdown(now, self.last_slowdown, round);
            return false;
        }
        if self.last_slowdown > Duration::ZERO {
            self.delay_before = (acked.base.unwrap_or(0), acked.queue.unwrap_or(0));
        }
        self.window_before = self.window;
        self.ssthresh = self.window;
        self.window = LEAST_WINDOW;
        self.slowdown_start = now;
        self.freeze_until = now + round.saturating_mul(FREEZE_ROUNDS);
        self.next_slowdown = None;
        self.phase = Phase::Frozen;
        true
    }

    /// A slowdown that finds a lower base shows a latecomer: it took the queue of others for the
    /// path, and its window by driving them away. The threshold gives up what §4.3 would have
    /// taken in one round trip had the base been known.
    fn correct_threshold(&mut self, base: Option<u64>) {
        let (base_before, queue) = self.delay_before;
        let hidden = base.map_or(0, |base| base_before.saturating_sub(base));
        let decrease = |queue: u64| {
            let excess = queue as f64 / self.target as f64 - 1.0;
            (DECREASE * excess).clamp(0.0, 0.5)
        };
        let missed = decrease(queue.saturating_add(hidden)) - decrease(queue);
        let threshold = (self.window_before * (1.0 - missed)).max(LEAST_WINDOW);
        self.ssthresh = self.ssthresh.min(threshold);
    }

    /// Nine times what the last one took, and never less than nine times the freeze: with one
    /// round trip as the floor a flow would do nothing but slow down.
    fn schedule_slowdown(&mut self, now: Time, took: Duration, round: Duration) {
        let took = took.max(round.saturating_mul(FREEZE_ROUNDS));
        self.next_slowdown = Some(now + took.saturating_mul(self.slowdown_spacing));
    }

    fn end_slow_start(&mut self, now: Time, round: Duration) {
        self.ssthresh = self.window;
        self.phase = Phase::Avoidance;
        self.next_slowdown = Some(now + round.saturating_mul(FREEZE_ROUNDS));
    }

    fn end_ramp(&mut self, now: Time, round: Duration) {
        self.last_slowdown = now.saturating_duration_since(self.slowdown_start);
        self.schedule_slowdown(now, self.last_slowdown, round);
        self.phase = Phase::Avoidance;
    }

    /// The gain is constant: RFC 6817's, proportional to the distance from the target, lets the
    /// larger of two flows grow faster.
    fn avoid(&mut self, acked: &Acked, round: Duration) {
        let gain = self.gain(acked.base);
        let target = self.target as f64;
        let queue = acked.queue.unwrap_or(0) as f64;
        if queue <= target {
            self.window += acked.growing * gain / self.window;
            return;
        }
        if self.draining {
            self.drained = Some(acked.now);
            self.draining = acked.flight > self.window;
        }
        if self.drained.is_some_and(|end| acked.sent <= end) {
            return;
        }
        if acked.now >= self.decrease_until {
            self.decrease_until = acked.now + round;
            self.decrease_quota = self.window / 2.0;
        }
        let per_window = DECREASE * self.window * (queue / target - 1.0) - gain;
        let decrease = (acked.packets * per_window / self.window).min(self.decrease_quota);
        if decrease > 0.0 {
            self.decrease_quota -= decrease;
            self.window = (self.window - decrease).max(LEAST_WINDOW);
        } else {
            // Barely above the target the gain still outweighs the decrease.
            let share = acked.growing / acked.packets.max(f64::MIN_POSITIVE);
            self.window -= decrease * share.min(1.0);
        }
    }

    /// 1/F with F = min(16, ceil(2 * target / base)) (§4.2): a short path must not out-grow the
    /// TCP flows beside it.
    fn gain(&self, base: Option<u64>) -> f64 {
        let base = base.unwrap_or(u64::MAX).max(1);
        let divisor = self.target.saturating_mul(2).div_ceil(base);
        1.0 / divisor.clamp(1, MAX_GAIN_DIVISOR) as f64
    }

    /// A loss or a CE mark of something sent at `sent`: halves, once per round trip.
    pub(super) fn on_congestion(&mut self, now: Time, sent: Time, smoothed_rtt: Duration) -> bool {
        if !opens_recovery(self.recovery_start, sent) {
            return false;
        }
        self.recovery_start = Some(now);
        let round = smoothed_rtt.max(GRANULARITY);
        if self.is_frozen() {
            self.ssthresh = (self.ssthresh / 2.0).max(LEAST_WINDOW);
            return true;
        }
        self.window = (self.window / 2.0).max(LEAST_WINDOW);
        self.ssthresh = self.window;
        match self.phase {
            Phase::SlowStart => self.end_slow_start(now, round),
            Phase::Ramp => self.end_ramp(now, round),
            Phase::Comeback => self.end_comeback(Comeback::on_loss),
            Phase::Avoidance => {
                if let Some(comeback) = &mut self.comeback {
                    comeback.on_late_loss(sent);
                }
            }
            Phase::Frozen => {}
        }
        true
    }

    /// Back to two packets and up again, without an exit on delay; the base delay stays known.
    pub(super) fn on_persistent_congestion(&mut self, now: Time) {
        // The loss that led here has halved window and threshold already.
        self.ssthresh = self.window.max(LEAST_WINDOW);
        self.window = LEAST_WINDOW;
        self.slowdown_start = now;
        self.window_before = self.ssthresh;
        self.delay_before = (0, 0);
        self.next_slowdown = None;
        self.recovery_start = None;
        self.phase = Phase::Ramp;
    }
}

#[cfg(test)]
mod tests;

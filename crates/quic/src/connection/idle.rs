//! When silence is the end, and how it is broken (RFC 9000 §10.1).
//!
//! Owns the rules of the idle timeout, keep-alive and the receiver's liveness probes; the
//! deadlines themselves stand in `timers`.

use std::time::Duration;

use towline_wire::Time;

use super::timers::{Timer, Timers};

/// Probes of a receiver that are answered without new data, or doublings while they are not, before
/// it leaves things to the idle timeout.
pub(crate) const MAX_LIVENESS_PROBES: u32 = 6;

/// Least silence before a receiver probes.
const LIVENESS_MIN: Duration = Duration::from_secs(1);

/// Least time between probes that nothing answers: a path that is back is noticed within it, however
/// long it was silent. A PING of 50 bytes or so is far less than the datagram for each round trip
/// that RFC 8085 §3.1.3 allows a sender who knows nothing of the path.
const UNANSWERED_INTERVAL: Duration = Duration::from_millis(300);

/// Unanswered probes that are as far apart; later ones double their distance.
const STEADY_PROBES: u32 = 30;

#[derive(Debug)]
pub(crate) struct Idle {
    /// Effective idle timeout of both ends, if any.
    timeout: Option<Duration>,
    keep_alive: Option<Duration>,
    /// The next ack-eliciting packet sent restarts the timeout: it is the first since a receipt.
    may_extend: bool,
    /// The next ack-eliciting packet is a liveness probe, which must not.
    probing: bool,
    /// Probes since stream data arrived, each run of unanswered ones counted once.
    probes: u32,
    /// Probes since anything arrived.
    unanswered: u32,
    /// The next probe if the latest one is answered.
    next_if_answered: Time,
}

impl Idle {
    pub(crate) fn new(timeout: Duration, keep_alive: Option<Duration>) -> Self {
        Self {
            timeout: (!timeout.is_zero()).then_some(timeout),
            // An interval of zero would expire for ever.
            keep_alive: keep_alive.filter(|interval| !interval.is_zero()),
            may_extend: true,
            probing: false,
            probes: 0,
            unanswered: 0,
            next_if_answered: Time::ZERO,
        }
    }

    /// The peer's `max_idle_timeout`; zero means none. The smaller of the two counts.
    pub(crate) fn set_peer_timeout(&mut self, timeout: Duration) {
        if !timeout.is_zero() {
            self.timeout = Some(self.timeout.map_or(timeout, |own| own.min(timeout)));
        }
    }

    fn restart(&self, now: Time, pto: Duration, timers: &mut Timers) {
        if let Some(timeout) = self.timeout {
            timers.set(Timer::Idle, now + timeout.max(3 * pto));
        }
    }

    /// An authentic packet arrived.
    pub(crate) fn on_received(&mut self, now: Time, pto: Duration, timers: &mut Timers) {
        self.may_extend = true;
        self.restart(now, pto, timers);
        if let Some(interval) = self.keep_alive {
            timers.set(Timer::KeepAlive, now + interval);
        }
        if std::mem::take(&mut self.unanswered) > 0 {
            timers.set(Timer::Liveness, self.next_if_answered);
        }
    }

    /// Whether the next ack-eliciting packet sent means anything here.
    pub(crate) fn heeds_sending(&self) -> bool {
        self.probing || self.may_extend
    }

    /// A liveness probe is due.
    pub(crate) fn is_probing(&self) -> bool {
        self.probing
    }

    /// An ack-eliciting packet was sent.
    pub(crate) fn on_ack_eliciting_sent(&mut self, now: Time, pto: Duration, timers: &mut Timers) {
        if std::mem::take(&mut self.probing) {
            self.may_extend = false;
        } else if std::mem::take(&mut self.may_extend) {
            self.restart(now, pto, timers);
        }
    }

    /// The keep-alive interval passed in silence.
    pub(crate) fn on_keep_alive(&mut self, now: Time, timers: &mut Timers) {
        if let Some(interval) = self.keep_alive {
            timers.set(Timer::KeepAlive, now + interval);
        }
    }

    /// Whether a receiver waits without a deadline although it has not probed yet.
    pub(crate) fn has_no_watch(&self, timers: &Timers) -> bool {
        self.probes == 0 && timers.get(Timer::Liveness).is_none()
    }

    /// Whether a receiver waits without a deadline and has not given up on a silent path.
    pub(crate) fn is_unwatched(&self, timers: &Timers) -> bool {
        self.unanswered == 0 && timers.get(Timer::Liveness).is_none()
    }

    /// No stream is open for receiving any more.
    pub(crate) fn await_nothing(&mut self, timers: &mut Timers) {
        self.probes = 0;
        self.unanswered = 0;
        timers.stop(Timer::Liveness);
    }

    /// Stream data arrived while more is expected, or a stream was opened.
    pub(crate) fn await_data(&mut self, now: Time, pto: Duration, timers: &mut Timers) {
        self.probes = 0;
        self.unanswered = 0;
        timers.set(Timer::Liveness, now + (3 * pto).max(LIVENESS_MIN));
    }

    /// The receiver has waited long enough. Returns whether to send a PING. A peer that answers is
    /// only slow and is asked ever more rarely; while none does, the path may be back any moment.
    pub(crate) fn on_liveness(&mut self, now: Time, pto: Duration, timers: &mut Timers) -> bool {
        if self.unanswered == 0 {
            if self.probes >= MAX_LIVENESS_PROBES {
                return false;
            }
            self.probes += 1;
            let wait = (3 * pto).max(LIVENESS_MIN).saturating_mul(1 << self.probes);
            self.next_if_answered = now + wait;
        }
        let doublings = self.unanswered.saturating_sub(STEADY_PROBES);
        if doublings > MAX_LIVENESS_PROBES {
            return false;
        }
        self.unanswered += 1;
        self.probing = true;
        let wait = pto.max(UNANSWERED_INTERVAL).saturating_mul(1 << doublings);
        timers.set(Timer::Liveness, now + wait);
        true
    }
}

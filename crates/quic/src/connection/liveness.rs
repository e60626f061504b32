//! When silence is the end, and how it is broken (RFC 9000 §10.1).
//!
//! Owns the rules of the idle timeout, keep-alive and the receiver's liveness probes, the PING that
//! these or the application want, and all deadlines that have no other owner. Called by the
//! connection after packets and when one of its timers expires; it sends nothing itself.

use std::time::Duration;

use towline_wire::{PING_LEN, Time, write_ping};

use super::component::{PacketWriter, SentFrame};
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
pub(crate) struct Liveness {
    timers: Timers,
    /// The next 1-RTT packet carries a PING.
    ping_pending: bool,
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

impl Liveness {
    /// Of a connection that begins; its handshake may take until `handshake_until`.
    pub(crate) fn new(
        timeout: Duration,
        keep_alive: Option<Duration>,
        handshake_until: Time,
    ) -> Self {
        let mut timers = Timers::default();
        timers.set(Timer::Handshake, handshake_until);
        let mut liveness = Self {
            timers,
            ping_pending: false,
            timeout: None,
            keep_alive: None,
            may_extend: true,
            probing: false,
            probes: 0,
            unanswered: 0,
            next_if_answered: Time::ZERO,
        };
        liveness.set_timeouts(timeout, keep_alive);
        liveness
    }

    /// What this end's settings are, before the peer's are known.
    pub(crate) fn set_timeouts(&mut self, timeout: Duration, keep_alive: Option<Duration>) {
        self.timeout = (!timeout.is_zero()).then_some(timeout);
        // An interval of zero would expire for ever.
        self.keep_alive = keep_alive.filter(|interval| !interval.is_zero());
    }

    /// The peer's `max_idle_timeout`; zero means none. The smaller of the two counts.
    pub(crate) fn set_peer_timeout(&mut self, timeout: Duration) {
        if !timeout.is_zero() {
            self.timeout = Some(self.timeout.map_or(timeout, |own| own.min(timeout)));
        }
    }

    fn restart(&mut self, now: Time, pto: Duration) {
        if let Some(timeout) = self.timeout {
            self.timers.set(Timer::Idle, now + timeout.max(3 * pto));
        }
    }

    /// An authentic packet arrived.
    pub(crate) fn on_received(&mut self, now: Time, pto: Duration) {
        self.may_extend = true;
        self.restart(now, pto);
        if let Some(interval) = self.keep_alive {
            self.timers.set(Timer::KeepAlive, now + interval);
        }
        if std::mem::take(&mut self.unanswered) > 0 {
            self.timers.set(Timer::Liveness, self.next_if_answered);
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
    pub(crate) fn on_ack_eliciting_sent(&mut self, now: Time, pto: Duration) {
        if std::mem::take(&mut self.probing) {
            self.may_extend = false;
        } else if std::mem::take(&mut self.may_extend) {
            self.restart(now, pto);
        }
    }

    /// The keep-alive interval passed in silence.
    pub(crate) fn on_keep_alive(&mut self, now: Time) {
        self.ping_pending = true;
        if let Some(interval) = self.keep_alive {
            self.timers.set(Timer::KeepAlive, now + interval);
        }
    }

    /// Whether a receiver waits without a deadline although it has not probed yet.
    pub(crate) fn has_no_watch(&self) -> bool {
        self.probes == 0 && self.timers.get(Timer::Liveness).is_none()
    }

    /// Whether a receiver waits without a deadline and has not given up on a silent path.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.unanswered == 0 && self.timers.get(Timer::Liveness).is_none()
    }

    /// No stream is open for receiving any more.
    pub(crate) fn await_nothing(&mut self) {
        self.probes = 0;
        self.unanswered = 0;
        self.timers.stop(Timer::Liveness);
    }

    /// Stream data arrived while more is expected, or a stream was opened.
    pub(crate) fn await_data(&mut self, now: Time, pto: Duration) {
        self.probes = 0;
        self.unanswered = 0;
        self.timers
            .set(Timer::Liveness, now + (3 * pto).max(LIVENESS_MIN));
    }

    /// The receiver has waited long enough for a PING, mostly. A peer that answers is only slow and
    /// is asked ever more rarely; while none does, the path may be back any moment.
    pub(crate) fn on_liveness(&mut self, now: Time, pto: Duration) {
        if self.unanswered == 0 {
            if self.probes >= MAX_LIVENESS_PROBES {
                return;
            }
            self.probes += 1;
            let wait = (3 * pto).max(LIVENESS_MIN).saturating_mul(1 << self.probes);
            self.next_if_answered = now + wait;
        }
        let doublings = self.unanswered.saturating_sub(STEADY_PROBES);
        if doublings > MAX_LIVENESS_PROBES {
            return;
        }
        self.unanswered += 1;
        self.probing = true;
        let wait = pto.max(UNANSWERED_INTERVAL).saturating_mul(1 << doublings);
        self.timers.set(Timer::Liveness, now + wait);
        self.ping_pending = true;
    }

    // ---- PING ----

    /// A PING goes with the next packet.
    pub(crate) fn ping(&mut self) {
        self.ping_pending = true;
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.ping_pending
    }

    /// A 1-RTT packet asks the peer for an answer, or will.
    pub(crate) fn on_asked(&mut self) {
        self.ping_pending = false;
    }

    /// A PING, unless something else in the packet asks for an answer.
    pub(crate) fn write_frames(&mut self, w: &mut PacketWriter<'_, '_>) {
        if self.ping_pending && (w.ack_eliciting || w.remaining() >= PING_LEN) {
            self.ping_pending = false;
            if !w.ack_eliciting {
                write_ping(w.w);
                w.record(SentFrame::Ping);
            }
        }
    }

    // ---- deadlines ----

    /// The next deadline kept here, and which it is.
    pub(crate) fn next_timeout(&self) -> Option<(Time, Timer)> {
        self.timers.next()
    }

    /// Takes one expired timer.
    pub(crate) fn take_expired(&mut self, now: Time) -> Option<Timer> {
        self.timers.take_expired(now)
    }

    pub(crate) fn on_handshake_complete(&mut self) {
        self.timers.stop(Timer::Handshake);
    }

    /// The pacer has room again then; `None` where nothing waits for it.
    pub(crate) fn set_pacing(&mut self, at: Option<Time>) {
        match at {
            Some(at) => self.timers.set(Timer::Pacing, at),
            None => self.timers.stop(Timer::Pacing),
        }
    }

    /// Keys from before an update go then, or at the time set before.
    pub(crate) fn discard_keys_at(&mut self, at: Time) {
        if self.timers.get(Timer::KeyDiscard).is_none() {
            self.timers.set(Timer::KeyDiscard, at);
        }
    }

    /// The closing or draining period ends then; nothing else matters any more.
    pub(crate) fn on_closing(&mut self, until: Time) {
        self.timers.set(Timer::Close, until);
        self.timers.stop_all_but(Timer::Close);
    }

    /// The connection is over: no deadline is left.
    pub(crate) fn on_end(&mut self) {
        self.timers = Timers::default();
    }
}

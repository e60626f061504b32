//! The probe timeout: when to suspect that everything in flight, or its feedback, was lost
//! (RFC 9002 §6.2).
//!
//! `Recovery` keeps one `ProbeTimer` and asks it for the earliest deadline; what a probe carries
//! is the caller's business. An expired PTO is never a loss. "Unset" is an `Option`: the zero of
//! RFC 9002 A.8 would let an unset later space replace a set earlier one.

use core::time::Duration;

use towline_wire::{PacketNumberSpace, Side, Time};

use crate::rtt::RttEstimator;

/// What the loss timer is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossTimer {
    /// A packet before an acknowledged one reaches the time threshold (RFC 9002 §6.1.2).
    LossTime,
    /// A probe timeout (RFC 9002 §6.2).
    Pto,
    /// The congestion controller wants to be called: the end of a LEDBAT++ slowdown.
    Controller,
}

/// Probes since the last acknowledgement that may follow a packet of the peer's after one period;
/// later ones wait a third of the time for which nothing was acknowledged as well. So they are at
/// most proportional to its logarithm, as those by the doubling are, whatever the peer sends.
const PROMPT_PROBES: u32 = 6;

/// A PING beside an acknowledgement waits at least this part (one in so many) of the time for which
/// nothing was acknowledged, for the same reason. It is small: it costs the path one byte.
const ASKING_SHARE: u32 = 32;

/// An expiry to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    pub(crate) at: Time,
    pub(crate) space: PacketNumberSpace,
    /// It comes before its time, because the peer was heard.
    pub(crate) early: bool,
}

/// The state the PTO depends on besides the round trip.
#[derive(Clone, Debug)]
pub(crate) struct ProbeTimer {
    pub(crate) count: u32,
    /// Last time the timer was set: a packet in flight sent, an ACK, an expiry, keys dropped.
    /// `None` before the first of these: what was never sent needs no probe.
    pub(crate) base: Option<Time>,
    /// Last expiry: a suspended host gets one probe, not one for every doubling it slept through.
    last_expiry: Option<Time>,
    /// First expiry since the last acknowledgement.
    unanswered_since: Option<Time>,
    /// An ack-eliciting packet arrived since the last expiry, and probes are unanswered.
    peer_heard: bool,
    /// Early expiries since the last acknowledgement.
    early: u32,
    /// Last PING beside an acknowledgement.
    asked: Option<Time>,
    pub(crate) handshake_keys: bool,
    pub(crate) handshake_confirmed: bool,
    /// The client knows that the server has validated its address.
    pub(crate) peer_validated: bool,
    pub(crate) amplification_blocked: bool,
    pub(crate) max_ack_delay: Duration,
}

impl ProbeTimer {
    pub(crate) fn new(side: Side, max_ack_delay: Duration) -> Self {
        Self {
            count: 0,
            base: None,
            last_expiry: None,
            unanswered_since: None,
            peer_heard: false,
            early: 0,
            asked: None,
            handshake_keys: false,
            handshake_confirmed: false,
            peer_validated: side == Side::Server,
            amplification_blocked: false,
            max_ack_delay,
        }
    }

    /// The PTO of a space without backoff; max_ack_delay counts in the application space only.
    pub(crate) fn period(&self, rtt: &RttEstimator, space: PacketNumberSpace) -> Duration {
        match space {
            PacketNumberSpace::Application => rtt.pto_base().saturating_add(self.max_ack_delay),
            _ => rtt.pto_base(),
        }
    }

    /// The earliest deadline. `last_sent` holds, per space, when the last ack-eliciting packet was
    /// sent, if one is in flight.
    pub(crate) fn deadline(
        &self,
        rtt: &RttEstimator,
        last_sent: [Option<Time>; 3],
    ) -> Option<(Time, PacketNumberSpace)> {
        let next = self.next_expiry(rtt, last_sent)?;
        Some((next.at, next.space))
    }

    /// The same, and whether it comes early.
    pub(crate) fn next_expiry(
        &self,
        rtt: &RttEstimator,
        last_sent: [Option<Time>; 3],
    ) -> Option<Expiry> {
        // The server would have to send and may not; the next datagram from the client re-arms it.
        if self.amplification_blocked {
            return None;
        }
        let mut earliest: Option<Expiry> = None;
        for space in PacketNumberSpace::ALL {
            let Some(sent) = last_sent[space.index()] else {
                continue;
            };
            if space == PacketNumberSpace::Application && !self.handshake_confirmed {
                continue;
            }
            let from = self.last_expiry.map_or(sent, |expiry| expiry.max(sent));
            let next = self.expiry(from, self.period(rtt, space), space);
            if earliest.is_none_or(|earliest| next.at < earliest.at) {
                earliest = Some(next);
            }
        }
        if earliest.is_none()
            && !self.peer_validated
            && let Some(base) = self.base
        {
            // Anti-deadlock (RFC 9002 §6.2.2.1). RFC 9002 A.8 looks for packets in flight in any
            // space; 0-RTT data in flight arms nothing, so only spaces that can arm count here.
            let space = match self.handshake_keys {
                true => PacketNumberSpace::Handshake,
                false => PacketNumberSpace::Initial,
            };
            earliest = Some(self.expiry(base, self.period(rtt, space), space));
        }
        earliest
    }

    /// The expiry of a space whose period counts from `from`.
    fn expiry(&self, from: Time, period: Duration, space: PacketNumberSpace) -> Expiry {
        let wait = self.backed_off(period);
        let prompt = match self.unanswered_since {
            Some(since) if self.early >= PROMPT_PROBES => {
                period.max(from.saturating_duration_since(since) / 3)
            }
            _ => period,
        };
        let early = self.peer_heard && prompt < wait;
        Expiry {
            at: from + if early { prompt } else { wait },
            space,
            early,
        }
    }

    /// The whole period doubles with every expiry, max_ack_delay included (RFC 9002 A.8).
    fn backed_off(&self, period: Duration) -> Duration {
        let factor = 1u64.checked_shl(self.count).unwrap_or(u64::MAX);
        Duration::from_nanos(crate::rtt::nanos(period).saturating_mul(factor))
    }

    pub(crate) fn on_expired(&mut self, now: Time) {
        self.count = self.count.saturating_add(1);
        self.on_probe_due(now);
    }

    /// An expiry before its time leaves the doubling where it is.
    pub(crate) fn on_early_expiry(&mut self, now: Time) {
        self.early += 1;
        self.on_probe_due(now);
    }

    fn on_probe_due(&mut self, now: Time) {
        self.peer_heard = false;
        self.base = Some(now);
        self.last_expiry = Some(now);
        self.unanswered_since.get_or_insert(now);
    }

    /// New acknowledgements arrived. A client that does not know whether its address is validated
    /// keeps backing off (RFC 9002 §6.2.1).
    pub(crate) fn on_progress(&mut self, now: Time) {
        self.base = Some(now);
        if self.peer_validated {
            self.reset();
        }
    }

    /// The peer speaks while probes are unanswered: more likely the path was silent and is back than
    /// that it is congested, so one probe need not wait the doubled period out.
    pub(crate) fn on_peer_heard(&mut self) {
        self.peer_heard = self.handshake_confirmed && self.count > 0;
    }

    /// Whether an acknowledgement that leaves now should hold a PING: probes are unanswered, and
    /// the peer, which is heard, may be asked again.
    pub(crate) fn may_ask(&self, now: Time, rtt: &RttEstimator) -> bool {
        let Some(since) = self.unanswered_since.filter(|_| self.handshake_confirmed) else {
            return false;
        };
        let wait = self
            .period(rtt, PacketNumberSpace::Application)
            .max(now.saturating_duration_since(since) / ASKING_SHARE);
        let last = self.asked.max(self.last_expiry);
        last.is_none_or(|last| now.saturating_duration_since(last) >= wait)
    }

    /// That of another path: what the connection and its peer said stays true.
    pub(crate) fn beside(&self) -> Self {
        let mut other = self.clone();
        other.base = None;
        other.amplification_blocked = false;
        other.reset();
        other
    }

    /// What was said while another path was in use.
    pub(crate) fn take_over(&mut self, before: &Self) {
        *self = Self {
            amplification_blocked: self.amplification_blocked,
            ..before.beside()
        };
    }

    pub(crate) fn on_asked(&mut self, now: Time) {
        self.asked = Some(now);
    }

    pub(crate) fn reset(&mut self) {
        self.count = 0;
        self.last_expiry = None;
        self.unanswered_since = None;
        self.peer_heard = false;
        self.early = 0;
        self.asked = None;
    }
}

#[cfg(test)]
mod tests;

//! The deadlines of one connection.
//!
//! A handful of optional times with a linear scan: fewer instructions than any heap at
//! this size. Loss detection, the acknowledgement delay, the age of datagrams and paths own their times
//! and are asked.

use towline_wire::Time;

/// Which deadline `next_timeout` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Timer {
    /// A packet is to be declared lost, or a probe is due (RFC 9002 §6).
    LossDetection,
    /// An acknowledgement is due (RFC 9000 §13.2.1).
    AckDelay,
    /// A datagram has waited for as long as it may.
    DatagramAge,
    /// The pacer has room again.
    Pacing,
    /// Nothing arrived for the idle timeout (RFC 9000 §10.1).
    Idle,
    /// The handshake took too long.
    Handshake,
    /// The keep-alive interval passed.
    KeepAlive,
    /// A receiver with an open stream has heard nothing for a while.
    Liveness,
    /// Old 1-RTT keys are dropped (RFC 9001 §6.5).
    KeyDiscard,
    /// A path is asked again whether it leads to the peer, or given up (RFC 9000 §8.2.4).
    PathValidation,
    /// The closing or draining period ends (RFC 9000 §10.2).
    Close,
}

const OWNED: [Timer; 7] = [
    Timer::Pacing,
    Timer::Idle,
    Timer::Handshake,
    Timer::KeepAlive,
    Timer::Liveness,
    Timer::KeyDiscard,
    Timer::Close,
];

/// A timer that is not set.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// Deadlines nobody else owns.
#[derive(Debug)]
pub(crate) struct Timers {
    at: [Time; OWNED.len()],
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            at: [NEVER; OWNED.len()],
        }
    }
}

fn slot(timer: Timer) -> usize {
    match timer {
        Timer::Pacing => 0,
        Timer::Idle => 1,
        Timer::Handshake => 2,
        Timer::KeepAlive => 3,
        Timer::Liveness => 4,
        Timer::KeyDiscard => 5,
        Timer::Close
        | Timer::LossDetection
        | Timer::AckDelay
        | Timer::DatagramAge
        | Timer::PathValidation => 6,
    }
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        debug_assert!(OWNED.contains(&timer));
        self.at[slot(timer)] = at;
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.at[slot(timer)] = NEVER;
    }

    pub(crate) fn get(&self, timer: Timer) -> Option<Time> {
        Some(self.at[slot(timer)]).filter(|&at| at != NEVER)
    }

    /// Stops everything but `keep`.
    pub(crate) fn stop_all_but(&mut self, keep: Timer) {
        let kept = self.at[slot(keep)];
        *self = Self::default();
        self.at[slot(keep)] = kept;
    }

    pub(crate) fn next(&self) -> Option<(Time, Timer)> {
        OWNED
            .into_iter()
            .filter_map(|t| Some((self.get(t)?, t)))
            .min()
    }

    /// Takes one expired timer.
    pub(crate) fn take_expired(&mut self, now: Time) -> Option<Timer> {
        let (at, timer) = self.next()?;
        if at > now {
            return None;
        }
        self.stop(timer);
        Some(timer)
    }
}

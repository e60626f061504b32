//! Which promise was broken, when, and how: what every check of the lab returns.

use std::fmt;

use towline_wire::Time;

/// A promise of the engine that the lab watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Invariant {
    /// I1: what is read is what was written, once, in order, with its end at the end.
    Delivery,
    /// I2: once faults stop, every transfer finishes, or ended for a reason the faults explain.
    Liveness,
    /// I3: bytes in flight stay within the congestion window plus probes.
    Congestion,
    /// I4: at most three times the bytes received go to an unproven address.
    Amplification,
    /// I5: nobody sends beyond the credit given, and no credit is lost.
    FlowControl,
    /// I6: memory is bounded, and all of it comes back.
    Memory,
    /// I7: packet numbers strictly increase, and packets hold only legal frames.
    PacketNumbers,
    /// I8: no busy loop.
    Pace,
    /// I9: an idle connection is silent.
    Silence,
    /// I10: both ends agree on a close.
    Close,
    /// I11: no panic; overflow checks and debug assertions are on.
    Panic,
    /// I12: a seed run twice is the same run.
    Determinism,
    /// I13: nobody gains by acknowledging what did not arrive.
    Honesty,
    /// I14: round trips and probe timeouts are kept as RFC 9002 says.
    Recovery,
    /// I15: a byte of an adversary costs its receiver about as much work as an honest one's.
    Work,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Delivery => "I1 delivery",
            Self::Liveness => "I2 liveness",
            Self::Congestion => "I3 congestion window",
            Self::Amplification => "I4 amplification",
            Self::FlowControl => "I5 flow control",
            Self::Memory => "I6 memory",
            Self::PacketNumbers => "I7 packet numbers",
            Self::Pace => "I8 busy loop",
            Self::Silence => "I9 idle silence",
            Self::Close => "I10 close",
            Self::Panic => "I11 panic",
            Self::Determinism => "I12 determinism",
            Self::Honesty => "I13 honesty",
            Self::Recovery => "I14 recovery",
            Self::Work => "I15 work",
        };
        f.write_str(name)
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// The world's clock when it was noticed.
    pub at: Time,
    /// What was seen.
    pub what: String,
}

impl Violation {
    /// `invariant` was broken at `at`.
    pub fn new(invariant: Invariant, at: Time, what: impl Into<String>) -> Self {
        Self {
            invariant,
            at,
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}: {}", self.invariant, self.at, self.what)
    }
}

impl std::error::Error for Violation {}

//! The clock of a simulated world: it moves only when told to, and only forwards.
//! The lab owns one and hands its value to engines, links and networks alike.

use core::time::Duration;

use towline_wire::Time;

/// A clock that stands still until it is advanced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualClock {
    now: Time,
}

impl VirtualClock {
    /// A clock at the origin.
    pub fn new() -> Self {
        Self::default()
    }

    /// The current virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Moves on by `duration` and returns the new time; saturates at [`Time::MAX`].
    pub fn advance(&mut self, duration: Duration) -> Time {
        self.now += duration;
        self.now
    }

    /// Moves on to `time` and returns the new time; a `time` already past changes nothing.
    pub fn advance_to(&mut self, time: Time) -> Time {
        self.now = self.now.max(time);
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_never_runs_backwards() {
        let mut clock = VirtualClock::new();
        assert_eq!(clock.now(), Time::ZERO);
        clock.advance(Duration::from_millis(5));
        assert_eq!(
            clock.advance_to(Time::from_nanos(7)),
            Time::from_nanos(5_000_000)
        );
        assert_eq!(clock.advance(Duration::MAX), Time::MAX);
        assert_eq!(clock.advance(Duration::from_secs(1)), Time::MAX);
    }
}

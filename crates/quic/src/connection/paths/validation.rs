//! Path validation (RFC 9000 §8.2): challenges that were sent on a path, and when the next one goes.
//!
//! Owned by a path while its peer has to prove that it is there. Knows no addresses.

use std::time::Duration;

use towline_wire::Time;

/// Cap: PATH_CHALLENGE frames that one validation sends: no more often than an Initial would be sent
/// again, and each a different one (RFC 9000 §8.2.1).
pub(crate) const MAX_CHALLENGES: usize = 4;

/// The PTO of a path of which nothing is known, with `kInitialRtt` of RFC 9002: validation is not
/// given up before three of them (RFC 9000 §8.2.4).
const UNKNOWN_PTO: Duration = Duration::from_millis(999);

/// The least time between two challenges: what an Initial would wait where nothing is known, so no
/// more often than probes (RFC 9000 §9.4).
pub(super) const LEAST_WAIT: Duration = Duration::from_millis(300);

/// A validation under way.
#[derive(Debug)]
pub(super) struct Validation {
    sent: [[u8; 8]; MAX_CHALLENGES],
    count: usize,
    /// A challenge is to be sent now.
    due: bool,
    /// When the latest was sent.
    sent_at: Time,
    next: Time,
    wait: Duration,
    gives_up: Time,
    /// One of them went in a datagram of full size.
    full: bool,
}

impl Validation {
    /// Begins with a challenge that is due at once, or so long after the one that the path had last
    /// (`asked`) as challenges are apart; the next one follows after `pto`, or longer.
    pub(super) fn new(now: Time, pto: Duration, asked: Option<Time>) -> Self {
        Self::until(now, pto, asked, now + 3 * pto.max(UNKNOWN_PTO))
    }

    /// The same, given up at a time that is set already.
    pub(super) fn until(now: Time, pto: Duration, asked: Option<Time>, gives_up: Time) -> Self {
        let first = asked.map_or(now, |at| now.max(at + LEAST_WAIT));
        Self {
            sent: [[0; 8]; MAX_CHALLENGES],
            count: 0,
            due: first <= now,
            sent_at: now,
            next: first,
            wait: pto.max(LEAST_WAIT),
            gives_up,
            full: false,
        }
    }

    /// When it is given up.
    pub(super) fn gives_up(&self) -> Time {
        self.gives_up
    }

    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// A challenge with `data` was sent, in a datagram of full size or a smaller one.
    pub(super) fn on_sent(&mut self, now: Time, data: [u8; 8], full: bool) {
        if let Some(place) = self.sent.get_mut(self.count) {
            *place = data;
            self.count += 1;
        }
        self.due = false;
        self.sent_at = now;
        self.full |= full;
        self.next = match self.count < MAX_CHALLENGES {
            true => now + self.wait,
            false => self.gives_up,
        };
        self.wait = self.wait.saturating_mul(2);
    }

    /// If `data` is that of one of its challenges: the round trip, when it was the only one.
    pub(super) fn answered(&self, now: Time, data: [u8; 8]) -> Option<Option<Duration>> {
        let known = self.sent.iter().take(self.count).any(|sent| *sent == data);
        known.then(|| (self.count == 1).then(|| now.saturating_duration_since(self.sent_at)))
    }

    /// Whether an answer also shows that the path carries datagrams of 1200 bytes.
    pub(super) fn was_full(&self) -> bool {
        self.full
    }

    /// When `on_timeout` is due.
    pub(super) fn deadline(&self) -> Time {
        match self.due {
            true => self.gives_up,
            false => self.next.min(self.gives_up),
        }
    }

    /// A deadline may have passed; `true` if nothing answers.
    pub(super) fn on_timeout(&mut self, now: Time) -> bool {
        if now >= self.gives_up {
            return true;
        }
        self.due |= now >= self.next;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn challenges_back_off_and_are_given_up_after_three_timeouts() {
        let mut validation = Validation::new(at(0), Duration::from_millis(100), None);
        let mut sent = Vec::new();
        let mut now = at(0);
        loop {
            if validation.is_due() {
                sent.push(now);
                validation.on_sent(now, [sent.len() as u8; 8], true);
            }
            now = validation.deadline();
            if validation.on_timeout(now) {
                break;
            }
        }
        assert_eq!(sent, [at(0), at(300), at(900), at(2100)]);
        assert_eq!(sent.len(), MAX_CHALLENGES);
        assert_eq!(now, at(2997));
    }

    #[test]
    fn a_path_is_not_asked_sooner_because_its_validation_begins_anew() {
        let pto = Duration::from_millis(100);
        for (asked, due) in [(0, 300), (99, 399), (100, 400)] {
            let mut validation = Validation::new(at(100), pto, Some(at(asked)));
            assert!(!validation.is_due());
            assert_eq!(validation.deadline(), at(due));
            assert!(!validation.on_timeout(at(due)) && validation.is_due());
        }
        assert!(Validation::new(at(300), pto, Some(at(0))).is_due());
        // Nor does that make it last longer.
        let mut short = Validation::until(at(100), pto, Some(at(100)), at(200));
        assert_eq!(short.deadline(), at(200));
        assert!(short.on_timeout(at(200)));
    }

    #[test]
    fn any_of_its_challenges_may_be_answered_and_nothing_else() {
        let mut validation = Validation::new(at(0), Duration::from_millis(100), None);
        assert_eq!(validation.answered(at(1), [0; 8]), None, "none was sent");
        validation.on_sent(at(0), [1; 8], false);
        let round_trip = Duration::from_millis(40);
        assert_eq!(validation.answered(at(40), [1; 8]), Some(Some(round_trip)));
        validation.on_sent(at(100), [2; 8], true);
        assert_eq!(validation.answered(at(140), [1; 8]), Some(None));
        assert_eq!(validation.answered(at(140), [3; 8]), None);
        assert!(validation.was_full());
    }
}

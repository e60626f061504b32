//! Places for handshakes in progress, shared out by prefix.
//!
//! Two pools, so that addresses nobody proved cannot take the places of those that were: without
//! a proof up to the threshold at which Retry begins, with one up to all that is left. A handshake
//! that ends without success keeps its place until it would have timed out, or a client could buy
//! as many TLS sessions as it can make fail.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use towline_wire::Time;

use super::budget::{Places, Source};
use crate::config::{RetryPolicy, ServerConfig};

/// A place that one handshake holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    source: Source,
    proven: bool,
    /// When a handshake that began here times out.
    until: Time,
}

#[derive(Debug, Default)]
pub(super) struct Handshakes {
    unproven: Places,
    proven: Places,
    /// Places of handshakes that are gone without success, the first to come back on top.
    forfeited: BinaryHeap<Forfeited>,
}

#[derive(Debug)]
struct Forfeited(Place);

impl Ord for Forfeited {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.until.cmp(&self.0.until)
    }
}

impl PartialOrd for Forfeited {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Forfeited {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Forfeited {}

impl Handshakes {
    /// Whether a client from `source` may begin a handshake; `proven` says that its address is.
    pub(super) fn may_begin(
        &mut self,
        now: Time,
        server: &ServerConfig,
        source: Source,
        proven: bool,
    ) -> bool {
        self.reclaim(now);
        let all = server.max_handshakes;
        if proven {
            let total = all.saturating_sub(self.unproven.used());
            return self.proven.may_take(source, total);
        }
        let total = match server.retry {
            RetryPolicy::Never => all,
            RetryPolicy::UnderLoad => server.retry_threshold.min(all),
            RetryPolicy::Always => 0,
        };
        let total = total.min(all.saturating_sub(self.proven.used()));
        self.unproven.may_take(source, total)
    }

    /// Takes a place that `may_begin` granted.
    pub(super) fn begin(
        &mut self,
        now: Time,
        server: &ServerConfig,
        source: Source,
        proven: bool,
    ) -> Place {
        if proven {
            self.proven.take(source);
        } else {
            self.unproven.take(source);
        }
        Place {
            source,
            proven,
            until: now + server.transport.handshake_timeout,
        }
    }

    /// The handshake that held `place` is complete.
    pub(super) fn give_back(&mut self, place: Place) {
        if place.proven {
            self.proven.give_back(place.source);
        } else {
            self.unproven.give_back(place.source);
        }
    }

    /// Gives back the places whose handshakes would have timed out by now.
    fn reclaim(&mut self, now: Time) {
        while self.forfeited.peek().is_some_and(|p| p.0.until <= now)
            && let Some(Forfeited(place)) = self.forfeited.pop()
        {
            self.give_back(place);
        }
    }

    /// The handshake that held `place` is gone and never was complete.
    pub(super) fn forfeit(&mut self, place: Place) {
        self.forfeited.push(Forfeited(place));
    }
}

#[cfg(test)]
mod tests {
    use super::super::keyed::KeyedState;
    use super::*;

    #[test]
    fn a_place_that_is_held_for_long_keeps_no_other_from_coming_back() {
        let at = Time::from_nanos;
        let source = Source::of(&KeyedState(1, 2), [10, 0, 0, 1].into());
        let mut handshakes = Handshakes::default();
        for until in [9, 1, 5].map(at) {
            handshakes.unproven.take(source);
            handshakes.forfeit(Place {
                source,
                proven: false,
                until,
            });
        }
        for (now, held) in [(0, 3), (1, 2), (4, 2), (5, 1), (8, 1), (9, 0)] {
            handshakes.reclaim(at(now));
            assert_eq!(handshakes.unproven.used(), held, "at {now}");
        }
    }
}

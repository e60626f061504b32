//! Places for handshakes in progress, shared out by prefix.
//!
//! Two pools, so that addresses nobody proved cannot take the places of those that were: without
//! a proof up to the threshold at which Retry begins, with one up to all that is left. A handshake
//! that ends without success keeps its place until it would have timed out, or a client could buy
//! as many TLS sessions as it can make fail.

use std::collections::VecDeque;

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
    /// Places of handshakes that are gone without success, as they went.
    forfeited: VecDeque<Place>,
}

impl Handshakes {
    /// Whether a client from `source` may begin a handshake; `proven` says that its address is.
    pub(super) fn may_begin(
        &mut self,
        now: Time,
        server: &ServerConfig,
        source: Source,
        proven: bool,
    ) -> bool {
        while let Some(place) = self.forfeited.front().copied().filter(|p| p.until <= now) {
            self.forfeited.pop_front();
            self.give_back(place);
        }
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

    /// The handshake that held `place` is gone and never was complete.
    pub(super) fn forfeit(&mut self, place: Place) {
        self.forfeited.push_back(place);
    }
}

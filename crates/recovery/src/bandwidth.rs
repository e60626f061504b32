//! The delivery-rate sampler (draft-ietf-ccwg-bbr §4.1) and the round counter.
//!
//! `Recovery` asks it for a snapshot per train sent and tells it the totals of each ACK; the
//! controllers and `stats()` read its samples. It knows bytes and times, never packets or frames.
//! The draft's code leaves `tx_in_flight` unset on the ACK path and uses zero as "unset"; here the
//! first is filled and the second is an `Option`.

use towline_wire::Time;

/// The sampler's state when a train was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) sent_time: Time,
    pub(crate) first_send_time: Time,
    pub(crate) delivered_time: Time,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    /// Bytes in flight after the train's last packet.
    pub(crate) tx_in_flight: u64,
    pub(crate) app_limited: bool,
}

impl Snapshot {
    /// Whether a packet with `other` was sent in the same train.
    pub(crate) fn same_train(&self, other: &Self) -> bool {
        self.sent_time == other.sent_time
            && self.delivered == other.delivered
            && self.lost == other.lost
            && self.app_limited == other.app_limited
            && self.first_send_time == other.first_send_time
    }
}

/// One delivery-rate sample, taken per ACK from the newest packet it acknowledges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateSample {
    /// Bytes per second; `None` if the interval is too short to say.
    pub(crate) rate: Option<u64>,
    pub(crate) prior_delivered: u64,
    pub(crate) tx_in_flight: u64,
    /// Bytes lost between the sending of that packet and now.
    pub(crate) lost: u64,
    pub(crate) app_limited: bool,
    pub(crate) round_start: bool,
}

/// Counts delivered bytes per path and measures their rate.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateSampler {
    pub(crate) delivered: u64,
    delivered_time: Time,
    first_send_time: Time,
    pub(crate) lost: u64,
    /// The count of delivered bytes at which the app-limited stretch ends.
    app_limited_until: Option<u64>,
    next_round_delivered: u64,
    pub(crate) round: u64,
    latest: Option<u64>,
}

impl RateSampler {
    /// Called for each packet in flight sent; `in_flight_before` excludes it.
    pub(crate) fn on_sent(&mut self, now: Time, size: u64, in_flight_before: u64) -> Snapshot {
        if in_flight_before == 0 {
            self.first_send_time = now;
            self.delivered_time = now;
        }
        self.snapshot(now, in_flight_before.saturating_add(size))
    }

    /// The state to keep with a packet sent `now`.
    pub(crate) fn snapshot(&self, now: Time, tx_in_flight: u64) -> Snapshot {
        Snapshot {
            sent_time: now,
            first_send_time: self.first_send_time,
            delivered_time: self.delivered_time,
            delivered: self.delivered,
            lost: self.lost,
            tx_in_flight,
            app_limited: self.app_limited_until.is_some(),
        }
    }

    /// What is in flight, and nothing beyond it, was all the application had.
    pub(crate) fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = Some(self.delivered.saturating_add(in_flight));
    }

    /// Counts bytes declared lost.
    pub(crate) fn on_lost(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_add(bytes);
    }

    /// Counts `bytes` newly acknowledged, the newest of them sent at `sent_time` with `snapshot`.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        bytes: u64,
        sent_time: Time,
        snapshot: &Snapshot,
        min_rtt_nanos: u64,
    ) -> RateSample {
        self.delivered = self.delivered.saturating_add(bytes);
        self.delivered_time = now;
        self.first_send_time = sent_time;
        if self
            .app_limited_until
            .is_some_and(|until| self.delivered > until)
        {
            self.app_limited_until = None;
        }
        let send_elapsed = sent_time.saturating_duration_since(snapshot.first_send_time);
        let ack_elapsed = now.saturating_duration_since(snapshot.delivered_time);
        let interval = crate::rtt::nanos(send_elapsed.max(ack_elapsed));
        let delivered = self.delivered.saturating_sub(snapshot.delivered);
        let rate = (interval > 0 && interval >= min_rtt_nanos).then(|| {
            let rate = u128::from(delivered) * 1_000_000_000 / u128::from(interval);
            u64::try_from(rate).unwrap_or(u64::MAX)
        });
        let round_start = snapshot.delivered >= self.next_round_delivered;
        if round_start {
            self.next_round_delivered = self.delivered;
            self.round += 1;
        }
        // As Linux does for its delivery_rate: a sample held down by the application only counts
        // if it is the higher one.
        if let Some(rate) = rate
            && (!snapshot.app_limited || self.latest.is_none_or(|latest| rate >= latest))
        {
            self.latest = Some(rate);
        }
        RateSample {
            rate,
            prior_delivered: snapshot.delivered,
            tx_in_flight: snapshot.tx_in_flight,
            lost: self.lost.saturating_sub(snapshot.lost),
            app_limited: snapshot.app_limited,
            round_start,
        }
    }

    /// Counts bytes whose packet was declared lost too early.
    pub(crate) fn on_spurious(&mut self, bytes: u64) {
        self.delivered = self.delivered.saturating_add(bytes);
    }

    /// The newest rate worth showing, in bytes per second.
    pub(crate) fn latest(&self) -> Option<u64> {
        self.latest
    }
}

#[cfg(test)]
mod tests;

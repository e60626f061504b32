//! Which packets arrived, and when the peer is told (RFC 9000 §13.2).
//!
//! Owns, for each packet number space, the numbers received, the delayed-acknowledgement
//! deadline and the ECN counts. It decides nothing about what we sent; that is `recovery`.

use std::time::Duration;

use towline_wire::{EcnCounts, PacketNumberSpace, Time, write_ack};

use super::component::{Ecn, PacketWriter};
use super::range_set::RangeSet;

/// Cap: ranges of received packet numbers remembered for each space.
pub(crate) const MAX_ACK_RANGES: usize = 64;

/// Ack-eliciting packets that may arrive before an acknowledgement is due at once.
const ACK_ELICITING_THRESHOLD: u32 = 2;

/// Our `max_ack_delay` (RFC 9000 §18.2).
pub(crate) const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Our `ack_delay_exponent`, the RFC's default.
pub(crate) const ACK_DELAY_EXPONENT: u8 = 3;

#[derive(Debug, Default)]
struct Received {
    numbers: RangeSet,
    /// Everything below counts as received: its ranges were forgotten.
    floor: u64,
    largest_time: Time,
    /// Ack-eliciting packets not yet acknowledged.
    owed: u32,
    due_now: bool,
    deadline: Option<Time>,
    ecn: EcnCounts,
}

/// Received packet numbers of all spaces.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    spaces: [Received; 3],
}

impl Acks {
    /// Whether this number was received before, or is too old to tell.
    pub(crate) fn is_duplicate(&self, space: PacketNumberSpace, packet_number: u64) -> bool {
        let s = &self.spaces[space.index()];
        packet_number < s.floor || s.numbers.contains(packet_number)
    }

    pub(crate) fn largest(&self, space: PacketNumberSpace) -> Option<u64> {
        self.spaces[space.index()].numbers.max()
    }

    /// Notes an authenticated packet that is not a duplicate.
    pub(crate) fn on_received(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        packet_number: u64,
        ack_eliciting: bool,
        ecn: Option<Ecn>,
    ) {
        let s = &mut self.spaces[space.index()];
        let previous_largest = s.numbers.max();
        s.numbers.insert(packet_number..packet_number + 1);
        if s.numbers.len() > MAX_ACK_RANGES
            && let Some(dropped) = s.numbers.pop_front()
        {
            s.floor = dropped.end;
        }
        if previous_largest.is_none_or(|l| packet_number > l) {
            s.largest_time = now;
        }
        match ecn {
            Some(Ecn::Ect0) => s.ecn.ect0 += 1,
            Some(Ecn::Ect1) => s.ecn.ect1 += 1,
            Some(Ecn::Ce) => s.ecn.ce += 1,
            None => {}
        }
        if !ack_eliciting {
            return;
        }
        s.owed += 1;
        // RFC 9000 §13.2.1: out of order in either direction, or CE, is reported at once.
        let in_order = match previous_largest {
            None => packet_number == 0 || space == PacketNumberSpace::Application,
            Some(largest) => packet_number == largest + 1,
        };
        if !in_order
            || space != PacketNumberSpace::Application
            || ecn == Some(Ecn::Ce)
            || s.owed >= ACK_ELICITING_THRESHOLD
        {
            s.due_now = true;
        } else if s.deadline.is_none() {
            s.deadline = Some(now + MAX_ACK_DELAY);
        }
    }

    /// Whether an ACK must go out now, even in a packet of its own.
    pub(crate) fn is_due(&self, now: Time, space: PacketNumberSpace) -> bool {
        let s = &self.spaces[space.index()];
        s.due_now || s.deadline.is_some_and(|d| d <= now)
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.spaces.iter().filter_map(|s| s.deadline).min()
    }

    /// Turns an expired delay into an acknowledgement that is due.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        for s in &mut self.spaces {
            if s.deadline.is_some_and(|d| d <= now) {
                s.deadline = None;
                s.due_now = true;
            }
        }
    }

    /// Appends an ACK frame if anything unacknowledged was received in `space`.
    pub(crate) fn write_frames(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        w: &mut PacketWriter<'_, '_>,
    ) {
        let s = &mut self.spaces[space.index()];
        let Some(largest) = s.numbers.max().filter(|_| s.owed > 0 || s.due_now) else {
            return;
        };
        let delay = now.saturating_duration_since(s.largest_time);
        let delay = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX) >> ACK_DELAY_EXPONENT;
        let ranges = s.numbers.iter_descending().map(|r| r.start..=r.end - 1);
        let counts = (s.ecn != EcnCounts::default()).then_some(s.ecn);
        if write_ack(w.w, delay.min(towline_wire::MAX_VARINT), ranges, counts) == 0 {
            return;
        }
        w.record_ack(space, largest);
        s.owed = 0;
        s.due_now = false;
        s.deadline = None;
    }

    /// The peer has seen our ACK up to `largest`: older ranges need not be repeated (RFC 9000 §13.2.4).
    pub(crate) fn on_acked(&mut self, space: PacketNumberSpace, largest: u64) {
        let s = &mut self.spaces[space.index()];
        // The range that holds `largest` stays, so that the next ACK still overlaps.
        while let Some(front) = s.numbers.front() {
            if front.end > largest || s.numbers.len() == 1 {
                break;
            }
            if let Some(dropped) = s.numbers.pop_front() {
                s.floor = s.floor.max(dropped.end);
            }
        }
    }

    /// Forgets a space whose keys are gone.
    pub(crate) fn discard(&mut self, space: PacketNumberSpace) {
        self.spaces[space.index()] = Received {
            floor: u64::MAX,
            ..Received::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: PacketNumberSpace = PacketNumberSpace::Application;

    #[test]
    fn a_gap_and_every_second_packet_are_acknowledged_at_once() {
        let mut a = Acks::default();
        let t = Time::from_nanos(1_000);
        a.on_received(t, APP, 0, true, None);
        assert!(!a.is_due(t, APP));
        assert_eq!(a.next_timeout(), Some(t + MAX_ACK_DELAY));
        assert!(a.is_due(t + MAX_ACK_DELAY, APP));
        a.on_received(t, APP, 1, true, None);
        assert!(a.is_due(t, APP));
        let mut b = Acks::default();
        b.on_received(t, APP, 0, false, None);
        b.on_received(t, APP, 2, true, None);
        assert!(b.is_due(t, APP));
    }

    #[test]
    fn at_most_64_ranges_are_kept_and_older_numbers_count_as_duplicates() {
        let mut a = Acks::default();
        for i in 0..200 {
            assert!(!a.is_duplicate(APP, 2 * i));
            a.on_received(Time::ZERO, APP, 2 * i, true, None);
        }
        assert_eq!(a.spaces[2].numbers.len(), MAX_ACK_RANGES);
        assert!(a.is_duplicate(APP, 1));
        assert!(a.is_duplicate(APP, 398));
        assert!(!a.is_duplicate(APP, 397));
    }
}

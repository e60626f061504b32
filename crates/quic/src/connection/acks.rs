//! Which packets arrived, and when the peer is told (RFC 9000 §13.2).
//!
//! Owns, for each packet number space, the numbers received, the delayed-acknowledgement
//! deadline and the ECN counts; further how the peer asked to be told, and how we ask it
//! (draft-ietf-quic-ack-frequency-14). It decides nothing about what we sent; that is `recovery`.
//!
//! A train of datagrams handed in together is acknowledged once, whatever the thresholds: an ACK is
//! written when packets are built. Thinner than that and than every second packet it gets only at
//! the peer's request, for only the peer knows what its congestion controller needs.

mod request;

use std::time::Duration;

use towline_wire::{
    AckFrequencyFrame, EcnCounts, PacketNumberSpace, PerSpace, RangeSet, Time, write_ack,
};

use super::component::{Ecn, PacketWriter, Receipt};
use crate::config::{AckPolicy, MIN_ACK_DELAY};
use crate::error::Violation;
pub(crate) use request::{PathView, Request};

/// Cap: ranges of received packet numbers remembered for each space.
pub(crate) const MAX_ACK_RANGES: usize = 64;

/// Cap: ranges of numbers of packets that were not taken as a whole. Older numbers count as received.
pub(crate) const MAX_REFUSED_RANGES: usize = 64;

/// A `max_ack_delay` of this or more is invalid (RFC 9000 §18.2).
const MAX_ACK_DELAY_LIMIT: Duration = Duration::from_millis(1 << 14);

/// Deadlines are whole multiples of this, the earlier one: acknowledgements of connections whose
/// packets came together leave together, in one wake and one system call.
const DEADLINE_GRAIN: u64 = 1_000_000;

/// Our `ack_delay_exponent`, the RFC's default.
pub(crate) const ACK_DELAY_EXPONENT: u8 = 3;

#[derive(Debug, Default)]
struct Received {
    numbers: RangeSet,
    /// Everything below counts as received: its ranges were forgotten.
    floor: u64,
    largest_time: Time,
    /// Ack-eliciting packets not yet acknowledged.
    owed: u64,
    due_now: bool,
    deadline: Option<Time>,
    ecn: EcnCounts,
    /// The newest ack-eliciting packet was marked.
    last_ce: bool,
    largest_eliciting: u64,
    /// The largest number that went out in an ACK.
    largest_reported: Option<u64>,
}

impl Received {
    /// Whether the peer, which waits for `threshold` packets beyond a missing one before it calls
    /// that lost, could learn from an ACK (draft-ietf-quic-ack-frequency-14 §6.2).
    fn is_news(&self, packet_number: u64, threshold: u64) -> bool {
        // All below was reported with enough behind it, or forgotten.
        let mut unreported = self.floor;
        if let Some(reported) = self.largest_reported
            && let Some(edge) = reported.checked_sub(threshold)
        {
            if packet_number <= edge {
                return true;
            }
            unreported = unreported.max(edge + 1);
        }
        let run = self.numbers.within(unreported..unreported + 1).next();
        let missing = run.map_or(unreported, |run| run.end);
        self.largest_eliciting.saturating_sub(missing) >= threshold
    }
}

/// When what came at `at` is acknowledged at the latest, a little before `delay` is over.
fn deadline(at: Time, delay: Duration) -> Time {
    let latest = (at + delay).as_nanos();
    Time::from_nanos(latest - latest % DEADLINE_GRAIN).max(at)
}

/// How the peer wants its packets acknowledged.
#[derive(Debug)]
struct AckFrequency {
    /// Sequence number of the ACK_FREQUENCY frame it comes from.
    sequence: Option<u64>,
    ack_eliciting_threshold: u64,
    max_ack_delay: Duration,
    reordering_threshold: u64,
}

impl AckFrequency {
    /// That of a peer that said nothing (RFC 9000 §13.2.1, §13.2.2).
    fn new(policy: AckPolicy) -> Self {
        Self {
            sequence: None,
            ack_eliciting_threshold: u64::from(policy.packets_per_ack) - 1,
            max_ack_delay: policy.max_ack_delay,
            reordering_threshold: 1,
        }
    }
}

/// Received packet numbers of all spaces, and the rules of acknowledging them.
#[derive(Debug)]
pub(crate) struct Acks {
    spaces: PerSpace<Received>,
    frequency: AckFrequency,
    /// 1-RTT packets of which only the first frames were taken: they are not acknowledged, so that
    /// the rest comes again, and not taken once more. Most connections never have one.
    refused: Option<Box<RangeSet>>,
    /// How we want to be acknowledged ourselves.
    pub(crate) request: Request,
}

impl Acks {
    pub(crate) fn new(policy: AckPolicy) -> Self {
        Self {
            spaces: PerSpace::new(
                Received::default(),
                Received::default(),
                Received::default(),
            ),
            frequency: AckFrequency::new(policy),
            refused: None,
            request: Request::new(policy),
        }
    }

    /// Goes on with another policy, before a 1-RTT packet arrived.
    pub(crate) fn set_policy(&mut self, policy: AckPolicy) {
        self.frequency = AckFrequency::new(policy);
        self.request = Request::new(policy);
    }

    /// Whether this number was received before, or is too old to tell.
    /// Asked once protection is removed (RFC 9000 §12.3): numbers whose range was forgotten are
    /// below the floor and count as received (§13.2.3).
    pub(crate) fn is_duplicate(&self, space: PacketNumberSpace, packet_number: u64) -> bool {
        let Some(s) = self.spaces.get(space) else {
            return true;
        };
        packet_number < s.floor
            || s.numbers.contains(packet_number)
            || (space == PacketNumberSpace::Application && self.was_refused(packet_number))
    }

    fn was_refused(&self, packet_number: u64) -> bool {
        self.refused
            .as_ref()
            .is_some_and(|refused| refused.contains(packet_number))
    }

    /// Notes an authenticated 1-RTT packet that could not be taken as a whole. It looks lost to the
    /// peer, which sends what it carried under another number.
    pub(crate) fn on_refused(&mut self, packet_number: u64) {
        let refused = self.refused.get_or_insert_default();
        refused.insert(packet_number..packet_number + 1);
        if refused.len() > MAX_REFUSED_RANGES
            && let Some(dropped) = refused.pop_front()
        {
            let s = self.spaces.application_mut();
            s.floor = s.floor.max(dropped.end);
        }
    }

    pub(crate) fn largest(&self, space: PacketNumberSpace) -> Option<u64> {
        self.spaces.get(space)?.numbers.max()
    }

    /// Bytes of heap held.
    pub(crate) fn held(&self) -> usize {
        let numbers: usize = self.spaces.iter().map(|space| space.numbers.held()).sum();
        let refused = self.refused.as_ref();
        self.spaces.held() + numbers + refused.map_or(0, |r| size_of::<RangeSet>() + r.held())
    }

    /// The most of those.
    #[cfg(test)]
    pub(crate) const MOST_HELD: usize = PerSpace::<Received>::HANDSHAKE_BYTES
        + size_of::<RangeSet>()
        + (3 * (MAX_ACK_RANGES + 1).next_power_of_two()
            + (MAX_REFUSED_RANGES + 1).next_power_of_two())
            * size_of::<std::ops::Range<u64>>();

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        for space in self.spaces.iter_mut() {
            space.numbers.trim();
        }
        if let Some(refused) = &mut self.refused {
            refused.trim();
        }
    }

    /// Notes an authenticated packet that is not a duplicate.
    pub(crate) fn on_received(
        &mut self,
        receipt: Receipt,
        space: PacketNumberSpace,
        packet_number: u64,
        ack_eliciting: bool,
    ) {
        let Receipt { at, ecn } = receipt;
        let Some(s) = self.spaces.get_mut(space) else {
            return;
        };
        let frequency = &self.frequency;
        let previous_largest = s.numbers.max();
        let previous_ranges = s.numbers.len();
        s.numbers.insert(packet_number..packet_number + 1);
        let crowded = s.numbers.len() > previous_ranges.max(MAX_ACK_RANGES / 2);
        if s.numbers.len() > MAX_ACK_RANGES
            && let Some(dropped) = s.numbers.pop_front()
        {
            s.floor = s.floor.max(dropped.end);
        }
        if previous_largest.is_none_or(|l| packet_number > l) {
            s.largest_time = at;
        }
        // Reported even by an end that marks nothing itself (RFC 9000 §13.4.1).
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
        s.largest_eliciting = s.largest_eliciting.max(packet_number);
        // RFC 9000 §13.2.1: out of order in either direction, or CE, is reported at once.
        let out_of_order = match (frequency.reordering_threshold, previous_largest) {
            (0, _) => false,
            (1, None) => packet_number != 0 && space != PacketNumberSpace::Application,
            (1, Some(largest)) => packet_number != largest + 1,
            (threshold, _) => s.is_news(packet_number, threshold),
        };
        // Of a run of marks the first is news (draft-ietf-quic-ack-frequency-14 §6.3).
        let ce = ecn == Some(Ecn::Ce);
        let first_ce = ce && !(s.last_ce && frequency.ack_eliciting_threshold > 1);
        s.last_ce = ce;
        if out_of_order
            || space != PacketNumberSpace::Application
            || first_ce
            || s.owed > frequency.ack_eliciting_threshold
            // No range may be forgotten before it was reported once.
            || crowded
        {
            s.due_now = true;
        } else if s.deadline.is_none() {
            s.deadline = Some(deadline(at, frequency.max_ack_delay));
        }
    }

    /// The peer asks to be acknowledged in another way (draft-ietf-quic-ack-frequency-14 §4).
    pub(crate) fn on_ack_frequency(
        &mut self,
        now: Time,
        frame: &AckFrequencyFrame,
    ) -> Result<(), Violation> {
        if self.frequency.sequence.is_some_and(|s| frame.sequence <= s) {
            return Ok(());
        }
        let delay = frame.requested_max_ack_delay;
        if delay < MIN_ACK_DELAY {
            return Err(Violation::protocol(
                "requested max ack delay below min_ack_delay",
            ));
        }
        if delay >= MAX_ACK_DELAY_LIMIT {
            return Err(Violation::protocol(
                "requested max ack delay of 2^14 ms or more",
            ));
        }
        self.frequency = AckFrequency {
            sequence: Some(frame.sequence),
            ack_eliciting_threshold: frame.ack_eliciting_threshold,
            max_ack_delay: delay,
            reordering_threshold: frame.reordering_threshold,
        };
        let s = self.spaces.application_mut();
        s.deadline = s.deadline.map(|at| at.min(deadline(now, delay)));
        Ok(())
    }

    /// The peer asks for an ACK now (draft-ietf-quic-ack-frequency-14 §5).
    pub(crate) fn on_immediate_ack(&mut self) {
        self.spaces.application_mut().due_now = true;
    }

    /// Whether an ACK must go out now, even in a packet of its own.
    pub(crate) fn is_due(&self, now: Time, space: PacketNumberSpace) -> bool {
        let due = |s: &Received| s.due_now || s.deadline.is_some_and(|d| d <= now);
        self.spaces.get(space).is_some_and(due)
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.spaces.iter().filter_map(|s| s.deadline).min()
    }

    /// Turns an expired delay into an acknowledgement that is due.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        for s in self.spaces.iter_mut() {
            if s.deadline.is_some_and(|d| d <= now) {
                s.deadline = None;
                s.due_now = true;
            }
        }
    }

    /// Appends an ACK frame if anything unacknowledged was received in `space`.
    /// An ACK stays in the space of its packets (RFC 9000 §13.2.6, §17.2.3), and its delay is the
    /// time they waited here (§13.2.5).
    pub(crate) fn write_frames(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        w: &mut PacketWriter<'_, '_>,
    ) {
        if self
            .spaces
            .get(space)
            .is_some_and(|s| s.owed > 0 || s.due_now)
        {
            self.write_again(now, space, w);
        }
    }

    /// As [`Self::write_frames`], of everything received, acknowledged before or not.
    #[inline]
    pub(crate) fn write_again(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        w: &mut PacketWriter<'_, '_>,
    ) {
        let Some(s) = self.spaces.get_mut(space) else {
            return;
        };
        let Some(largest) = s.numbers.max() else {
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
        s.largest_reported = Some(largest);
        s.owed = 0;
        s.due_now = false;
        s.deadline = None;
    }

    /// The peer has seen our ACK up to `largest`: older ranges need not be repeated (RFC 9000 §13.2.4).
    pub(crate) fn on_acked(&mut self, space: PacketNumberSpace, largest: u64) {
        let Some(s) = self.spaces.get_mut(space) else {
            return;
        };
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
        if let Some(s) = self.spaces.get_mut(space) {
            *s = Received {
                floor: u64::MAX,
                ..Received::default()
            };
        }
        if space == PacketNumberSpace::Handshake {
            self.spaces.end_handshake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: PacketNumberSpace = PacketNumberSpace::Application;
    const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

    fn acks() -> Acks {
        Acks::new(AckPolicy {
            packets_per_ack: 2,
            max_ack_delay: MAX_ACK_DELAY,
        })
    }

    fn receipt(at: Time, ecn: Option<Ecn>) -> Receipt {
        Receipt { at, ecn }
    }

    #[test]
    fn a_gap_and_every_second_packet_are_acknowledged_at_once() {
        let mut a = acks();
        let t = Time::from_nanos(1_000_000);
        a.on_received(receipt(t, None), APP, 0, true);
        assert!(!a.is_due(t, APP));
        assert_eq!(a.next_timeout(), Some(t + MAX_ACK_DELAY));
        assert!(a.is_due(t + MAX_ACK_DELAY, APP));
        a.on_received(receipt(t, None), APP, 1, true);
        assert!(a.is_due(t, APP));
        let mut b = acks();
        b.on_received(receipt(t, None), APP, 0, false);
        b.on_received(receipt(t, None), APP, 2, true);
        assert!(b.is_due(t, APP));
    }

    #[test]
    fn as_many_packets_as_the_policy_says_are_acknowledged_together() {
        for packets_per_ack in 1..20 {
            let mut a = Acks::new(AckPolicy {
                packets_per_ack,
                max_ack_delay: Duration::from_secs(1),
            });
            let t = Time::from_nanos(1_000_000);
            for number in 0..u64::from(packets_per_ack) {
                assert!(!a.is_due(t, APP));
                a.on_received(receipt(t, None), APP, number, true);
            }
            assert!(a.is_due(t, APP));
            let mut late = Acks::new(AckPolicy {
                packets_per_ack: 20,
                max_ack_delay: Duration::from_secs(1),
            });
            late.on_received(receipt(t, None), APP, 0, true);
            assert_eq!(late.next_timeout(), Some(t + Duration::from_secs(1)));
            // What is missing is told at once.
            late.on_received(receipt(t, None), APP, 2, true);
            assert!(late.is_due(t, APP));
        }
    }

    #[test]
    fn packets_of_one_millisecond_are_acknowledged_at_one_time_and_none_too_late() {
        let at = |nanos| {
            let mut a = acks();
            a.on_received(receipt(Time::from_nanos(nanos), None), APP, 0, true);
            a.next_timeout().unwrap()
        };
        let first = at(7_000_000);
        assert_eq!(first, Time::from_nanos(7_000_000) + MAX_ACK_DELAY);
        assert_eq!(at(7_000_001), first);
        assert_eq!(at(7_999_999), first);
        assert!(at(8_000_000) > first);
    }

    /// Frames of a peer that wants to hear of reordering only.
    fn reordering_only(sequence: u64, reordering_threshold: u64) -> AckFrequencyFrame {
        AckFrequencyFrame {
            sequence,
            ack_eliciting_threshold: 1000,
            requested_max_ack_delay: Duration::from_secs(10),
            reordering_threshold,
        }
    }

    /// Receives one packet; whether that makes an ACK due, which is then sent.
    fn receive(a: &mut Acks, packet_number: u64, ecn: Option<Ecn>) -> bool {
        let now = Time::ZERO;
        a.on_received(receipt(now, ecn), APP, packet_number, true);
        let due = a.is_due(now, APP);
        if due {
            let (mut bytes, mut frames) = ([0; 200], Vec::new());
            let mut writer = towline_wire::Writer::new(&mut bytes);
            a.write_frames(
                now,
                APP,
                &mut PacketWriter::new(&mut writer, &mut frames, false),
            );
            assert!(!a.is_due(now, APP));
        }
        due
    }

    /// The numbers of those received in order that an ACK answers.
    fn answered(reordering_threshold: u64, received: &[u64]) -> Vec<u64> {
        let mut a = acks();
        let frame = reordering_only(0, reordering_threshold);
        a.on_ack_frequency(Time::ZERO, &frame).unwrap();
        let mut answered = received.to_vec();
        answered.retain(|number| receive(&mut a, *number, None));
        answered
    }

    #[test]
    fn gaps_are_reported_as_in_the_tables_of_the_draft() {
        // draft-ietf-quic-ack-frequency-14 §6.2.1, tables 1 and 2.
        assert_eq!(answered(3, &[0, 1, 3, 4, 5, 8, 9, 10]), [5, 9, 10]);
        assert_eq!(answered(5, &[0, 1, 3, 5, 6, 7, 8, 9]), [7, 9]);
        // A gap at the very start, and a packet that comes when it was given up for lost.
        assert_eq!(answered(3, &[1, 2, 3, 0, 4, 5, 6]), [3, 0]);
        assert_eq!(answered(3, &[0, 2, 3, 4, 5, 6, 1]), [4, 1]);
        // Within the threshold nothing is worth a word.
        assert_eq!(answered(3, &[1, 0, 3, 2, 6, 5, 4, 7]), []);
        assert_eq!(answered(1, &[0, 2, 3, 1, 4]), [2, 1]);
        assert_eq!(answered(0, &[0, 9, 3, 50, 1]), []);
        assert_eq!(answered(u64::MAX, &[0, 9, 3, 50, 1]), []);
    }

    #[test]
    fn a_threshold_is_the_number_of_packets_that_may_go_unanswered() {
        for threshold in [0, 1, 2, 9] {
            let mut a = acks();
            let frame = AckFrequencyFrame {
                ack_eliciting_threshold: threshold,
                ..reordering_only(0, 3)
            };
            a.on_ack_frequency(Time::ZERO, &frame).unwrap();
            let due: Vec<u64> = (0..30).filter(|n| receive(&mut a, *n, None)).collect();
            let each = threshold + 1;
            let expected: Vec<u64> = (0..30).filter(|n| n % each == each - 1).collect();
            assert_eq!(due, expected, "{threshold}");
        }
    }

    #[test]
    fn the_requested_delay_counts_from_the_first_packet_owed_and_may_shorten_a_running_one() {
        let mut a = acks();
        let t = Time::from_nanos(1_000_000);
        a.on_received(receipt(t, None), APP, 0, true);
        let frame = |sequence, millis| AckFrequencyFrame {
            requested_max_ack_delay: Duration::from_millis(millis),
            ..reordering_only(sequence, 3)
        };
        a.on_ack_frequency(t, &frame(0, 5)).unwrap();
        assert_eq!(a.next_timeout(), Some(t + Duration::from_millis(5)));
        a.on_ack_frequency(t, &frame(1, 60)).unwrap();
        assert_eq!(a.next_timeout(), Some(t + Duration::from_millis(5)));
        receive(&mut a, 1, Some(Ecn::Ce));
        a.on_received(receipt(t, None), APP, 2, true);
        assert_eq!(a.next_timeout(), Some(t + Duration::from_millis(60)));
    }

    #[test]
    fn only_a_larger_sequence_number_and_a_valid_delay_count() {
        let mut a = acks();
        let frame = |sequence, threshold, delay| AckFrequencyFrame {
            sequence,
            ack_eliciting_threshold: threshold,
            requested_max_ack_delay: delay,
            reordering_threshold: 3,
        };
        let most = MAX_ACK_DELAY_LIMIT - Duration::from_micros(1);
        a.on_ack_frequency(Time::ZERO, &frame(7, 20, MIN_ACK_DELAY))
            .unwrap();
        for stale in [0, 6, 7] {
            a.on_ack_frequency(Time::ZERO, &frame(stale, 5, Duration::ZERO))
                .unwrap();
        }
        assert_eq!(a.frequency.ack_eliciting_threshold, 20);
        for invalid in [
            Duration::ZERO,
            MIN_ACK_DELAY - Duration::from_micros(1),
            MAX_ACK_DELAY_LIMIT,
        ] {
            let refused = a.on_ack_frequency(Time::ZERO, &frame(8, 5, invalid));
            assert!(refused.is_err(), "{invalid:?}");
        }
        a.on_ack_frequency(Time::ZERO, &frame(8, 5, most)).unwrap();
        assert_eq!(a.frequency.ack_eliciting_threshold, 5);
    }

    #[test]
    fn the_first_of_a_run_of_ce_marks_is_reported_at_once() {
        let marks = [0, 1, 1, 1, 0, 1];
        let due = |a: &mut Acks| -> Vec<bool> {
            let ecn = |mark| if mark == 1 { Ecn::Ce } else { Ecn::Ect0 };
            let numbered = (0..).zip(marks);
            numbered
                .map(|(n, mark)| receive(a, n, Some(ecn(mark))))
                .collect()
        };
        let mut thinned = acks();
        thinned
            .on_ack_frequency(Time::ZERO, &reordering_only(0, 3))
            .unwrap();
        let first_only = [false, true, false, false, false, true];
        assert_eq!(due(&mut thinned), first_only);
        // RFC 9000 §13.2.1: every mark.
        let every = [false, true, true, true, false, true];
        assert_eq!(due(&mut acks()), every);
    }

    #[test]
    fn ranges_are_reported_before_the_oldest_is_forgotten() {
        let even: Vec<u64> = (0..200).map(|i| 2 * i).collect();
        let answered = answered(0, &even);
        assert!(answered[0] < 2 * MAX_ACK_RANGES as u64, "{answered:?}");
    }

    #[test]
    fn at_most_64_ranges_are_kept_and_older_numbers_count_as_duplicates() {
        let mut a = acks();
        for i in 0..200 {
            assert!(!a.is_duplicate(APP, 2 * i));
            a.on_received(receipt(Time::ZERO, None), APP, 2 * i, true);
        }
        assert_eq!(a.spaces.application().numbers.len(), MAX_ACK_RANGES);
        assert!(a.is_duplicate(APP, 1));
        assert!(a.is_duplicate(APP, 398));
        assert!(!a.is_duplicate(APP, 397));
    }
}

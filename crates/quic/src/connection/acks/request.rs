//! How often we want to be acknowledged (draft-ietf-quic-ack-frequency-14 §4, §8).
//!
//! Owns the ACK_FREQUENCY frames we send: what they ask for, when they change, and which of them
//! the peer may be working by. Fed with the path after every ACK. Never asks for fewer ACKs than the
//! congestion controller's present phase needs, and sends nothing while the RFC's own rules serve.
//! While we send little, no controller needs anything, and the configured policy is asked for.

use std::time::Duration;

use towline_wire::{ACK_FREQUENCY_MAX_LEN, AckFrequencyFrame, write_ack_frequency};

use crate::config::{AckPolicy, MAX_PACKETS_PER_ACK};
use crate::connection::component::{PacketWriter, SentFrame};

/// As RFC 9000 §13.2.2 has it.
const DEFAULT_PACKETS_PER_ACK: u64 = 2;

/// ACKs we like in a round trip, whatever the controller needs: the window opens in steps of this
/// part of it. With 8, transfers through a queue of a quarter BDP took up to 8 % longer, and 30 %
/// when a fifth of the ACKs got lost as well; with 32 at most 4 %.
const ACKS_PER_ROUND: u64 = 32;

/// ACKs asked for each that the controller needs: ACKs get lost, and windows are rarely full.
const MARGIN: u64 = 4;

/// Requested delays are this part of a round trip.
const DELAYS_PER_ROUND: u32 = 4;

/// Ours is the packet threshold of loss detection (RFC 9002 §6.1.1); an ACK before it tells nothing.
const REORDERING_THRESHOLD: u64 = 3;

/// A value that changed by this factor is worth a new frame.
const LARGE_CHANGE: u32 = 2;

/// What a request depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathView {
    /// Full-sized packets that the congestion window holds.
    pub(crate) window_packets: u64,
    pub(crate) smoothed_rtt: Duration,
    /// ACKs the controller needs in a round trip.
    pub(crate) least_acks_per_round: u32,
    /// The congestion window, bytes.
    pub(crate) window: u64,
    /// Bytes that were in flight before the last ACK.
    pub(crate) in_flight: u64,
    /// Mean size of the packets that it acknowledged, bytes.
    pub(crate) packet_size: u64,
}

impl PathView {
    /// Whether we send so little that ACKs of `packets` packets each hold nothing up: two of them are
    /// all that is under way, and the window has room for more.
    fn is_slow(&self, packets: u64) -> bool {
        let two = (2 * packets).saturating_mul(self.packet_size);
        self.in_flight <= two.min(self.window / 4 * 3)
    }
}

/// What one frame asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    packets_per_ack: u64,
    max_ack_delay: Duration,
}

impl Terms {
    /// What is asked for by this policy; `None` where it asks for more ACKs than `usual`, or we do not
    /// send little.
    fn of_slow_sender(&self, path: PathView, usual: Self) -> Option<Self> {
        // The window is not to be filled by what waits for an ACK.
        let fitting = path.window / 2 / path.packet_size.max(1);
        let packets_per_ack = self.packets_per_ack.min(fitting);
        let thinner = packets_per_ack > usual.packets_per_ack;
        (thinner && path.is_slow(packets_per_ack)).then(|| Self {
            packets_per_ack,
            max_ack_delay: self.max_ack_delay.max(usual.max_ack_delay),
        })
    }

    fn differ_much(&self, other: &Self) -> bool {
        let factor = u64::from(LARGE_CHANGE);
        let (few, many) = order(self.packets_per_ack, other.packets_per_ack);
        let (short, long) = order(self.max_ack_delay, other.max_ack_delay);
        many >= factor * few || (long > short && long >= LARGE_CHANGE * short)
    }
}

/// What the peer agreed to.
#[derive(Clone, Copy, Debug)]
struct Agreement {
    min_ack_delay: Duration,
    max_ack_delay: Duration,
}

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct Request {
    /// What we want while we send little.
    policy: Terms,
    /// `None`: the peer gets no frame of the extension.
    agreement: Option<Agreement>,
    wanted: Option<Terms>,
    /// The newest sent, or what the peer does by itself.
    asked: Option<Terms>,
    next_sequence: u64,
    /// The newest frame is neither acknowledged nor lost.
    in_flight: bool,
    pending: bool,
    /// The longest delay of all terms that the peer may be working by.
    longest_delay: Duration,
}

impl Request {
    pub(crate) fn new(policy: AckPolicy) -> Self {
        Self {
            policy: Terms {
                packets_per_ack: policy.packets_per_ack.into(),
                max_ack_delay: policy.max_ack_delay,
            },
            agreement: None,
            wanted: None,
            asked: None,
            next_sequence: 0,
            in_flight: false,
            pending: false,
            longest_delay: Duration::ZERO,
        }
    }

    /// The handshake is confirmed, and the peer takes part.
    pub(crate) fn open(&mut self, min_ack_delay: Duration, max_ack_delay: Duration) {
        self.agreement = Some(Agreement {
            min_ack_delay,
            max_ack_delay,
        });
        self.longest_delay = max_ack_delay;
        self.asked = Some(Terms {
            packets_per_ack: DEFAULT_PACKETS_PER_ACK,
            max_ack_delay,
        });
    }

    /// Whether the peer takes frames of the extension now.
    pub(crate) fn is_open(&self) -> bool {
        self.agreement.is_some()
    }

    /// The longest the peer may delay an ACK, by all it may know of our requests: the current value
    /// and all in flight (draft-ietf-quic-ack-frequency-14 §7).
    pub(crate) fn max_ack_delay(&self) -> Duration {
        self.longest_delay
    }

    /// The path may have changed. At most one new request is on its way at a time.
    pub(crate) fn on_path(&mut self, path: PathView) {
        let Some(agreement) = &self.agreement else {
            return;
        };
        let usual = agreement.terms(path);
        let wanted = self.policy.of_slow_sender(path, usual).unwrap_or(usual);
        self.wanted = Some(wanted);
        self.pending |= !self.in_flight && self.asked.is_some_and(|a| a.differ_much(&wanted));
    }

    /// Whether a frame should ride on the next packet that goes anyway.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Appends the newest request.
    pub(crate) fn write_frames(&mut self, w: &mut PacketWriter<'_, '_>) {
        let Some(wanted) = self.wanted.filter(|_| self.pending) else {
            return;
        };
        if w.remaining() < ACK_FREQUENCY_MAX_LEN {
            return;
        }
        let sequence = self.next_sequence;
        let frame = AckFrequencyFrame {
            sequence,
            ack_eliciting_threshold: wanted.packets_per_ack - 1,
            requested_max_ack_delay: wanted.max_ack_delay,
            reordering_threshold: REORDERING_THRESHOLD,
        };
        write_ack_frequency(w.w, &frame);
        w.record(SentFrame::AckFrequency { sequence });
        self.next_sequence += 1;
        self.asked = Some(wanted);
        self.longest_delay = self.longest_delay.max(wanted.max_ack_delay);
        self.in_flight = true;
        self.pending = false;
    }

    pub(crate) fn on_acked(&mut self, sequence: u64) {
        // An older one may still be overtaken: nothing is certain until the newest arrived.
        if sequence + 1 == self.next_sequence
            && let Some(asked) = self.asked
        {
            self.longest_delay = asked.max_ack_delay;
            self.in_flight = false;
            self.pending = false;
        }
    }

    /// Lost, or to be repeated in a probe: the newest terms take its place.
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        self.pending |= self.in_flight && sequence + 1 == self.next_sequence;
    }
}

impl Agreement {
    fn terms(&self, path: PathView) -> Terms {
        let acks = ACKS_PER_ROUND.max(MARGIN * u64::from(path.least_acks_per_round));
        let packets_per_ack = (path.window_packets / acks).min(MAX_PACKETS_PER_ACK.into());
        if packets_per_ack < u64::from(LARGE_CHANGE) * DEFAULT_PACKETS_PER_ACK {
            // Not much thinner than usual: shorter delays would only be more ACKs.
            return Terms {
                packets_per_ack: DEFAULT_PACKETS_PER_ACK,
                max_ack_delay: self.max_ack_delay,
            };
        }
        let max_ack_delay = whole_micros(path.smoothed_rtt / DELAYS_PER_ROUND)
            .clamp(self.min_ack_delay, self.max_ack_delay);
        Terms {
            packets_per_ack,
            max_ack_delay,
        }
    }
}

fn order<T: PartialOrd>(a: T, b: T) -> (T, T) {
    if a <= b { (a, b) } else { (b, a) }
}

/// As much of `duration` as the wire can say.
fn whole_micros(duration: Duration) -> Duration {
    Duration::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use towline_wire::{Frame, Reader, Writer};

    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn path(window_packets: u64, rtt: Duration, least_acks_per_round: u32) -> PathView {
        PathView {
            window_packets,
            smoothed_rtt: rtt,
            least_acks_per_round,
            window: window_packets.saturating_mul(1200),
            in_flight: window_packets.saturating_mul(1200),
            packet_size: 1200,
        }
    }

    fn request(packets_per_ack: u32, max_ack_delay: Duration) -> Request {
        Request::new(AckPolicy {
            packets_per_ack,
            max_ack_delay,
        })
    }

    fn opened() -> Request {
        let mut request = request(2, ms(25));
        request.open(ms(1), ms(25));
        request
    }

    /// The frame the next packet carries.
    fn frame(request: &mut Request) -> Option<AckFrequencyFrame> {
        let (mut bytes, mut frames) = ([0; 100], Vec::new());
        let mut writer = Writer::new(&mut bytes);
        request.write_frames(&mut PacketWriter::new(&mut writer, &mut frames, true));
        if writer.is_empty() {
            return None;
        }
        match Frame::parse(&mut Reader::new(writer.written())) {
            Ok(Frame::AckFrequency(frame)) => Some(frame),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_controllers_need_bounds_the_packets_of_an_ack() {
        let agreement = opened().agreement.unwrap();
        let packets = |window, least| {
            agreement
                .terms(path(window, ms(100), least))
                .packets_per_ack
        };
        for least in 1..200 {
            for window in (1..3000).step_by(7) {
                let packets = packets(window, least);
                let enough = window / packets >= MARGIN * u64::from(least);
                assert!(enough || packets == DEFAULT_PACKETS_PER_ACK);
                assert!(packets <= MAX_PACKETS_PER_ACK.into());
            }
        }
        assert_eq!(packets(10, 8), 2);
        assert_eq!(packets(320, 8), 10);
        assert_eq!(packets(320, 16), 5);
        assert_eq!(packets(320, 2), 10);
        assert_eq!(packets(u64::MAX, 2), 64);
        assert_eq!(packets(1000, u32::MAX), 2);
    }

    #[test]
    fn delays_are_a_quarter_of_a_round_trip_in_the_peers_bounds() {
        let agreement = opened().agreement.unwrap();
        let delay = |rtt| agreement.terms(path(1000, rtt, 2)).max_ack_delay;
        assert_eq!(delay(ms(40)), ms(10));
        assert_eq!(delay(ms(165)), ms(25));
        assert_eq!(delay(Duration::from_micros(50)), ms(1));
        assert_eq!(delay(Duration::MAX), ms(25));
    }

    #[test]
    fn nothing_is_said_while_the_usual_serves_or_little_changed() {
        let mut r = request(2, ms(25));
        r.on_path(path(1000, ms(40), 2));
        assert!(!r.is_pending() && !r.is_open(), "the peer takes no part");
        let mut r = opened();
        for window in [0, 1, 10, 127] {
            r.on_path(path(window, ms(40), 2));
            assert_eq!(frame(&mut r), None, "{window}");
        }
        r.on_path(path(320, ms(40), 2));
        let sent = frame(&mut r).unwrap();
        assert_eq!((sent.sequence, sent.ack_eliciting_threshold), (0, 9));
        assert_eq!(sent.reordering_threshold, 3);
        r.on_acked(0);
        for window in [192, 320, 639] {
            r.on_path(path(window, ms(40), 2));
            assert_eq!(frame(&mut r), None, "{window}");
        }
        r.on_path(path(640, ms(40), 2));
        assert_eq!(frame(&mut r).unwrap().ack_eliciting_threshold, 19);
    }

    #[test]
    fn one_request_at_a_time_and_a_lost_one_is_replaced_by_the_newest() {
        let mut r = opened();
        r.on_path(path(320, ms(40), 2));
        assert_eq!(frame(&mut r).unwrap().sequence, 0);
        r.on_path(path(1280, ms(40), 2));
        assert_eq!(frame(&mut r), None, "one is in flight");
        r.on_lost(0);
        let second = frame(&mut r).unwrap();
        assert_eq!((second.sequence, second.ack_eliciting_threshold), (1, 39));
        r.on_lost(0);
        assert_eq!(frame(&mut r), None, "a newer one is on its way");
        r.on_acked(1);
        r.on_lost(1);
        assert_eq!(frame(&mut r), None, "it has arrived");
    }

    #[test]
    fn the_longest_delay_in_flight_counts_until_the_newest_frame_is_acknowledged() {
        let mut r = opened();
        assert_eq!(r.max_ack_delay(), ms(25));
        r.on_path(path(320, ms(20), 2));
        frame(&mut r).unwrap();
        assert_eq!(r.max_ack_delay(), ms(25));
        r.on_acked(0);
        assert_eq!(r.max_ack_delay(), ms(5));
        r.on_path(path(320, ms(80), 2));
        frame(&mut r).unwrap();
        assert_eq!(r.max_ack_delay(), ms(20), "raised before the peer knows");
        r.on_path(path(320, ms(8), 2));
        r.on_lost(1);
        assert_eq!(frame(&mut r).unwrap().requested_max_ack_delay, ms(2));
        r.on_acked(1);
        assert_eq!(r.max_ack_delay(), ms(20), "the newest is not certain");
        r.on_acked(2);
        assert_eq!(r.max_ack_delay(), ms(2));
    }

    /// A path on which `in_flight` packets of `packet_size` bytes were under way.
    fn slow(in_flight: u64, packet_size: u64) -> PathView {
        PathView {
            in_flight: in_flight * packet_size,
            packet_size,
            ..path(10, ms(50), 2)
        }
    }

    #[test]
    fn a_slow_sender_asks_for_its_policy_and_a_busy_one_does_not() {
        let mut r = request(10, Duration::from_secs(1));
        r.open(ms(1), ms(25));
        r.on_path(path(10, ms(50), 2));
        assert_eq!(frame(&mut r), None, "the window is full");
        r.on_path(slow(2, 60));
        let asked = frame(&mut r).unwrap();
        assert_eq!(asked.ack_eliciting_threshold, 9);
        assert_eq!(asked.requested_max_ack_delay, Duration::from_secs(1));
        assert_eq!(r.max_ack_delay(), Duration::from_secs(1));
        r.on_acked(0);
        // As many under way as the policy brings about.
        for in_flight in 0..=20 {
            r.on_path(slow(in_flight, 60));
            assert_eq!(frame(&mut r), None);
        }
        r.on_path(slow(21, 60));
        let asked = frame(&mut r).unwrap();
        assert_eq!(asked.ack_eliciting_threshold, 1);
        assert_eq!(asked.requested_max_ack_delay, ms(25));
        assert_eq!(
            r.max_ack_delay(),
            Duration::from_secs(1),
            "until it arrived"
        );
        r.on_acked(1);
        assert_eq!(r.max_ack_delay(), ms(25));
    }

    #[test]
    fn packets_that_wait_for_an_ack_leave_half_of_the_window() {
        let mut r = request(10, Duration::from_secs(1));
        r.open(ms(1), ms(25));
        r.on_path(slow(1, 1200));
        assert_eq!(frame(&mut r).unwrap().ack_eliciting_threshold, 4);
    }

    #[test]
    fn a_policy_that_is_the_usual_asks_for_nothing() {
        for packets in [1, 2] {
            let mut r = request(packets, ms(25));
            r.open(ms(1), ms(25));
            r.on_path(slow(1, 60));
            assert_eq!(frame(&mut r), None);
        }
    }
}

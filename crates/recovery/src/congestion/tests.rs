//! What all controllers share, and the builders their own tests use.

use proptest::prelude::*;

use core::time::Duration;

use super::interface::LEAST_ACKS_OTHERWISE;
use super::*;

pub(in crate::congestion) const SIZE: u16 = 1200;
pub(in crate::congestion) const DATAGRAM: u64 = SIZE as u64;

pub(in crate::congestion) fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// An ACK at `now` of `bytes` sent 100 ms before, of a flight that filled the window.
pub(in crate::congestion) fn ack(now: Time, bytes: u64) -> AckSample {
    let rtt = Duration::from_millis(100);
    AckSample {
        now,
        acked_bytes: bytes,
        acked_bytes_after_recovery: bytes,
        acked_packets: bytes.div_ceil(DATAGRAM),
        newest_sent_time: now - rtt,
        bytes_in_flight_before: bytes,
        bytes_in_flight: 0,
        rtt: Some(rtt),
        adjusted_rtt: Some(rtt),
        smoothed_rtt: rtt,
        min_rtt: Some(rtt),
        delivered: 0,
        prior_delivered: 0,
        round: 1,
        round_start: false,
        delivery_rate: None,
        tx_in_flight: bytes,
        lost_since_sent: 0,
        app_limited: false,
        cwnd_limited: true,
        ce_marks: 0,
        one_way_delay: None,
    }
}

/// One packet lost, sent at `sent`, in a flight that filled the window.
pub(in crate::congestion) fn loss(now: Time, sent: Time) -> LossSample<'static> {
    LossSample {
        now,
        bytes: DATAGRAM,
        ranges: 1,
        largest_sent_time: sent,
        delivered: 0,
        lost: DATAGRAM,
        bytes_in_flight_before: u64::MAX,
        cwnd_limited: true,
        packets: &[],
    }
}

fn each() -> [Controller; 2] {
    [Algorithm::NewReno, Algorithm::Cubic].map(|name| Controller::new(name, SIZE, true, true))
}

#[test]
fn initial_window_is_ten_datagrams_within_14720_bytes() {
    assert_eq!(initial_window(1200), 12_000);
    assert_eq!(initial_window(1472), 14_720);
    assert_eq!(initial_window(1500), 14_720);
    assert_eq!(initial_window(9000), 18_000);
}

#[test]
fn slow_start_grows_by_the_bytes_acknowledged() {
    for mut controller in each() {
        assert!(controller.in_slow_start());
        controller.on_ack(&ack(at(100), 5000));
        assert_eq!(controller.window(), 17_000);
    }
}

#[test]
fn an_application_limited_flight_does_not_grow_the_window() {
    for mut controller in each() {
        let unfilled = |now| AckSample {
            cwnd_limited: false,
            ..ack(now, 5000)
        };
        controller.on_ack(&unfilled(at(100)));
        assert_eq!(controller.window(), 12_000, "slow start");
        controller.on_lost(&loss(at(200), at(100)));
        let window = controller.window();
        for millis in 400..500 {
            controller.on_ack(&unfilled(at(millis)));
        }
        assert_eq!(controller.window(), window, "avoidance");
    }
}

#[test]
fn a_recovery_period_reduces_once_and_does_not_grow() {
    for mut controller in each() {
        assert!(controller.on_lost(&loss(at(200), at(100))));
        let window = controller.window();
        assert!(!controller.on_lost(&loss(at(210), at(150))));
        assert!(
            !controller.on_lost(&loss(at(220), at(200))),
            "sent as the period began"
        );
        controller.on_ack(&ack(at(290), 50_000));
        assert_eq!(controller.window(), window, "bytes sent before the period");
        controller.on_ack(&ack(at(310), 50_000));
        assert!(controller.window() > window, "the period is over");
        assert!(controller.on_lost(&loss(at(320), at(201))));
    }
}

#[test]
fn only_bytes_sent_in_recovery_grow_the_window_when_an_ack_mixes_both() {
    for mut controller in each() {
        controller.on_lost(&loss(at(200), at(100)));
        let window = controller.window();
        let mixed = AckSample {
            acked_bytes_after_recovery: 0,
            ..ack(at(310), 50_000)
        };
        controller.on_ack(&mixed);
        assert_eq!(controller.window(), window);
    }
}

#[test]
fn a_ce_mark_reduces_like_a_loss_once_per_round_trip() {
    for mut controller in each() {
        let marked = |now| AckSample {
            ce_marks: 3,
            ..ack(now, DATAGRAM)
        };
        assert!(controller.on_ack(&marked(at(200))));
        let window = controller.window();
        assert!(window < 12_000);
        assert!(!controller.on_ack(&marked(at(250))));
        assert_eq!(controller.window(), window);
        assert!(controller.on_ack(&marked(at(301))));
    }
}

#[test]
fn persistent_congestion_leaves_two_datagrams_and_slow_start() {
    for mut controller in each() {
        controller.on_ack(&ack(at(100), 100_000));
        controller.on_lost(&loss(at(5000), at(4000)));
        controller.on_persistent_congestion(at(5000));
        assert_eq!(controller.window(), 2 * DATAGRAM);
        assert_eq!(controller.recovery_start(), None);
        assert!(controller.in_slow_start());
        controller.on_ack(&ack(at(5100), 2 * DATAGRAM));
        assert_eq!(controller.window(), 4 * DATAGRAM);
    }
}

#[test]
fn a_size_lowered_during_the_handshake_restarts_the_window() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut controller = Controller::new(algorithm, 1472, true, true);
        controller.on_max_datagram_size(1200, true);
        assert_eq!(controller.window(), 12_000);
        controller.on_max_datagram_size(1472, true);
        assert_eq!(controller.window(), 12_000, "a larger size adds no bytes");
        controller.on_max_datagram_size(9000, false);
        assert_eq!(controller.window(), 18_000, "but two datagrams always fit");
    }
}

#[test]
fn a_new_path_starts_afresh_and_ignores_the_old_one() {
    for mut controller in each() {
        controller.on_lost(&loss(at(200), at(100)));
        controller.on_path_change(at(300), SIZE);
        assert_eq!((controller.window(), controller.ssthresh()), (12_000, None));
        assert!(!controller.on_lost(&loss(at(350), at(290))));
        assert_eq!(controller.window(), 12_000);
        assert_eq!(controller.least_ack_rate().per_round, 8);
    }
}

#[test]
fn slow_start_with_hystart_asks_for_eight_acks_a_round() {
    for mut controller in each() {
        assert_eq!(controller.least_ack_rate(), LeastAckRate { per_round: 8 });
        controller.on_lost(&loss(at(200), at(100)));
        assert_eq!(controller.least_ack_rate(), LEAST_ACKS_OTHERWISE);
    }
    let plain = Controller::new(Algorithm::Cubic, SIZE, false, true);
    assert_eq!(plain.least_ack_rate(), LEAST_ACKS_OTHERWISE);
}

#[derive(Clone, Copy, Debug)]
enum Fact {
    Ack {
        bytes: u64,
        limited: bool,
        marks: u64,
        rtt: u64,
    },
    Loss {
        age: u64,
    },
    Spurious,
    Persistent,
    Idle,
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        8 => (0u64..200_000, any::<bool>(), 0u64..8, prop_oneof![0u64..300, Just(60_000)])
            .prop_map(|(bytes, limited, marks, rtt)| Fact::Ack {
                bytes,
                limited,
                marks: marks.saturating_sub(6),
                rtt,
            }),
        2 => (0u64..300).prop_map(|age| Fact::Loss { age }),
        1 => Just(Fact::Spurious),
        1 => Just(Fact::Persistent),
        1 => Just(Fact::Idle),
    ]
}

proptest! {
    #[test]
    fn the_window_stays_between_one_datagram_and_what_was_acknowledged(
        facts in prop::collection::vec((fact(), 0u64..400), 1..300),
    ) {
        for mut controller in each() {
            let (mut millis, mut acknowledged) = (1000, 12_000u64);
            for (fact, gap) in &facts {
                millis += gap;
                let now = at(millis);
                match *fact {
                    Fact::Ack { bytes, limited, marks, rtt } => {
                        acknowledged += bytes;
                        let rtt = Duration::from_millis(rtt);
                        controller.on_ack(&AckSample {
                            cwnd_limited: limited,
                            ce_marks: marks,
                            rtt: Some(rtt),
                            smoothed_rtt: rtt,
                            newest_sent_time: now - rtt,
                            round: millis / 100,
                            ..ack(now, bytes)
                        });
                    }
                    Fact::Loss { age } => {
                        controller.on_lost(&loss(now, at(millis - age)));
                    }
                    Fact::Spurious => {
                        controller.on_spurious_loss(now);
                    }
                    Fact::Persistent => controller.on_persistent_congestion(now),
                    Fact::Idle => controller.on_sent(&SendSample {
                        now,
                        bytes: DATAGRAM,
                        bytes_in_flight: 0,
                        app_limited: true,
                    }),
                }
                prop_assert!(controller.window() >= DATAGRAM);
                prop_assert!(controller.window() <= acknowledged.max(12_000) * 2);
                prop_assert!(controller.ssthresh().is_none_or(|bytes| bytes >= DATAGRAM));
            }
        }
    }
}

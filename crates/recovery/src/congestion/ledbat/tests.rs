use super::super::tests::{SIZE, ack, at, loss};
use super::*;
use proptest::prelude::*;

const DATAGRAM: u64 = SIZE as u64;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An ACK of `packets` at `now` that took `rtt` on a path whose smoothed_rtt is the same.
fn acked(now: Time, packets: u64, rtt: u64) -> AckSample {
    AckSample {
        newest_sent_time: now - millis(rtt),
        rtt: Some(millis(rtt)),
        adjusted_rtt: Some(millis(rtt)),
        smoothed_rtt: millis(rtt),
        tx_in_flight: 100 * DATAGRAM,
        ..ack(now, packets * DATAGRAM)
    }
}

fn core_at(window: f64, phase: Phase) -> Core {
    Core {
        phase,
        window,
        ssthresh: window,
        ..Core::new(LEDBAT_TARGET)
    }
}

/// An ACK for the core: `queue` milliseconds above a base of 50.
fn step(now: Time, packets: f64, queue: u64) -> Acked {
    Acked {
        now,
        sent: now - millis(50 + queue),
        flight_then: f64::INFINITY,
        flight: 0.0,
        packets,
        growing: packets,
        smoothed_rtt: millis(50 + queue),
        base: Some(50_000_000),
        queue: Some(queue * 1_000_000),
    }
}

#[test]
fn it_starts_at_two_packets() {
    let ledbat = Ledbat::new(SIZE);
    assert_eq!(ledbat.window(), 2 * DATAGRAM);
    assert_eq!(ledbat.ssthresh(), None);
    assert!(ledbat.in_slow_start());
    assert_eq!(ledbat.least_ack_rate().per_round, 4);
}

#[test]
fn the_gain_follows_the_base_delay() {
    let core = Core::new(LEDBAT_TARGET);
    for (base_micros, divisor) in [
        (300_000, 1),
        (120_000, 1),
        (119_999, 2),
        (60_000, 2),
        (20_000, 6),
        (10_000, 12),
        (7_500, 16),
        (5_000, 16),
        (0, 16),
    ] {
        let gain = core.gain(Some(base_micros * 1000));
        assert_eq!(gain, 1.0 / f64::from(divisor), "{base_micros} us");
    }
}

#[test]
fn slow_start_grows_by_the_gain_and_leaves_at_three_quarters_of_the_target() {
    let mut core = Core::new(LEDBAT_TARGET);
    core.on_ack(&step(at(100), 2.0, 0));
    assert_eq!(core.window, 2.0 + 2.0 / 3.0, "120 / 50 ms: a third");
    core.on_ack(&step(at(200), 3.0, 45));
    assert_eq!(core.phase, Phase::SlowStart, "45 ms is not above");
    let before = core.window;
    core.on_ack(&step(at(300), 3.0, 46));
    assert_eq!((core.phase, core.window), (Phase::Avoidance, before));
    assert_eq!(core.ssthresh, before);
    assert_eq!(core.next_slowdown, Some(at(300 + 2 * 96)));
}

#[test]
fn leaving_slow_start_goes_back_to_the_flight_that_made_the_queue() {
    let mut core = core_at(1900.0, Phase::SlowStart);
    let first = Acked {
        flight_then: 1000.0,
        ..step(at(1000), 2.0, 46)
    };
    core.on_ack(&first);
    assert_eq!((core.window, core.ssthresh), (1000.0, 1000.0));
    core.next_slowdown = None;
    // Packets of the larger window meet its queue; the window has paid for it already.
    for (now, flight) in [(1050, 1500.0), (1100, 990.0)] {
        core.on_ack(&Acked {
            flight,
            ..step(at(now), 100.0, 100)
        });
    }
    core.on_ack(&step(at(1249), 100.0, 100));
    assert_eq!(core.window, 1000.0);
    core.on_ack(&step(at(1251), 100.0, 100));
    assert!(core.window < 1000.0, "from then on it counts");
}

#[test]
fn below_the_target_growth_is_the_gain_per_window_whatever_the_distance() {
    for queue in [0, 30, 59, 60] {
        let mut core = core_at(100.0, Phase::Avoidance);
        core.on_ack(&step(at(100), 100.0, queue));
        assert!((core.window - 100.0 - 1.0 / 3.0).abs() < 1e-9, "{queue} ms");
    }
}

#[test]
fn above_the_target_the_decrease_is_proportional() {
    // A tenth over the target: a tenth of the window per window acknowledged, less the gain.
    let mut core = core_at(100.0, Phase::Avoidance);
    core.on_ack(&step(at(1000), 100.0, 66));
    assert!((core.window - (100.0 - 10.0 + 1.0 / 3.0)).abs() < 1e-9);
}

#[test]
fn a_round_trip_takes_at_most_half_the_window_however_many_acks_it_brings() {
    let mut core = core_at(100.0, Phase::Avoidance);
    for i in 0..50 {
        core.on_ack(&step(at(1000 + i), 4.0, 600));
    }
    assert_eq!(core.window, 50.0);
    // The next round trip has a new allowance.
    core.on_ack(&step(at(1000 + 650), 50.0, 600));
    assert_eq!(core.window, 25.0);
}

#[test]
fn an_unfilled_window_does_not_grow() {
    let mut ledbat = Ledbat::new(SIZE);
    for i in 1..50 {
        let sample = AckSample {
            cwnd_limited: false,
            ..acked(at(i * 100), 2, 50)
        };
        ledbat.on_ack(&sample);
    }
    assert_eq!(ledbat.window(), 2 * DATAGRAM);
}

#[test]
fn a_slowdown_freezes_two_round_trips_and_ramps_back_whatever_the_delay() {
    let mut core = core_at(100.0, Phase::Avoidance);
    core.next_slowdown = Some(at(1000));
    core.last_slowdown = millis(1);
    core.on_ack(&step(at(1000), 10.0, 50));
    assert_eq!((core.window, core.ssthresh), (2.0, 100.0));
    assert_eq!(core.next_timeout(), Some(at(1200)));
    core.on_ack(&step(at(1199), 50.0, 0));
    assert_eq!((core.phase, core.window), (Phase::Frozen, 2.0));
    // No ACK needed to thaw.
    core.on_time(at(1200));
    assert_eq!((core.phase, core.next_timeout()), (Phase::Ramp, None));
    // Somebody else's queue, far above the target: the ramp goes on, one for one.
    for i in 1..=49 {
        core.on_ack(&step(at(1200 + i), 2.0, 300));
        assert!(core.in_slow_start() || i == 49);
    }
    assert_eq!((core.phase, core.window), (Phase::Avoidance, 100.0));
    let took = millis(249);
    let least = millis(350 * 2);
    assert_eq!(core.last_slowdown, took);
    assert_eq!(core.next_slowdown, Some(at(1249) + least.max(took) * 9));
}

#[test]
fn slowdowns_are_never_closer_than_eighteen_round_trips() {
    // Lesson (h): with a floor of one round trip Freenet slowed down 224 times in 30 s.
    let mut ledbat = Ledbat::new(SIZE);
    let (mut slowdowns, mut frozen, mut last) = (0, false, None);
    for i in 1..6000 {
        let now = at(i * 5);
        let rtt = if i < 400 { 50 } else { 100 };
        ledbat.on_timeout(now);
        ledbat.on_ack(&acked(now, 2, rtt));
        if ledbat.core.is_frozen() && !frozen {
            slowdowns += 1;
            if slowdowns > 2
                && let Some(last) = last
            {
                let spacing = now.saturating_duration_since(last);
                assert!(spacing >= millis(18 * 50), "{spacing:?}");
            }
            last = Some(now);
        }
        frozen = ledbat.core.is_frozen();
    }
    assert!((3..=33).contains(&slowdowns), "{slowdowns} in 30 s");
}

#[test]
fn a_small_window_skips_the_slowdown_and_goes_on() {
    let mut core = core_at(4.0, Phase::Avoidance);
    core.next_slowdown = Some(at(1000));
    core.on_ack(&step(at(1000), 3.0, 0));
    assert_eq!(core.phase, Phase::Avoidance);
    assert!(core.window > 4.0, "congestion avoidance is not blocked");
    assert_eq!(core.next_slowdown, Some(at(1000 + 9 * 100)));
}

#[test]
fn a_latecomers_first_slowdown_gives_up_what_it_took() {
    // 60 ms of somebody's queue taken for the path, 46 of its own on top.
    let mut core = core_at(500.0, Phase::SlowStart);
    let late = |now, base: u64, queue: u64| Acked {
        base: Some(base * 1_000_000),
        ..step(now, 10.0, queue)
    };
    core.on_ack(&late(at(1000), 110, 46));
    core.on_ack(&late(at(2000), 110, 20));
    assert!(core.is_frozen());
    core.on_time(at(3000));
    core.on_ack(&late(at(3000), 50, 0));
    assert_eq!(core.ssthresh, 250.0, "half: 106 ms is far above the target");

    let mut first = core_at(500.0, Phase::SlowStart);
    first.on_ack(&late(at(1000), 50, 46));
    first.on_ack(&late(at(2000), 50, 46));
    first.on_time(at(3000));
    first.on_ack(&late(at(3000), 50, 0));
    assert_eq!(
        first.ssthresh, 500.0,
        "one who knew the base gives up nothing"
    );
}

#[test]
fn a_loss_halves_once_per_round_trip() {
    let mut ledbat = Ledbat::new(SIZE);
    ledbat.core = core_at(100.0, Phase::Avoidance);
    assert!(ledbat.on_lost(&loss(at(1000), at(900))));
    assert_eq!(ledbat.window(), 50 * DATAGRAM);
    assert!(!ledbat.on_lost(&loss(at(1010), at(950))), "same round");
    let marked = AckSample {
        ce_marks: 1,
        ..acked(at(1020), 1, 50)
    };
    assert!(!ledbat.on_ack(&marked), "sent before, too");
    assert!(ledbat.on_lost(&loss(at(1100), at(1001))));
    assert!(ledbat.window() <= 26 * DATAGRAM);
    for i in 0..20 {
        ledbat.on_lost(&loss(at(2000 + 100 * i), at(1999 + 100 * i)));
    }
    assert_eq!(ledbat.window(), 2 * DATAGRAM, "never below two");
}

#[test]
fn a_mark_halves_like_a_loss() {
    let mut ledbat = Ledbat::new(SIZE);
    ledbat.core = core_at(100.0, Phase::Avoidance);
    let marked = AckSample {
        ce_marks: 3,
        ..acked(at(1000), 1, 50)
    };
    assert!(ledbat.on_ack(&marked));
    assert_eq!(ledbat.window(), 50 * DATAGRAM);
}

#[test]
fn a_loss_while_frozen_lowers_only_the_threshold() {
    let mut core = core_at(100.0, Phase::Avoidance);
    core.next_slowdown = Some(at(1000));
    core.on_ack(&step(at(1000), 10.0, 50));
    assert!(core.on_congestion(at(1050), at(1040), millis(100)));
    assert_eq!((core.window, core.ssthresh), (2.0, 50.0));
    assert!(core.is_frozen());
}

#[test]
fn a_loss_in_the_ramp_ends_it_and_schedules_the_next_slowdown() {
    let mut core = core_at(64.0, Phase::Ramp);
    core.ssthresh = 200.0;
    core.slowdown_start = at(500);
    assert!(core.on_congestion(at(1000), at(950), millis(100)));
    assert_eq!((core.window, core.ssthresh), (32.0, 32.0));
    assert_eq!(core.phase, Phase::Avoidance);
    assert_eq!(core.next_slowdown, Some(at(1000 + 9 * 500)));
}

#[test]
fn persistent_congestion_keeps_the_base_and_ramps_back() {
    let mut ledbat = Ledbat::new(SIZE);
    ledbat.on_ack(&acked(at(50), 2, 50));
    ledbat.core = core_at(100.0, Phase::Avoidance);
    ledbat.on_lost(&loss(at(5000), at(4000)));
    ledbat.on_persistent_congestion(at(5000));
    assert_eq!(ledbat.window(), 2 * DATAGRAM);
    assert_eq!(ledbat.ssthresh(), Some(50 * DATAGRAM));
    assert_eq!(ledbat.base_delay(), Some(millis(50)));
    assert!(ledbat.in_slow_start());
    // A probe timeout alone does nothing: the trait has no call for it.
}

#[test]
fn a_new_path_is_unknown() {
    let mut ledbat = Ledbat::with_target(SIZE, millis(25));
    ledbat.on_ack(&acked(at(50), 2, 50));
    ledbat.core.window = 77.0;
    ledbat.on_path_change(at(100), SIZE);
    assert_eq!(ledbat.window(), 2 * DATAGRAM);
    assert_eq!((ledbat.base_delay(), ledbat.ssthresh()), (None, None));
    assert_eq!(ledbat.core.target(), millis(25));
    assert!(
        !ledbat.on_lost(&loss(at(110), at(90))),
        "the old path's loss"
    );
}

#[test]
fn the_window_in_bytes_survives_another_datagram_size() {
    let mut ledbat = Ledbat::new(SIZE);
    ledbat.core = core_at(100.0, Phase::Avoidance);
    ledbat.on_max_datagram_size(1440, false);
    assert!(ledbat.window().abs_diff(120_000) <= 1);
    ledbat.on_max_datagram_size(1200, true);
    assert_eq!(ledbat.window(), 2 * DATAGRAM, "the handshake starts anew");
}

#[test]
fn it_paces_a_quarter_above_the_window_and_not_when_frozen() {
    let mut ledbat = Ledbat::new(SIZE);
    assert_eq!(ledbat.pacing_rate(), None, "no round trip known");
    ledbat.on_ack(&acked(at(100), 2, 100));
    ledbat.core = core_at(100.0, Phase::Avoidance);
    assert_eq!(ledbat.pacing_rate(), Some(1_500_000));
    ledbat.core.phase = Phase::Frozen;
    ledbat.core.window = 2.0;
    assert_eq!(ledbat.pacing_rate(), Some(24_000));
}

#[test]
fn the_base_is_the_least_of_ten_minutes_and_expires() {
    let mut delay = QueueDelay::default();
    let minute = |minutes: u64| at(minutes * 60_000);
    delay.on_sample(minute(0), millis(40), millis(50));
    for m in 1..=9 {
        assert!(!delay.on_sample(minute(m), millis(70), millis(50)));
        assert_eq!(delay.base(), Some(40_000_000), "minute {m}");
    }
    delay.on_sample(minute(10), millis(70), millis(50));
    assert_eq!(delay.base(), Some(70_000_000), "the route is longer now");
    assert!(delay.on_sample(minute(25), millis(90), millis(50)), "idle");
    assert_eq!(delay.base(), Some(90_000_000));
}

#[test]
fn ten_idle_minutes_start_over() {
    let mut ledbat = Ledbat::new(SIZE);
    ledbat.on_ack(&acked(at(100), 2, 50));
    ledbat.core = core_at(100.0, Phase::Avoidance);
    ledbat.on_ack(&acked(at(11 * 60_000), 1, 50));
    assert_eq!(ledbat.ssthresh(), None);
    assert!(ledbat.window() <= 3 * DATAGRAM);
}

#[test]
fn one_late_ack_is_no_queue() {
    let mut delay = QueueDelay::default();
    for (i, rtt) in [50, 50, 50, 130].into_iter().enumerate() {
        delay.on_sample(at(i as u64), millis(rtt), millis(50));
    }
    assert_eq!(delay.queue(), Some(0));
    // Four late ones are.
    for i in 4..7 {
        delay.on_sample(at(i), millis(130), millis(50));
    }
    assert_eq!(delay.queue(), Some(80_000_000));
    // Samples older than a round trip do not count, the newest always does.
    delay.on_sample(at(1000), millis(90), millis(50));
    assert_eq!(delay.queue(), Some(40_000_000));
}

proptest! {
    /// Round trips of 0 and 60 s, clock jumps, losses at any time: the window stays finite and at
    /// least two packets, and nothing overflows.
    #[test]
    fn no_history_breaks_it(
        steps in prop::collection::vec(
            (0u64..4, prop::sample::select(vec![0u64, 1, 1_000_000, 60_000_000_000, u64::MAX / 2]),
             0u64..6, 0u64..100),
            1..300,
        ),
    ) {
        let mut ledbat = Ledbat::new(SIZE);
        let mut now = Time::ZERO;
        for (jump, rtt, what, packets) in steps {
            now += Duration::from_nanos([0, 1_000_000, 700_000_000_000, u64::MAX / 8][jump as usize]);
            let rtt = Duration::from_nanos(rtt);
            match what {
                0 => { ledbat.on_lost(&loss(now, now - rtt)); }
                1 => ledbat.on_persistent_congestion(now),
                2 => ledbat.on_timeout(now),
                _ => {
                    ledbat.on_ack(&AckSample {
                        newest_sent_time: now - rtt,
                        adjusted_rtt: Some(rtt),
                        smoothed_rtt: rtt,
                        ..ack(now, packets * DATAGRAM)
                    });
                }
            }
            prop_assert!(ledbat.core.window.is_finite());
            prop_assert!(ledbat.window() >= 2 * DATAGRAM);
            prop_assert!(ledbat.pacing_rate() != Some(0));
            prop_assert!(!ledbat.core.ssthresh.is_nan());
        }
    }
}

#[test]
fn keep_alives_have_no_slowdown() {
    let mut ledbat = Ledbat::new(SIZE);
    ledbat.core = core_at(50.0, Phase::Avoidance);
    ledbat.core.next_slowdown = Some(at(100));
    for ping in 1..100 {
        let now = at(ping * 500);
        ledbat.on_ack(&AckSample {
            tx_in_flight: 40,
            cwnd_limited: false,
            ..acked(now, 0, 50)
        });
        assert_eq!(ledbat.window(), 50 * DATAGRAM);
    }
}

use super::super::tests::{DATAGRAM, SIZE, ack, at, loss};
use super::*;

/// In avoidance after one loss at 100 ms in a window of `datagrams`.
fn after_loss(datagrams: u64) -> Cubic {
    let mut cubic = Cubic::new(SIZE, false, true);
    cubic.on_ack(&ack(at(50), (datagrams - 10) * DATAGRAM));
    assert_eq!(cubic.window(), datagrams * DATAGRAM);
    assert!(cubic.on_lost(&loss(at(100), at(50))));
    cubic
}

/// Acknowledges a whole window per round trip in 20 ACKs; returns the time after `rounds`.
fn run(cubic: &mut Cubic, mut millis: u64, rtt: u64, rounds: u64) -> u64 {
    for _ in 0..rounds {
        let window = cubic.window();
        for step in 1..=20 {
            let now = at(millis) + Duration::from_micros(rtt * 50 * step);
            let smoothed_rtt = Duration::from_millis(rtt);
            cubic.on_ack(&AckSample {
                newest_sent_time: now - smoothed_rtt,
                smoothed_rtt,
                ..ack(now, window / 20)
            });
        }
        millis += rtt;
    }
    millis
}

#[test]
fn a_loss_leaves_seven_tenths_of_the_window() {
    let cubic = after_loss(100);
    assert_eq!(cubic.window(), 70 * DATAGRAM);
    assert_eq!(cubic.ssthresh(), Some(70 * DATAGRAM));
    assert!(!cubic.in_slow_start());
}

#[test]
fn an_unused_window_is_reduced_from_what_was_in_flight() {
    let mut cubic = Cubic::new(SIZE, false, true);
    cubic.on_ack(&ack(at(50), 90 * DATAGRAM));
    cubic.on_lost(&LossSample {
        cwnd_limited: false,
        bytes_in_flight_before: 20 * DATAGRAM,
        ..loss(at(100), at(50))
    });
    assert_eq!(cubic.window(), 14 * DATAGRAM);
}

#[test]
fn the_window_returns_to_its_maximum_after_k_seconds() {
    // K = cbrt(1000 * 0.3 / 0.4) = 9.09 s.
    let mut cubic = after_loss(1000);
    let rtt = 200;
    let millis = run(&mut cubic, 301, rtt, 45);
    let window = cubic.window() / DATAGRAM;
    assert!((985..=1001).contains(&window), "plateau at 9 s: {window}");
    run(&mut cubic, millis, rtt, 45);
    let window = cubic.window() / DATAGRAM;
    // 0.4 * (18.1 - 9.09)^3 = 293 above the maximum.
    assert!((1240..=1330).contains(&window), "convex at 18 s: {window}");
}

#[test]
fn growth_is_concave_before_the_plateau() {
    let mut cubic = after_loss(1000);
    let begin = cubic.window();
    let millis = run(&mut cubic, 301, 200, 15);
    let third = cubic.window();
    run(&mut cubic, millis, 200, 15);
    let two_thirds = cubic.window();
    assert!(
        third - begin > 2 * (two_thirds - third),
        "{begin} {third} {two_thirds}"
    );
}

#[test]
fn at_a_short_round_trip_it_is_as_fast_as_reno() {
    // 50 datagrams at 10 ms: alpha 0.5294 per round trip until the old maximum, then one.
    let mut cubic = after_loss(50);
    let begin = cubic.window();
    run(&mut cubic, 201, 10, 10);
    let grown = (cubic.window() - begin) as f64 / DATAGRAM as f64;
    assert!((4.5..=5.4).contains(&grown), "{grown}");
    let mut cubic = after_loss(50);
    let millis = run(&mut cubic, 201, 10, 40);
    let middle = cubic.window();
    assert!(middle > 50 * DATAGRAM);
    run(&mut cubic, millis, 10, 20);
    let grown = (cubic.window() - middle) as f64 / DATAGRAM as f64;
    assert!(
        (18.0..=20.5).contains(&grown),
        "one datagram a round trip: {grown}"
    );
}

#[test]
fn growth_is_at_most_half_a_window_per_round_trip() {
    let mut cubic = after_loss(20);
    // An age without a single ACK: the curve is far above.
    let millis = run(&mut cubic, 201, 100, 1);
    cubic.curve.epoch = Some(Time::ZERO);
    cubic.last_active = at(1_000_000 + millis);
    let before = cubic.window();
    run(&mut cubic, 1_000_000 + millis, 100, 1);
    let growth = cubic.window() as f64 / before as f64;
    assert!((1.45..=1.5).contains(&growth), "{growth}");
}

#[test]
fn fast_convergence_lowers_the_maximum_when_ground_was_lost() {
    let mut cubic = after_loss(100);
    cubic.on_lost(&loss(at(400), at(300)));
    let expected = 70.0 * f64::from(SIZE) * 0.85;
    assert!(
        (cubic.curve.window_max - expected).abs() < 1.0,
        "{}",
        cubic.curve.window_max
    );
}

#[test]
fn idle_time_does_not_count_on_the_curve() {
    let grow = |idle: u64| {
        let mut cubic = after_loss(1000);
        let millis = run(&mut cubic, 301, 200, 5);
        if idle > 0 {
            let now = at(millis + idle);
            cubic.on_sent(&SendSample {
                now,
                bytes: DATAGRAM,
                bytes_in_flight: 0,
                app_limited: true,
            });
        }
        run(&mut cubic, millis + idle, 200, 5);
        cubic.window()
    };
    assert_eq!(grow(0), grow(10_000));
}

#[test]
fn application_limited_time_does_not_count_on_the_curve() {
    let grow = |limited: u64| {
        let mut cubic = after_loss(1000);
        let millis = run(&mut cubic, 301, 200, 5);
        for step in 1..=limited {
            let sample = ack(at(millis + step * 200), DATAGRAM);
            cubic.on_ack(&AckSample {
                cwnd_limited: false,
                ..sample
            });
        }
        run(&mut cubic, millis + limited * 200, 200, 5);
        cubic.window()
    };
    assert_eq!(grow(0), grow(50));
}

#[test]
fn spurious_loss_restores_everything() {
    let mut cubic = Cubic::new(SIZE, true, true);
    cubic.on_ack(&ack(at(50), 90 * DATAGRAM));
    cubic.on_lost(&loss(at(100), at(50)));
    cubic.on_ack(&ack(at(290), DATAGRAM));
    assert!(cubic.on_spurious_loss(at(300)));
    assert_eq!((cubic.window(), cubic.ssthresh()), (100 * DATAGRAM, None));
    assert_eq!(cubic.recovery_start(), None);
    assert_eq!(cubic.least_ack_rate().per_round, 8, "HyStart++ goes on");
    assert!(!cubic.on_spurious_loss(at(310)), "only once");
}

#[test]
fn undo_returns_to_the_same_point_of_the_curve() {
    let mut straight = after_loss(1000);
    let millis = run(&mut straight, 301, 200, 5);
    let mut undone = straight.clone();
    undone.on_lost(&loss(at(millis), at(millis - 50)));
    assert!(undone.on_spurious_loss(at(millis + 150)));
    run(&mut straight, millis, 200, 5);
    run(&mut undone, millis + 150, 200, 5);
    assert_eq!(straight.window(), undone.window());
}

#[test]
fn a_window_that_has_grown_past_the_old_one_is_not_undone() {
    let mut cubic = after_loss(50);
    run(&mut cubic, 201, 10, 200);
    let window = cubic.window();
    assert!(window > 50 * DATAGRAM);
    assert!(!cubic.on_spurious_loss(at(5000)));
    assert_eq!(cubic.window(), window);
}

#[test]
fn neither_marks_nor_persistent_congestion_are_undone() {
    let mut cubic = Cubic::new(SIZE, true, true);
    cubic.on_ack(&AckSample {
        ce_marks: 1,
        ..ack(at(150), DATAGRAM)
    });
    assert!(!cubic.on_spurious_loss(at(160)));
    let mut cubic = after_loss(100);
    cubic.on_persistent_congestion(at(100));
    assert!(!cubic.on_spurious_loss(at(160)));
}

#[test]
fn the_floor_is_two_datagrams_on_losses_and_on_marks() {
    let mut cubic = Cubic::new(SIZE, true, true);
    for event in 1..20 {
        cubic.on_lost(&loss(at(event * 200), at(event * 200 - 50)));
    }
    assert_eq!(cubic.window(), 2 * DATAGRAM);
    for event in 30..50 {
        cubic.on_ack(&AckSample {
            ce_marks: 1,
            ..ack(at(event * 200), 1)
        });
    }
    assert_eq!(cubic.window(), 2 * DATAGRAM);
    assert_eq!(cubic.ssthresh(), Some(2 * DATAGRAM));
}

#[test]
fn after_persistent_congestion_the_curve_starts_at_its_plateau() {
    let mut cubic = after_loss(100);
    cubic.on_persistent_congestion(at(5000));
    let mut millis = 5100;
    while cubic.in_slow_start() {
        millis = run(&mut cubic, millis, 100, 1);
    }
    run(&mut cubic, millis, 100, 1);
    assert_eq!(cubic.curve.k, 0.0);
}

#[test]
fn cube_root_is_exact_enough_over_the_whole_range() {
    for exponent in -300..300 {
        let x = 1.7 * 10f64.powi(exponent);
        let root = cube_root(x);
        assert!((root * root * root / x - 1.0).abs() < 1e-12, "{x}: {root}");
    }
    assert_eq!((cube_root(0.0), cube_root(-1.0)), (0.0, 0.0));
}

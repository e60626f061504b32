use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

#[test]
fn starts_at_100_ms_and_half_of_it() {
    let rtt = RttEstimator::new(INITIAL_RTT);
    assert_eq!(rtt.smoothed(), ms(100));
    assert_eq!(rtt.rttvar(), ms(50));
    assert_eq!(
        (rtt.min(), rtt.latest(), rtt.first_sample()),
        (None, Duration::ZERO, None)
    );
    assert_eq!(rtt.pto_base(), ms(300));
}

#[test]
fn first_sample_replaces_the_initial_estimate() {
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    rtt.update(at(5), ms(100), ms(40));
    assert_eq!(
        (rtt.smoothed(), rtt.rttvar(), rtt.min()),
        (ms(100), ms(50), Some(ms(100)))
    );
    assert_eq!(rtt.first_sample(), Some(at(5)));
}

#[test]
fn rttvar_is_updated_with_the_old_smoothed_rtt() {
    // RFC 9002 A.7: |100 - 180| = 80, so rttvar = 0.75 * 50 + 0.25 * 80. With smoothed_rtt first,
    // as §5.3 lists the two, the deviation would be 70 and rttvar 55 ms.
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    rtt.update(at(0), ms(100), ms(0));
    rtt.update(at(1), ms(180), ms(0));
    assert_eq!(rtt.rttvar(), Duration::from_micros(57_500));
    assert_eq!(rtt.smoothed(), ms(110));
}

#[test]
fn ack_delay_is_subtracted_only_down_to_min_rtt() {
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    rtt.update(at(0), ms(100), ms(0));
    rtt.update(at(1), ms(120), ms(20));
    assert_eq!(rtt.smoothed(), ms(100), "120 - 20 is exactly min_rtt");
    rtt.update(at(2), ms(119), ms(20));
    assert_eq!(
        rtt.smoothed(),
        Duration::from_nanos(102_375_000),
        "119 - 20 is below min_rtt"
    );
}

#[test]
fn a_jitter_below_min_rtt_does_not_show_the_whole_ack_delay_as_a_queue() {
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    rtt.update(at(0), ms(200), ms(0));
    rtt.update(at(0), ms(224), ms(25));
    assert_eq!(rtt.without_ack_delay(ms(25)), nanos(ms(200)));
    rtt.update(at(0), ms(240), ms(25));
    assert_eq!(rtt.without_ack_delay(ms(25)), nanos(ms(215)));
    rtt.update(at(0), ms(190), ms(25));
    assert_eq!(rtt.without_ack_delay(ms(25)), nanos(ms(190)));
}

#[test]
fn min_rtt_ignores_the_ack_delay() {
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    rtt.update(at(0), ms(100), ms(0));
    rtt.update(at(1), ms(150), ms(45));
    assert_eq!(rtt.min(), Some(ms(100)));
    rtt.update(at(2), ms(90), ms(45));
    assert_eq!(rtt.min(), Some(ms(90)));
}

#[test]
fn min_rtt_restarts_at_the_newest_sample_after_persistent_congestion() {
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    rtt.restart_min();
    assert_eq!(rtt.min(), None);
    rtt.update(at(0), ms(100), ms(0));
    rtt.update(at(1), ms(400), ms(0));
    rtt.restart_min();
    assert_eq!(rtt.min(), Some(ms(400)));
}

#[test]
fn a_seed_is_no_sample_and_does_not_replace_one() {
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    rtt.seed(ms(40));
    assert_eq!(
        (rtt.smoothed(), rtt.rttvar(), rtt.min()),
        (ms(40), ms(20), None)
    );
    rtt.update(at(0), ms(100), ms(0));
    rtt.seed(ms(7));
    assert_eq!(rtt.smoothed(), ms(100));
}

#[test]
fn loss_delay_is_nine_eighths_of_the_larger_rtt_and_at_least_1_ms() {
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    rtt.update(at(0), ms(80), ms(0));
    assert_eq!(rtt.loss_delay(), ms(90));
    rtt.update(at(1), ms(160), ms(0));
    assert_eq!(rtt.loss_delay(), ms(180), "latest_rtt above smoothed_rtt");
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    rtt.update(at(0), Duration::from_micros(50), ms(0));
    assert_eq!(rtt.loss_delay(), GRANULARITY);
}

#[test]
fn variance_term_of_the_pto_is_at_least_1_ms() {
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    for step in 0..200 {
        rtt.update(at(step), ms(20), ms(0));
    }
    assert_eq!(rtt.pto_base(), ms(21));
}

#[test]
fn no_sample_overflows() {
    for sample in [Duration::ZERO, Duration::from_secs(60), Duration::MAX] {
        let mut rtt = RttEstimator::new(sample);
        rtt.seed(sample);
        for _ in 0..3 {
            rtt.update(Time::MAX, sample, Duration::MAX);
            rtt.update(Time::MAX, Duration::ZERO, sample);
        }
        assert!(rtt.loss_delay() >= GRANULARITY && rtt.pto_base() >= GRANULARITY);
    }
}

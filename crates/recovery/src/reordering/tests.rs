use towline_wire::Time;

use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn rtt() -> RttEstimator {
    let mut rtt = RttEstimator::new(ms(333));
    rtt.update(Time::ZERO, ms(80), Duration::ZERO);
    rtt
}

#[test]
fn without_reordering_the_thresholds_are_those_of_rfc_9002() {
    let thresholds = Reordering::default().thresholds(&rtt());
    assert_eq!(thresholds.packets, Some(3));
    assert_eq!(thresholds.delay, rtt().loss_delay());
    assert_eq!(thresholds.delay, ms(90));
}

#[test]
fn a_spurious_loss_ends_the_packet_threshold_and_then_widens_the_other_up_to_a_round_trip() {
    let (mut reordering, rtt) = (Reordering::default(), rtt());
    let mut delays = Vec::new();
    while reordering.widen(ms(81), &rtt) {
        let thresholds = reordering.thresholds(&rtt);
        assert_eq!(thresholds.packets, None);
        delays.push(thresholds.delay);
    }
    assert_eq!(delays, [ms(90), ms(100), ms(120), ms(160)]);
    assert!(!reordering.widen(ms(1000), &rtt), "the bound stays");
    assert_eq!(reordering.thresholds(&rtt).delay, ms(160));
}

#[test]
fn what_was_seen_late_is_borne_the_next_time() {
    for (age, borne) in [
        (81, 90),
        (90, 90),
        (95, 100),
        (119, 120),
        (130, 160),
        (900, 160),
    ] {
        let mut reordering = Reordering::default();
        assert!(reordering.widen(ms(age), &rtt()));
        assert_eq!(reordering.thresholds(&rtt()).delay, ms(borne), "{age}");
        assert_eq!(reordering.widened(), 1, "one step or many: once");
    }
}

#[test]
fn sixteen_reductions_without_a_spurious_loss_take_a_step_back() {
    let (mut reordering, rtt) = (Reordering::default(), rtt());
    while reordering.widen(ms(1000), &rtt) {}
    let mut reductions = 0;
    while reordering.thresholds(&rtt).packets.is_none() {
        reordering.on_reduced();
        reductions += 1;
    }
    assert_eq!(reductions, 4 * 16);
    assert!(reordering.widen(ms(81), &rtt));
    (0..15).for_each(|_| reordering.on_reduced());
    assert!(
        reordering.widen(ms(81), &rtt),
        "another starts the count again"
    );
    reordering.on_reduced();
    assert_eq!(reordering.thresholds(&rtt).delay, ms(100));
}

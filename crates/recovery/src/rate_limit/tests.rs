use super::*;
use proptest::prelude::*;

const DATAGRAM: u64 = 1200;

fn at(micros: u64) -> Time {
    Time::ZERO + Duration::from_micros(micros)
}

fn limit(rate: u64) -> RateLimit {
    RateLimit::new(Time::ZERO, NonZeroU64::new(rate).unwrap())
}

/// Sends whole datagrams until told to wait, `late` after the time named, for `seconds`.
fn saturate(rate: u64, late: Duration, seconds: u64) -> Vec<(Time, u64)> {
    let mut limit = limit(rate);
    let mut now = at(0);
    let mut sent = Vec::new();
    while now < at(seconds * 1_000_000) {
        match limit.permit(now, DATAGRAM) {
            Ok(bytes) => {
                for _ in 0..bytes / DATAGRAM {
                    limit.on_sent(now, DATAGRAM);
                    sent.push((now, DATAGRAM));
                }
            }
            Err(until) => now = until + late,
        }
    }
    sent
}

/// The most by which any window of at least 100 ms exceeds rate x window, in bytes.
fn worst_excess(sent: &[(Time, u64)], rate: u64) -> f64 {
    let mut worst = f64::MIN;
    let seconds = |time: Time| time.as_nanos() as f64 / 1e9;
    // Least of (sent before - rate x time) over all starts old enough, and the total so far.
    let (mut least, mut start, mut before, mut total) = (f64::MAX, 0, 0u64, 0u64);
    for &(now, size) in sent {
        total += size;
        while start < sent.len() && seconds(sent[start].0) <= seconds(now) - 0.1 {
            least = least.min(before as f64 - rate as f64 * seconds(sent[start].0));
            before += sent[start].1;
            start += 1;
        }
        let from_the_beginning = -(rate as f64) * (seconds(now) - 0.1).min(0.0);
        let base = least
            .min(from_the_beginning)
            .min(before as f64 - rate as f64 * (seconds(now) - 0.1));
        worst = worst.max(total as f64 - rate as f64 * seconds(now) - base);
    }
    worst
}

#[test]
fn ten_seconds_carry_the_rate_and_no_window_more_than_one_burst_above() {
    for rate in [20_000, 125_000, 3_000_000, 125_000_000] {
        let sent = saturate(rate, Duration::ZERO, 10);
        let total: u64 = sent.iter().map(|(_, size)| size).sum();
        let mean = total as f64 / 10.0 / rate as f64;
        assert!((0.995..=1.02).contains(&mean), "{rate}: {mean}");
        let burst = (rate / 1000).max(2 * DATAGRAM) as f64;
        assert!(worst_excess(&sent, rate) <= burst + 1.0, "{rate}");
    }
}

#[test]
fn a_late_timer_costs_two_hundredths_and_keeps_the_promise() {
    for (late, least) in [(100, 0.985), (1000, 0.98), (2000, 0.97)] {
        let rate = 3_000_000;
        let sent = saturate(rate, Duration::from_micros(late), 10);
        let total: u64 = sent.iter().map(|(_, size)| size).sum();
        let mean = total as f64 / 10.0 / rate as f64;
        assert!(mean > least, "{late} us late: {mean}");
        assert!(worst_excess(&sent, rate) <= 3001.0, "{late} us late");
    }
}

#[test]
fn an_idle_sender_saves_up_one_burst_and_no_more() {
    let mut limit = limit(3_000_000);
    limit.permit(at(0), DATAGRAM).unwrap();
    let after_an_hour = limit.permit(at(3_600_000_000), DATAGRAM).unwrap();
    assert_eq!(after_an_hour, 3000 - DATAGRAM, "one datagram is kept back");
}

#[test]
fn what_needs_no_permit_is_repaid_in_full() {
    let mut limit = limit(1_000_000);
    assert_eq!(limit.exempt(at(0), 1200, DATAGRAM), None);
    (0..100).for_each(|_| limit.on_sent(at(0), DATAGRAM));
    // 120,000 bytes sent, 2,400 of them allowed: 117,600 us until zero, 2,400 more until full.
    assert_eq!(limit.exempt(at(0), 50, DATAGRAM), Some(at(117_650)));
    assert_eq!(limit.permit(at(0), DATAGRAM), Err(at(120_000)));
    assert!(limit.permit(at(119_999), DATAGRAM).is_err());
    assert_eq!(limit.permit(at(120_000), DATAGRAM), Ok(DATAGRAM));
}

#[test]
fn acknowledgements_have_room_beside_data_that_takes_all_it_gets() {
    let mut limit = limit(125_000);
    while let Ok(bytes) = limit.permit(at(0), DATAGRAM) {
        (0..bytes / DATAGRAM).for_each(|_| limit.on_sent(at(0), DATAGRAM));
    }
    assert_eq!(limit.exempt(at(0), 1200, DATAGRAM), None);
    limit.on_sent(at(0), 1200);
    assert!(limit.exempt(at(0), 50, DATAGRAM).is_some(), "but once only");
}

#[test]
fn fractions_of_a_byte_are_not_lost_over_many_calls() {
    let rate = 1_000_003;
    let mut often = limit(rate);
    let mut once = limit(rate);
    for limit in [&mut often, &mut once] {
        (0..50).for_each(|_| limit.on_sent(at(0), DATAGRAM));
    }
    let until = once.permit(at(0), DATAGRAM).unwrap_err();
    let mut now = Time::ZERO;
    while now < until {
        let _ = often.permit(now, DATAGRAM);
        now += Duration::from_nanos(333);
    }
    assert_eq!(often.permit(until, DATAGRAM), once.permit(until, DATAGRAM));
}

#[test]
fn another_rate_holds_from_the_next_question_on() {
    let rate = |rate| NonZeroU64::new(rate).unwrap();
    let mut limit = limit(125_000_000);
    let bytes = limit.permit(at(0), DATAGRAM).unwrap();
    limit.on_sent(at(0), bytes);
    limit.set_rate(at(0), rate(10_000), DATAGRAM);
    let until = limit.permit(at(0), DATAGRAM).unwrap_err();
    assert!(until <= at(240_000), "no debt of the old rate: {until:?}");
    limit.set_rate(at(1000), rate(125_000_000), DATAGRAM);
    assert!(limit.permit(at(2000), DATAGRAM).is_ok());
}

#[test]
fn extremes_do_not_overflow() {
    for rate in [1, u64::MAX] {
        for now in [Time::ZERO, Time::MAX, Time::ZERO] {
            let mut limit = RateLimit::new(Time::ZERO, NonZeroU64::new(rate).unwrap());
            let _ = limit.permit(now, DATAGRAM);
            limit.on_sent(now, u64::MAX);
            let _ = limit.permit(Time::MAX, 65_527);
            let _ = limit.exempt(Time::MAX, u64::MAX, DATAGRAM);
            limit.set_rate(Time::MAX, NonZeroU64::MIN, DATAGRAM);
            let _ = limit.permit(Time::MAX, DATAGRAM);
        }
    }
}

proptest! {
    /// Whatever the pattern of questions, trains, acknowledgements and late timers.
    #[test]
    fn no_window_of_100_ms_carries_more_than_promised(
        rate in 10_000u64..200_000_000,
        steps in prop::collection::vec((0u64..30_000, 0u64..100, any::<bool>()), 1..400),
    ) {
        let mut limit = limit(rate);
        let (mut now, mut sent) = (Time::ZERO, Vec::new());
        for (micros, datagrams, acknowledge) in steps {
            now += Duration::from_micros(micros);
            if let Ok(bytes) = limit.permit(now, DATAGRAM) {
                prop_assert!(bytes >= DATAGRAM);
                for _ in 0..datagrams.min(bytes / DATAGRAM) {
                    limit.on_sent(now, DATAGRAM);
                    sent.push((now, DATAGRAM));
                }
            }
            if acknowledge && limit.exempt(now, 60, DATAGRAM).is_none() {
                limit.on_sent(now, 60);
                sent.push((now, 60));
            }
        }
        let burst = (rate as f64 / 1000.0).max(2.0 * DATAGRAM as f64);
        prop_assert!(worst_excess(&sent, rate) <= burst + 1.0);
    }
}

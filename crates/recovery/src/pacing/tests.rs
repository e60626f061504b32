use super::*;
use proptest::prelude::*;

const DATAGRAM: u64 = 1200;
const INITIAL_WINDOW: u64 = 12_000;

fn at(micros: u64) -> Time {
    Time::ZERO + Duration::from_micros(micros)
}

fn full() -> Pacer {
    Pacer::new(INITIAL_WINDOW)
}

fn permit(pacer: &mut Pacer, now: Time, rate: u64) -> Result<u64, Time> {
    pacer.permit(now, rate, DATAGRAM, INITIAL_WINDOW)
}

/// Sends whole datagrams until told to wait; returns bytes sent and the time to ask again.
fn send_all(pacer: &mut Pacer, now: Time, rate: u64) -> (u64, Time) {
    let mut sent = 0;
    loop {
        match permit(pacer, now, rate) {
            Ok(bytes) => {
                for _ in 0..(bytes / DATAGRAM).min(64) {
                    pacer.on_sent(DATAGRAM);
                    sent += DATAGRAM;
                }
            }
            Err(until) => return (sent, until),
        }
    }
}

#[test]
fn the_initial_window_may_leave_at_once() {
    let (sent, _) = send_all(&mut full(), at(0), 125_000);
    assert_eq!(sent, INITIAL_WINDOW);
}

#[test]
fn at_10_mbit_per_second_a_train_is_two_packets() {
    let mut pacer = full();
    let rate = 1_250_000;
    let (_, mut now) = send_all(&mut pacer, at(0), rate);
    for _ in 0..100 {
        let (sent, next) = send_all(&mut pacer, now, rate);
        assert_eq!(sent, 2 * DATAGRAM);
        assert_eq!(
            next.saturating_duration_since(now),
            Duration::from_micros(1920)
        );
        now = next;
    }
}

#[test]
fn no_wait_is_shorter_than_the_timer_granularity() {
    for rate in [
        10_000,
        1_250_000,
        12_500_000,
        125_000_000,
        3_000_000_000,
        u64::MAX / 2,
    ] {
        let mut pacer = full();
        let (_, until) = send_all(&mut pacer, at(0), rate.min(3_000_000_000));
        let (_, next) = send_all(&mut pacer, until, rate.min(3_000_000_000));
        let wait = next.saturating_duration_since(until);
        assert!(wait >= Duration::from_micros(900), "{rate}: {wait:?}");
    }
}

#[test]
fn at_the_rate_of_a_lan_a_whole_train_is_always_allowed() {
    // 4 GB/s: what a 1 MB window over 300 us asks for. A train every 17 us never waits.
    let rate = 4_000_000_000;
    let mut pacer = full();
    permit(&mut pacer, at(0), rate).unwrap();
    for train in 0..1000 {
        let granted = permit(&mut pacer, at(1000 + train * 17), rate);
        assert!(granted.is_ok_and(|bytes| bytes >= 64 * DATAGRAM));
        (0..54).for_each(|_| pacer.on_sent(DATAGRAM));
    }
}

#[test]
fn a_timer_one_millisecond_late_does_not_lower_the_rate() {
    let rate = 12_500_000;
    let mut pacer = full();
    let (_, mut now) = send_all(&mut pacer, at(0), rate);
    let (begin, mut sent) = (now, 0);
    for _ in 0..1000 {
        let (bytes, next) = send_all(&mut pacer, now, rate);
        sent += bytes;
        now = next + Duration::from_micros(990);
    }
    let elapsed = now.saturating_duration_since(begin).as_secs_f64();
    assert!(
        sent as f64 / elapsed > 0.95 * rate as f64,
        "{}",
        sent as f64 / elapsed
    );
}

#[test]
fn probes_leave_a_debt_of_at_most_one_train() {
    let mut pacer = full();
    (0..1000).for_each(|_| pacer.on_sent(DATAGRAM));
    let until = permit(&mut pacer, at(0), 1_250_000).unwrap_err();
    let debt_and_quantum = 65_536 + 2 * DATAGRAM;
    assert_eq!(
        until,
        Time::ZERO + time_to_earn(debt_and_quantum, 1_250_000)
    );
}

#[test]
fn fractions_of_a_byte_are_not_lost_over_many_calls() {
    let mut pacer = full();
    let rate = 1_000_003;
    let (_, until) = send_all(&mut pacer, at(0), rate);
    // Asked every microsecond, each earning 1.000003 bytes.
    let mut now = at(0);
    while permit(&mut pacer, now, rate).is_err() {
        now += Duration::from_micros(1);
    }
    let one_datagram_early = until - time_to_earn(2 * DATAGRAM - DATAGRAM, rate);
    let difference = one_datagram_early.as_nanos().abs_diff(now.as_nanos());
    assert!(difference <= 2_000, "{difference} ns");
}

#[test]
fn rate_is_gain_times_window_over_round_trip() {
    let rtt = Duration::from_millis(100);
    assert_eq!(rate(120_000, (5, 4), rtt), Some(1_500_000));
    assert_eq!(rate(120_000, (2, 1), rtt), Some(2_400_000));
    assert_eq!(rate(120_000, (2, 1), Duration::ZERO), None, "unbounded");
    assert_eq!(rate(0, (2, 1), rtt), Some(1), "never zero");
    assert_eq!(
        rate(u64::MAX, (2, 1), Duration::from_nanos(1)),
        Some(u64::MAX)
    );
}

#[test]
fn extremes_do_not_overflow() {
    for rate in [1, u64::MAX] {
        for now in [Time::ZERO, Time::MAX] {
            let mut pacer = full();
            let _ = permit(&mut pacer, now, rate);
            pacer.on_sent(u64::MAX);
            let _ = permit(&mut pacer, Time::MAX, rate);
            let _ = pacer.permit(Time::MAX, rate, 65_527, u64::MAX);
        }
    }
}

proptest! {
    #[test]
    fn never_sends_more_than_rate_plus_burst(
        rate in 2_000u64..2_000_000_000,
        steps in prop::collection::vec((0u64..20_000, 1u64..80), 1..200),
    ) {
        let mut pacer = full();
        let quantum = earned(rate, GRANULARITY).max(2 * DATAGRAM);
        let burst = capacity(quantum, INITIAL_WINDOW);
        let (mut now, mut sent) = (Time::ZERO, 0u64);
        for (micros, datagrams) in steps {
            now += Duration::from_micros(micros);
            if let Ok(bytes) = permit(&mut pacer, now, rate) {
                prop_assert!(bytes >= DATAGRAM);
                for _ in 0..datagrams.min(bytes / DATAGRAM) {
                    pacer.on_sent(DATAGRAM);
                    sent += DATAGRAM;
                }
            }
            prop_assert!(sent <= burst + earned(rate, now.saturating_duration_since(Time::ZERO)));
        }
    }

    #[test]
    fn the_time_it_names_is_one_at_which_it_lets_go(
        rate in 1u64..5_000_000_000,
        before in 0u64..200,
    ) {
        let mut pacer = full();
        (0..before).for_each(|_| pacer.on_sent(DATAGRAM));
        if let Err(until) = permit(&mut pacer, at(5), rate) {
            prop_assert!(until > at(5));
            prop_assert!(permit(&mut pacer, until, rate).is_ok());
        }
    }
}

#[test]
fn a_pause_in_which_nobody_waited_is_not_made_up_for() {
    for waited in [true, false] {
        let mut pacer = full();
        let (_, until) = send_all(&mut pacer, at(0), 5_000_000);
        if !waited {
            pacer.on_app_limited();
        }
        let late = until + Duration::from_secs(1);
        let (sent, _) = send_all(&mut pacer, late, 5_000_000);
        // 10 ms of the rate, or the initial window.
        let most = if waited { 50_000 } else { 12_000 };
        assert!(sent <= most && sent + DATAGRAM > most, "{waited}: {sent}");
    }
}

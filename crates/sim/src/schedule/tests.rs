use super::*;

const MBIT: u64 = 1_000_000;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn refused(steps: &[(Duration, u64)], repeat: Option<Duration>) -> String {
    let error = RateSchedule::new(steps, repeat).unwrap_err();
    assert_eq!(error.item(), "steps");
    error.problem().to_owned()
}

/// Bit-nanoseconds of `bytes`.
fn work(bytes: u64) -> u128 {
    u128::from(bytes) * 8_000_000_000
}

#[test]
fn schedules_that_cannot_be_are_refused() {
    for (steps, repeat, problem) in [
        (&[][..], None, "no step"),
        (&[(secs(1), MBIT)], None, "start at 0s"),
        (&[(secs(0), MBIT), (secs(0), MBIT)], None, "start later"),
        (&[(secs(0), 0)], Some(secs(1)), "throughout"),
        (&[(secs(0), MBIT), (secs(1), 0)], None, "never leave"),
        (
            &[(secs(0), MBIT), (secs(1), 0)],
            Some(secs(1)),
            "repeat later",
        ),
        (
            &[(secs(0), MBIT), (Duration::MAX, 1)],
            None,
            "time is too large",
        ),
    ] {
        let got = refused(steps, repeat);
        assert!(got.contains(problem), "{steps:?}: {got}");
    }
}

#[test]
fn work_flows_across_steps_and_outages() {
    let steps = [(secs(0), 8), (secs(1), 0), (secs(3), 16)];
    let schedule = RateSchedule::new(&steps, None).unwrap();
    let at = |millis| Time::ZERO + Duration::from_millis(millis);
    // Half a byte until the outage, the other half at twice the rate behind it.
    assert_eq!(schedule.serve(at(500), work(1)), (at(3250), 0));
    assert_eq!(schedule.serve(at(0), work(1)), (at(1000), 0));
    assert_eq!(schedule.available_from(at(1000)), at(3000));
    assert_eq!(schedule.available_from(at(999)), at(999));
    assert_eq!(schedule.rate_at(at(2999)), 0);
    assert_eq!(schedule.rate_at(at(100_000)), 16);
}

#[test]
fn a_repeated_schedule_skips_whole_periods_exactly() {
    let steps = [(secs(0), 3 * MBIT), (secs(1), 0), (secs(2), 5 * MBIT)];
    let schedule = RateSchedule::new(&steps, Some(secs(3))).unwrap();
    // 8 Mbit a period: a megabyte each. The last bit of a whole period leaves at its end.
    let million = schedule.serve(Time::ZERO, work(1_000_000) * 1_000_000);
    assert_eq!(million, (Time::ZERO + secs(3_000_000), 0));
    // In one go or in two, the end is the same.
    for split in [1, 333, 999_983] {
        let whole = schedule.serve(Time::from_nanos(7), work(1_000_000));
        let (half, rest) = schedule.serve(Time::from_nanos(7), work(split));
        let end = schedule.serve(half, work(1_000_000 - split) + u128::from(rest));
        assert_eq!(end, whole);
    }
    assert_eq!(schedule.typical_rate(), 8 * MBIT / 3);
}

#[test]
fn extremes_saturate() {
    let slow = RateSchedule::new(&[(secs(0), 0), (secs(1), 1)], Some(secs(1 << 33))).unwrap();
    assert_eq!(slow.serve(Time::ZERO, work(u64::MAX)).0, Time::MAX);
    assert_eq!(slow.serve(Time::MAX, work(1)).0, Time::MAX);
    let fast = RateSchedule::new(&[(secs(0), u64::MAX)], Some(Duration::from_nanos(1))).unwrap();
    assert_eq!(
        fast.serve(Time::ZERO, work(1)),
        (Time::ZERO, 8_000_000_000),
        "no time at all, all of it left over"
    );
}

#[test]
fn a_delivery_trace_gives_its_packets_in_their_milliseconds() {
    let schedule = RateSchedule::from_delivery_trace("1\n1\n\n2\n 5\n5\n5\n8\n").unwrap();
    let steps: Vec<(u64, u64)> = schedule
        .steps()
        .map(|(start, rate)| (start.as_millis() as u64, rate / MBIT))
        .collect();
    assert_eq!(steps, [(0, 24), (1, 12), (2, 0), (4, 36), (5, 0), (7, 12)]);
    assert_eq!(schedule.repeat(), Some(Duration::from_millis(8)));
    // The fourth packet is the first of the fifth millisecond; seven a period.
    let at = |packets: u64| schedule.serve(Time::ZERO, work(1500 * packets)).0;
    assert_eq!(at(3), Time::from_nanos(2_000_000));
    assert_eq!(at(6), Time::from_nanos(5_000_000));
    assert_eq!(at(7), Time::from_nanos(8_000_000));
    assert_eq!(at(7 * 1000 + 3), Time::from_nanos(8_002_000_000));
}

#[test]
fn a_bad_delivery_trace_is_refused_by_line() {
    for (text, item) in [
        ("1\nfast\n", "trace line 2: fast"),
        ("5\n4\n", "trace line 2: 4"),
        ("99999999999999999\n", "trace line 1: 99999999999999999"),
        ("", "trace"),
        ("0\n0\n", "trace"),
    ] {
        assert_eq!(
            RateSchedule::from_delivery_trace(text).unwrap_err().item(),
            item
        );
    }
}

use core::time::Duration;

use super::*;

const SIZE: u64 = 1000;

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

const MIN_RTT: u64 = 50_000_000;

#[test]
fn measures_a_steady_rate() {
    // One packet a millisecond, each acknowledged 50 ms later: 1 MB/s.
    let mut sampler = RateSampler::default();
    let mut sent = Vec::new();
    let mut rate = None;
    for millis in 0..200 {
        if millis >= 50 {
            let (time, snapshot) = sent[millis - 50];
            rate = sampler
                .on_ack(at(millis as u64), SIZE, time, &snapshot, MIN_RTT)
                .rate;
        }
        let in_flight = SIZE * millis.min(50) as u64;
        let now = at(millis as u64);
        sent.push((now, sampler.on_sent(now, SIZE, in_flight)));
    }
    assert_eq!(rate, Some(1_000_000));
    assert_eq!(sampler.latest(), Some(1_000_000));
}

#[test]
fn an_interval_below_min_rtt_gives_no_rate() {
    let mut sampler = RateSampler::default();
    let snapshot = sampler.on_sent(at(0), SIZE, 0);
    assert_eq!(
        sampler.on_ack(at(49), SIZE, at(0), &snapshot, MIN_RTT).rate,
        None
    );
    let mut sampler = RateSampler::default();
    let snapshot = sampler.on_sent(at(0), SIZE, 0);
    assert_eq!(
        sampler.on_ack(at(0), SIZE, at(0), &snapshot, 0).rate,
        None,
        "no time at all"
    );
}

#[test]
fn compressed_acks_do_not_inflate_the_rate() {
    // Ten packets sent over 9 ms, acknowledged all at once 1 ms after the last: the send
    // interval, not the ack interval, is the longer one.
    let mut sampler = RateSampler::default();
    sampler.on_sent(at(0), SIZE, 0);
    let mut last = Snapshot::default();
    for packet in 1..10 {
        last = sampler.on_sent(at(packet), SIZE, packet * SIZE);
    }
    let sample = sampler.on_ack(at(10), 10 * SIZE, at(9), &last, 0);
    assert_eq!(sample.rate, Some(1_000_000), "10 kB in max(9, 10) ms");
}

#[test]
fn app_limited_ends_once_what_was_in_flight_is_delivered() {
    let mut sampler = RateSampler::default();
    let first = sampler.on_sent(at(0), SIZE, 0);
    sampler.on_app_limited(SIZE);
    let second = sampler.on_sent(at(10), SIZE, SIZE);
    assert!(!first.app_limited && second.app_limited);
    assert!(!sampler.on_ack(at(50), SIZE, at(0), &first, 0).app_limited);
    assert!(
        sampler.snapshot(at(51), 0).app_limited,
        "as much as was in flight, not more"
    );
    assert!(sampler.on_ack(at(60), SIZE, at(10), &second, 0).app_limited);
    assert!(!sampler.snapshot(at(61), 0).app_limited);
}

#[test]
fn an_app_limited_sample_only_raises_the_rate_shown() {
    let mut sampler = RateSampler::default();
    let first = sampler.on_sent(at(0), SIZE, 0);
    sampler.on_ack(at(10), SIZE, at(0), &first, 0);
    assert_eq!(sampler.latest(), Some(100_000));
    sampler.on_app_limited(0);
    let slow = sampler.on_sent(at(100), SIZE, 0);
    sampler.on_ack(at(200), SIZE, at(100), &slow, 0);
    assert_eq!(sampler.latest(), Some(100_000));
}

#[test]
fn a_round_starts_with_a_packet_sent_after_the_last_round_start() {
    let mut sampler = RateSampler::default();
    let first = sampler.on_sent(at(0), SIZE, 0);
    let second = sampler.on_sent(at(1), SIZE, SIZE);
    assert!(sampler.on_ack(at(50), SIZE, at(0), &first, 0).round_start);
    let third = sampler.on_sent(at(50), SIZE, SIZE);
    assert!(!sampler.on_ack(at(51), SIZE, at(1), &second, 0).round_start);
    assert!(sampler.on_ack(at(100), SIZE, at(50), &third, 0).round_start);
    assert_eq!(sampler.round, 2);
}

#[test]
fn losses_since_the_packet_was_sent_are_in_its_sample() {
    let mut sampler = RateSampler::default();
    sampler.on_lost(SIZE);
    let packet = sampler.on_sent(at(0), SIZE, 0);
    sampler.on_lost(3 * SIZE);
    let sample = sampler.on_ack(at(50), SIZE, at(0), &packet, 0);
    assert_eq!((sample.lost, sample.tx_in_flight), (3 * SIZE, SIZE));
}

#[test]
fn extremes_do_not_overflow() {
    let mut sampler = RateSampler::default();
    let packet = sampler.on_sent(Time::ZERO, u64::MAX, u64::MAX);
    sampler.on_lost(u64::MAX);
    sampler.on_lost(u64::MAX);
    let sample = sampler.on_ack(Time::from_nanos(1), u64::MAX, Time::ZERO, &packet, 0);
    assert_eq!(sample.rate, Some(u64::MAX));
    sampler.on_app_limited(u64::MAX);
    sampler.on_spurious(u64::MAX);
}

//! Loss time, probe timeout and the rules around address validation.

use super::*;

fn client() -> Bench {
    Bench::new(Config::new(Side::Client))
}

#[test]
fn first_pto_is_three_initial_round_trips() {
    let slow = Config {
        initial_rtt: ms(333),
        ..Config::new(Side::Client)
    };
    for (config, pto) in [(Config::new(Side::Client), 300), (slow, 999)] {
        let mut bench = Bench::new(config);
        bench.send_in(Initial, 5);
        // 100 + 4 * 50 ms, and no max_ack_delay for an Initial packet.
        assert_eq!(
            bench.recovery.next_timeout(),
            Some((at(5 + pto), LossTimer::Pto))
        );
        assert_eq!(bench.timeout(5 + pto - 1), None, "not due");
    }
}

#[test]
fn a_client_that_knows_no_round_trip_sends_one_probe_first_and_then_two() {
    let mut bench = client();
    bench.send_in(Initial, 0);
    for (now, probes) in [(300, 1), (900, 2), (2100, 2)] {
        let space = Initial;
        assert_eq!(bench.timeout(now), Some(Expired::Pto { space, probes }));
        bench.send_in(Initial, now);
    }
}

#[test]
fn an_expired_pto_loses_nothing_and_owes_two_probes_outside_the_window() {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    let packets = bench.fill(0);
    assert_eq!(packets, 10);
    assert_eq!(
        bench.timeout(1024),
        Some(Expired::Pto {
            space: Application,
            probes: 2
        })
    );
    assert!(bench.owner.lost.is_empty());
    assert_eq!(
        bench.owner.probes,
        [0, 1],
        "frames of the two oldest packets"
    );
    assert_eq!(bench.recovery.permit(at(1024)), Permit::Blocked);
    assert_eq!(bench.recovery.probes_owed(Application), 2);
    bench.send(1024);
    assert_eq!(bench.recovery.probes_owed(Application), 1);
    bench.send(1024);
    assert_eq!(bench.recovery.probes_owed(Application), 0);
    assert_eq!(
        bench.recovery.bytes_in_flight(),
        12 * 1200,
        "probes count in flight"
    );
}

#[test]
fn each_pto_waits_twice_as_long_and_an_acknowledgement_ends_that() {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    bench.send(0);
    bench.ack(100, &[0..=0]);
    let (mut now, mut waits) = (200, Vec::new());
    bench.send(now);
    for _ in 0..4 {
        let (due, reason) = bench.recovery.next_timeout().unwrap();
        assert_eq!(reason, LossTimer::Pto);
        let due = due.as_nanos() / 1_000_000;
        waits.push(due - now);
        now = due;
        bench.timeout(now);
        bench.send(now);
    }
    assert_eq!(waits, [325, 650, 1300, 2600], "max_ack_delay doubles too");
    let newest = bench.recovery.next_packet_number(Application) - 1;
    bench.ack(now + 1, &[newest..=newest]);
    assert_eq!(bench.recovery.stats().pto_count, 0);
}

/// A confirmed end whose one packet was answered after 100 ms, and the next one was not.
fn unanswered() -> Bench {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    bench.send(0);
    bench.ack(100, &[0..=0]);
    bench.send(200);
    bench
}

/// Expires the PTO so often, sending a probe each time; when it did last.
fn expire(bench: &mut Bench, times: u32) -> u64 {
    let mut now = 0;
    for _ in 0..times {
        let (due, _) = bench.recovery.next_timeout().unwrap();
        now = due.as_nanos() / 1_000_000;
        assert!(bench.timeout(now).is_some());
        bench.send(now);
    }
    now
}

fn hear(bench: &mut Bench, space: PacketNumberSpace) {
    bench.recovery.on_ack_eliciting_received(space, false);
}

#[test]
fn a_peer_that_is_heard_while_probes_are_unanswered_is_sent_one_within_a_period() {
    let mut bench = unanswered();
    let last = expire(&mut bench, 5);
    let backed_off = Some((at(last + 32 * 325), LossTimer::Pto));
    assert_eq!(bench.recovery.next_timeout(), backed_off);
    hear(&mut bench, Application);
    let soon = Some((at(last + 325), LossTimer::Pto));
    assert_eq!(bench.recovery.next_timeout(), soon);
    // It is heard long after that: at once, then.
    let one = Expired::Pto {
        space: Application,
        probes: 1,
    };
    assert_eq!(bench.timeout(last + 5000), Some(one));
    bench.send(last + 5000);
    let backed_off = Some((at(last + 5000 + 32 * 325), LossTimer::Pto));
    assert_eq!(bench.recovery.next_timeout(), backed_off, "once an expiry");
}

/// Sends a PING beside an acknowledgement.
fn ask(bench: &mut Bench, now: u64) {
    let kind = PacketKind {
        asks: true,
        ..PacketKind::ACK_ELICITING
    };
    bench
        .recovery
        .on_packet_sent(at(now), Application, 40, kind, &mut vec![]);
}

#[test]
fn a_ping_beside_an_acknowledgement_asks_once_a_period_and_moves_no_timeout() {
    let mut bench = unanswered();
    assert!(!bench.recovery.may_ask(at(300)), "no probe is unanswered");
    let last = expire(&mut bench, 2);
    let due = bench.recovery.next_timeout();
    assert!(!bench.recovery.may_ask(at(last + 324)));
    assert!(bench.recovery.may_ask(at(last + 325)));
    ask(&mut bench, last + 325);
    assert_eq!(bench.recovery.next_timeout(), due);
    assert!(!bench.recovery.may_ask(at(last + 649)));
    assert!(bench.recovery.may_ask(at(last + 650)));
    // Its acknowledgement is progress as any other: nobody is asked any more.
    let asked = bench.recovery.next_packet_number(Application) - 1;
    bench.ack(last + 700, &[asked..=asked]);
    assert!(!bench.recovery.may_ask(at(last + 2000)));
}

#[test]
fn a_peer_that_acknowledges_nothing_is_asked_ever_more_rarely() {
    let mut bench = unanswered();
    let mut times: Vec<u64> = Vec::new();
    for now in 525..1_000_525 {
        if bench.timeout(now).is_some() {
            bench.send(now);
        }
        if bench.recovery.may_ask(at(now)) {
            ask(&mut bench, now);
            times.push(now);
        }
    }
    // One a period for 32 periods, then a 32nd of the time apart: log(1000 s ÷ 10 s) to 33/32.
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 325));
    assert!((100..=182).contains(&times.len()), "{}", times.len());
}

#[test]
fn a_peer_that_is_heard_all_the_time_brings_one_expiry_a_period_and_few_in_all() {
    let mut bench = unanswered();
    let mut times: Vec<u64> = Vec::new();
    for now in 525..100_525 {
        hear(&mut bench, Application);
        if bench.timeout(now).is_some() {
            // A rate limit may keep the probe: the next expiry comes no sooner for that.
            if times.len().is_multiple_of(2) {
                bench.send(now);
            }
            times.push(now);
        }
    }
    let least = times.windows(2).map(|pair| pair[1] - pair[0]).min();
    assert!(least >= Some(325), "{times:?}");
    // One, six at a period, then a third of the time apart: log(100 s ÷ 2 s) to 4/3.
    assert!((20..=30).contains(&times.len()), "{times:?}");
    // An acknowledgement is progress: all of it starts over.
    let newest = bench.recovery.next_packet_number(Application) - 1;
    bench.ack(100_600, &[newest..=newest]);
    bench.send(200_000);
    let (due, _) = bench.recovery.next_timeout().unwrap();
    let due = due.as_nanos().div_ceil(1_000_000);
    assert!(bench.timeout(due).is_some());
    let period = bench.recovery.pto(Application);
    hear(&mut bench, Application);
    assert_eq!(
        bench.recovery.next_timeout(),
        Some((at(due) + period, LossTimer::Pto))
    );
}

#[test]
fn hearing_the_peer_leaves_the_backoff_of_a_handshake() {
    for space in [Initial, Handshake, Application] {
        let mut bench = client();
        bench.send_in(Initial, 0);
        bench.timeout(999);
        hear(&mut bench, space);
        assert_eq!(bench.recovery.stats().pto_count, 1, "{space:?}");
    }
    let mut bench = unanswered();
    expire(&mut bench, 3);
    for space in [Initial, Handshake] {
        hear(&mut bench, space);
        assert_eq!(bench.recovery.stats().pto_count, 3, "{space:?}");
    }
}

#[test]
fn no_pto_while_a_loss_time_is_set() {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    bench.send(0);
    bench.send(1);
    bench.ack(101, &[1..=1]);
    let due = Time::ZERO + Duration::from_micros(112_500);
    assert_eq!(
        bench.recovery.next_timeout(),
        Some((due, LossTimer::LossTime))
    );
    assert_eq!(bench.timeout(112), None);
    assert_eq!(bench.timeout(113), Some(Expired::Loss { packets: 1 }));
    assert_eq!(bench.owner.lost, [(0, 0)]);
    assert_eq!(bench.recovery.next_timeout(), None);
}

#[test]
fn application_data_has_no_pto_before_the_handshake_is_confirmed() {
    let mut bench = Bench::new(Config::new(Side::Server));
    bench.send(10);
    assert_eq!(bench.recovery.next_timeout(), None);
    bench.recovery.set_handshake_confirmed();
    assert_eq!(
        bench.recovery.next_timeout(),
        Some((at(10 + 300 + 25), LossTimer::Pto))
    );
}

#[test]
fn client_probes_with_nothing_in_flight_until_it_knows_its_address_is_validated() {
    let mut bench = client();
    bench.send_in(Initial, 0);
    bench
        .ack_with(Initial, 100, NO_DELAY, None, &[0..=0])
        .unwrap();
    assert_eq!(
        bench.recovery.next_timeout(),
        Some((at(100 + 300), LossTimer::Pto))
    );
    assert_eq!(
        bench.timeout(400),
        Some(Expired::Pto {
            space: Initial,
            probes: 1
        })
    );
    bench.recovery.set_handshake_keys_available();
    assert_eq!(
        bench.recovery.next_timeout(),
        Some((at(400 + 600), LossTimer::Pto))
    );
    assert_eq!(
        bench.timeout(1000),
        Some(Expired::Pto {
            space: Handshake,
            probes: 1
        })
    );
    bench.recovery.set_peer_completed_address_validation();
    assert_eq!(bench.recovery.next_timeout(), None);
}

#[test]
fn acknowledgements_do_not_reset_the_backoff_of_an_unvalidated_client() {
    let mut bench = client();
    bench.send_in(Initial, 0);
    bench.timeout(999);
    bench.send_in(Initial, 999);
    bench
        .ack_with(Initial, 1100, NO_DELAY, None, &[0..=1])
        .unwrap();
    assert_eq!(bench.recovery.stats().pto_count, 1);
    bench.recovery.set_handshake_keys_available();
    bench.recovery.set_peer_completed_address_validation();
    bench.send_in(Handshake, 1100);
    bench
        .ack_with(Handshake, 1200, NO_DELAY, None, &[0..=0])
        .unwrap();
    assert_eq!(bench.recovery.stats().pto_count, 0);
}

#[test]
fn server_at_the_amplification_limit_runs_no_pto_and_a_late_one_at_once() {
    let mut bench = Bench::new(Config::new(Side::Server));
    bench.send_in(Initial, 0);
    bench.send_in(Handshake, 0);
    bench.recovery.set_amplification_blocked(at(1), true);
    assert_eq!(bench.recovery.next_timeout(), None);
    assert_eq!(bench.timeout(5000), None);
    bench.recovery.set_amplification_blocked(at(5000), false);
    let (due, _) = bench.recovery.next_timeout().unwrap();
    assert!(due < at(5000));
    assert_eq!(
        bench.timeout(5000),
        Some(Expired::Pto {
            space: Initial,
            probes: 2
        })
    );
    assert_eq!(
        bench.recovery.probes_owed(Handshake),
        1,
        "coalesced with the other space"
    );
}

#[test]
fn progress_cancels_the_probes_still_owed() {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    bench.send(0);
    bench.timeout(1024);
    bench.ack(1025, &[0..=0]);
    assert_eq!(bench.recovery.probes_owed(Application), 0);
}

#[test]
fn the_earliest_loss_time_wins_whichever_space_it_is_in() {
    let mut bench = Bench::new(Config::new(Side::Server));
    for (space, sent) in [(Handshake, 0), (Initial, 10)] {
        bench.send_in(space, sent);
        bench.send_in(space, sent + 1);
    }
    bench
        .ack_with(Initial, 50, NO_DELAY, None, &[1..=1])
        .unwrap();
    bench
        .ack_with(Handshake, 51, NO_DELAY, None, &[1..=1])
        .unwrap();
    let (due, reason) = bench.recovery.next_timeout().unwrap();
    assert_eq!(reason, LossTimer::LossTime);
    let lost = bench.timeout(due.as_nanos().div_ceil(1_000_000));
    assert_eq!(lost, Some(Expired::Loss { packets: 1 }));
    assert_eq!(
        bench.recovery.bytes_in_flight(),
        1200,
        "the Initial packet waits on"
    );
}

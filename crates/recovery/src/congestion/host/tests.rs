use super::super::tests::{SIZE, ack, at, loss};
use super::*;

const DATAGRAM: u64 = SIZE as u64;

fn sent(now: Time, bytes_in_flight: u64) -> SendSample {
    SendSample {
        now,
        bytes: DATAGRAM,
        bytes_in_flight,
        app_limited: false,
    }
}

/// Sends as far as its turn and window go; returns datagrams.
fn send(member: &mut HostMember, now: Time, in_flight: &mut u64) -> u64 {
    let mut count = 0;
    while member.window() >= *in_flight + DATAGRAM {
        let Some(Ok(bytes)) = member.turn(now, *in_flight) else {
            break;
        };
        for _ in 0..(bytes / DATAGRAM).max(1) {
            member.on_sent(&sent(now, *in_flight));
            *in_flight += DATAGRAM;
            count += 1;
        }
    }
    count
}

/// Members that have seen a round trip of 100 ms, and a common window of `packets`.
fn running(count: usize, packets: f64) -> (HostController, Vec<HostMember>) {
    let host = HostController::new();
    let mut members: Vec<_> = (0..count).map(|_| host.join(SIZE)).collect();
    for member in &mut members {
        member.on_sent(&sent(at(0), 0));
        member.on_ack(&ack(at(100), DATAGRAM));
    }
    host.lock().core.window = packets;
    (host, members)
}

#[test]
fn members_come_and_go_and_leave_nothing_in_flight() {
    let (host, mut members) = running(3, 100.0);
    let mut flight = 0;
    assert!(send(&mut members[0], at(1000), &mut flight) > 0);
    assert_eq!(host.lock().turns.flight, flight as f64);
    assert_eq!(host.members(), 3);
    drop(members);
    assert_eq!(host.members(), 0);
    assert_eq!(host.lock().turns.flight, 0.0);
}

#[test]
fn turns_go_round_and_add_up_to_the_common_pace() {
    let (_, mut members) = running(4, 100.0);
    // 100 packets per 100 ms, a quarter more while the window has room: 1.25 packets per ms.
    let mut flights = [0; 4];
    let mut total = [0u64; 4];
    for millis in 200..270 {
        for (i, member) in members.iter_mut().enumerate() {
            total[i] += send(member, at(millis), &mut flights[i]);
        }
    }
    let sum: u64 = total.iter().sum();
    assert!((80..=96).contains(&sum), "{total:?} in 70 ms");
    let (least, most) = (total.iter().min().unwrap(), total.iter().max().unwrap());
    assert!(most - least <= 4, "{total:?}");
}

#[test]
fn together_they_fill_one_window() {
    let (host, mut members) = running(4, 20.0);
    let mut flights = [0; 4];
    for millis in 200..600 {
        for (member, flight) in members.iter_mut().zip(&mut flights) {
            send(member, at(millis), flight);
        }
    }
    let flight: u64 = flights.iter().sum::<u64>() / DATAGRAM;
    assert!((20..=22).contains(&flight), "{flight}");
    assert_eq!(host.window(), 20 * DATAGRAM);
}

#[test]
fn one_that_was_silent_goes_first() {
    let (_, mut members) = running(2, 20.0);
    let mut flight = 0;
    for millis in 200..1200 {
        send(&mut members[0], at(millis), &mut flight);
    }
    assert!(flight >= 20 * DATAGRAM, "the window is full");
    assert!(matches!(members[0].turn(at(1200), flight), Some(Err(_))));
    assert!(matches!(members[1].turn(at(1200), 0), Some(Ok(_))));
}

#[test]
fn who_waits_is_woken_and_who_is_idle_is_not() {
    let (_, mut members) = running(2, 20.0);
    let mut flight = 0;
    for millis in 200..300 {
        send(&mut members[0], at(millis), &mut flight);
    }
    let Some(Err(until)) = members[0].turn(at(300), flight) else {
        panic!("the window is full");
    };
    assert!(until > at(300) && until <= at(310), "{until:?}");
    assert_eq!(members[1].next_timeout(), None);
    members[0].on_app_limited(at(300), flight);
    assert_eq!(members[0].next_timeout(), None);
}

#[test]
fn a_freeze_holds_all_and_thaws_all() {
    let (host, mut members) = running(2, 100.0);
    {
        let mut host = host.lock();
        host.core
            .on_congestion(at(150), at(149), Duration::from_millis(100));
        host.core.window = 100.0;
        host.history.push_back((at(150), 100.0));
    }
    // The first slowdown comes two round trips after slow start ended.
    members[0].on_ack(&ack(at(400), DATAGRAM));
    assert_eq!(host.window(), 2 * DATAGRAM, "two packets for all of them");
    let mut flights = [0; 2];
    for (member, flight) in members.iter_mut().zip(&mut flights) {
        send(member, at(401), flight);
        assert!(*flight <= 2 * DATAGRAM);
        let Some(Err(until)) = member.turn(at(401), *flight) else {
            panic!("frozen");
        };
        let wake = member.next_timeout().map_or(until, |at| at.min(until));
        assert!(wake <= at(600), "{wake:?}: at the thaw at the latest");
        assert!(member.window() >= 2 * DATAGRAM);
    }
    members[1].on_timeout(at(600));
    assert!(members[1].in_slow_start(), "the ramp");
}

#[test]
fn losses_of_all_members_halve_once_per_round_trip() {
    let (host, mut members) = running(3, 80.0);
    assert!(members[0].on_lost(&loss(at(1000), at(950))));
    assert!(
        !members[1].on_lost(&loss(at(1010), at(960))),
        "the same drop"
    );
    let marked = AckSample {
        ce_marks: 1,
        newest_sent_time: at(970),
        ..ack(at(1020), 0)
    };
    assert!(!members[2].on_ack(&marked));
    assert_eq!(host.window(), 40 * DATAGRAM);
    assert!(members[2].on_lost(&loss(at(1100), at(1001))));
    assert_eq!(host.window(), 20 * DATAGRAM);
    assert_eq!(
        members[0].recovery_start(),
        Some(at(1000)),
        "until it looks"
    );
}

#[test]
fn a_dead_path_does_not_silence_the_host() {
    let (host, mut members) = running(2, 80.0);
    members[1].on_ack(&ack(at(900), DATAGRAM));
    let before = host.window();
    members[0].on_persistent_congestion(at(950));
    assert_eq!(host.window(), before);
    // When nothing gets through at all it does.
    members[0].on_persistent_congestion(at(5000));
    assert_eq!(host.window(), 2 * DATAGRAM);
}

#[test]
fn another_path_of_one_member_is_no_news_of_the_others() {
    let (host, mut members) = running(2, 80.0);
    members[0].on_path_change(at(500), SIZE);
    assert!(!members[0].on_lost(&loss(at(600), at(450))));
    assert_eq!(host.window(), 80 * DATAGRAM);
    assert_eq!(members[0].recovery_start(), Some(at(500)));
    assert!(members[0].on_lost(&loss(at(700), at(550))));
}

#[test]
fn extremes_do_not_overflow() {
    let (host, mut members) = running(2, 1e9);
    for now in [Time::ZERO, Time::MAX, at(5)] {
        for rtt in [Duration::ZERO, Duration::from_secs(60), Duration::MAX] {
            for member in &mut members {
                member.on_ack(&AckSample {
                    rtt: Some(rtt),
                    adjusted_rtt: Some(rtt),
                    smoothed_rtt: rtt,
                    ..ack(now, u64::MAX)
                });
                let _ = member.turn(now, u64::MAX);
                let _ = member.turn(now, 0);
                member.on_timeout(now);
                assert!(member.window() >= 2 * DATAGRAM);
            }
        }
    }
    assert!(host.window() >= 2 * DATAGRAM);
}

#[test]
fn who_has_nothing_or_little_to_send_leaves_its_turn_to_the_others() {
    let (_, mut members) = running(3, 100.0);
    let (mut bulk, mut little, mut sent) = (0, 0, 0);
    for millis in 200..270 {
        // One only receives: it is asked whenever an acknowledgement of its own is due.
        let _ = members[1].turn(at(millis), 0);
        members[1].on_app_limited(at(millis), 0);
        // One sends 100 bytes now and then, far less than its ticket is for.
        if members[2]
            .turn(at(millis), little)
            .is_some_and(|turn| turn.is_ok())
        {
            members[2].on_sent(&SendSample {
                bytes: 100,
                ..self::sent(at(millis), little)
            });
            little += 100;
            members[2].on_app_limited(at(millis), little);
        }
        sent += send(&mut members[0], at(millis), &mut bulk);
    }
    // 1.25 packets per ms.
    assert!((76..=92).contains(&sent), "{sent} datagrams in 70 ms");
    assert!(little >= 1000, "{little}");
}

#[test]
fn a_dead_path_does_not_keep_the_window_for_itself() {
    let (host, mut members) = running(2, 20.0);
    let mut dead = 0;
    for millis in 200..700 {
        send(&mut members[0], at(millis), &mut dead);
    }
    assert!(dead >= 20 * DATAGRAM, "the window is full");
    // Nothing comes back, and the probes that ask why find nothing out.
    for millis in [1000, 2000] {
        members[0].on_sent(&sent(at(millis), dead));
        dead += DATAGRAM;
    }
    let (mut flight, mut count) = (0, 0);
    for millis in 2000..2100 {
        count += send(&mut members[1], at(millis), &mut flight);
    }
    assert!(count >= 15, "{count} datagrams in a round trip");
    // It was not dead after all.
    members[0].on_ack(&AckSample {
        bytes_in_flight: dead,
        ..ack(at(2200), DATAGRAM)
    });
    assert_eq!(host.lock().turns.flight, (dead + flight) as f64);
}

#[test]
fn members_that_are_dropped_leave_their_turns() {
    let (host, mut members) = running(40, 20.0);
    {
        let turns = &mut host.lock().turns;
        turns.served = turns.drawn;
    }
    for member in &mut members {
        let _ = member.turn(at(200), 0);
    }
    members.truncate(1);
    let (mut flight, mut sent) = (0, 0);
    for millis in 200..220 {
        sent += send(&mut members[0], at(millis), &mut flight);
    }
    // A quarter of a packet per ms; the tickets of the others were for 78 packets.
    assert!((4..=8).contains(&sent), "{sent}");
}

#[test]
fn a_reduction_is_taken_back_unless_another_has_followed() {
    let reduce = |member: &mut HostMember, millis: u64| {
        let mut reduction = member.before_reduction();
        assert!(member.on_lost(&loss(at(millis), at(millis - 100))));
        member.confirm_reduction(&mut reduction);
        reduction
    };
    let (host, mut members) = running(2, 100.0);
    let before = host.window();
    let reduction = reduce(&mut members[0], 1000);
    assert_eq!(host.window(), before / 2);
    assert!(members[0].undo(reduction));
    assert_eq!(host.window(), before);
    assert_eq!(members[0].window(), before, "the member sees it at once");

    let spurious = reduce(&mut members[0], 2000);
    let genuine = reduce(&mut members[1], 2200);
    let reduced = host.window();
    assert!(!members[0].undo(spurious), "another member's came after it");
    assert_eq!(host.window(), reduced);
    host.lock().core.window = 1000.0;
    assert!(!members[1].undo(genuine), "it has grown beyond that");
}

//! Permission to send, congestion events, persistent congestion and undo.

use core::num::{NonZeroU32, NonZeroU64};

use super::*;
use crate::congestion::HostController;
use crate::pool::{Pool, TrafficClass};

#[test]
fn the_window_bounds_what_is_in_flight() {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    assert_eq!(bench.recovery.permit(at(0)), Permit::Send { bytes: 12_000 });
    assert_eq!(bench.fill(0), 10);
    assert_eq!(bench.recovery.permit(at(1)), Permit::Blocked);
    bench.ack(100, &[0..=0]);
    assert_eq!(bench.recovery.permit(at(100)), Permit::Send { bytes: 2400 });
}

#[test]
fn less_room_than_a_datagram_is_no_permission() {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    bench.send_train(0, 9);
    let kind = PacketKind::PADDED_ACK;
    bench
        .recovery
        .on_packet_sent(at(0), Application, 100, kind, &mut Vec::new());
    assert_eq!(bench.recovery.bytes_in_flight(), 10_900);
    assert_eq!(bench.recovery.permit(at(0)), Permit::Blocked);
}

#[test]
fn pacing_holds_back_what_the_window_would_allow() {
    let mut bench = Bench::new(Config::new(Side::Server));
    bench.recovery.set_handshake_confirmed();
    for round in 0..4 {
        bench.send(round * 100);
        bench.ack(round * 100 + 100, &[round..=round]);
    }
    let mut now = 1000;
    assert_eq!(bench.fill(now), 10, "a burst of the initial window");
    let newest = bench.recovery.next_packet_number(Application) - 1;
    now += 100;
    bench.ack(now, &[0..=newest]);
    // 24 kB over 100 ms at gain 1.5: the bucket holds 12 kB.
    assert_eq!(bench.fill(now), 10);
    let Permit::Wait(until) = bench.recovery.permit(at(now)) else {
        panic!("not paced")
    };
    let two_datagrams = Duration::from_nanos(6_666_667);
    assert_eq!(until, at(now) + two_datagrams);
    assert_eq!(bench.recovery.stats().pacing_rate, Some(360_000));
}

#[test]
fn a_flight_that_filled_the_window_grows_it_even_if_the_application_stops_then() {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    bench.fill(0);
    for packet in 0..10 {
        bench.ack(100 + packet, &[0..=packet]);
        bench.recovery.on_app_limited();
    }
    assert_eq!(bench.recovery.congestion_window(), 24_000);
}

#[test]
fn a_flight_the_application_left_unfilled_does_not_grow_the_window() {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    for round in 0..20 {
        let first = bench.send(round * 200);
        bench.send(round * 200);
        bench.recovery.on_app_limited();
        bench.ack(round * 200 + 100, &[first..=first + 1]);
    }
    assert_eq!(bench.recovery.congestion_window(), 12_000);
}

#[test]
fn a_sender_held_back_only_by_pacing_grows() {
    let mut bench = Bench::new(Config::new(Side::Server));
    bench.recovery.set_handshake_confirmed();
    bench.fill(0);
    assert!(matches!(
        bench.recovery.permit(at(0)),
        Permit::Blocked | Permit::Wait(_)
    ));
    bench.ack(100, &[0..=9]);
    let window = bench.recovery.congestion_window();
    assert_eq!(window, 24_000);
    assert_eq!(bench.fill(100), 10);
    assert!(matches!(bench.recovery.permit(at(100)), Permit::Wait(_)));
    bench.ack(200, &[0..=19]);
    assert_eq!(bench.recovery.congestion_window(), window + 12_000);
}

#[test]
fn a_loss_reduces_the_window_and_lets_one_datagram_out_regardless() {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    bench.fill(0);
    let summary = bench.ack(100, &[3..=3]);
    assert!(summary.congestion_event && summary.lost_packets == 1);
    assert_eq!(bench.recovery.congestion_window(), 6000);
    assert_eq!(bench.recovery.permit(at(100)), Permit::Send { bytes: 1200 });
    bench.send(100);
    assert_eq!(bench.recovery.permit(at(100)), Permit::Blocked);
}

#[test]
fn losses_of_one_flight_reduce_the_window_once() {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    bench.fill(0);
    bench.ack(100, &[3..=3]);
    let summary = bench.ack(101, &[9..=9]);
    assert!(summary.lost_packets > 0 && !summary.congestion_event);
    assert_eq!(bench.recovery.stats().congestion_events, 1);
    assert_eq!(bench.recovery.congestion_window(), 6000);
}

fn counts(ect0: u64, ce: u64) -> Option<EcnCounts> {
    Some(EcnCounts { ect0, ect1: 0, ce })
}

/// A flight of ten packets, all marked ECT(0).
fn marked() -> Bench {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    bench.recovery.mark_train();
    bench.fill(0);
    bench
}

#[test]
fn a_risen_ce_count_is_a_congestion_event() {
    let mut bench = marked();
    let summary = bench
        .ack_with(Application, 100, NO_DELAY, counts(2, 2), &[0..=3])
        .unwrap();
    assert!(summary.congestion_event);
    assert_eq!((summary.ce_marks, summary.lost_packets), (2, 0));
    assert_eq!(bench.recovery.congestion_window(), 6000);
    let summary = bench
        .ack_with(Application, 101, NO_DELAY, counts(2, 3), &[0..=4])
        .unwrap();
    assert!(!summary.congestion_event, "the same round trip");
}

#[test]
fn a_ce_count_in_an_ack_that_raises_nothing_is_ignored() {
    let mut bench = marked();
    bench
        .ack_with(Application, 100, NO_DELAY, counts(1, 0), &[2..=2])
        .unwrap();
    let summary = bench
        .ack_with(Application, 101, NO_DELAY, counts(1, 1), &[1..=2])
        .unwrap();
    assert_eq!((summary.ce_marks, summary.congestion_event), (0, false));
    let summary = bench
        .ack_with(Application, 102, NO_DELAY, counts(2, 1), &[1..=3])
        .unwrap();
    assert_eq!(summary.ce_marks, 1);
}

/// One sample of 100 ms, so that persistent congestion takes more than 3 * 325 ms; packets 1 and
/// on are sent at `sent` and only the last is acknowledged.
fn outage(sent: &[u64]) -> (Bench, AckSummary) {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    bench.send(0);
    bench.ack(100, &[0..=0]);
    for millis in sent {
        bench.send(*millis);
    }
    let last = sent.len() as u64;
    let summary = bench.ack(sent[sent.len() - 1] + 100, &[last..=last]);
    (bench, summary)
}

#[test]
fn losses_more_than_three_ptos_apart_are_persistent_congestion() {
    let (bench, summary) = outage(&[200, 600, 1176, 1300, 1301]);
    assert_eq!(
        summary.lost_packets, 3,
        "1301 is acknowledged, 1300 may still come"
    );
    // rttvar shrank to 37.5 ms with the second sample: 3 * (100 + 150 + 25) = 825 ms.
    assert!(summary.persistent_congestion);
    let stats = bench.recovery.stats();
    assert_eq!((stats.cwnd, stats.persistent_congestion), (2400, 1));
    assert!(stats.in_slow_start);
}

#[test]
fn losses_three_ptos_apart_exactly_are_not_persistent_congestion() {
    let (_, summary) = outage(&[200, 600, 1025, 1300, 1301]);
    assert!(summary.lost_packets == 3 && !summary.persistent_congestion);
    let (_, summary) = outage(&[200, 600, 1026, 1300, 1301]);
    assert!(summary.persistent_congestion);
}

#[test]
fn an_acknowledged_packet_between_prevents_persistent_congestion() {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    bench.send(0);
    bench.ack(100, &[0..=0]);
    // 1150 ms from the first loss to the last, but only 650 on one side of number 2.
    for millis in [200, 600, 700, 1300, 1350, 1700] {
        bench.send(millis);
    }
    let summary = bench.ack(1800, &[6..=6, 2..=2]);
    assert_eq!(summary.lost_packets, 4);
    assert!(summary.congestion_event && !summary.persistent_congestion);
}

#[test]
fn losses_before_the_first_round_trip_sample_are_not_persistent_congestion() {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    for millis in [0, 1024, 3072, 7168, 15_360] {
        bench.send(millis);
    }
    let summary = bench.ack(15_460, &[4..=4]);
    assert_eq!(summary.lost_packets, 4);
    assert!(!summary.persistent_congestion);
}

#[test]
fn a_run_of_losses_may_be_reported_by_several_acks() {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    bench.send(0);
    bench.ack(100, &[0..=0]);
    for millis in [200, 300, 400, 450, 1990, 1995, 2000, 2000, 2000] {
        bench.send(millis);
    }
    // Numbers 1 to 3 are lost by this, 6 becomes the largest.
    let first = bench.ack(2090, &[6..=6]);
    assert!(!first.persistent_congestion, "200 to 450 ms");
    let second = bench.ack(2095, &[9..=9, 6..=6]);
    assert!(second.persistent_congestion, "200 to 2000 ms");
}

#[test]
fn persistent_congestion_restarts_min_rtt() {
    let mut bench = Bench::confirmed(Algorithm::NewReno);
    bench.send(0);
    bench.ack(100, &[0..=0]);
    for millis in [200, 600, 3000, 3100, 3200] {
        bench.send(millis);
    }
    bench.ack(3400, &[5..=5]);
    assert_eq!(bench.recovery.rtt().min(), Some(ms(200)));
}

#[test]
fn cubic_undoes_a_reduction_once_every_loss_behind_it_proved_spurious() {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    bench.fill(0);
    bench.ack(100, &[5..=7]);
    assert_eq!(bench.recovery.congestion_window(), 8400);
    bench.ack(105, &[5..=7, 0..=2]);
    assert_eq!(
        bench.recovery.congestion_window(),
        8400,
        "3 and 4 are still lost"
    );
    bench.ack(110, &[0..=7]);
    assert_eq!(bench.recovery.congestion_window(), 12_000);
    let stats = bench.recovery.stats();
    assert_eq!(
        (
            stats.spurious_congestion_events,
            stats.packets_spuriously_lost
        ),
        (1, 5)
    );
    assert_eq!(stats.ssthresh, None);
}

#[test]
fn controllers_without_an_undo_of_their_own_are_put_back() {
    for algorithm in [Algorithm::NewReno, Algorithm::LedbatPlusPlus] {
        let mut bench = Bench::confirmed(algorithm);
        for round in 0..4 {
            bench.fill(round * 100);
            let newest = bench.recovery.next_packet_number(Application) - 1;
            bench.ack(round * 100 + 100, &[0..=newest]);
        }
        let first = bench.recovery.next_packet_number(Application);
        bench.fill(400);
        let before = bench.recovery.stats();
        assert!(
            bench
                .ack(500, &[first + 3..=first + 3, 0..=first - 1])
                .congestion_event
        );
        assert!(bench.recovery.congestion_window() < before.cwnd);
        assert_eq!(bench.ack(502, &[0..=first + 3]).spurious, 1);
        let after = bench.recovery.stats();
        assert!(after.cwnd >= before.cwnd, "{algorithm}");
        assert_eq!(after.ssthresh, before.ssthresh, "{algorithm}");
        assert_eq!(after.spurious_congestion_events, 1, "{algorithm}");
    }
}

#[test]
fn after_a_spurious_loss_three_later_packets_prove_nothing() {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    bench.fill(0);
    assert_eq!(bench.ack(100, &[3..=3]).lost_packets, 1);
    assert_eq!(bench.ack(102, &[0..=3]).spurious, 1);
    let summary = bench.ack(103, &[9..=9, 0..=3]);
    assert_eq!(summary.lost_packets, 0, "4 to 8 may still come");
    assert_eq!(bench.ack(105, &[0..=9]).newly_acked_packets, 5);
    assert_eq!(bench.recovery.stats().congestion_events, 1);
    // What stays away for long enough is lost as ever.
    bench.send_train(200, 10);
    assert_eq!(bench.ack(300, &[15..=19]).lost_packets, 0);
    let (at, timer) = bench.recovery.next_timeout().unwrap();
    assert_eq!(timer, LossTimer::LossTime);
    assert!(at <= Time::ZERO + ms(320), "{at:?}");
    let expired = bench.recovery.on_timeout(at, &mut bench.owner);
    assert_eq!(expired, Some(Expired::Loss { packets: 5 }));
}

#[test]
fn late_claims_beyond_the_widest_thresholds_undo_nothing() {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    let mut undone = Vec::new();
    let mut now = 0;
    for _ in 0..12 {
        let first = bench.recovery.next_packet_number(Application);
        bench.send_train(now, 10);
        bench.ack(now + 100, &[first + 9..=first + 9]);
        // By then all but the acknowledged one are lost, whatever the thresholds.
        let _ = bench.recovery.on_timeout(at(now + 230), &mut bench.owner);
        assert!(bench.ack(now + 231, &[first..=first + 9]).spurious > 0);
        undone.push(bench.recovery.stats().spurious_congestion_events);
        now += 300;
    }
    assert_eq!(undone[11], undone[4], "{undone:?}");
    assert!(undone[11] <= 4, "{undone:?}");
}

#[test]
fn one_genuine_loss_among_spurious_ones_keeps_the_reduction() {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    bench.fill(0);
    bench.ack(100, &[5..=7]);
    bench.ack(105, &[1..=7]);
    assert_eq!(bench.recovery.stats().packets_spuriously_lost, 4);
    assert!(bench.recovery.congestion_window() < 12_000);
}

#[test]
fn late_acks_of_an_older_reduction_do_not_undo_a_newer_one() {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    bench.fill(0);
    bench.ack(100, &[3..=9]);
    bench.send_train(110, 5);
    let summary = bench.ack(210, &[14..=14]);
    assert!(summary.congestion_event);
    let window = bench.recovery.congestion_window();
    bench.ack(220, &[0..=2]);
    assert_eq!(bench.recovery.congestion_window(), window);
}

#[test]
fn the_delivery_rate_is_measured() {
    let mut bench = Bench::confirmed(Algorithm::Cubic);
    for packet in 0..300u64 {
        bench.send(packet);
        if packet >= 100 {
            bench.ack(packet, &[0..=packet - 100]);
        }
    }
    assert_eq!(bench.recovery.stats().delivery_rate, Some(1_200_000));
}

#[test]
fn tracked_packets_are_bounded_whatever_the_window() {
    #[derive(Debug)]
    struct Endless;
    impl CongestionController for Endless {
        fn take_over(&mut self, _handover: &crate::congestion::Handover) {}
        fn on_ack(&mut self, _: &AckSample) -> bool {
            false
        }
        fn on_lost(&mut self, _: &LossSample<'_>) -> bool {
            false
        }
        fn on_persistent_congestion(&mut self, _: Time) {}
        fn on_max_datagram_size(&mut self, _: u16, _: bool) {}
        fn on_path_change(&mut self, _: Time, _: u16) {}
        fn window(&self) -> u64 {
            u64::MAX
        }
        fn ssthresh(&self) -> Option<u64> {
            None
        }
        fn recovery_start(&self) -> Option<Time> {
            None
        }
        fn least_ack_rate(&self) -> LeastAckRate {
            LeastAckRate { per_round: 1 }
        }
    }
    let config = Config {
        pacing: false,
        ..Config::new(Side::Server)
    };
    let controller = Controller::Custom(Box::new(Endless));
    let mut recovery: Recovery<u32> = Recovery::with_controller(config, controller);
    let mut sent = 0;
    while recovery.permit(at(0)) != Permit::Blocked {
        let kind = PacketKind::ACK_ELICITING;
        recovery.on_packet_sent(at(0), Application, 30, kind, &mut Vec::new());
        sent += 1;
    }
    assert_eq!(sent, MAX_TRACKED_PACKETS);
    let next = sent as u64 - 1;
    let ranges = core::iter::once(0..=next);
    let owner = &mut Owner::default();
    recovery
        .on_ack_received(at(9), Application, next, NO_DELAY, None, ranges, owner)
        .unwrap();
    assert!(matches!(recovery.permit(at(9)), Permit::Send { .. }));
}

#[test]
fn an_application_that_never_fills_the_window_does_not_grow_it_by_using_up_the_pacers_burst() {
    let mut bench = Bench::new(Config::new(Side::Server));
    bench.recovery.set_handshake_confirmed();
    bench.fill(0);
    bench.ack(100, &[0..=9]);
    assert_eq!(bench.recovery.congestion_window(), 24_000);
    for round in 1..20 {
        let first = bench.recovery.next_packet_number(Application);
        assert_eq!(bench.fill(round * 100), 10, "the burst, and no more");
        assert!(matches!(
            bench.recovery.permit(at(round * 100)),
            Permit::Wait(_)
        ));
        bench.recovery.on_app_limited();
        bench.ack(round * 100 + 100, &[0..=first + 9]);
        assert_eq!(bench.recovery.congestion_window(), 24_000);
    }
}

#[test]
fn who_retires_leaves_what_the_connections_of_the_host_share() {
    let (host, pool) = (
        HostController::new(),
        Pool::new(NonZeroU64::new(1_000_000).unwrap()),
    );
    let config = Config::new(Side::Server);
    let member = host.join(config.datagram_sizes.initial);
    let mut recovery: Recovery<u32> =
        Recovery::with_controller(config, Controller::Host(Box::new(member)));
    let seat = pool.join(TrafficClass::Normal, NonZeroU32::MIN);
    recovery.set_pool_member(Some(seat));
    assert_eq!((host.members(), pool.members()), (1, 1));
    recovery.retire();
    assert_eq!((host.members(), pool.members()), (0, 0));
    assert_eq!(recovery.bytes_in_flight(), 0);
}

//! Behaviours of the whole: acknowledgements and round trips here, timers, congestion and random
//! operations in the files beside.

mod congestion;
mod cost;
mod extremes;
#[path = "../../tests/one_path/mod.rs"]
mod one_path;
mod random;
mod timers;

use towline_wire::PacketNumberSpace::{Application, Handshake, Initial};

use core::ops::RangeInclusive;
use core::time::Duration;

use towline_wire::{EcnCounts, Side};

use super::{AckError, AckSummary, Config, Expired, FrameOwner, PacketKind, Permit};
use super::{MAX_TRACKED_PACKETS, PacketNumberSpace, Time};
use crate::congestion::{
    AckSample, Algorithm, CongestionController, Controller, LeastAckRate, LossSample,
};
use crate::mtu_search::DatagramSizes;
use crate::pto::LossTimer;
use crate::skipped::key_that_leaves_out;
use one_path::OnePath as Recovery;

pub(super) const SIZE: u16 = 1200;
pub(super) const NO_DELAY: Duration = Duration::ZERO;

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

/// Keeps what came back.
#[derive(Default)]
pub(super) struct Owner {
    pub(super) acked: Vec<(u64, u32)>,
    pub(super) lost: Vec<(u64, u32)>,
    pub(super) probes: Vec<u32>,
}

impl FrameOwner<u32> for Owner {
    fn on_acked(&mut self, packet_number: u64, frame: u32) {
        self.acked.push((packet_number, frame));
    }
    fn on_lost(&mut self, packet_number: u64, frame: u32) {
        self.lost.push((packet_number, frame));
    }
    fn on_probe(&mut self, frame: u32) {
        self.probes.push(frame);
    }
}

/// A `Recovery` with its owner and fewer arguments.
pub(super) struct Bench {
    pub(super) recovery: Recovery<u32>,
    pub(super) owner: Owner,
}

impl Bench {
    pub(super) fn new(config: Config) -> Self {
        Self {
            recovery: Recovery::new(config),
            owner: Owner::default(),
        }
    }

    /// Handshake confirmed, no pacing.
    pub(super) fn confirmed(algorithm: Algorithm) -> Self {
        let config = Config {
            algorithm,
            pacing: false,
            ..Config::new(Side::Server)
        };
        let mut bench = Self::new(config);
        bench.recovery.set_handshake_confirmed();
        bench
    }

    pub(super) fn send_in(&mut self, space: PacketNumberSpace, millis: u64) -> u64 {
        let number = self.recovery.next_packet_number(space);
        let mut frames = vec![number as u32];
        let kind = PacketKind::ACK_ELICITING;
        let sent = self
            .recovery
            .on_packet_sent(at(millis), space, SIZE, kind, &mut frames);
        assert!(frames.is_empty() && sent == number);
        number
    }

    pub(super) fn send(&mut self, millis: u64) -> u64 {
        self.send_in(Application, millis)
    }

    pub(super) fn send_train(&mut self, millis: u64, packets: u64) {
        for _ in 0..packets {
            self.send(millis);
        }
    }

    /// Fills the window, as an engine with endless data does.
    pub(super) fn fill(&mut self, millis: u64) -> u64 {
        let mut packets = 0;
        while let Permit::Send { bytes } = self.recovery.permit(at(millis)) {
            for _ in 0..bytes / u64::from(SIZE) {
                self.send(millis);
                packets += 1;
            }
        }
        packets
    }

    pub(super) fn ack_with(
        &mut self,
        space: PacketNumberSpace,
        millis: u64,
        delay: Duration,
        ecn: Option<EcnCounts>,
        ranges: &[RangeInclusive<u64>],
    ) -> Result<AckSummary, AckError> {
        let largest = *ranges[0].end();
        let ranges = ranges.iter().cloned();
        let owner = &mut self.owner;
        self.recovery
            .on_ack_received(at(millis), space, largest, delay, ecn, ranges, owner)
    }

    pub(super) fn ack(&mut self, millis: u64, ranges: &[RangeInclusive<u64>]) -> AckSummary {
        self.ack_with(Application, millis, NO_DELAY, None, ranges)
            .unwrap()
    }

    pub(super) fn timeout(&mut self, millis: u64) -> Option<Expired> {
        self.recovery.on_timeout(at(millis), &mut self.owner)
    }
}

fn bench() -> Bench {
    Bench::confirmed(Algorithm::Cubic)
}

#[test]
fn frames_come_back_acknowledged_once() {
    let mut bench = bench();
    bench.send_train(0, 4);
    let summary = bench.ack(100, &[3..=3, 0..=1]);
    assert_eq!(bench.owner.acked, [(3, 3), (0, 0), (1, 1)]);
    assert_eq!(
        (summary.newly_acked_packets, summary.newly_acked_bytes),
        (3, 3600)
    );
    assert_eq!(
        (summary.largest_newly_acked, summary.largest_sent_time),
        (Some(3), Some(at(0)))
    );
    assert!(summary.includes_ack_eliciting && summary.rtt_sampled);
    let again = bench.ack(110, &[3..=3, 0..=1]);
    assert_eq!(again.newly_acked_packets, 0);
    assert_eq!(bench.owner.acked.len(), 3);
}

#[test]
fn karn_no_sample_from_an_ambiguous_acknowledgement() {
    // The largest was acknowledged before: when this ACK was provoked cannot be told.
    let mut bench = bench();
    bench.send_train(0, 3);
    assert!(bench.ack(100, &[2..=2]).rtt_sampled);
    let late = bench.ack(150, &[0..=2]);
    assert!(late.newly_acked_packets == 2 && !late.rtt_sampled);
    assert_eq!(bench.recovery.rtt().latest(), ms(100));
}

#[test]
fn karn_data_sent_again_has_its_own_number_and_its_own_sample() {
    let mut bench = bench();
    bench.send(0);
    let Some(Expired::Pto { .. }) = bench.timeout(2000) else {
        panic!("no PTO")
    };
    let again = bench.send(2000);
    bench.ack(2080, &[again..=again]);
    assert_eq!(
        bench.recovery.rtt().latest(),
        ms(80),
        "from the packet, not from its data"
    );
}

#[test]
fn no_sample_from_a_packet_declared_lost() {
    let mut bench = bench();
    bench.send_train(0, 5);
    bench.ack(100, &[4..=4]);
    let late = bench.ack(500, &[0..=0]);
    assert!(late.spurious == 1 && !late.rtt_sampled);
    assert_eq!(bench.recovery.rtt().latest(), ms(100));
}

#[test]
fn no_sample_from_an_ack_of_nothing_ack_eliciting() {
    let mut bench = bench();
    let kind = PacketKind::ACK_ONLY;
    bench
        .recovery
        .on_packet_sent(at(0), Application, 40, kind, &mut Vec::new());
    let summary = bench.ack(100, &[0..=0]);
    assert!(summary.newly_acked_packets == 1 && !summary.rtt_sampled);
    assert_eq!(bench.recovery.rtt().min(), None);
}

#[test]
fn an_acknowledgement_only_largest_gives_a_sample_if_another_was_ack_eliciting() {
    let mut bench = bench();
    bench.send(0);
    let kind = PacketKind::ACK_ONLY;
    bench
        .recovery
        .on_packet_sent(at(10), Application, 40, kind, &mut Vec::new());
    assert!(bench.ack(100, &[0..=1]).rtt_sampled);
    assert_eq!(bench.recovery.rtt().latest(), ms(90));
}

#[test]
fn ack_delay_is_ignored_for_initial_packets() {
    let mut bench = bench();
    bench.send_in(Initial, 0);
    bench
        .ack_with(Initial, 100, NO_DELAY, None, &[0..=0])
        .unwrap();
    bench.send_in(Initial, 200);
    bench
        .ack_with(Initial, 340, ms(40), None, &[1..=1])
        .unwrap();
    assert_eq!(bench.recovery.rtt().smoothed(), ms(105), "140 ms, not 100");
}

#[test]
fn ack_delay_is_limited_once_the_handshake_is_confirmed() {
    for (confirmed, smoothed) in [(false, ms(105)), (true, ms(115))] {
        let mut bench = Bench::new(Config::new(Side::Server));
        bench.recovery.set_peer_max_ack_delay(ms(20));
        if confirmed {
            bench.recovery.set_handshake_confirmed();
        }
        bench.send(0);
        bench.ack(100, &[0..=0]);
        bench.send(200);
        bench
            .ack_with(Application, 440, ms(100), None, &[1..=1])
            .unwrap();
        assert_eq!(bench.recovery.rtt().smoothed(), smoothed);
    }
}

#[test]
fn an_ack_of_a_number_never_sent_is_an_error() {
    let mut bench = bench();
    bench.send(0);
    let error = bench.ack_with(Application, 10, NO_DELAY, None, &[0..=1]);
    assert_eq!(error, Err(AckError::NeverSent { packet_number: 1 }));
    let error = bench.ack_with(Handshake, 10, NO_DELAY, None, &[0..=0]);
    assert_eq!(
        error,
        Err(AckError::NeverSent { packet_number: 0 }),
        "another space"
    );
    let error = bench.ack_with(Application, 10, NO_DELAY, None, &[u64::MAX..=u64::MAX]);
    assert!(error.is_err());
    assert!(bench.owner.acked.is_empty());
}

/// Number 1 is left out; unpaced and confirmed.
fn skipping_one() -> Bench {
    let config = Config {
        pacing: false,
        skip_key: Some(key_that_leaves_out(1)),
        ..Config::new(Side::Server)
    };
    let mut bench = Bench::new(config);
    bench.recovery.set_handshake_confirmed();
    bench
}

#[test]
fn an_ack_of_a_skipped_number_is_an_error() {
    for acknowledged_before in [false, true] {
        let mut bench = skipping_one();
        bench.send(0);
        assert_eq!(bench.send(0), 2);
        if acknowledged_before {
            bench.ack(5, &[0..=0]);
        }
        let error = bench.ack_with(Application, 10, NO_DELAY, None, &[0..=2]);
        assert_eq!(error, Err(AckError::NeverSent { packet_number: 1 }));
    }
}

#[test]
fn an_ack_of_a_skipped_number_is_an_error_however_late_it_comes() {
    let mut bench = skipping_one();
    for round in 0..100 {
        let first = bench.recovery.next_packet_number(Application);
        for _ in 0..100 {
            bench.send(round * 1000);
        }
        let last = bench.recovery.next_packet_number(Application) - 1;
        // What lies between counts as lost, and a minute later as forgotten.
        bench.ack(round * 1000 + 50, &[last..=last, first..=first]);
    }
    let newest = bench.recovery.largest_acked(Application).unwrap();
    for range in [1..=1, 0..=3, 1..=newest - 1] {
        let ranges = [newest..=newest, range];
        let error = bench.ack_with(Application, 200_000, NO_DELAY, None, &ranges);
        assert_eq!(error, Err(AckError::NeverSent { packet_number: 1 }));
    }
    assert!(bench.ack(200_000, &[newest..=newest, 2..=2]).spurious <= 1);
}

#[test]
fn skipped_numbers_need_no_acknowledgement() {
    let mut bench = skipping_one();
    bench.send(0);
    bench.send(0);
    let summary = bench.ack(100, &[2..=2, 0..=0]);
    assert_eq!((summary.newly_acked_packets, summary.lost_packets), (2, 0));
    assert_eq!(bench.recovery.next_timeout(), None);
}

#[test]
fn largest_acked_never_goes_back() {
    let mut bench = bench();
    bench.send_train(0, 3);
    assert_eq!(bench.recovery.largest_acked(Application), None);
    bench.ack(100, &[2..=2]);
    bench.ack(101, &[0..=1]);
    assert_eq!(bench.recovery.largest_acked(Application), Some(2));
}

#[test]
fn a_late_acknowledgement_gives_back_frames_that_were_called_lost() {
    let mut bench = bench();
    bench.send_train(0, 8);
    let summary = bench.ack(100, &[7..=7]);
    assert_eq!(summary.lost_packets, 5);
    assert_eq!(bench.owner.lost, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
    let late = bench.ack(110, &[7..=7, 2..=3]);
    assert_eq!((late.spurious, late.newly_acked_packets), (2, 0));
    assert_eq!(bench.owner.acked, [(7, 7), (2, 2), (3, 3)]);
    assert_eq!(bench.ack(111, &[7..=7, 2..=3]).spurious, 0, "told once");
    let stats = bench.recovery.stats();
    assert_eq!((stats.packets_lost, stats.packets_spuriously_lost), (5, 2));
}

#[test]
fn losses_are_forgotten_after_three_ptos() {
    let mut bench = bench();
    bench.send_train(0, 5);
    bench.ack(100, &[4..=4]);
    assert_eq!(bench.recovery.pto(Application), ms(325));
    bench.send(1075);
    bench.ack(1175, &[5..=5]);
    let late = bench.ack(1176, &[0..=1]);
    assert_eq!((late.spurious, late.newly_acked_packets), (0, 0));
}

#[test]
fn statistics_count_what_happened() {
    let mut bench = bench();
    bench.send_train(0, 6);
    let kind = PacketKind::ACK_ONLY;
    bench
        .recovery
        .on_packet_sent(at(0), Application, 40, kind, &mut Vec::new());
    bench.ack(100, &[5..=5]);
    let stats = bench.recovery.stats();
    assert_eq!((stats.packets_sent, stats.bytes_sent), (7, 7240));
    assert_eq!((stats.packets_lost, stats.bytes_lost), (3, 3600));
    assert_eq!((stats.bytes_in_flight, stats.mtu), (2400, 1200));
    assert_eq!((stats.latest_rtt, stats.min_rtt), (ms(100), Some(ms(100))));
    assert_eq!((stats.congestion_events, stats.in_slow_start), (1, false));
    assert_eq!(stats.cwnd, bench.recovery.congestion_window());
    assert_eq!(stats.ssthresh, Some(stats.cwnd));
}

#[test]
fn abandoned_packets_come_back_without_a_congestion_event() {
    let config = Config::new(Side::Client);
    let mut bench = Bench::new(config);
    bench.send_in(Initial, 0);
    bench.send_in(Initial, 0);
    bench.recovery.abandon_space(Initial, &mut bench.owner);
    bench.recovery.seed_rtt(ms(60));
    assert_eq!(bench.owner.lost, [(0, 0), (1, 1)]);
    assert_eq!(bench.recovery.bytes_in_flight(), 0);
    assert_eq!(
        bench.recovery.next_packet_number(Initial),
        2,
        "numbers go on"
    );
    let stats = bench.recovery.stats();
    assert_eq!(
        (stats.congestion_events, stats.packets_lost, stats.cwnd),
        (0, 0, 12_000)
    );
    assert_eq!(stats.smoothed_rtt, ms(60));
    bench.send_in(Initial, 70);
    assert_eq!(
        bench.recovery.next_timeout(),
        Some((at(70 + 180), LossTimer::Pto))
    );
}

#[test]
fn dropped_keys_take_their_packets_out_of_flight_silently() {
    let mut bench = Bench::new(Config::new(Side::Server));
    bench.send_in(Initial, 0);
    bench.send_in(Handshake, 0);
    bench.timeout(2000);
    assert_eq!(bench.recovery.stats().pto_count, 1);
    bench.recovery.discard_space(at(2001), Initial);
    assert_eq!(bench.recovery.bytes_in_flight(), 1200);
    assert_eq!(bench.recovery.stats().pto_count, 0, "the backoff restarts");
    assert_eq!(bench.recovery.probes_owed(Initial), 0);
    assert!(bench.owner.lost.is_empty() && bench.owner.acked.is_empty());
}

#[test]
fn a_new_path_forgets_the_round_trip_and_takes_no_sample_from_old_packets() {
    let mut bench = bench();
    bench.send(0);
    bench.ack(100, &[0..=0]);
    bench.send(110);
    bench.recovery.change_path(at(150));
    assert_eq!(bench.recovery.rtt().min(), None);
    assert!(!bench.ack(300, &[1..=1]).rtt_sampled);
    bench.send(310);
    assert!(bench.ack(330, &[2..=2]).rtt_sampled);
    assert_eq!(bench.recovery.rtt().smoothed(), ms(20));
}

#[test]
fn extreme_round_trips_do_not_overflow() {
    for gap in [0, 60_000, u64::MAX / 4_000_000, u64::MAX] {
        let mut bench = Bench::confirmed(Algorithm::Cubic);
        let begin = if gap == u64::MAX {
            u64::MAX / 1_000_000
        } else {
            0
        };
        for round in 0..3 {
            let now = begin.saturating_add(gap.saturating_mul(round));
            let first = bench.send(now);
            bench.send_train(now, 5);
            let now = now.saturating_add(gap);
            let delay = Duration::from_millis(gap);
            bench
                .ack_with(Application, now, delay, None, &[first + 5..=first + 5])
                .unwrap();
            let _ = bench.recovery.permit(at(now));
            let _ = bench.recovery.stats();
            let _ = bench.recovery.next_timeout();
            let _ = bench.timeout(now.saturating_add(gap));
        }
    }
}

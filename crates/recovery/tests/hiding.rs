//! Receivers that hide losses: they acknowledge what arrived, wait until the gaps count as lost, and
//! then claim those as well, so that every loss looks spurious and every reduction is undone.
//!
//! One sender over 100 Mbit/s and 40 ms with 2 % random loss, on a virtual clock. What a liar sends
//! for is compared with what an honest receiver gets over the same path and seed.

mod one_path;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use one_path::OnePath as Recovery;
use towline_recovery::{Algorithm, Config, FrameOwner, PacketKind, Permit, Stats};
use towline_wire::{PacketNumberSpace, Side, Time};

const SPACE: PacketNumberSpace = PacketNumberSpace::Application;
const SIZE: u64 = 1200;
const RATE: u64 = 12_500_000;
const ROUND_TRIP: Duration = Duration::from_millis(40);
const LOSS_PER_MILLE: u64 = 20;
const SECONDS: f64 = 10.0;

/// What a receiver claims besides what arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Claims {
    Nothing,
    /// Every number that so many later ones have overtaken.
    All(u64),
    /// Every second gap of those.
    Half(u64),
    /// Every number missing for so long that it must count as lost, but only if it was sent: this
    /// one reads from the data which numbers were not.
    Sent(Duration),
}

struct Nobody;

impl FrameOwner<()> for Nobody {
    fn on_acked(&mut self, _: u64, (): ()) {}
    fn on_lost(&mut self, _: u64, (): ()) {}
    fn on_probe(&mut self, (): ()) {}
}

struct Outcome {
    /// Packets that arrived.
    delivered: u64,
    /// Packets sent when the liar was found out.
    caught: Option<u64>,
    stats: Stats,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// Inclusive ranges of `numbers`, highest first, at most 64.
fn ranges(numbers: &BTreeSet<u64>) -> Vec<RangeInclusive<u64>> {
    let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
    for number in numbers.iter().rev() {
        let count = ranges.len();
        match ranges.last_mut() {
            Some(last) if *last.start() == number + 1 => *last = *number..=*last.end(),
            _ if count == 64 => break,
            _ => ranges.push(*number..=*number),
        }
    }
    ranges
}

fn run(algorithm: Algorithm, claims: Claims, seed: u64) -> Outcome {
    let config = Config {
        algorithm,
        seed,
        skip_key: Some(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ..Config::new(Side::Server)
    };
    let mut recovery: Recovery<()> = Recovery::new(config);
    recovery.set_handshake_confirmed();
    let mut random = Random(seed ^ 0x5eed);
    let end = Time::ZERO + Duration::from_secs_f64(SECONDS);
    let (mut now, mut link_free) = (Time::ZERO, Time::ZERO);
    let mut arrivals: BTreeMap<(Time, u64), ()> = BTreeMap::new();
    let mut acks: VecDeque<(Time, Vec<RangeInclusive<u64>>)> = VecDeque::new();
    let mut acknowledged = BTreeSet::new();
    let mut sent = BTreeMap::new();
    let (mut judged, mut delivered, mut unanswered) = (0, 0, 0);
    while now < end {
        let wake = loop {
            let probes = recovery.probes_owed(SPACE);
            let packets = match recovery.permit(now) {
                _ if probes > 0 => 1,
                Permit::Send { bytes } => (bytes / SIZE).min(16),
                Permit::Wait(until) => break Some(until),
                Permit::Blocked => break None,
            };
            for _ in 0..packets {
                let kind = PacketKind::ACK_ELICITING;
                let number = recovery.on_packet_sent(now, SPACE, 1200, kind, &mut vec![()]);
                sent.insert(number, now);
                let queued = link_free.saturating_duration_since(now);
                let lost = random.next() % 1000 < LOSS_PER_MILLE;
                if queued < ROUND_TRIP {
                    link_free =
                        link_free.max(now) + Duration::from_nanos(SIZE * 1_000_000_000 / RATE);
                    if !lost {
                        arrivals.insert((link_free + ROUND_TRIP / 2, number), ());
                    }
                }
            }
        };
        let timer = recovery.next_timeout().map(|(at, _)| at);
        let arrival = arrivals.keys().next().map(|(at, _)| *at);
        let ack = acks.front().map(|(at, _)| *at);
        let next = [wake, timer, arrival, ack].into_iter().flatten().min();
        now = now.max(next.expect("something is due"));
        if arrival.is_some_and(|at| at <= now) {
            let ((_, number), ()) = arrivals.pop_first().unwrap();
            delivered += 1;
            let in_order = acknowledged.last().is_none_or(|last| number == last + 1);
            acknowledged.insert(number);
            while let Some(claimed) = match claims {
                Claims::Nothing => None,
                Claims::All(by) => (judged + by < number).then_some(true),
                Claims::Half(by) => (judged + by < number).then(|| random.next().is_multiple_of(2)),
                // What was left out is passed over in silence.
                Claims::Sent(after) => match sent.get(&judged) {
                    Some(at) => (*at + after < now).then_some(true),
                    None => (judged < number).then_some(false),
                },
            } {
                if claimed {
                    acknowledged.insert(judged);
                }
                judged += 1;
            }
            unanswered += 1;
            if unanswered == 2 || !in_order {
                unanswered = 0;
                acks.push_back((now + ROUND_TRIP / 2, ranges(&acknowledged)));
                while acknowledged.len() > 5000 {
                    acknowledged.pop_first();
                }
            }
        } else if ack.is_some_and(|at| at <= now) {
            let (_, ranges) = acks.pop_front().unwrap();
            let (largest, delay) = (*ranges[0].end(), Duration::ZERO);
            let ranges = ranges.into_iter();
            let answer =
                recovery.on_ack_received(now, SPACE, largest, delay, None, ranges, &mut Nobody);
            if answer.is_err() {
                return Outcome {
                    delivered,
                    caught: Some(sent.len() as u64),
                    stats: recovery.stats(),
                };
            }
        } else if timer.is_some_and(|at| at <= now) {
            recovery.on_timeout(now, &mut Nobody);
        }
    }
    Outcome {
        delivered,
        caught: None,
        stats: recovery.stats(),
    }
}

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::NewReno,
    Algorithm::Cubic,
    Algorithm::Bbr,
    Algorithm::LedbatPlusPlus,
];

#[test]
fn a_receiver_that_claims_its_losses_is_found_out_within_two_blocks_of_numbers() {
    for algorithm in ALGORITHMS {
        for seed in 0..25 {
            for claims in [Claims::All(4), Claims::All(40), Claims::All(400)] {
                let outcome = run(algorithm, claims, seed);
                let caught = outcome.caught;
                // What is in flight when the claim is made comes on top.
                let window = RATE / SIZE * 120 / 1000;
                assert!(
                    caught.is_some_and(|sent| sent < 512 + 400 + window),
                    "{algorithm} {claims:?} {seed}: {caught:?}"
                );
            }
        }
    }
}

#[test]
fn a_receiver_that_claims_every_second_gap_is_found_out_as_well() {
    for algorithm in ALGORITHMS {
        for seed in 0..10 {
            let outcome = run(algorithm, Claims::Half(40), seed);
            let sent = outcome.stats.packets_sent;
            assert!(sent < 6000, "{algorithm} {seed}: not after {sent}");
        }
    }
}

#[test]
fn a_receiver_that_knows_the_numbers_left_out_gains_a_few_undone_reductions_and_no_more() {
    for algorithm in ALGORITHMS {
        for after in [100, 200] {
            let (mut honest, mut lying) = (0, 0);
            for seed in 0..5 {
                honest += run(algorithm, Claims::Nothing, seed).delivered;
                let claims = Claims::Sent(Duration::from_millis(after));
                let liar = run(algorithm, claims, seed);
                assert_eq!(liar.caught, None);
                lying += liar.delivered;
            }
            let gain = lying as f64 / honest as f64;
            assert!(gain < 1.5, "{algorithm}, {after} ms late: {gain}");
        }
    }
}

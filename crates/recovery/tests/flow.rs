//! One sender over one bottleneck: recovery, controller and pacer together, on a virtual clock.
//!
//! The path is a drop-tail queue at a fixed rate and a fixed delay back; every second packet is
//! acknowledged. Whole connections are tested elsewhere; here only the sender's arithmetic runs.

mod one_path;

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use one_path::OnePath as Recovery;
use towline_recovery::{Algorithm, Config, FrameOwner, PacketKind, Permit, Stats};
use towline_wire::{PacketNumberSpace, Side, Time};

const SPACE: PacketNumberSpace = PacketNumberSpace::Application;
const DATAGRAM: u64 = 1200;

struct Path {
    bytes_per_second: u64,
    round_trip: Duration,
    queue_bytes: u64,
    /// Every so many packets one is dropped; zero for none.
    drop_every: u64,
}

/// What came back: bytes to send again, bytes delivered.
#[derive(Default)]
struct Owner {
    again: u64,
    delivered: u64,
    lost_frames: u64,
}

impl FrameOwner<u64> for Owner {
    fn on_acked(&mut self, _: u64, bytes: u64) {
        self.delivered += bytes;
    }
    fn on_lost(&mut self, _: u64, bytes: u64) {
        self.again += bytes;
        self.lost_frames += 1;
    }
    fn on_probe(&mut self, bytes: u64) {
        self.again += bytes;
    }
}

struct Outcome {
    finished: Duration,
    stats: Stats,
    timeouts: u32,
    deepest_queue: u64,
}

/// Sends `total` bytes and returns when the last was acknowledged.
fn transfer(algorithm: Algorithm, path: &Path, total: u64) -> Outcome {
    let config = Config {
        algorithm,
        ..Config::new(Side::Server)
    };
    transfer_with(config, path, total)
}

fn transfer_with(config: Config, path: &Path, total: u64) -> Outcome {
    let mut recovery: Recovery<u64> = Recovery::new(config);
    recovery.set_handshake_confirmed();
    let mut owner = Owner::default();
    let mut now = Time::ZERO;
    let mut unsent = total;
    let mut link_free = Time::ZERO;
    let mut in_queue: VecDeque<(Time, u64)> = VecDeque::new();
    let mut arrivals: BTreeMap<(Time, u64), u64> = BTreeMap::new();
    let mut received: Vec<RangeInclusive<u64>> = Vec::new();
    let mut acks: VecDeque<(Time, Vec<RangeInclusive<u64>>)> = VecDeque::new();
    let (mut unacknowledged, mut sent, mut timeouts, mut deepest_queue) = (0, 0u64, 0, 0);
    let mut frames = Vec::with_capacity(1);
    loop {
        // Send.
        let wake = loop {
            let probes = recovery.probes_owed(SPACE);
            if unsent + owner.again == 0 && probes == 0 {
                recovery.on_app_limited();
                break None;
            }
            let allowed = match recovery.permit(now) {
                _ if probes > 0 => 1,
                Permit::Send { bytes } => (bytes / DATAGRAM).min(64),
                Permit::Wait(until) => break Some(until),
                Permit::Blocked => break None,
            };
            for _ in 0..allowed {
                let bytes = (unsent + owner.again).min(DATAGRAM);
                let from_again = owner.again.min(bytes);
                owner.again -= from_again;
                unsent -= bytes - from_again;
                frames.push(bytes);
                let kind = PacketKind::ACK_ELICITING;
                let number = recovery.on_packet_sent(now, SPACE, 1200, kind, &mut frames);
                sent += 1;
                while in_queue.front().is_some_and(|(out, _)| *out <= now) {
                    in_queue.pop_front();
                }
                let queued: u64 = in_queue.iter().map(|(_, size)| size).sum();
                deepest_queue = deepest_queue.max(queued);
                let dropped = path.drop_every > 0 && sent % path.drop_every == 0;
                if queued + DATAGRAM <= path.queue_bytes && !dropped {
                    let nanos = DATAGRAM * 1_000_000_000 / path.bytes_per_second;
                    link_free = link_free.max(now) + Duration::from_nanos(nanos);
                    in_queue.push_back((link_free, DATAGRAM));
                    arrivals.insert((link_free + path.round_trip / 2, number), number);
                }
                if unsent + owner.again == 0 {
                    break;
                }
            }
        };
        // The next thing to happen.
        let timer = recovery.next_timeout().map(|(at, _)| at);
        let arrival = arrivals.keys().next().map(|(at, _)| *at);
        let ack = acks.front().map(|(at, _)| *at);
        let next = [wake, timer, arrival, ack].into_iter().flatten().min();
        let Some(next) = next else { break };
        now = now.max(next);
        if arrival.is_some_and(|at| at <= now) {
            let ((at, _), number) = arrivals.pop_first().unwrap();
            let in_order = insert(&mut received, number);
            unacknowledged += 1;
            if unacknowledged >= 2 || !in_order || arrivals.is_empty() {
                unacknowledged = 0;
                let newest: Vec<_> = received.iter().rev().take(32).cloned().collect();
                acks.push_back((at + path.round_trip / 2, newest));
            }
        } else if ack.is_some_and(|at| at <= now) {
            let (_, ranges) = acks.pop_front().unwrap();
            let largest = *ranges[0].end();
            recovery
                .on_ack_received(
                    now,
                    SPACE,
                    largest,
                    Duration::ZERO,
                    None,
                    ranges.into_iter(),
                    &mut owner,
                )
                .unwrap();
        } else if timer.is_some_and(|at| at <= now) {
            timeouts += u32::from(matches!(
                recovery.on_timeout(now, &mut owner),
                Some(towline_recovery::Expired::Pto { .. })
            ));
        }
        if owner.delivered >= total && recovery.bytes_in_flight() == 0 {
            break;
        }
    }
    Outcome {
        finished: now.saturating_duration_since(Time::ZERO),
        stats: recovery.stats(),
        timeouts,
        deepest_queue,
    }
}

/// Whether the number extends the newest range.
fn insert(ranges: &mut Vec<RangeInclusive<u64>>, number: u64) -> bool {
    match ranges.last_mut() {
        Some(last) if *last.end() + 1 == number => {
            *last = *last.start()..=number;
            true
        }
        None => {
            ranges.push(number..=number);
            number == 0
        }
        Some(_) => {
            ranges.push(number..=number);
            false
        }
    }
}

fn both() -> [Algorithm; 2] {
    [Algorithm::NewReno, Algorithm::Cubic]
}

fn all() -> [Algorithm; 3] {
    [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr]
}

#[test]
fn slow_start_fills_a_long_fat_path_within_ten_round_trips() {
    // 2.4 MB, 100 Mbit/s, 165 ms: 1.8 s less one round trip for the handshake.
    let path = Path {
        bytes_per_second: 12_500_000,
        round_trip: Duration::from_millis(165),
        queue_bytes: 2_000_000,
        drop_every: 0,
    };
    for algorithm in all() {
        let outcome = transfer(algorithm, &path, 2_400_000);
        assert_eq!(
            (outcome.timeouts, outcome.stats.packets_lost),
            (0, 0),
            "{algorithm}"
        );
        assert!(
            outcome.finished < Duration::from_millis(1635),
            "{algorithm} {outcome_text}",
            outcome_text = format_args!("{:?}", outcome.finished)
        );
    }
}

#[test]
fn a_large_transfer_uses_the_bottleneck() {
    let path = Path {
        bytes_per_second: 12_500_000,
        round_trip: Duration::from_millis(40),
        queue_bytes: 500_000,
        drop_every: 0,
    };
    for algorithm in all() {
        let outcome = transfer(algorithm, &path, 100_000_000);
        let seconds = outcome.finished.as_secs_f64();
        assert!(seconds < 8.0 * 1.1, "{algorithm}: {seconds} s, ideal is 8");
        assert_eq!(outcome.timeouts, 0, "{algorithm}");
    }
}

fn overshoot(algorithm: Algorithm, hystart: bool, queue_bytes: u64) -> Stats {
    let path = Path {
        bytes_per_second: 12_500_000,
        round_trip: Duration::from_millis(100),
        queue_bytes,
        drop_every: 0,
    };
    let config = Config {
        algorithm,
        hystart,
        ..Config::new(Side::Server)
    };
    transfer_with(config, &path, 40_000_000).stats
}

#[test]
fn hystart_leaves_slow_start_before_a_deep_queue_overflows() {
    for algorithm in both() {
        let stats = overshoot(algorithm, true, 10_000_000);
        assert_eq!(stats.packets_lost, 0, "{algorithm}");
        assert!(!stats.in_slow_start, "{algorithm}");
        assert!(
            overshoot(algorithm, false, 10_000_000).packets_lost > 5000,
            "{algorithm}"
        );
    }
}

#[test]
fn hystart_halves_the_overshoot_into_a_shallow_queue() {
    // Five conservative rounds still triple the window: a queue of one or two BDP overflows.
    for algorithm in both() {
        for queue in [1_250_000, 2_500_000] {
            let (with, without) = (
                overshoot(algorithm, true, queue).packets_lost,
                overshoot(algorithm, false, queue).packets_lost,
            );
            assert!(
                with * 2 < without,
                "{algorithm}: {with} lost, {without} without"
            );
        }
    }
}

#[test]
fn pacing_keeps_the_queue_of_a_paced_sender_short() {
    // The window is never reached: what queues is bursts only.
    let path = Path {
        bytes_per_second: 12_500_000,
        round_trip: Duration::from_millis(100),
        queue_bytes: 10_000_000,
        drop_every: 0,
    };
    for algorithm in all() {
        let outcome = transfer(algorithm, &path, 500_000);
        assert!(
            outcome.deepest_queue <= 30_000,
            "{algorithm}: {}",
            outcome.deepest_queue
        );
    }
}

#[test]
fn throughput_under_loss_follows_the_square_root_law() {
    // 1 % regular loss at 50 ms: the window saws between 2/3 and 4/3 of about 12 to 15 datagrams,
    // hence 0.28 to 0.40 MB/s for Reno and at least as much for CUBIC.
    let path = Path {
        bytes_per_second: 12_500_000,
        round_trip: Duration::from_millis(50),
        queue_bytes: 1_000_000,
        drop_every: 100,
    };
    for algorithm in both() {
        let outcome = transfer(algorithm, &path, 6_000_000);
        let rate = 6.0 / outcome.finished.as_secs_f64();
        assert!((0.22..=0.45).contains(&rate), "{algorithm}: {rate} MB/s");
        assert_eq!(outcome.stats.packets_spuriously_lost, 0, "{algorithm}");
    }
}

#[test]
fn a_slow_path_with_a_shallow_queue_delivers_everything() {
    let path = Path {
        bytes_per_second: 125_000,
        round_trip: Duration::from_millis(30),
        queue_bytes: 6_000,
        drop_every: 7,
    };
    for algorithm in all() {
        let outcome = transfer(algorithm, &path, 500_000);
        assert!(outcome.finished < Duration::from_secs(60), "{algorithm}");
        assert_eq!(outcome.stats.bytes_in_flight, 0);
    }
}

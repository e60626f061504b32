//! Recovery alone: what it costs to remember a packet, and to take an RTT sample.

use std::hint::black_box;
use std::time::Duration;

use towline_recovery::{
    Config, DatagramSizes, FrameOwner, INITIAL_RTT, PacketKind, PathState, Recovery, RttEstimator,
};
use towline_wire::{PacketNumberSpace, Side, Time};

use crate::bulk::TRAIN;
use crate::marker::measured_workload;
use crate::world::{MTU, ONE_WAY};

/// Trains before the count, and in it.
const WARM_UP: u64 = 100;
const ROUNDS: u64 = 256;

/// RTT samples that are counted.
const SAMPLES: usize = 10_000;

const SPACE: PacketNumberSpace = PacketNumberSpace::Application;
const ACK_DELAY: Duration = Duration::from_micros(200);

/// As large as the engine's record of a STREAM frame.
type Frame = [u64; 3];

struct Nobody;

impl FrameOwner<Frame> for Nobody {
    fn on_acked(&mut self, _: u64, frame: Frame) {
        black_box(frame);
    }

    fn on_lost(&mut self, _: u64, _: Frame) {
        panic!("nothing is lost here");
    }

    fn on_probe(&mut self, _: Frame) {
        panic!("nothing is probed here");
    }
}

/// Every packet of a train is sent with one frame, one ACK covers them: ring, congestion
/// controller, pacer and RTT sample. Returns the packets.
pub(crate) fn track() -> u64 {
    let config = Config {
        datagram_sizes: DatagramSizes::fixed(MTU),
        ..Config::new(Side::Client)
    };
    let mut recovery = Recovery::new(&config);
    let mut path = PathState::new(config);
    path.set_handshake_confirmed();
    let mut frames: Vec<Frame> = Vec::new();
    let mut now = Time::from_nanos(1_000_000_000);
    let mut round = || {
        let mut number = 0;
        for i in 0..TRAIN {
            frames.push([i; 3]);
            let kind = PacketKind::ACK_ELICITING;
            number = recovery.on_packet_sent(&mut path, now, SPACE, MTU, kind, &mut frames);
        }
        now += ONE_WAY * 2;
        let ranges = std::iter::once(number + 1 - TRAIN..=number);
        let summary = recovery
            .on_ack_received(
                &mut path,
                now,
                SPACE,
                number,
                ACK_DELAY,
                None,
                ranges,
                &mut Nobody,
            )
            .expect("all of them were sent");
        assert_eq!(summary.newly_acked_packets, TRAIN);
    };
    for _ in 0..WARM_UP {
        round();
    }
    measured_workload(|| {
        for _ in 0..ROUNDS {
            round();
        }
    });
    ROUNDS * TRAIN
}

/// One RTT sample. Returns the samples.
pub(crate) fn rtt() -> u64 {
    let mut rtt = RttEstimator::new(INITIAL_RTT);
    let start = Time::from_nanos(1_000_000_000);
    // Made beforehand: only the estimator is to be counted.
    let round_trips: [Duration; 16] =
        std::array::from_fn(|i| ONE_WAY * 2 + Duration::from_micros(i as u64 * 37 % 100));
    rtt.update(start, ONE_WAY * 2, Duration::ZERO);
    measured_workload(|| {
        for i in 0..SAMPLES {
            rtt.update(start, round_trips[i % round_trips.len()], ACK_DELAY);
            black_box(&mut rtt);
        }
    });
    SAMPLES as u64
}

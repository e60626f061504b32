use core::time::Duration;

use super::*;

fn push(ring: &mut SentRing<u32>, millis: u64, frames: &[u32]) -> u64 {
    let now = Time::ZERO + Duration::from_millis(millis);
    let sent = Sent {
        now,
        size: 1200,
        ack_eliciting: true,
        in_flight: true,
        marked: false,
    };
    let snapshot = Snapshot {
        sent_time: now,
        ..Snapshot::default()
    };
    ring.push(sent, snapshot, &mut frames.to_vec())
}

fn acknowledge(ring: &mut SentRing<u32>, packet_number: u64) -> Vec<u32> {
    let mut frames = Vec::new();
    let entry = ring.acknowledge(packet_number, |frame| frames.push(frame));
    assert!(entry.is_ok_and(|entry| entry.is_some()));
    frames
}

#[test]
fn frames_follow_their_packet_in_any_order_of_acknowledgement() {
    let mut ring = SentRing::new();
    push(&mut ring, 0, &[1, 2]);
    push(&mut ring, 0, &[]);
    push(&mut ring, 0, &[3, 4, 5]);
    assert_eq!(acknowledge(&mut ring, 2), [3, 4, 5]);
    assert_eq!(acknowledge(&mut ring, 0), [1, 2]);
    assert_eq!(acknowledge(&mut ring, 1), [0u32; 0]);
    assert_eq!(
        ring.acknowledge(2, |_| unreachable!())
            .map(|entry| entry.is_none()),
        Ok(true)
    );
}

#[test]
fn popping_hands_out_what_was_not_acknowledged() {
    let mut ring = SentRing::new();
    for packet in 0..3 {
        push(&mut ring, 0, &[packet]);
    }
    acknowledge(&mut ring, 1);
    let mut left = Vec::new();
    while ring.pop_front(|frame| left.push(frame)).is_some() {}
    assert_eq!(left, [0, 2]);
    assert_eq!((ring.base(), ring.next()), (3, 3));
    assert_eq!(push(&mut ring, 1, &[9]), 3);
    assert_eq!(acknowledge(&mut ring, 3), [9]);
}

#[test]
fn a_skipped_number_is_an_error_to_acknowledge() {
    let mut ring: SentRing<u32> = SentRing::new();
    push(&mut ring, 0, &[]);
    ring.skip(Time::ZERO);
    assert_eq!(push(&mut ring, 0, &[]), 2);
    assert_eq!(ring.acknowledge(1, |_| ()).map(|_| ()), Err(NumberSkipped));
    assert_eq!(
        ring.acknowledge(9, |_| ()).map(|entry| entry.is_none()),
        Ok(true)
    );
}

#[test]
fn a_train_shares_one_snapshot_and_keeps_the_last_bytes_in_flight() {
    let mut ring: SentRing<u32> = SentRing::new();
    let sent = Sent {
        now: Time::ZERO,
        size: 1200,
        ack_eliciting: true,
        in_flight: true,
        marked: false,
    };
    for in_flight in [1200, 2400, 3600] {
        let snapshot = Snapshot {
            tx_in_flight: in_flight,
            ..Snapshot::default()
        };
        ring.push(sent, snapshot, &mut Vec::new());
    }
    assert_eq!(ring.snapshots.len(), 1);
    let first = *ring.get(0).unwrap();
    assert_eq!(ring.snapshot(&first).tx_in_flight, 3600);
}

#[test]
fn snapshots_survive_skipped_numbers_and_leave_with_their_train() {
    let mut ring: SentRing<u32> = SentRing::new();
    ring.skip(Time::ZERO);
    push(&mut ring, 1, &[]);
    ring.skip(Time::ZERO);
    push(&mut ring, 1, &[]);
    push(&mut ring, 2, &[]);
    for _ in 0..3 {
        ring.pop_front(|_| ());
    }
    let time_of = |ring: &SentRing<u32>, packet| {
        ring.snapshot(ring.get(packet).unwrap())
            .sent_time
            .as_nanos()
            / 1_000_000
    };
    assert_eq!((time_of(&ring, 3), time_of(&ring, 4)), (1, 2));
    ring.pop_front(|_| ());
    assert_eq!(ring.snapshots.len(), 1);
    ring.pop_front(|_| ());
    assert!(ring.snapshots.is_empty());
}

#[test]
fn running_indices_wrap() {
    let mut ring = SentRing::new();
    (ring.frames_base, ring.snapshots_base) = (u32::MAX - 1, u32::MAX);
    for packet in 0..6 {
        push(&mut ring, u64::from(packet), &[packet, packet + 100]);
    }
    assert_eq!(acknowledge(&mut ring, 4), [4, 104]);
    ring.pop_front(|_| ());
    let last = *ring.get(5).unwrap();
    assert_eq!(ring.snapshot(&last).sent_time, Time::from_nanos(5_000_000));
    assert_eq!(ring.frames(&last).copied().collect::<Vec<_>>(), [5, 105]);
}

#[test]
fn send_times_never_go_back() {
    let mut ring = SentRing::new();
    push(&mut ring, 10, &[]);
    push(&mut ring, 3, &[]);
    assert_eq!(ring.get(1).unwrap().sent_time, Time::from_nanos(10_000_000));
}

#[test]
fn steady_state_does_not_grow_any_queue() {
    let mut ring = SentRing::new();
    let mut frames = Vec::with_capacity(2);
    let mut capacities = None;
    for packet in 0..10_000u64 {
        let now = Time::from_nanos(packet / 10);
        let sent = Sent {
            now,
            size: 1200,
            ack_eliciting: true,
            in_flight: true,
            marked: false,
        };
        frames.extend([1u32, 2]);
        ring.push(
            sent,
            Snapshot {
                sent_time: now,
                ..Snapshot::default()
            },
            &mut frames,
        );
        if packet >= 100 {
            acknowledge(&mut ring, packet - 100);
            ring.pop_front(|_| ());
        }
        if packet == 1000 {
            capacities = Some((ring.entries.capacity(), ring.frames.capacity()));
        }
    }
    assert_eq!(
        capacities,
        Some((ring.entries.capacity(), ring.frames.capacity()))
    );
    assert!(ring.snapshots.len() <= 12);
}

fn remember(lost: &mut LostPackets<u32>, packet_number: u64, millis: u64, frames: &[u32]) {
    let mut ring = SentRing::new();
    push(&mut ring, millis, &[]);
    let entry = *ring.get(0).unwrap();
    lost.push(
        packet_number,
        &entry,
        Time::ZERO + Duration::from_millis(millis),
    );
    frames.iter().for_each(|frame| lost.push_frame(*frame));
}

#[test]
fn a_remembered_loss_is_acknowledged_once() {
    let mut lost = LostPackets::new();
    remember(&mut lost, 3, 0, &[30]);
    remember(&mut lost, 5, 0, &[50, 51]);
    remember(&mut lost, 9, 0, &[90]);
    let late = |lost: &mut LostPackets<u32>, low, high| {
        let (mut packets, mut frames) = (Vec::new(), Vec::new());
        lost.acknowledge(
            low,
            high,
            |entry| packets.push(entry.packet_number),
            |_, frame| frames.push(frame),
        );
        (packets, frames)
    };
    assert_eq!(late(&mut lost, 4, 8), (vec![5], vec![50, 51]));
    assert_eq!(late(&mut lost, 0, 9), (vec![3, 9], vec![30, 90]));
    assert_eq!(late(&mut lost, 0, 9), (vec![], vec![]));
}

#[test]
fn losses_are_forgotten_by_age_and_by_number() {
    let mut lost = LostPackets::new();
    for packet in 0..MAX_LOST_REMEMBERED as u64 + 10 {
        remember(&mut lost, packet, packet, &[1]);
    }
    assert_eq!(
        (lost.first(), lost.entries.len()),
        (Some(10), MAX_LOST_REMEMBERED)
    );
    assert_eq!(lost.frames.len(), MAX_LOST_REMEMBERED);
    lost.expire(|time| time <= Time::from_nanos(99 * 1_000_000));
    assert_eq!(lost.first(), Some(100));
}

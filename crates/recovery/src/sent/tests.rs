use core::time::Duration;

use super::*;

fn push(ring: &mut SentRing<u32>, packet_number: u64, millis: u64, frames: &[u32]) {
    let now = Time::ZERO + Duration::from_millis(millis);
    let sent = Sent {
        now,
        path: PathId::default(),
        size: 1200,
        ack_eliciting: true,
        in_flight: true,
        marked: false,
    };
    let snapshot = Snapshot {
        sent_time: now,
        ..Snapshot::default()
    };
    ring.push(packet_number, sent, snapshot, &mut frames.to_vec());
}

/// Numbers and frames acknowledged for the first time, and the work.
fn acknowledge_range(
    ring: &mut SentRing<u32>,
    range: RangeInclusive<u64>,
) -> (Vec<u64>, Vec<u32>, u32) {
    let (mut numbers, mut frames) = (Vec::new(), Vec::new());
    let work = ring.acknowledge(
        &range,
        |entry| numbers.push(entry.packet_number),
        |_, frame| frames.push(frame),
    );
    (numbers, frames, work)
}

fn acknowledge(ring: &mut SentRing<u32>, packet_number: u64) -> Vec<u32> {
    let (numbers, frames, _) = acknowledge_range(ring, packet_number..=packet_number);
    assert_eq!(numbers, [packet_number]);
    frames
}

fn get(ring: &SentRing<u32>, packet_number: u64) -> SentEntry {
    let mut entries = ring.iter();
    *entries
        .find(|entry| entry.packet_number == packet_number)
        .unwrap()
}

#[test]
fn frames_follow_their_packet_in_any_order_of_acknowledgement() {
    let mut ring = SentRing::new();
    push(&mut ring, 0, 0, &[1, 2]);
    push(&mut ring, 1, 0, &[]);
    push(&mut ring, 2, 0, &[3, 4, 5]);
    assert_eq!(acknowledge(&mut ring, 2), [3, 4, 5]);
    assert_eq!(acknowledge(&mut ring, 0), [1, 2]);
    assert_eq!(acknowledge(&mut ring, 1), [0u32; 0]);
    let (again, frames, _) = acknowledge_range(&mut ring, 2..=2);
    assert!(again.is_empty() && frames.is_empty());
}

#[test]
fn popping_hands_out_what_was_not_acknowledged() {
    let mut ring = SentRing::new();
    for packet in 0..3 {
        push(&mut ring, u64::from(packet), 0, &[packet]);
    }
    acknowledge(&mut ring, 1);
    let mut left = Vec::new();
    while ring.pop_front(|frame| left.push(frame)).is_some() {}
    assert_eq!(left, [0, 2]);
    push(&mut ring, 3, 1, &[9]);
    assert_eq!(acknowledge(&mut ring, 3), [9]);
}

#[test]
fn numbers_that_are_not_there_are_nobodys() {
    let mut ring: SentRing<u32> = SentRing::new();
    assert_eq!(
        acknowledge_range(&mut ring, 0..=u64::MAX),
        (vec![], vec![], 0)
    );
    for number in [3, 5, 9] {
        push(&mut ring, number, 0, &[]);
    }
    for range in [0..=2, 4..=4, 6..=8, 10..=u64::MAX] {
        assert!(acknowledge_range(&mut ring, range).0.is_empty());
    }
    assert_eq!(acknowledge_range(&mut ring, 4..=8).0, [5]);
    assert_eq!(acknowledge_range(&mut ring, 0..=u64::MAX).0, [3, 9]);
}

/// However a peer cuts its claims, a record is looked at once when it is acknowledged and about
/// once more; runs are stepped over.
#[test]
fn what_was_acknowledged_costs_a_step_a_range_however_often_it_is_claimed() {
    const PACKETS: u64 = 50_000;
    let mut ring = SentRing::new();
    (0..PACKETS).for_each(|number| push(&mut ring, number, 0, &[]));
    // All but the oldest, one by one in an order that makes no long runs by itself.
    let mut work = 0;
    for number in (1..PACKETS).step_by(2).chain((2..PACKETS).step_by(2)) {
        work += acknowledge_range(&mut ring, number..=number).2;
    }
    let each = f64::from(work) / PACKETS as f64;
    assert!(each <= 40.0, "two searches and a record: {each}");
    // The whole once more joins what was found bit by bit.
    let joined = acknowledge_range(&mut ring, 1..=PACKETS - 1).2;
    assert!(u64::from(joined) <= 2 * PACKETS, "{joined}");
    for round in 0..150 {
        let again = acknowledge_range(&mut ring, 1..=PACKETS - 1).2;
        assert!(again <= 40, "round {round}: {again}");
        let inside = acknowledge_range(&mut ring, 1000 + round..=PACKETS - 1000).2;
        assert!(inside <= 40, "round {round}: {inside}");
    }
}

#[test]
fn a_train_shares_one_snapshot_and_keeps_the_last_bytes_in_flight() {
    let mut ring: SentRing<u32> = SentRing::new();
    let sent = Sent {
        now: Time::ZERO,
        path: PathId::default(),
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
        let packet_number = in_flight / 1200;
        ring.push(packet_number, sent, snapshot, &mut Vec::new());
    }
    assert_eq!(ring.snapshots.len(), 1);
    let first = get(&ring, 1);
    assert_eq!(ring.snapshot(&first).tx_in_flight, 3600);
}

#[test]
fn snapshots_survive_skipped_numbers_and_leave_with_their_train() {
    let mut ring: SentRing<u32> = SentRing::new();
    for (number, millis) in [(1, 1), (3, 1), (4, 2)] {
        push(&mut ring, number, millis, &[]);
    }
    ring.pop_front(|_| ());
    let time_of = |ring: &SentRing<u32>, packet| {
        ring.snapshot(&get(ring, packet)).sent_time.as_nanos() / 1_000_000
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
        let number = u64::from(packet);
        push(&mut ring, number, number, &[packet, packet + 100]);
    }
    assert_eq!(acknowledge(&mut ring, 4), [4, 104]);
    ring.pop_front(|_| ());
    let last = get(&ring, 5);
    assert_eq!(ring.snapshot(&last).sent_time, Time::from_nanos(5_000_000));
    assert_eq!(ring.frames(&last).copied().collect::<Vec<_>>(), [5, 105]);
}

#[test]
fn send_times_never_go_back() {
    let mut ring = SentRing::new();
    push(&mut ring, 0, 10, &[]);
    push(&mut ring, 1, 3, &[]);
    assert_eq!(get(&ring, 1).sent_time, Time::from_nanos(10_000_000));
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
            path: PathId::default(),
            size: 1200,
            ack_eliciting: true,
            in_flight: true,
            marked: false,
        };
        frames.extend([1u32, 2]);
        ring.push(
            packet,
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
    push(&mut ring, packet_number, millis, &[]);
    let entry = get(&ring, packet_number);
    lost.push(&entry, Time::ZERO + Duration::from_millis(millis), 0);
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
            &(low..=high),
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
        (lost.entries[0].packet_number, lost.entries.len()),
        (10, MAX_LOST_REMEMBERED)
    );
    assert_eq!(lost.frames.len(), MAX_LOST_REMEMBERED);
    lost.expire(|time| time <= Time::from_nanos(99 * 1_000_000));
    assert_eq!(lost.entries[0].packet_number, 100);
}

use super::*;
use crate::bandwidth::Snapshot;
use crate::skipped::key_that_leaves_out;

#[derive(Default)]
struct Lost(Vec<u64>);

impl FrameOwner<()> for Lost {
    fn on_acked(&mut self, _: u64, (): ()) {}
    fn on_lost(&mut self, packet_number: u64, (): ()) {
        self.0.push(packet_number);
    }
    fn on_probe(&mut self, (): ()) {}
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

const DELAY: Duration = Duration::from_millis(90);

fn push(space: &mut Space<()>, millis: u64, in_flight: bool) {
    let sent = Sent {
        now: at(millis),
        path: PathId::default(),
        size: 1200,
        ack_eliciting: in_flight,
        in_flight,
        marked: false,
    };
    space.ack_eliciting_in_flight += u64::from(in_flight);
    space.push(sent, Snapshot::default(), &mut vec![()]);
}

fn acknowledge(space: &mut Space<()>, packet_number: u64) {
    let mut eliciting = 0;
    let each = |entry: &SentEntry| eliciting += u64::from(entry.ack_eliciting());
    space.acknowledge(&(packet_number..=packet_number), each, &mut Lost::default());
    space.ack_eliciting_in_flight -= eliciting;
    space.largest_acked = space.largest_acked.max(Some(packet_number));
}

const THRESHOLDS: Thresholds = Thresholds {
    packets: Some(3),
    delay: DELAY,
    widened: 0,
};

/// Numbers lost at `millis`.
fn detect(space: &mut Space<()>, millis: u64) -> (Vec<u64>, LossBatch) {
    let (mut owner, mut batch) = (Lost::default(), LossBatch::default());
    let first = Some(Time::ZERO);
    space.detect_lost(
        at(millis),
        PathId::default(),
        THRESHOLDS,
        first,
        &mut batch,
        &mut owner,
    );
    (owner.0, batch)
}

fn space_of(packets: u64) -> Space<()> {
    let mut space = Space::new();
    (0..packets).for_each(|packet| push(&mut space, 10 + packet, true));
    space
}

#[test]
fn a_packet_is_lost_when_three_later_numbers_were_sent_up_to_an_acknowledged_one() {
    let mut space = space_of(10);
    acknowledge(&mut space, 2);
    assert_eq!(detect(&mut space, 20).0, [0u64; 0], "two later");
    acknowledge(&mut space, 4);
    assert_eq!(
        detect(&mut space, 20).0,
        [0, 1],
        "3 is one short, 2 is acknowledged"
    );
    assert_eq!(space.ring.front().unwrap().packet_number, 3);
}

#[test]
fn a_packet_is_lost_after_nine_eighths_of_the_round_trip() {
    let mut space = space_of(3);
    acknowledge(&mut space, 2);
    assert_eq!(detect(&mut space, 99).0, [0u64; 0]);
    assert_eq!(space.loss_candidate, Some(at(10)));
    assert_eq!(detect(&mut space, 100).0, [0]);
    assert_eq!(space.loss_candidate, Some(at(11)));
    assert_eq!(detect(&mut space, 101).0, [1]);
    assert_eq!(space.loss_candidate, None);
}

#[test]
fn nothing_is_lost_before_anything_later_was_acknowledged() {
    let mut space = space_of(10);
    assert_eq!(detect(&mut space, 100_000).0, [0u64; 0]);
    assert_eq!(space.loss_candidate, None);
    acknowledge(&mut space, 0);
    assert_eq!(
        detect(&mut space, 100_000).0,
        [0u64; 0],
        "sent after the acknowledged one"
    );
    assert_eq!(space.loss_candidate, None);
}

#[test]
fn skipped_numbers_do_not_count_towards_the_threshold() {
    // 2 is left out: 0, 1, 3 and 4 are sent.
    let mut space: Space<()> = Space::skipping(key_that_leaves_out(2));
    for millis in [10, 11, 12, 12] {
        push(&mut space, millis, true);
    }
    assert_eq!(space.next(), 5);
    acknowledge(&mut space, 3);
    assert_eq!(
        detect(&mut space, 20).0,
        [0u64; 0],
        "1 and 3 were sent after 0"
    );
    acknowledge(&mut space, 4);
    assert_eq!(
        detect(&mut space, 20).0,
        [0],
        "1, 3 and 4 were; after 1 only two"
    );
}

#[test]
fn acknowledgement_only_packets_are_forgotten_not_lost() {
    let mut space = Space::new();
    push(&mut space, 1, false);
    push(&mut space, 2, true);
    (3..6).for_each(|millis| push(&mut space, millis, true));
    acknowledge(&mut space, 4);
    let (frames, batch) = detect(&mut space, 10);
    assert_eq!(frames, [0, 1], "frames come back either way");
    assert_eq!((batch.packets.len(), batch.bytes), (1, 1200));
}

#[test]
fn acknowledgement_only_packets_arm_no_loss_timer() {
    let mut space = Space::new();
    push(&mut space, 1, false);
    push(&mut space, 2, true);
    acknowledge(&mut space, 1);
    detect(&mut space, 10);
    assert_eq!(space.loss_candidate, None);
}

#[test]
fn ranges_count_runs_of_neighbours() {
    let mut space = space_of(12);
    for packet in [0, 3, 4, 11] {
        acknowledge(&mut space, packet);
    }
    let (frames, batch) = detect(&mut space, 30);
    assert_eq!(frames, [1, 2, 5, 6, 7, 8]);
    assert_eq!(
        (batch.ranges, batch.packets.len(), batch.bytes),
        (2, 6, 7200)
    );
}

/// Packets and bytes that a receiver remembers after so many acknowledgements that nobody answers.
/// Every so many packets one elicits an acknowledgement, and gets none.
fn receiver(packets: u64, eliciting_every: Option<u64>) -> (usize, usize) {
    let mut space: Space<()> = Space::new();
    for packet in 0..packets {
        let eliciting = eliciting_every.is_some_and(|every| packet % every == 0);
        push(&mut space, packet, eliciting);
    }
    assert_eq!(space.next(), packets);
    (space.tracked(), space.held())
}

#[test]
fn a_receiver_that_only_acknowledges_keeps_a_bounded_ring() {
    let packets = 10 * MAX_UNANSWERED_ACKS as u64;
    assert_eq!(receiver(packets, None).0, MAX_UNANSWERED_ACKS);
}

#[test]
fn an_unanswered_packet_in_front_keeps_no_acknowledgements_behind_it() {
    let packets = 128 * MAX_UNANSWERED_ACKS as u64;
    // One at the very front; then one now and then, as probes are.
    for (every, in_flight) in [(packets, 1), (20_000, 7)] {
        let (tracked, bytes) = receiver(packets, Some(every));
        assert_eq!(tracked, MAX_UNANSWERED_ACKS + in_flight);
        assert!(bytes <= 200_000, "{bytes} bytes");
    }
}

#[test]
fn at_the_end_of_time_nothing_overflows() {
    let mut space = Space::new();
    let sent = Sent {
        now: Time::MAX,
        path: PathId::default(),
        size: 1200,
        ack_eliciting: true,
        in_flight: true,
        marked: false,
    };
    for _ in 0..2 {
        space.ack_eliciting_in_flight += 1;
        space.push(sent, Snapshot::default(), &mut vec![()]);
    }
    acknowledge(&mut space, 1);
    let (mut owner, mut batch) = (Lost::default(), LossBatch::default());
    let thresholds = Thresholds {
        delay: Duration::MAX,
        ..THRESHOLDS
    };
    space.detect_lost(
        Time::MAX,
        PathId::default(),
        thresholds,
        None,
        &mut batch,
        &mut owner,
    );
    assert_eq!(owner.0, [0]);
}

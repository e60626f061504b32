use super::*;

fn counts(ect0: u64, ect1: u64, ce: u64) -> Option<EcnCounts> {
    Some(EcnCounts { ect0, ect1, ce })
}

fn sent(packets: u64) -> (Validation, SpaceCounts) {
    let mut validation = Validation::new(true);
    let mut space = SpaceCounts::default();
    for _ in 0..packets {
        validation.on_marked_sent(&mut space);
    }
    (validation, space)
}

#[test]
fn ten_packets_are_marked_and_then_none_until_the_peer_confirms() {
    let (mut validation, mut space) = sent(9);
    assert!(validation.marks());
    validation.on_marked_sent(&mut space);
    assert!(!validation.marks());
    assert_eq!(validation.on_ack(&mut space, counts(3, 0, 0), 3), 0);
    assert!(validation.marks() && validation.is_capable());
}

#[test]
fn marks_of_congestion_are_reported_once() {
    let (mut validation, mut space) = sent(10);
    assert_eq!(validation.on_ack(&mut space, counts(4, 0, 1), 5), 1);
    assert_eq!(validation.on_ack(&mut space, counts(5, 0, 3), 3), 2);
    assert_eq!(validation.on_ack(&mut space, counts(5, 0, 3), 0), 0);
}

#[test]
fn counts_that_cannot_be_end_it() {
    let cases: [(&str, Option<EcnCounts>, u64); 5] = [
        ("no counts", None, 1),
        (
            "fewer than acknowledged: cleared on the way",
            counts(2, 0, 0),
            3,
        ),
        ("a codepoint never sent", counts(2, 1, 0), 2),
        ("more than were sent", counts(5, 0, 6), 4),
        ("beyond counting", counts(u64::MAX, 0, u64::MAX), 1),
    ];
    for (what, counts, newly) in cases {
        let (mut validation, mut space) = sent(10);
        assert_eq!(validation.on_ack(&mut space, counts, newly), 0, "{what}");
        assert!(!validation.marks(), "{what}");
        assert_eq!(validation.on_ack(&mut space, self::counts(10, 0, 0), 1), 0);
        assert!(!validation.marks(), "{what}: it stays off");
    }
}

#[test]
fn counts_that_fall_end_it() {
    let (mut validation, mut space) = sent(10);
    assert_eq!(validation.on_ack(&mut space, counts(2, 0, 3), 5), 3);
    assert_eq!(validation.on_ack(&mut space, counts(4, 0, 1), 1), 0);
    assert!(!validation.marks());
}

#[test]
fn an_ack_of_unmarked_packets_needs_no_counts() {
    let (mut validation, mut space) = sent(3);
    assert_eq!(validation.on_ack(&mut space, None, 0), 0);
    assert!(validation.marks());
}

#[test]
fn a_path_that_loses_what_is_marked_gets_no_marks() {
    let (mut validation, _) = sent(10);
    validation.on_marked_lost(9);
    assert_eq!(validation.state, State::Unknown);
    validation.on_marked_lost(1);
    assert_eq!(validation.state, State::Failed);
}

#[test]
fn a_probe_timeout_goes_without_a_mark_and_a_new_path_starts_again() {
    let (mut validation, mut space) = sent(1);
    validation.on_probe_timeout(1);
    assert!(!validation.marks());
    validation = Validation::new(true);
    assert!(validation.marks());
    let _ = validation.on_ack(&mut space, counts(1, 0, 0), 1);
    validation.on_probe_timeout(1);
    assert!(
        validation.marks(),
        "a timeout says nothing once marks are known to arrive"
    );
}

#[test]
fn switched_off_it_marks_nothing_and_believes_nothing() {
    let mut validation = Validation::new(false);
    let mut space = SpaceCounts::default();
    assert!(!validation.marks());
    assert_eq!(validation.on_ack(&mut space, counts(0, 0, 9), 1), 0);
}

#[test]
fn a_path_that_marks_everything_from_the_start_tells_nothing() {
    let (mut validation, mut space) = sent(10);
    assert_eq!(validation.on_ack(&mut space, counts(0, 0, 4), 4), 4);
    assert_eq!(validation.on_ack(&mut space, counts(0, 0, 10), 6), 0);
    assert!(!validation.marks() && !validation.is_capable());
}

#[test]
fn one_packet_that_arrives_as_it_was_sent_makes_marks_believable() {
    let (mut validation, mut space) = sent(30);
    assert_eq!(validation.on_ack(&mut space, counts(1, 0, 5), 6), 5);
    assert_eq!(validation.on_ack(&mut space, counts(1, 0, 29), 24), 24);
    assert!(validation.is_capable());
}

#[test]
fn a_silence_suspends_marks_and_two_in_a_row_end_them() {
    let (mut validation, mut space) = sent(10);
    validation.on_ack(&mut space, counts(10, 0, 0), 10);
    for timeouts in 1..=2 {
        validation.on_probe_timeout(timeouts);
        assert!(validation.marks());
    }
    validation.on_probe_timeout(3);
    assert!(!validation.marks());
    // An unmarked probe came through.
    validation.on_ack(&mut space, counts(10, 0, 0), 0);
    assert!(validation.marks());
    validation.on_marked_sent(&mut space);
    validation.on_probe_timeout(3);
    validation.on_ack(&mut space, counts(10, 0, 0), 0);
    assert!(!validation.marks(), "marked packets vanish");
}

#[test]
fn a_peer_that_stops_marking_is_answered_unmarked_where_no_probe_of_ours_can_tell() {
    let (mut validation, mut space) = sent(10);
    validation.on_ack(&mut space, counts(10, 0, 0), 10);
    validation.on_received(false, || false);
    assert!(validation.marks(), "a peer that never marked");
    validation.on_received(true, || false);
    validation.on_received(false, || true);
    assert!(validation.marks(), "a probe timeout of ours will tell");
    validation.on_received(false, || false);
    assert!(!validation.marks());
    // Marks are tried again once anything of ours was acknowledged, and once only.
    validation.on_ack(&mut space, counts(10, 0, 0), 0);
    assert!(validation.marks());
    validation.on_received(false, || false);
    validation.on_ack(&mut space, counts(10, 0, 0), 0);
    assert!(!validation.marks());
}

#[test]
fn silences_far_apart_do_not_add_up() {
    let (mut validation, mut space) = sent(10);
    validation.on_ack(&mut space, counts(10, 0, 0), 10);
    for packet in 11..=20 {
        validation.on_probe_timeout(3);
        validation.on_ack(&mut space, counts(packet - 1, 0, 0), 0);
        validation.on_marked_sent(&mut space);
        validation.on_ack(&mut space, counts(packet, 0, 0), 1);
        assert!(validation.marks());
    }
}

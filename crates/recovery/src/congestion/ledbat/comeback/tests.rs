//! How long a path has to be clear, and what makes it longer.

use super::*;

const TARGET: u64 = 25_000_000;
const ROUND: Duration = Duration::from_millis(40);

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// The first millisecond from `start` on at which a comeback is due.
fn due_after(comeback: &mut Comeback, start: u64, round: Duration) -> u64 {
    (start..start + 100_000)
        .find(|now| comeback.is_due(at(*now), TARGET / 4, TARGET, round))
        .map_or(u64::MAX, |now| now - start)
}

#[test]
fn a_path_is_clear_after_half_a_second_or_eight_round_trips() {
    let mut comeback = Comeback::default();
    assert_eq!(due_after(&mut comeback, 0, ROUND), 500);
    let mut comeback = Comeback::default();
    assert_eq!(due_after(&mut comeback, 0, 5 * ROUND), 1600);
}

#[test]
fn a_queue_and_a_slowdown_start_the_wait_again() {
    let mut comeback = Comeback::default();
    assert!(!comeback.is_due(at(0), 0, TARGET, ROUND));
    assert!(!comeback.is_due(at(499), TARGET / 4 + 1, TARGET, ROUND));
    assert_eq!(due_after(&mut comeback, 500, ROUND), 500);
    comeback.interrupt();
    assert_eq!(due_after(&mut comeback, 2000, ROUND), 500);
}

#[test]
fn comebacks_that_end_in_losses_become_rare() {
    let mut comeback = Comeback::default();
    for doubled in [1, 2, 4, 8, 16, 32, 64, 64] {
        assert_eq!(due_after(&mut comeback, 0, ROUND), 500 * doubled);
        comeback.on_loss();
    }
    comeback.on_queue(at(0));
    assert_eq!(due_after(&mut comeback, 0, ROUND), 500);
}

#[test]
fn a_loss_of_the_last_flight_makes_the_next_comeback_rarer_and_a_later_one_does_not() {
    let mut comeback = Comeback::default();
    for doubled in [2, 4, 8] {
        comeback.on_queue(at(1000));
        comeback.on_late_loss(at(990));
        assert_eq!(due_after(&mut comeback, 2000, ROUND), 500 * doubled);
    }
    comeback.on_queue(at(1000));
    comeback.on_late_loss(at(1010));
    assert_eq!(due_after(&mut comeback, 2000, ROUND), 500);
}

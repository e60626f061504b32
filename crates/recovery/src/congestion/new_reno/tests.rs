use super::super::tests::{DATAGRAM, SIZE, ack, at, loss};
use super::*;

fn in_avoidance() -> NewReno {
    let mut reno = NewReno::new(SIZE, false, true);
    reno.on_ack(&ack(at(50), 28_000));
    reno.on_lost(&loss(at(100), at(50)));
    assert_eq!((reno.window(), reno.ssthresh()), (20_000, Some(20_000)));
    reno
}

#[test]
fn a_loss_halves_the_window_and_sets_the_threshold() {
    assert!(!in_avoidance().in_slow_start());
}

#[test]
fn avoidance_adds_one_datagram_per_window_acknowledged() {
    let mut reno = in_avoidance();
    for millis in 0..9 {
        reno.on_ack(&ack(at(300 + millis), 2000));
    }
    assert_eq!(reno.window(), 20_000);
    reno.on_ack(&ack(at(310), 2000));
    assert_eq!(reno.window(), 20_000 + DATAGRAM);
}

#[test]
fn one_huge_ack_adds_at_most_one_datagram() {
    let mut reno = in_avoidance();
    reno.on_ack(&ack(at(300), 60_000));
    assert_eq!(reno.window(), 20_000 + DATAGRAM);
}

#[test]
fn the_window_never_falls_below_two_datagrams() {
    let mut reno = NewReno::new(SIZE, false, true);
    for event in 1..20 {
        reno.on_lost(&loss(at(event * 200), at(event * 200 - 100)));
    }
    assert_eq!(reno.window(), 2 * DATAGRAM);
}

#[test]
fn spurious_losses_are_not_undone() {
    let mut reno = in_avoidance();
    assert!(!reno.on_spurious_loss(at(120)));
    assert_eq!(reno.window(), 20_000);
}

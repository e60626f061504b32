//! What counts as the path's own loss, and how soon it is forgotten.

use super::*;

const DATAGRAM: u64 = 1200;
const ROUND: Duration = Duration::from_millis(100);

struct Drive {
    loss: PathLoss,
    now: Time,
}

impl Drive {
    fn new() -> Self {
        let now = Time::from_nanos(1_000_000_000_000);
        let loss = PathLoss::default();
        Self { loss, now }
    }

    /// A round of a thousand packets; whether it lost more than the path always does.
    fn round(&mut self, lost: u64, queue_stood: bool) -> bool {
        self.now += ROUND;
        self.loss.on_ack((1000 - lost) * DATAGRAM);
        self.loss.on_lost(lost * DATAGRAM);
        self.loss.end_round(self.now, DATAGRAM, queue_stood)
    }

    fn share(&self) -> u64 {
        self.loss.share(self.now)
    }
}

#[test]
fn it_is_the_least_share_of_four_periods() {
    let mut drive = Drive::new();
    for lost in [30, 20, 40] {
        assert!(drive.round(lost, false));
        assert_eq!(drive.share(), 0);
    }
    assert!(drive.round(50, false));
    assert_eq!(drive.share(), 20_000);
    assert!(!drive.round(40, false), "twice the share");
    assert!(drive.round(41, false));
    assert_eq!(drive.share(), 40_000, "the 2 % are older than four periods");
    assert!(!drive.round(0, false));
    assert_eq!(
        drive.share(),
        0,
        "a period without loss: it is none of the path's"
    );
}

#[test]
fn losses_with_a_queue_and_overloads_teach_nothing() {
    let mut drive = Drive::new();
    for _ in 0..8 {
        assert!(drive.round(30, true));
    }
    assert_eq!(drive.share(), 0);
    for lost in [30, 30, 30, 101] {
        drive.round(lost, false);
    }
    assert_eq!(drive.share(), 0);
}

#[test]
fn few_packets_make_no_period() {
    let mut drive = Drive::new();
    for _ in 0..16 {
        drive.now += ROUND;
        drive.loss.on_ack(97 * DATAGRAM);
        drive.loss.on_lost(3 * DATAGRAM);
        drive.loss.end_round(drive.now, DATAGRAM, false);
    }
    assert_eq!(drive.share(), 0, "three periods of 500");
    for _ in 0..4 {
        drive.now += ROUND;
        drive.loss.on_ack(97 * DATAGRAM);
        drive.loss.on_lost(3 * DATAGRAM);
        drive.loss.end_round(drive.now, DATAGRAM, false);
    }
    assert_eq!(drive.share(), 30_000);
}

#[test]
fn ten_seconds_without_a_period_forget_it() {
    let mut drive = Drive::new();
    for _ in 0..4 {
        drive.round(30, false);
    }
    drive.now += MEMORY;
    assert_eq!(drive.share(), 30_000);
    drive.now += ROUND;
    assert_eq!(drive.share(), 0);
    drive.round(30, false);
    assert_eq!(drive.share(), 0, "one new period is no four");
}

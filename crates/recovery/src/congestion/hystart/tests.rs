use super::super::tests::{DATAGRAM, ack, at};
use super::*;

struct Rounds {
    hystart: HyStart,
    round: u64,
}

impl Rounds {
    fn new() -> Self {
        Self {
            hystart: HyStart::new(true, true),
            round: 0,
        }
    }

    /// A round of `acks` ACKs of four datagrams each, at one round-trip time; the growth of the
    /// last, and whether slow start ended in the round.
    fn round(&mut self, acks: u32, rtt_millis: u64) -> (u64, bool) {
        self.round += 1;
        let (mut bytes, mut left) = (0, false);
        for _ in 0..acks {
            let sample = AckSample {
                round: self.round,
                rtt: Some(Duration::from_millis(rtt_millis)),
                ..ack(at(1000), 4 * DATAGRAM)
            };
            let growth = self.hystart.on_ack(&sample, sample.acked_bytes, DATAGRAM);
            bytes = growth.bytes;
            left |= growth.leave;
        }
        (bytes, left)
    }
}

const FULL: (u64, bool) = (4 * DATAGRAM, false);
const QUARTER: (u64, bool) = (DATAGRAM, false);

#[test]
fn steady_delay_stays_in_slow_start() {
    let mut rounds = Rounds::new();
    for _ in 0..20 {
        assert_eq!(rounds.round(10, 100), FULL);
    }
}

#[test]
fn an_eighth_more_delay_slows_growth_and_five_rounds_later_ends_it() {
    let mut rounds = Rounds::new();
    rounds.round(10, 100);
    assert_eq!(rounds.round(10, 113), QUARTER);
    for _ in 0..4 {
        assert_eq!(rounds.round(10, 113), QUARTER);
    }
    let (_, left) = rounds.round(1, 113);
    assert!(left, "the partial round of entry and four more");
    assert!(!rounds.hystart.is_active());
}

#[test]
fn a_false_alarm_returns_to_slow_start() {
    let mut rounds = Rounds::new();
    rounds.round(10, 100);
    assert_eq!(rounds.round(10, 115), QUARTER);
    assert_eq!(rounds.round(10, 101), FULL);
    assert_eq!(rounds.round(10, 101), FULL);
    assert!(rounds.hystart.is_active());
}

#[test]
fn the_threshold_lies_between_4_and_16_ms() {
    for (base, quiet, alarm) in [(10, 13, 14), (80, 89, 90), (400, 415, 416)] {
        let mut rounds = Rounds::new();
        rounds.round(10, base);
        assert_eq!(rounds.round(10, quiet), FULL, "{base} ms");
        let mut rounds = Rounds::new();
        rounds.round(10, base);
        assert_eq!(rounds.round(10, alarm), QUARTER, "{base} ms");
    }
}

#[test]
fn a_round_of_fewer_than_eight_samples_is_not_judged() {
    let mut rounds = Rounds::new();
    rounds.round(10, 100);
    assert_eq!(rounds.round(7, 200), FULL);
}

#[test]
fn the_first_round_has_nothing_to_compare_with() {
    assert_eq!(Rounds::new().round(100, 500), FULL);
}

#[test]
fn an_unpaced_sender_grows_by_at_most_eight_datagrams_per_ack() {
    let growth = |paced| {
        let sample = ack(at(1), 100 * DATAGRAM);
        HyStart::new(true, paced)
            .on_ack(&sample, sample.acked_bytes, DATAGRAM)
            .bytes
    };
    assert_eq!(
        (growth(true), growth(false)),
        (100 * DATAGRAM, 8 * DATAGRAM)
    );
}

#[test]
fn switched_off_it_never_interferes() {
    let mut rounds = Rounds {
        hystart: HyStart::new(false, false),
        round: 0,
    };
    for delay in 1..20 {
        assert_eq!(rounds.round(10, delay * 100), FULL);
    }
}

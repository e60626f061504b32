use super::super::tests::{SIZE, ack, at, loss};
use super::super::{Algorithm, Controller};
use super::*;

const DATAGRAM: u64 = SIZE as u64;

fn fixed(rate: u64) -> FixedRate {
    FixedRate::new(SIZE, NonZeroU64::new(rate).unwrap())
}

#[test]
fn the_window_holds_two_round_trips_and_does_not_bind() {
    let mut controller = fixed(1_250_000);
    controller.on_ack(&ack(at(100), 5 * DATAGRAM));
    assert_eq!(controller.window(), 250_000 + 12_000);
    assert_eq!(controller.strict_rate().unwrap().get(), 1_250_000);
}

#[test]
fn losses_change_nothing_until_they_are_persistent() {
    let mut controller = fixed(1_250_000);
    controller.on_ack(&ack(at(100), DATAGRAM));
    let window = controller.window();
    for i in 1..100 {
        assert!(!controller.on_lost(&loss(at(i * 50), at(i * 50 - 10))));
    }
    assert_eq!(controller.window(), window);
    controller.on_persistent_congestion(at(6000));
    assert_eq!(controller.window(), 2 * DATAGRAM);
    // The ACK that revealed it is of something sent before.
    controller.on_ack(&ack(at(6000), DATAGRAM));
    assert_eq!(controller.window(), 2 * DATAGRAM);
    controller.on_ack(&ack(at(6101), DATAGRAM));
    assert_eq!(controller.window(), window, "alive again");
}

#[test]
fn extremes_do_not_overflow() {
    let mut controller = fixed(u64::MAX);
    controller.on_ack(&AckSample {
        smoothed_rtt: Duration::MAX,
        ..ack(Time::MAX, u64::MAX)
    });
    assert_eq!(controller.window(), u64::MAX);
    controller.on_ack(&AckSample {
        smoothed_rtt: Duration::ZERO,
        ..ack(Time::MAX, 1)
    });
    assert_eq!(controller.window(), 12_000);
    let by_name = Controller::new(Algorithm::FixedRate(NonZeroU64::MIN), SIZE, true, true);
    assert!(by_name.window() >= 2 * DATAGRAM);
}

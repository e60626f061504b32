use super::super::tests::{SIZE, ack, at, loss};
use super::super::{Algorithm, Controller, UnknownAlgorithm};
use super::*;

const DATAGRAM: u64 = SIZE as u64;

fn fixed(rate: u64) -> FixedRate {
    FixedRate::new(SIZE, NonZeroU64::new(rate).unwrap())
}

#[test]
fn rates_are_read_in_bits_and_in_bytes() {
    for (text, rate) in [
        ("fixed:10mbit", 1_250_000),
        ("fixed:10Mbit/s", 1_250_000),
        ("fixed:1.5mbit", 187_500),
        ("fixed:64kbit", 8_000),
        ("fixed:1gbit", 125_000_000),
        ("fixed:2M", 2_000_000),
        ("fixed:500k", 500_000),
        ("fixed:1MiB", 1_048_576),
        ("fixed:1234567", 1_234_567),
    ] {
        let algorithm: Algorithm = text.parse().unwrap();
        let wanted = Algorithm::FixedRate(NonZeroU64::new(rate).unwrap());
        assert_eq!(algorithm, wanted, "{text}");
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm), "{algorithm}");
    }
}

#[test]
fn a_rate_that_is_none_is_refused_with_an_example() {
    for text in [
        "fixed:",
        "fixed:0",
        "fixed:0mbit",
        "fixed:fast",
        "fixed:-3M",
        "fixed:10apples",
        "fixed:99999999999999999999",
        "fixed:1bit",
        "fixed:nan",
        "fixed",
    ] {
        let error = text.parse::<Algorithm>().unwrap_err();
        assert_eq!(error, UnknownAlgorithm::Rate, "{text}");
        assert!(error.to_string().contains("fixed:10mbit"));
    }
}

#[test]
fn a_rate_at_which_no_handshake_finishes_is_refused_with_the_least() {
    for text in ["fixed:1", "fixed:999", "fixed:7kbit", "fixed:0.5k"] {
        let error = text.parse::<Algorithm>().unwrap_err();
        assert_eq!(error, UnknownAlgorithm::TooSlow, "{text}");
        assert!(
            error
                .to_string()
                .contains("the least fixed rate is 1000 bytes")
        );
    }
    assert!("fixed:1000".parse::<Algorithm>().is_ok());
    assert!("fixed:8kbit".parse::<Algorithm>().is_ok());
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

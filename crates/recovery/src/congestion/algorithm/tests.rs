use super::*;

#[test]
fn names_parse_and_print() {
    for algorithm in [
        Algorithm::NewReno,
        Algorithm::Cubic,
        Algorithm::Bbr,
        Algorithm::LedbatPlusPlus,
    ] {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
    assert_eq!("bbr9".parse::<Algorithm>(), Err(UnknownAlgorithm::Name));
    assert_eq!("ledbat".parse(), Ok(Algorithm::LedbatPlusPlus));
    assert_eq!(Algorithm::default(), Algorithm::Cubic);
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

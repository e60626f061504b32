use super::*;

#[test]
fn sizes_take_decimal_and_binary_suffixes() {
    for (text, bytes) in [
        ("0", 0),
        ("1500", 1500),
        ("64k", 64_000),
        ("1.5M", 1_500_000),
        ("4MiB", 4 << 20),
        ("1Gi", 1 << 30),
        ("10MB", 10_000_000),
    ] {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in ["", "M", "-1", "1x", "1e9", "1 M", "99999999999T", "."] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}

#[test]
fn rates_are_bytes_unless_bits_are_named() {
    for (text, rate) in [
        ("2M", 2_000_000),
        ("2MB/s", 2_000_000),
        ("16Mbit", 2_000_000),
        ("16Mbit/s", 2_000_000),
        ("1KiB", 1024),
    ] {
        assert_eq!(parse_rate(text), Ok(rate), "{text}");
    }
    for text in ["0", "fast", "1bits", "5bit"] {
        assert!(parse_rate(text).is_err(), "{text}");
    }
}

#[test]
fn durations_default_to_seconds() {
    for (text, ms) in [
        ("2", 2000),
        ("1.5s", 1500),
        ("200ms", 200),
        ("5m", 300_000),
        ("0", 0),
    ] {
        assert_eq!(
            parse_duration(text),
            Ok(Duration::from_millis(ms)),
            "{text}"
        );
    }
    for text in ["", "s", "1d", "-1", "1e30h"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    assert!(parse_positive_duration("0").is_err());
}

#[test]
fn numbers_for_people_have_three_digits() {
    assert_eq!(Bytes(0).to_string(), "0 B");
    assert_eq!(Bytes(1023).to_string(), "1023 B");
    assert_eq!(Bytes(1536).to_string(), "1.50 KiB");
    assert_eq!(Bytes(200 << 30).to_string(), "200 GiB");
    assert_eq!(BitRate(1_250_000_000.0).to_string(), "10.0 Gbit/s");
    assert_eq!(ByteRate(123_456.0).to_string(), "123 kB/s");
}

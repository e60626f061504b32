use super::*;

/// SHA-256 of "abc" (FIPS 180-4 example).
const ABC: &str = "sha256/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn a_pin_prints_what_it_parses() {
    let pin = CertificatePin::of(b"abc");
    assert_eq!(pin.to_string(), ABC);
    assert_eq!(format!("{pin:?}"), ABC);
    assert_eq!(ABC.parse(), Ok(pin));
    assert_eq!(pin.to_base64().parse(), Ok(pin));
    assert_eq!(CertificatePin::from_bytes(*pin.as_bytes()), pin);
}

#[test]
fn every_usual_spelling_is_understood() {
    let pin = KeyPin::of(b"abc");
    let digits = ABC.strip_prefix("sha256/").unwrap();
    let bytes: Vec<&str> = (0..32).map(|at| &digits[at * 2..at * 2 + 2]).collect();
    for text in [
        format!("  {ABC}\n"),
        format!("sha256/{}", digits.to_uppercase()),
        format!("sha256/{}", bytes.join(":").to_uppercase()),
        pin.to_base64(),
        pin.to_base64().trim_end_matches('=').to_owned(),
        // The first slash belongs to the prefix, later ones to base64.
        format!(
            "sha256/{}",
            &pin.to_base64()[7..].replace('/', "_").replace('+', "-")
        ),
    ] {
        assert_eq!(text.parse(), Ok(pin), "{text}");
    }
}

#[test]
fn a_wrong_pin_says_what_is_wrong() {
    let digits = ABC.strip_prefix("sha256/").unwrap();
    for (text, error) in [
        (String::new(), PinError::MissingPrefix),
        (digits.to_owned(), PinError::MissingPrefix),
        (format!("SHA256/{digits}"), PinError::MissingPrefix),
        ("sha256/".to_owned(), PinError::WrongLength),
        (format!("sha256/{}", &digits[1..]), PinError::WrongLength),
        (format!("sha256/{}g", &digits[1..]), PinError::NotHex),
        (
            format!("sha256/{}", "ab-".repeat(31) + "cd"),
            PinError::NotHex,
        ),
        (format!("sha256/{}", "*".repeat(43)), PinError::NotBase64),
        (format!("sha256/{}", "A".repeat(44)), PinError::NotBase64),
        (format!("sha256/{}", "é".repeat(32)), PinError::NotHex),
    ] {
        assert_eq!(text.parse::<KeyPin>(), Err(error), "{text}");
        assert_eq!(text.parse::<CertificatePin>(), Err(error), "{text}");
        assert_eq!(Pin::either(&text), Err(error), "{text}");
    }
}

#[test]
fn one_text_can_be_read_as_either_hash() {
    let [certificate, key] = Pin::either(ABC).unwrap();
    assert_eq!(certificate, CertificatePin::of(b"abc").into());
    assert_eq!(key, KeyPin::of(b"abc").into());
}

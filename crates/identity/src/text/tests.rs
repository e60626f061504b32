use super::*;

#[test]
fn base64_matches_rfc_4648() {
    for (bytes, text) in [
        (&b""[..], ""),
        (b"f", "Zg=="),
        (b"fo", "Zm8="),
        (b"foo", "Zm9v"),
        (b"foob", "Zm9vYg=="),
        (b"fooba", "Zm9vYmE="),
        (b"foobar", "Zm9vYmFy"),
    ] {
        assert_eq!(base64(bytes), text);
    }
}

#[test]
fn thirty_two_bytes_survive_both_encodings() {
    for start in [0u8, 100, 0xe0] {
        let bytes: [u8; 32] = std::array::from_fn(|index| start.wrapping_add(index as u8 * 7));
        assert_eq!(unhex_32(hex(&bytes).as_bytes()), Some(bytes));
        let text = base64(&bytes);
        assert_eq!(unbase64_32(text.as_bytes()), Some(bytes));
        assert_eq!(
            unbase64_32(text.trim_end_matches('=').as_bytes()),
            Some(bytes)
        );
        let url_safe = text.replace('+', "-").replace('/', "_");
        assert_eq!(unbase64_32(url_safe.as_bytes()), Some(bytes));
    }
}

#[test]
fn base64_with_bits_beyond_the_last_byte_is_refused() {
    let zeros = "A".repeat(43);
    assert_eq!(unbase64_32(zeros.as_bytes()), Some([0; 32]));
    let stray = format!("{}B", "A".repeat(42));
    assert_eq!(unbase64_32(stray.as_bytes()), None);
}

#[test]
fn pem_lines_have_64_characters() {
    let text = pem("CERTIFICATE", &[0; 50]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "-----BEGIN CERTIFICATE-----");
    assert_eq!((lines[1].len(), lines[2].len()), (64, 4));
    assert_eq!(lines[3], "-----END CERTIFICATE-----");
}

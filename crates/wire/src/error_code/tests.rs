use super::TransportErrorCode as Code;

#[test]
fn codes_print_their_rfc_names() {
    assert_eq!(Code::from_u64(0x0a).to_string(), "PROTOCOL_VIOLATION");
    assert_eq!(
        Code::from_u64(0x11).to_string(),
        "VERSION_NEGOTIATION_ERROR"
    );
    assert_eq!(Code::from_u64(0x12).to_string(), "error 0x12");
    assert_eq!(Code::crypto(40).to_string(), "CRYPTO_ERROR (TLS alert 40)");
    for code in 0..=0x11 {
        assert!(!Code::from_u64(code).to_string().starts_with("error"));
    }
}

#[test]
fn only_0x100_to_0x1ff_are_tls_alerts() {
    assert_eq!(Code::crypto(0).as_u64(), 0x100);
    assert_eq!(Code::from_u64(0x1ff).is_crypto(), Some(255));
    for code in [0, 0xff, 0x200, 0x1_0100, u64::MAX] {
        assert_eq!(Code::from_u64(code).is_crypto(), None);
    }
}

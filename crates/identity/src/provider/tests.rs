use rustls::NamedGroup;

use super::*;

#[test]
fn the_product_prefers_what_the_cpu_does_fast() {
    assert_eq!(
        CipherPreference::product(true).to_string(),
        "aes128gcm,aes256gcm,chacha20"
    );
    assert_eq!(
        CipherPreference::product(false).to_string(),
        "chacha20,aes128gcm,aes256gcm"
    );
    assert_eq!(
        KeyExchangePreference::default().to_string(),
        "x25519mlkem768,x25519,p256"
    );
}

#[test]
fn lists_of_names_parse_back() {
    for text in ["aes256gcm", "chacha20,aes128gcm"] {
        assert_eq!(text.parse::<CipherPreference>().unwrap().to_string(), text);
    }
    for text in ["p256", "x25519,x25519mlkem768"] {
        assert_eq!(
            text.parse::<KeyExchangePreference>().unwrap().to_string(),
            text
        );
    }
    let spaced: CipherPreference = "chacha20, aes128gcm".parse().unwrap();
    assert_eq!(spaced.as_slice(), [Cipher::ChaCha20, Cipher::Aes128Gcm]);
}

#[test]
fn wrong_lists_say_what_is_wrong() {
    for (text, error) in [
        ("", PreferenceError::Empty),
        ("rc4", PreferenceError::UnknownCipher("rc4".into())),
        ("aes128gcm,", PreferenceError::UnknownCipher(String::new())),
        (
            "chacha20,chacha20",
            PreferenceError::Repeated("chacha20".into()),
        ),
    ] {
        assert_eq!(text.parse::<CipherPreference>(), Err(error), "{text}");
    }
    assert_eq!(
        "p521".parse::<KeyExchangePreference>(),
        Err(PreferenceError::UnknownKeyExchange("p521".into()))
    );
    assert_eq!(CipherPreference::new(&[]), Err(PreferenceError::Empty));
}

#[test]
fn the_provider_holds_what_was_asked_in_that_order() {
    let narrowed = provider(&Cipher::ChaCha20.into(), &"p256,x25519".parse().unwrap());
    let suites: Vec<_> = narrowed
        .cipher_suites
        .iter()
        .map(|suite| suite.suite())
        .collect();
    assert_eq!(suites, [CipherSuite::TLS13_CHACHA20_POLY1305_SHA256]);
    let groups: Vec<_> = narrowed
        .kx_groups
        .iter()
        .map(|group| group.name())
        .collect();
    assert_eq!(groups, [NamedGroup::secp256r1, NamedGroup::X25519]);
}

#[test]
fn initial_packets_use_aes_128_even_when_it_is_not_offered() {
    let groups = KeyExchangePreference::default();
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20] {
        let suite = initial_suite(&provider(&cipher.into(), &groups));
        assert_eq!(
            suite.suite.common.suite,
            CipherSuite::TLS13_AES_128_GCM_SHA256
        );
    }
}

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};

use super::*;

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_770_000_000))
}

/// A certificate of this key from the first of May to this day.
fn certificate(algorithm: &'static SignatureAlgorithm, last: u8) -> Identity {
    let pair = KeyPair::generate_for(algorithm).unwrap();
    signed(&pair, last)
}

fn signed(pair: &KeyPair, last: u8) -> Identity {
    let mut params = CertificateParams::new(vec!["boat.example".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2026, 5, 1);
    params.not_after = date_time_ymd(2026, 5, last);
    let certificate = params.self_signed(pair).unwrap().der().clone();
    let key = PrivatePkcs8KeyDer::from(pair.serialize_der());
    Identity::from_der(vec![certificate], PrivateKeyDer::Pkcs8(key)).unwrap()
}

#[test]
fn our_own_certificates_are_taken_by_their_hash() {
    let ours = Identity::generate_dev(&["localhost"], now()).unwrap();
    assert_eq!(ours.hash_obstacle(), None);
}

#[test]
fn a_certificate_of_more_than_14_days_is_refused_and_told_its_days() {
    let p256 = &rcgen::PKCS_ECDSA_P256_SHA256;
    assert_eq!(certificate(p256, 14).hash_obstacle(), None);
    // Both ends count: a second more than 14 days.
    for (last, days) in [(15, 15), (31, 30)] {
        let obstacle = certificate(p256, last).hash_obstacle().unwrap();
        assert_eq!(obstacle, HashObstacle::Lifetime { days });
        let text = obstacle.to_string();
        assert!(text.contains(&format!("{days} days")) && text.contains("14 at most"));
    }
}

#[test]
fn a_key_other_than_p_256_is_refused_and_told_its_kind() {
    let rsa = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let rsa =
        aws_lc_rs::encoding::AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&rsa).unwrap();
    let rsa = KeyPair::try_from(rsa.as_ref()).unwrap();
    for (identity, kind) in [
        (signed(&rsa, 8), "RSA"),
        (certificate(&rcgen::PKCS_ED25519, 8), "Ed25519"),
        (
            certificate(&rcgen::PKCS_ECDSA_P384_SHA384, 8),
            "ECDSA with P-384",
        ),
    ] {
        assert_eq!(identity.hash_obstacle(), Some(HashObstacle::Key(kind)));
    }
    let raw = Identity::generate_raw_key().unwrap();
    assert_eq!(raw.hash_obstacle(), Some(HashObstacle::RawKey));
}

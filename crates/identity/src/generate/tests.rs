use super::*;
use crate::x509;

const NOW: u64 = 1_767_225_600;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

#[test]
fn a_dev_certificate_lives_14_days_less_a_second() {
    let identity = Identity::generate_dev(&["a.test", "*.b.test", "192.0.2.1", "::1"], at(NOW));
    let identity = identity.unwrap();
    let leaf = x509::parse(&identity.certificate_chain()[0]).unwrap();
    assert_eq!(leaf.not_before, at(NOW - 3600));
    assert_eq!(
        leaf.not_after.as_secs() - leaf.not_before.as_secs(),
        14 * 86_400 - 1
    );
    assert_eq!(x509::subject_text(leaf.subject), "CN=a.test");
    // id-ecPublicKey with prime256v1: the SPKI of P-256 has 91 bytes.
    assert_eq!(identity.spki().len(), 91);
}

#[test]
fn an_ed25519_certificate_lives_as_long_as_asked() {
    let year = Duration::from_secs(365 * 86_400);
    let identity = Identity::generate_ed25519(&["a.test"], at(NOW), year).unwrap();
    let leaf = x509::parse(&identity.certificate_chain()[0]).unwrap();
    assert_eq!(leaf.not_after, at(NOW - 3600 + 365 * 86_400));
    assert_eq!(identity.spki().len(), 44);
}

#[test]
fn a_seed_gives_the_public_key_of_rfc_8032() {
    // RFC 8032 §7.1, test 1.
    let seed = [
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c,
        0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae,
        0x7f, 0x60,
    ];
    let identity = Identity::raw_key_from_seed(&seed).unwrap();
    assert_eq!(identity.spki()[12..16], [0xd7, 0x5a, 0x98, 0x01]);
}

#[test]
fn two_calls_give_two_keys() {
    let pins = [(); 2].map(|()| Identity::generate_raw_key().unwrap().key_pin());
    assert_ne!(pins[0], pins[1]);
}

#[test]
fn names_that_are_none_are_refused() {
    for name in ["", "a b", "a..b", "*.192.0.2.1", "bücher.test", "*"] {
        let error = Identity::generate_dev(&[name], at(NOW)).unwrap_err();
        assert_eq!(error, GenerateError::BadName(name.to_owned()));
    }
}

#[test]
fn clocks_at_the_ends_of_time_are_survived() {
    let none: [&str; 0] = [];
    assert!(Identity::generate_dev(&none, at(0)).is_ok());
    for late in [LAST_SECOND, u64::MAX / 2, u64::MAX] {
        let error = Identity::generate_dev(&none, at(late)).unwrap_err();
        assert_eq!(error, GenerateError::DateOutOfRange);
    }
    let ages = Identity::generate_ed25519(&none, at(NOW), Duration::MAX);
    assert_eq!(ages.unwrap_err(), GenerateError::DateOutOfRange);
}
